//! The machine: what it is, which profile it matches and why, and what may disturb a measurement on it.

mod conditions;
mod keys;
mod linux;
mod machine;
mod macos;
mod matching;
mod profile;
mod source;

pub use conditions::{Conditions, Noise, PowerSource};
pub use machine::Machine;
pub use matching::{Match, match_profile};
pub use profile::{
    Band, BandMetric, BandPercentile, Bandwidth, BatchPolicy, Gating, MaxRegression, Profile, Profiles,
    Residency, ShapeMix, SpeedTargets,
};
pub use source::{Source, System};
