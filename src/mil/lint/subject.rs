//! What is looked at: a package, a compiled model, a pipeline of either, or a folder of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ExportConfig;
use crate::Model;
use crate::package::{ErrorKind, Package, PackageError, Pipeline};
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::files;

/// Metadata keys that name compute units.
const COMPUTE_UNITS: &[&str] = &["compute_units", "computeUnits"];

/// What is looked at.
#[derive(Debug, Default)]
pub struct Subject {
    /// Where it was found.
    pub path: String,
    /// Its packages, by name.
    pub packages: Vec<LintedPackage>,
    /// Compiled models without a package of the same name.
    pub compiled: Vec<String>,
    /// Models in the older single-file format.
    pub files: Vec<String>,
    /// Stages of pipelines that are no ML programs, which no rule concerns.
    pub stages: Vec<OtherStage>,
    /// Sequence lengths of the training, if the export says.
    pub training_seq_lens: Option<Vec<u64>>,
    /// Compute units that runs ask for, if the export says.
    pub compute_units: Option<String>,
    /// Whether it generates text, if `export.json` says: a contract does, an encoder does not.
    pub generates_text: Option<bool>,
    /// The configuration file of the export, if the export names one that is there.
    pub export_config: Option<ExportConfig>,
}

/// A stage of a pipeline that is no ML program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherStage {
    /// Where it is, such as `detector.mlpackage/model1`.
    pub name: String,
    /// Its kind, as the format calls it.
    pub kind: &'static str,
}

/// A package to be linted.
#[derive(Debug)]
pub struct LintedPackage {
    /// The name of its folder.
    pub name: String,
    /// What is in it.
    pub model: Model,
}

impl LintedPackage {
    /// The compute units that the metadata names.
    pub(super) fn compute_units(&self) -> Option<&str> {
        let texts = &self.model.metadata.user_defined;
        texts.iter().find(|(key, _)| COMPUTE_UNITS.contains(&key.as_str())).map(|(_, value)| value.as_str())
    }
}

/// The largest magnitude a calibration saw in a tensor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationRange {
    /// The function that computes it.
    pub function: String,
    /// Name of the tensor.
    pub tensor: String,
    /// The largest magnitude that was observed.
    pub max_abs: f64,
}

/// A subject that cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LintError {
    /// A package cannot be read.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing to look at.
    #[error("{}: holds no package", .0.display())]
    Empty(PathBuf),
    /// A program is not well formed.
    #[error("{package}: {fault}")]
    Program {
        /// The package.
        package: String,
        /// What is wrong.
        fault: String,
    },
    /// A waiver names a rule that does not exist.
    #[error("{}: `{rule}` is no rule", path.display())]
    NoRule {
        /// The file.
        path: PathBuf,
        /// What it names.
        rule: String,
    },
    /// A configuration or another file beside the package is wrong.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

impl Advice for LintError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            LintError::Package(error) => error.remedy(),
            LintError::Empty(_) => {
                Some("give an .mlpackage, an .mlmodelc, or the folder that an export wrote".into())
            }
            LintError::Program { .. } => Some("convert or export the model again".into()),
            LintError::NoRule { .. } => Some(Remedy::ListRules),
            LintError::Io { .. } | LintError::File { .. } => None,
        }
    }
}

/// What `export.json` says that rules want to know.
#[derive(Deserialize)]
struct ExportNotes {
    #[serde(default)]
    settings: Option<ExportSettings>,
    #[serde(default)]
    contract: Option<IgnoredAny>,
    #[serde(default)]
    encoder: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct ExportSettings {
    training_seq_lens: Option<Vec<u64>>,
    compute_units: Option<String>,
    config: Option<String>,
}

impl Subject {
    /// Opens a package or compiled model, or all of a folder.
    pub fn open(path: &Path) -> Result<Subject, LintError> {
        let mut subject = Subject { path: path.display().to_string(), ..Subject::default() };
        match extension(path) {
            "mlmodelc" => subject.add_compiled(path)?,
            "mlmodel" if path.is_file() => subject.files.push(name(path)),
            _ if Package::is_at(path) || !path.is_dir() => subject.add(path)?,
            _ => subject.open_folder(path)?,
        }
        Ok(subject)
    }

