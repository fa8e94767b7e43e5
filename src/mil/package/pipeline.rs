//! Pipelines: models that run one after the other, each of which is opened by its place.
//!
//! The models of a compiled pipeline are the folders `model0`, `model1`, … in it. The same names select a model of a
//! pipeline in a package: `PATH/model0` opens the first one.

use std::path::{Path, PathBuf};

use super::compiled;
use super::decode::{model_at, models};
use super::error::Result;
use super::kind::{self, Kind};
use super::source::Source;

/// What the folders of the models in a compiled pipeline start with.
const PREFIX: &str = "model";

/// A pipeline as far as its models are known by kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// Where it was opened.
    pub path: PathBuf,
    /// Its models in the order in which they run.
    pub stages: Vec<Stage>,
}

/// One model of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// What it is opened by, such as `model0`.
    pub name: String,
    /// Its kind, as the format calls it, such as `mlProgram` or `nonMaximumSuppression`.
    pub kind: &'static str,
    /// What a model of its kind does; empty where that depends on the model.
    pub does: &'static str,
    /// The name that the pipeline gives it; empty if it gives none.
    pub title: String,
}

impl Stage {
    pub(super) fn new(index: usize, kind: Option<Kind>, title: String) -> Stage {
        let (kind, does) = kind.map_or(("unknown", ""), |kind| (kind.name, kind.does));
        Stage { name: stage_name(index), kind, does, title }
    }

    /// Whether it is an ML program, which can be opened as a package.
    pub fn is_program(&self) -> bool {
        self.kind == kind::ML_PROGRAM.name
    }

    /// Whether it is a pipeline itself.
    pub fn is_pipeline(&self) -> bool {
        self.kind == kind::PIPELINE.name
    }
}

impl Pipeline {
    /// The pipeline at a path; `None` if there is a model of another kind.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<Pipeline>> {
        let source = Source::open(path.as_ref())?;
        let stages = match source.is_compiled {
            true => compiled::stages(&source.files)?,
            false => {
                let model = source.package_model()?;
                let found =
                    model_at(&model.bytes, &source.stage).and_then(|(bytes, offset)| models(bytes, offset));
                found.map_err(|e| e.in_file(&model.path))?
            }
        };
        Ok(stages.map(|stages| Pipeline { path: source.path, stages }))
    }

    /// Where one of its models is opened.
    pub fn stage_path(&self, stage: &Stage) -> PathBuf {
        self.path.join(&stage.name)
    }
}

/// The name of a model by its place.
pub(super) fn stage_name(index: usize) -> String {
    format!("{PREFIX}{index}")
}

/// The place of a model by its name.
pub(super) fn stage_index(name: &str) -> Option<usize> {
    let digits = name.strip_prefix(PREFIX)?;
    let index: usize = digits.parse().ok()?;
    (stage_name(index) == name).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_name_a_stage() {
        assert_eq!([stage_index("model0"), stage_index("model12")], [Some(0), Some(12)]);
        for other in ["model", "model01", "model+1", "model-1", "Model0", "model0x", "weights"] {
            assert_eq!(stage_index(other), None, "{other}");
        }
    }
}
