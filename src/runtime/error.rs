//! What can go wrong when a package is loaded or executed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::reason::{self, Reason};
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::vocabulary::RuntimeName;
use anemeter_coreai::AssetError;
use anemeter_mil::package::PackageError;
use anemeter_mil::propagate::Finding;

/// Why a package cannot be loaded or a prediction failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum RuntimeError {
    /// Operations that this runtime cannot execute or that are wrong.
    #[error("{}", join(.0))]
    Program(Vec<Finding>),
    /// The package has no such function.
    #[error("no function `{name}`; the package has {}", .known.join(", "))]
    NoFunction {
        /// What was asked for.
        name: String,
        /// Names that are available.
        known: Vec<String>,
    },
    /// Inputs that do not fit, all of them.
    #[error("function `{function}`: {}", .problems.join("; "))]
    Inputs {
        function: String,
        /// What is wrong, input by input.
        problems: Vec<String>,
    },
    /// An operation failed on the data it got.
    #[error("{0}")]
    Failed(Finding),
    /// It needs more than it may have.
    #[error("{0}")]
    Budget(Finding),
    /// A state that does not fit.
    #[error("state `{name}`: {problem}")]
    State { name: String, problem: String },
    /// Core ML refused.
    #[error("Core ML cannot {doing}: {}", chained(.reasons))]
    CoreMl {
        /// What it was to do; completes "cannot …".
        doing: String,
        /// Its reasons, the outermost first; none if it gave none.
        reasons: Vec<Reason>,
    },
    /// Something took too long.
    #[error("Core ML did not {doing} within {:.0} s: {meanwhile}", .waited.as_secs_f64())]
    TimedOut {
        /// What it was to do; completes "cannot …".
        doing: String,
        /// What it is at.
        meanwhile: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Core ML cannot make the states of a function.
    #[error("Core ML cannot make the states of the function `{function}`")]
    NoState { function: String },
    /// A prediction gave something else than the model declares.
    #[error("the function `{function}` gave {problem}")]
    Output { function: String, problem: String },
    /// A model of a pipeline, which Core ML only loads as a whole.
    #[error("{}: is one model of a pipeline, and Core ML loads only whole packages", .0.display())]
    StageOfPipeline(PathBuf),
    /// Core AI refused, or its worker gave something else than an answer.
    #[error("Core AI cannot {doing}: {problem}")]
    CoreAi {
        /// What it was to do; completes "cannot …".
        doing: String,
        problem: String,
    },
    /// The worker that Apple's code runs in has ended.
    #[error("Core AI cannot {doing}: its worker {ending}{}", last_lines(.printed))]
    WorkerEnded {
        /// What it was to do; completes "cannot …".
        doing: String,
        /// How it ended, such as `was ended by SIGABRT`.
        ending: String,
        /// The last lines that it printed, safe to show.
        printed: Vec<String>,
    },
    /// A file of the other framework than the runtime's.
    #[error("{}: is {found}, and the runtime `{runtime}` executes {executes}", .path.display())]
    OtherFormat {
        path: PathBuf,
        /// What it is, such as `a Core ML package`.
        found: &'static str,
        runtime: RuntimeName,
        /// What the runtime takes instead.
        executes: &'static str,
    },
    /// The package cannot be read.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The Core AI asset cannot be read.
    #[error(transparent)]
    Asset(#[from] AssetError),
    /// The machine cannot do what was asked.
    #[error("{0}")]
    Environment(String),
}

impl RuntimeError {
    /// A Core AI asset, which only the runtime `coreai` executes.
    pub(super) fn asset(path: &Path, runtime: RuntimeName) -> RuntimeError {
        let (found, executes) = ("a Core AI asset", "Core ML packages");
        RuntimeError::OtherFormat { path: path.to_owned(), found, runtime, executes }
    }

    /// Core ML refused; `doing` completes "cannot …".
    #[cfg(any(target_os = "macos", coreml_standin))]
    pub(super) fn core_ml(doing: impl Into<String>, reasons: Vec<Reason>) -> RuntimeError {
        RuntimeError::CoreMl { doing: doing.into(), reasons }
    }
}

impl Advice for RuntimeError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            RuntimeError::CoreMl { reasons, .. } => Some(reason::explain(reasons)?.remedy),
            RuntimeError::NoState { .. } => Some(Remedy::OtherKvForm),
            RuntimeError::TimedOut { .. } => Some(Remedy::MoreLoadTime),
            RuntimeError::Budget(_) => Some(Remedy::MoreBudget),
            RuntimeError::Failed(finding) if finding.message.contains(MEMORY_LIMIT) => {
                Some(Remedy::MoreBudget)
            }
            RuntimeError::Package(error) => error.remedy(),
            RuntimeError::Asset(error) => error.remedy(),
            RuntimeError::OtherFormat { .. } => Some(Remedy::OtherRuntime),
            RuntimeError::StageOfPipeline(_) => Some(
                "run it on the CPU runtime, or save it as a package of its own: in coremltools, \
                 MLModel(spec.pipeline.models[0], weights_dir=model.weights_dir).save(\"stage.mlpackage\")"
                    .into(),
            ),
            _ => None,
        }
    }

    fn is_environment(&self) -> bool {
        matches!(
            self,
            RuntimeError::Environment(_)
                | RuntimeError::CoreMl { .. }
                | RuntimeError::NoState { .. }
                | RuntimeError::TimedOut { .. }
                | RuntimeError::CoreAi { .. }
                | RuntimeError::WorkerEnded { .. }
        )
    }
}

