//! Is a package right, and is it good? Right: its logits against those of a reference with the same weights, for every
//! cache form and length, prompt and steps. Good: what it loses against the checkpoint.
//!
//! The reference continues each prompt greedily; the package is given the same tokens and its logits are compared
//! at every position, so one run serves numbers and greedy tokens alike.

mod calibration;
mod compare;
mod encoder;
mod error;
mod judge;
mod metrics;
mod oracle;
mod prompts;
mod quality;
mod reference;
mod report;
mod stored;
mod teacher_forcing;
mod thresholds;
pub mod trace;

pub use calibration::{Sample, SampleError, parse_samples, pieces};
pub use compare::{Candidate, Options, compare};
pub use encoder::{ENCODER_SCHEMA, EncoderLength, EncoderReport, EncoderTextResult, compare_encoder};
pub use error::VerifyError;
pub use judge::judge;
pub use metrics::{Comparison, LogitMetrics, NonFinite, Summary, top};
pub use oracle::{EncoderOracle, Oracle, OracleError, Point, Trace};
pub use prompts::{PROMPTS, pseudo_random};
pub use quality::{quality_length, quality_loss, text_loss};
pub use reference::{ReferenceOptions, ReferenceOutput, ReferenceReport, compare_with_reference};
pub use report::{Cell, Difference, Drift, Failure, Phase, Report, SCHEMA};
pub use stored::{Misstored, Overlaid, Stored, StoredWeights};
pub use teacher_forcing::{BundleOracle, TeacherForced};
pub use thresholds::{File, QualitySection, Section, ThresholdError, Thresholds};
