//! The evaluation flow: a bundle on a runtime becomes a report, a gate judges it, and a report becomes a baseline.

pub(crate) mod asset_summary;
pub mod bench;
pub mod bless;
pub mod compare;
pub mod gate;
pub mod rerun;
pub(crate) mod summary;
pub mod sweep;

pub use bench::{BenchRequest, EvaluateError, measure};
pub use gate::{Baseline, GateRules};

#[cfg(test)]
mod testing;
