//! What can go wrong when a package is loaded or executed.

use crate::mil::propagate::Finding;

/// Why a package cannot be loaded or a prediction failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RuntimeError {
    /// Operations that this runtime cannot execute or that are wrong.
    #[error("{}", join(.0))]
    Program(Vec<Finding>),
    /// The package has no such function.
    #[error("no function `{name}`; the package has {}", .known.join(", "))]
    NoFunction {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Inputs that do not fit, all of them.
    #[error("function `{function}`: {}", .problems.join("; "))]
    Inputs {
        /// The function.
        function: String,
        /// What is wrong, input by input.
        problems: Vec<String>,
    },
    /// An operation failed on the data it got.
    #[error("{0}")]
    Failed(Finding),
    /// A state that does not fit.
    #[error("state `{name}`: {problem}")]
    State {
        /// The state.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The machine cannot do what was asked.
    #[error("{0}")]
    Environment(String),
}

fn join(findings: &[Finding]) -> String {
    const SHOWN: usize = 10;
    let mut lines: Vec<String> = findings.iter().take(SHOWN).map(ToString::to_string).collect();
    if findings.len() > SHOWN {
        lines.push(format!("and {} more", findings.len() - SHOWN));
    }
    lines.join("; ")
}
