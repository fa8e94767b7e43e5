//! What can be wrong with a baseline, each in its own words.

use super::key::Key;
use super::storage::StorageError;
use anemeter_base::advice::{Advice, Remedy};

/// A baseline that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct BaselineError {
    /// The file or object.
    pub at: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a baseline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no such baseline.
    #[error("there is no baseline for {key}")]
    Missing {
        /// What was asked for.
        key: Box<Key>,
        /// What there are baselines for.
        others: Vec<Key>,
    },
    /// It ends too soon.
    #[error("is cut short: it ends after {0} bytes, in the middle of the document")]
    CutShort(usize),
    /// It is something else.
    #[error("is not a baseline: {0}")]
    NotABaseline(String),
    /// Another version wrote it.
    #[error("has the schema `{found}`; this version reads `{expected}`")]
    OtherSchema {
        /// What it says.
        found: String,
        /// What is read.
        expected: &'static str,
    },
    /// Its content is not what was blessed.
    #[error("was changed after it was blessed: it states the digest {stated} and has {found}")]
    Tampered {
        /// The digest in the document.
        stated: String,
        /// The digest of the document.
        found: String,
    },
    /// The files are those of another key.
    #[error("is the baseline of {found}, expected {expected}")]
    OtherKey {
        /// What it is for.
        found: Box<Key>,
        /// What was asked for.
        expected: Box<Key>,
    },
    /// A session has a key of its own.
    #[error("{session} was measured for {found}, but the baseline is for {expected}")]
    OtherSession {
        /// Which session.
        session: String,
        /// What it was measured for.
        found: Box<Key>,
        /// What the baseline is for.
        expected: Box<Key>,
    },
    /// There is nothing to compare with.
    #[error("{0}")]
    Empty(String),
    /// A sample is not a number that a time can have.
    #[error("{0}, which is no time that can be measured")]
    NotANumber(String),
    /// Its parent is not in the history.
    #[error("is missing: a later baseline names it as its parent")]
    ParentMissing,
    /// It is not the one whose name it has.
    #[error("has the digest {found}, expected {expected}")]
    OtherDigest {
        /// Its digest.
        found: String,
        /// The digest in its name.
        expected: String,
    },
    /// Its number does not follow that of its parent.
    #[error("has the number {found} in its history, expected {expected}")]
    OtherNumber {
        /// What it says.
        found: u64,
        /// What follows from its place.
        expected: u64,
    },
    /// It could not be read or written.
    #[error("{0}")]
    Storage(String),
}

impl BaselineError {
    pub(super) fn new(at: String, problem: Problem) -> BaselineError {
        BaselineError { at, problem }
    }

    /// Whether there simply is no baseline.
    pub fn is_missing(&self) -> bool {
        matches!(self.problem, Problem::Missing { .. })
    }
}

impl Advice for BaselineError {
    fn remedy(&self) -> Option<Remedy> {
        Some(match &self.problem {
            Problem::Missing { others, .. } if others.is_empty() => Remedy::Bless,
            Problem::Missing { others, .. } => {
                let others: Vec<String> = others.iter().take(5).map(ToString::to_string).collect();
                format!(
                    "bless a report of this machine, model and workload; there are baselines for {}",
                    others.join(", ")
                )
                .into()
            }
            Problem::OtherSchema { .. } => "bless again with this version".into(),
            Problem::Empty(_) | Problem::NotANumber(_) => "measure again and bless that report".into(),
            Problem::Storage(_) => return None,
            _ => Remedy::VerifyBaselines,
        })
    }
}

impl From<StorageError> for BaselineError {
    /// The message of a storage names the place itself.
    fn from(error: StorageError) -> BaselineError {
        let StorageError { at, problem } = error;
        BaselineError::new(at, Problem::Storage(problem))
    }
}
