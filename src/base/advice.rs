//! What can be done about an error, as data: a program says which of its options does it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use crate::vocabulary::{Choice, KvForm};

/// An error that may know what can be done about it.
pub trait Advice: Error {
    /// What can be done about it, where that is known.
    fn remedy(&self) -> Option<Remedy> {
        None
    }

    /// Whether the machine or its software is to blame, and not what was given.
    fn is_environment(&self) -> bool {
        false
    }
}

/// What can be done about an error.
///
/// Its text names no option, so that it is true of every program; [`Remedy::Other`] is for what no option does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Accept a session of a busy machine, giving the reason.
    AcceptNoise,
    /// Accept a regression, giving the reason.
    AcceptRegression,
    /// Accept what was measured differently, giving the reason.
    AcceptOtherMeasurement,
    /// Compare across hardware profiles.
    AllowCrossHardware,
    /// Bless a report.
    Bless,
    /// Bless in the repository, or without one.
    BlessInRepository,
    /// Choose the codes of weights by a text.
    Calibrate {
        /// What can be done without one.
        instead: String,
    },
    /// Remove compiled models.
    ClearCompileCache,
    /// Choose the functions to predict.
    ChooseFunctions,
    /// Commit first, or bless without a repository.
    CommitFirst,
    /// Compare what two bundles have in common.
    CommonWorkload,
    /// Make vectors of texts.
    EmbedTexts,
    /// Evaluate the bundle again.
    EvaluateAgain,
    /// Export the checkpoint.
    Export,
    /// Export the checkpoint of an encoder.
    ExportEncoder,
    /// Export the checkpoint, or give a package.
    ExportOrPackage,
    /// Export the checkpoint as Core AI assets.
    ExportAsset,
    /// Export another KV cache form.
    ExportKvForm {
        /// The form.
        wanted: KvForm,
        /// What the bundle has.
        has: Vec<KvForm>,
    },
    /// Download a model of the Hugging Face Hub into its cache.
    FetchModel(
        /// The model's name.
        String,
    ),
    /// Say how a language model of others is driven.
    GiveContract,
    /// Give the shapes or the values of inputs.
    GiveShape,
    /// Give the prompt as token ids.
    GiveTokenIds,
    /// Look up the functions of a package.
    ListFunctions,
    /// Look up the rules of the linter.
    ListRules,
    /// Look up the weights of a package.
    ListWeights,
    /// Benchmark again.
    Measure,
    /// Benchmark with more launches.
    MeasureMoreLaunches,
    /// Benchmark again at full speed.
    MeasureUnslowed,
    /// Allow more time for loading.
    MoreLoadTime,
    /// Let a prediction take more memory or carry out more operations.
    MoreBudget,
    /// Start a baseline with this session.
    NewBaseline,
    /// Run elsewhere than on the Neural Engine.
    OtherComputeUnits,
    /// Run another KV cache form.
    OtherKvForm,
    /// Execute it by another runtime.
    OtherRuntime,
    /// Replace what is there.
    Overwrite,
    /// Use the prompt without a chat template.
    RawPrompt,
    /// Judge by the hardware profiles of the measurement.
    SameProfiles,
    /// Give the workload of the measurement.
    SameWorkload,
    /// Export trained sequence lengths only.
    TrainedSeqLens,
    /// Verify the bundle.
    Verify,
    /// Verify the bundle again.
    VerifyAgain,
    /// Check all baselines.
    VerifyBaselines,
    /// Something that no option does, in words.
    Other(Cow<'static, str>),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Remedy::AcceptNoise => "measure again while nothing else runs, or give a reason to accept it",
            Remedy::AcceptRegression => "mend it, or give a reason to accept it",
            Remedy::AcceptOtherMeasurement => {
                "measure as the baseline was measured, or give a reason to accept it"
            }
            Remedy::AllowCrossHardware => {
                "bless a report of this hardware profile, or allow a comparison across hardware"
            }
            Remedy::Bless => "bless a report of this machine, model and workload",
            Remedy::BlessInRepository => {
                "bless in the repository that the bundle was exported from, or without git to try it out"
            }
            Remedy::Calibrate { instead } => {
                return write!(f, "{instead}, or have codes chosen by a text (language models only)");
            }
            Remedy::ClearCompileCache => "remove compiled models",
            Remedy::ChooseFunctions => "choose the functions to predict",
            Remedy::CommitFirst => "commit first, or bless without git to try it out",
            Remedy::CommonWorkload => {
                "choose what both bundles have, or export one again with the settings of the other"
            }
            Remedy::EmbedTexts => "make vectors or scores of texts with it",
            Remedy::EvaluateAgain => "evaluate the bundle again, or remove the file",
            Remedy::Export => "export a checkpoint",
            Remedy::ExportEncoder => "export the checkpoint of an encoder, such as BERT or an embedder",
            Remedy::ExportOrPackage => {
                "give a package, a folder of packages, or a bundle, which is what an export writes"
            }
            Remedy::ExportAsset => "export the checkpoint as Core AI assets",
            Remedy::ExportKvForm { wanted, has } => {
                let has: Vec<&str> = has.iter().map(|form| form.name()).collect();
                return write!(f, "it has {}; export with `{wanted}` for another", has.join(", "));
            }
            Remedy::FetchModel(_) => "download it into the cache",
            Remedy::GiveContract => {
                "say by a contract how it is driven, or measure single predictions of its functions"
            }
            Remedy::GiveShape => "give a shape that can be made up, or a file with inputs",
            Remedy::GiveTokenIds => "give token ids",
            Remedy::ListFunctions => "look up the functions of the package",
            Remedy::ListRules => "look up the rules",
            Remedy::ListWeights => "look up the names of weights",
            Remedy::Measure => "measure again",
            Remedy::MeasureMoreLaunches => "measure with more launches",
            Remedy::MeasureUnslowed => "measure again without slowing down",
            Remedy::MoreBudget => "let the prediction take more, if the package is to be trusted",
            Remedy::MoreLoadTime => {
                "run it again, since Core ML keeps what it finishes meanwhile, or allow more time"
            }
            Remedy::NewBaseline => "bless it as a new baseline",
            Remedy::OtherComputeUnits => "lint it to see what keeps it off, or run it on other compute units",
            Remedy::OtherKvForm => "run the KV cache form `io`, or let a probe choose the form",
            Remedy::OtherRuntime => {
                "choose a runtime that executes it: `coreai` for `.aimodel`, another for Core ML packages"
            }
            Remedy::Overwrite => "choose another path, or replace what is there",
            Remedy::RawPrompt => "use the prompt without a chat template",
            Remedy::SameWorkload => "give the workload that it was measured with",
            Remedy::SameProfiles => {
                "measure again with the profiles that are used here, or use those it was measured with"
            }
            Remedy::TrainedSeqLens => "export trained sequence lengths only, or train the missing one",
            Remedy::Verify => "verify the bundle against its checkpoint, then measure again",
            Remedy::VerifyAgain => "verify the bundle again, or remove the file",
            Remedy::VerifyBaselines => {
                "restore the file, from the repository for example, then check all baselines"
            }
            Remedy::Other(text) => text,
        })
    }
}

impl From<&'static str> for Remedy {
    fn from(text: &'static str) -> Remedy {
        Remedy::Other(text.into())
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Remedy {
        Remedy::Other(text.into())
    }
}
