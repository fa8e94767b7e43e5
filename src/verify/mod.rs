//! Is a package right? Its logits against those of a reference, for every cache form and length, prompt and steps.
//!
//! The reference continues each prompt greedily; the package is given the same tokens and its logits are compared
//! at every position, so one run serves numbers and greedy tokens alike.

mod calibration;
mod compare;
mod driven;
mod error;
mod judge;
mod metrics;
mod prompts;
mod report;
mod thresholds;
pub mod trace;

pub use calibration::{Sample, parse_samples, pieces};
pub use compare::{Candidate, Options, compare};
pub use driven::{Driven, DrivenReference};
pub use error::VerifyError;
pub use judge::judge;
pub use metrics::{Comparison, Gathered, NonFinite, Summary, top};
pub use prompts::{PROMPTS, pseudo_random};
pub use report::{Cell, Difference, Drift, Failure, Phase, Report, SCHEMA};
pub use thresholds::{File, Section, Thresholds};
