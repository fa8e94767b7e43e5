//! Smaller weights: constants become operations that give them back from fewer bits.
//!
//! [`apply`] replaces the weights of a model by what a [`Plan`] says. Nothing is encoded yet then: each weight is
//! read, encoded and written piece by piece while the package is written, so memory stays small however large a
//! weight is. [`Compression::log`] tells afterwards what each weight lost.

mod choose;
mod encoder;
mod encoding;
mod error;
mod gptq;
mod histogram;
mod layout;
mod linear;
mod log;
mod palette;
mod passthrough;
mod plan;
mod precision;
mod rewrite;
mod solution;
mod sparse;
mod stored;
#[cfg(test)]
mod testing;
mod units;
mod vector;
mod weight;

pub use choose::{Candidate, Choice, choose};
pub use error::CompressError;
use error::Result;
pub use gptq::{Correction, Gram, SolvedRows, Solver, check_weight};
pub use log::{Calibration, ExpectedLoss, Log, TensorLog, Totals};
pub(crate) use plan::Candidate as PlannedWeight;
pub use plan::{Plan, Rule};
pub use precision::{Granularity, Linear, Palette, Pattern, Precision};
pub use rewrite::{Compression, Raised, apply, apply_solved};
pub use solution::{SolutionReader, SolutionWriter, Solutions};
