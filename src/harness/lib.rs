//! The harness: runs a bundle in fresh processes and records every sample.
//!
//! A [`Plan`] is a configuration fitted to a bundle. [`run()`] starts a worker per launch through a [`Launcher`], listens
//! to it line by line and tells what happens as [`Event`]s; [`assemble()`] makes a report of what was
//! observed. A worker runs the generator and nothing else inside timed regions. All time comes from a clock
//! that is handed in, so that tests set it by hand.

mod assemble;
mod child;
mod compression;
mod config;
mod conversation;
mod depth;
pub mod encode;
mod energy;
pub mod eval;
mod form;
pub mod generate;
mod generation;
mod null;
mod open;
mod overhead;
mod plan;
pub mod predict;
mod probe;
mod prompts;
mod protocol;
mod provenance;
pub mod records;
mod requests;
mod residency;
mod run;
mod schedule;
mod slow_down;
mod soak;
pub mod tensor_files;
pub mod verify;
mod worker;

pub use assemble::{Context, assemble};
pub use child::{Child, Incoming, LaunchError, Launcher, Processes, WorkerExit};
pub use config::{BenchConfig, PromptConfig, PromptSource};
pub use depth::{AtDepth, DepthUse};
pub use form::{PROBE_STEPS, choose_form};
pub use plan::{Plan, PlanError};
pub use predict::PredictConfig;
pub use prompts::BUILT_IN_TEXT;
pub use protocol::{GenerateUse, Job, Message, ModelUse, Work};
pub use provenance::{folder_name, header};
pub use residency::PlannedPlacement;
pub use run::{BenchEnv, Event, Observations, run};
pub use schedule::{Slot, schedule};
pub use worker::{serve, serve_if_worker, serve_standard};

#[cfg(any(test, feature = "testing"))]
pub mod testing {
    //! What tests of other crates are made of.

    /// The description of a bundle with one layer that does nothing.
    pub fn null_manifest(seq_lens: &[usize], batch: usize) -> anemeter_convert::bundle::Manifest {
        super::null::manifest(seq_lens, batch)
    }
}

#[cfg(test)]
mod tests;