/// How the kernels end what they say of an output that is too large.
const MEMORY_LIMIT: &str = "the memory limit";

/// The innermost reason first, since it says why; then what it means, then what the outer ones say.
fn chained(reasons: &[Reason]) -> String {
    let Some((innermost, outer)) = reasons.split_last() else {
        return "it gave neither a result nor an error".to_owned();
    };
    let mut text = innermost.to_string();
    if let Some(explanation) = reason::explain(reasons) {
        text.push_str("; ");
        text.push_str(explanation.meaning);
    }
    for reason in outer.iter().rev() {
        text.push_str("; in: ");
        text.push_str(&reason.to_string());
    }
    text
}

/// What a worker printed last, a line each.
fn last_lines(lines: &[String]) -> String {
    match lines {
        [] => "; it printed nothing".to_owned(),
        lines => format!("; it printed last:\n  {}", lines.join("\n  ")),
    }
}

fn join(findings: &[Finding]) -> String {
    const SHOWN: usize = 10;
    let mut lines: Vec<String> = findings.iter().take(SHOWN).map(ToString::to_string).collect();
    if findings.len() > SHOWN {
        lines.push(format!("and {} more", findings.len() - SHOWN));
    }
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(domain: &str, code: i64, message: &str) -> Reason {
        Reason { domain: domain.to_owned(), code, message: message.to_owned() }
    }

    #[test]
    fn the_innermost_reason_comes_first_with_its_meaning() {
        let error = RuntimeError::CoreMl {
            doing: "load the function `decode_c512`".to_owned(),
            reasons: vec![
                reason("com.apple.CoreML", 0, "Unable to load the model."),
                reason("com.apple.CoreML", -14, "Failed to build the model execution plan."),
            ],
        };
        insta::assert_snapshot!(error, @"Core ML cannot load the function `decode_c512`: Failed to build the model execution plan. (com.apple.CoreML -14); the Neural Engine's compiler cannot build an execution plan for this function (-14), often because of how it keeps its state; in: Unable to load the model. (com.apple.CoreML 0)");
        assert_eq!(error.remedy(), Some(Remedy::OtherKvForm));
    }

    #[test]
    fn silence_and_slowness_are_named() {
        let silent = RuntimeError::CoreMl { doing: "compile a.mlpackage".to_owned(), reasons: vec![] };
        insta::assert_snapshot!(silent, @"Core ML cannot compile a.mlpackage: it gave neither a result nor an error");
        assert_eq!(silent.remedy(), None);
        let slow = RuntimeError::TimedOut {
            doing: "load the function `main`".to_owned(),
            meanwhile: "Core ML is compiling".to_owned(),
            waited: Duration::from_millis(900_400),
        };
        insta::assert_snapshot!(slow, @"Core ML did not load the function `main` within 900 s: Core ML is compiling");
        assert_eq!(slow.remedy(), Some(Remedy::MoreLoadTime));
    }
}
