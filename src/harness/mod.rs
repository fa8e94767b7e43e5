//! The harness: runs a bundle in fresh processes and records every sample.
//!
//! A [`Plan`] is a configuration fitted to a bundle. [`run()`] starts a worker per launch through a [`Launcher`], listens
//! to it line by line and tells what happens as [`Event`]s; [`assemble()`] makes a report of what was
//! observed. A worker runs the generator and nothing else inside timed regions. All time comes from a clock
//! that is handed in, so that tests set it by hand.

mod assemble;
mod child;
mod config;
mod conversation;
mod energy;
mod form;
mod memory;
mod null;
mod open;
mod overhead;
mod plan;
mod probe;
mod prompts;
mod protocol;
mod provenance;
mod residency;
mod run;
mod schedule;
mod slow_down;
mod soak;
mod worker;

pub use assemble::{Context, assemble};
pub use child::{Child, Ended, Incoming, Launcher, Processes};
pub use config::{BenchConfig, NumericsConfig, PromptConfig, PromptSource};
pub use form::{PROBE_STEPS, choose_form};
pub use plan::{Plan, PlanError};
pub use protocol::{Job, Message, ModelUse};
pub use provenance::{folder_name, header};
pub use residency::{Placed, PlacedFunction};
pub use run::{Event, Observations, Surroundings, run};
pub use schedule::{Slot, schedule};
pub use worker::serve;

#[cfg(test)]
pub(crate) use null::manifest as null_manifest;

#[cfg(test)]
mod tests;