    /// Opens some packages of the folder or bundle at a path.
    pub fn of_packages(
        path: &Path,
        packages: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Subject, LintError> {
        let mut subject = Subject { path: path.display().to_string(), ..Subject::default() };
        for package in packages {
            subject.add(&package)?;
        }
        subject.read_notes(path)?;
        Ok(subject)
    }

    /// A model in memory.
    pub fn of(model: Model) -> Subject {
        let package = LintedPackage { name: "model".to_owned(), model };
        Subject { path: "model".to_owned(), packages: vec![package], ..Subject::default() }
    }

    fn add(&mut self, path: &Path) -> Result<(), LintError> {
        self.add_named(path, name(path))
    }

    /// A compiled model, and the fact that it is alone if it is.
    fn add_compiled(&mut self, path: &Path) -> Result<(), LintError> {
        self.add(path)?;
        if !path.with_extension("mlpackage").exists() {
            self.compiled.push(name(path));
        }
        Ok(())
    }

    /// A package, or the ML programs of a pipeline. Pipelines nest as deep as their paths are long.
    fn add_named(&mut self, path: &Path, name: String) -> Result<(), LintError> {
        let refused = match Package::open(path) {
            Ok(package) => {
                self.packages.push(LintedPackage { name, model: package.into_model() });
                return Ok(());
            }
            Err(error) => error,
        };
        let pipeline = match refused.kind() {
            ErrorKind::Pipeline => Pipeline::open(path)?,
            _ => None,
        };
        let Some(pipeline) = pipeline else { return Err(refused.into()) };
        let before = self.packages.len();
        for stage in &pipeline.stages {
            let name = format!("{name}/{}", stage.name);
            match stage.is_program() || stage.is_pipeline() {
                true => self.add_named(&pipeline.stage_path(stage), name)?,
                false => self.stages.push(OtherStage { name, kind: stage.kind }),
            }
        }
        match self.packages.len() > before {
            true => Ok(()),
            false => Err(refused.into()),
        }
    }

    fn open_folder(&mut self, folder: &Path) -> Result<(), LintError> {
        let io = |source| LintError::Io { path: folder.to_owned(), source };
        let entries = fs::read_dir(folder).map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?;
        let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        for path in &paths {
            match extension(path) {
                "mlpackage" => self.add(path)?,
                "mlmodelc" if !path.with_extension("mlpackage").exists() => self.add_compiled(path)?,
                "mlmodel" => self.files.push(name(path)),
                _ => {}
            }
        }
        if self.packages.is_empty() && self.files.is_empty() {
            return Err(LintError::Empty(folder.to_owned()));
        }
        self.read_notes(folder)
    }

    /// Reads what an export says, if the folder is one.
    fn read_notes(&mut self, folder: &Path) -> Result<(), LintError> {
        let notes = folder.join("export.json");
        if notes.exists() {
            let ExportNotes { settings, contract, encoder } = read_json(&notes)?;
            self.generates_text = match (contract, encoder) {
                (Some(_), _) => Some(true),
                (None, Some(_)) => Some(false),
                (None, None) => None,
            };
            let notes = settings.unwrap_or_default();
            self.training_seq_lens = notes.training_seq_lens;
            self.compute_units = notes.compute_units;
            self.export_config = notes.config.and_then(|named| ExportConfig::find(folder, &named));
        }
        Ok(())
    }
}

impl ActivationRange {
    /// Reads a JSON list of ranges.
    pub fn read(path: &Path) -> Result<Vec<ActivationRange>, LintError> {
        read_json(path)
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, LintError> {
    let text = files::read_text(path, files::SETTINGS)
        .map_err(|source| LintError::Io { path: path.to_owned(), source })?;
    serde_json::from_str(&text)
        .map_err(|error| LintError::File { path: path.to_owned(), message: error.to_string() })
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|e| e.to_str()).unwrap_or("")
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
