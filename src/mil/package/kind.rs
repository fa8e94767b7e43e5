//! Kinds of Core ML models: which of them are read, and what to say of the others.

use super::error::{ErrorKind, PackageError, quoted};
use super::pipeline::{Stage, stage_name};
use super::schema::model;

/// The fields of `Model` for models that consist of others: classifiers, regressors, and any.
const PIPELINES: std::ops::RangeInclusive<u32> = 200..=202;
/// The one of them that has no purpose of its own.
pub(super) const PLAIN_PIPELINE: u32 = 202;

/// The help for whatever coremltools can convert again.
const RECONVERT: &str = "re-convert with convert_to=\"mlprogram\"";
/// The help for a stage that no converter makes an ML program of.
const IN_THE_APPLICATION: &str = "run the ML programs of the pipeline, and do this stage in the application";

/// A kind of model by its field of `Model`, its name, and what it does where that is all there is to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    field: u32,
    pub(super) name: &'static str,
    pub(super) does: &'static str,
}

const fn kind(field: u32, name: &'static str, does: &'static str) -> Kind {
    Kind { field, name, does }
}

pub(super) const ML_PROGRAM: Kind = kind(model::ML_PROGRAM, "mlProgram", "");
pub(super) const PIPELINE: Kind = kind(PLAIN_PIPELINE, "pipeline", "");

/// The kinds that are neither ML programs nor pipelines.
const OTHERS: &[Kind] = &[
    kind(300, "glmRegressor", ""),
    kind(301, "supportVectorRegressor", ""),
    kind(302, "treeEnsembleRegressor", ""),
    kind(303, "neuralNetworkRegressor", ""),
    kind(304, "bayesianProbitRegressor", ""),
    kind(400, "glmClassifier", ""),
    kind(401, "supportVectorClassifier", ""),
    kind(402, "treeEnsembleClassifier", ""),
    kind(403, "neuralNetworkClassifier", ""),
    kind(404, "kNearestNeighborsClassifier", ""),
    kind(500, "neuralNetwork", ""),
    kind(501, "itemSimilarityRecommender", ""),
    kind(555, "customModel", "runs code of the application"),
    kind(556, "linkedModel", "stands for a model in another file"),
    kind(560, "classConfidenceThresholding", "keeps the classes above a confidence"),
    kind(600, "oneHotEncoder", "turns a category into a vector with a single 1"),
    kind(601, "imputer", "fills in missing values"),
    kind(602, "featureVectorizer", "joins its inputs into one array"),
    kind(603, "dictVectorizer", "turns a dictionary into an array"),
    kind(604, "scaler", "shifts and scales its input"),
    kind(606, "categoricalMapping", "maps categories to numbers or back"),
    kind(607, "normalizer", "divides its input by its norm"),
    kind(609, "arrayFeatureExtractor", "picks elements of an array"),
    kind(610, "nonMaximumSuppression", "keeps the best of overlapping boxes"),
    kind(900, "identity", "passes its input on"),
    kind(2000, "textClassifier", ""),
    kind(2001, "wordTagger", ""),
    kind(2002, "visionFeaturePrint", "computes features of an image with a network of the system"),
    kind(2003, "soundAnalysisPreprocessing", "turns sound into a spectrogram"),
    kind(2004, "gazetteer", ""),
    kind(2005, "wordEmbedding", ""),
    kind(2006, "audioFeaturePrint", "computes features of sound with a network of the system"),
    kind(3000, "serializedModel", ""),
];

impl Kind {
    /// The kind that a field of `Model` stands for, if it stands for one.
    pub(super) fn of(field: u32) -> Option<Kind> {
        match field {
            model::ML_PROGRAM => Some(ML_PROGRAM),
            field if is_pipeline(field) => Some(PIPELINE),
            field => other(field),
        }
    }

    /// The error for a model of this kind.
    pub(super) fn refusal(self) -> PackageError {
        let name = self.name;
        let (message, help) = match self.does {
            "" => (format!("is a {name} model; only ML programs (mlProgram) are supported"), RECONVERT),
            does => {
                (format!("is a {name} model, which {does}; there is no ML program in it"), IN_THE_APPLICATION)
            }
        };
        PackageError::new(ErrorKind::Unsupported, message).with_help(help)
    }
}

/// Whether a field of `Model` holds a pipeline of other models.
pub(super) fn is_pipeline(field: u32) -> bool {
    PIPELINES.contains(&field)
}

/// The kind of model that a field of `Model` stands for, if it is neither an ML program nor a pipeline.
pub(super) fn other(field: u32) -> Option<Kind> {
    OTHERS.iter().copied().find(|kind| kind.field == field)
}

/// The error for a pipeline where a single ML program is needed.
pub(super) fn pipeline(stages: &[Stage]) -> PackageError {
    let message = format!("is a pipeline, several models that run one after the other: {}", list(stages));
    let error = PackageError::new(ErrorKind::Pipeline, message);
    match stages.iter().find(|stage| stage.is_program()) {
        Some(stage) => {
            error.with_help(format!("name one of its ML programs after the path: PATH/{}", stage.name))
        }
        None => error.with_help(format!("none of them is an ML program; {RECONVERT}")),
    }
}

/// The error for a stage that a pipeline does not have.
pub(super) fn no_such_stage(index: usize, stages: &[Stage]) -> PackageError {
    let name = quoted(&stage_name(index));
    PackageError::new(ErrorKind::Missing, format!("the pipeline has no {name}; it has {}", list(stages)))
}

fn list(stages: &[Stage]) -> String {
    const SHOWN: usize = 8;
    let mut shown: Vec<String> =
        stages.iter().take(SHOWN).map(|stage| format!("{} ({})", stage.name, stage.kind)).collect();
    match stages.len() {
        0 => "it has none".to_owned(),
        n => {
            shown.extend((n > SHOWN).then(|| "…".to_owned()));
            shown.join(", ")
        }
    }
}
