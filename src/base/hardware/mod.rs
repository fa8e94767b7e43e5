//! The machine: what it is, which profile it matches and why, and what may disturb a measurement on it.

mod conditions;
#[cfg(any(target_os = "macos", coreml_standin))]
mod foundation;
mod keys;
mod linux;
mod machine;
mod macos;
mod matching;
pub mod memory;
mod newer;
mod profile;
mod source;
mod system;
#[cfg(target_os = "macos")]
mod task_memory;

pub use conditions::{Conditions, Noise, PowerSource};
#[cfg(any(target_os = "macos", coreml_standin))]
pub use foundation::os_version;
pub use machine::Machine;
pub use matching::{Match, match_profile};
pub use newer::newer_than_known;
pub use profile::{
    Band, BandMetric, BandPercentile, Bandwidth, BatchPolicy, Gating, MaxRegression, ProductionMix, Profile,
    Profiles, Residency, SpeedTargets,
};
pub use source::{Source, System};
pub use system::{OsVersion, ProcessMemory, SystemState, Thermal, process_memory, system_state};
