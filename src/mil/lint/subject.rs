//! What is looked at: a package, or a folder of packages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Model;
use crate::package::{Package, PackageError};
use anemeter_base::advice::{Advice, Remedy};

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
    /// Sequence lengths of the training, if the export says.
    pub training_seq_lens: Option<Vec<u64>>,
    /// Compute units that runs ask for, if the export says.
    pub compute_units: Option<String>,
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
    /// There are only compiled models.
    #[error("{}: is a compiled model, which no rule can look into", .0.display())]
    Compiled(PathBuf),
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
            LintError::Compiled(_) => Some("give the .mlpackage that it was compiled from".into()),
            LintError::Empty(_) => Some("give an .mlpackage, or the folder that an export wrote".into()),
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
    settings: ExportSettings,
}

#[derive(Default, Deserialize)]
struct ExportSettings {
    training_seq_lens: Option<Vec<u64>>,
    compute_units: Option<String>,
}

impl Subject {
    /// Opens a package, or all packages of a folder.
    pub fn open(path: &Path) -> Result<Subject, LintError> {
        let mut subject = Subject { path: path.display().to_string(), ..Subject::default() };
        match extension(path) {
            "mlmodelc" => return Err(LintError::Compiled(path.to_owned())),
            "mlmodel" if path.is_file() => subject.files.push(name(path)),
            _ if is_package(path) || !path.is_dir() => subject.add(path)?,
            _ => subject.open_folder(path)?,
        }
        Ok(subject)
    }

    /// A model in memory.
    pub fn of(model: Model) -> Subject {
        let package = LintedPackage { name: "model".to_owned(), model };
        Subject { path: "model".to_owned(), packages: vec![package], ..Subject::default() }
    }

    fn add(&mut self, path: &Path) -> Result<(), LintError> {
        let model = Package::open(path)?.into_model();
        self.packages.push(LintedPackage { name: name(path), model });
        Ok(())
    }

    fn open_folder(&mut self, folder: &Path) -> Result<(), LintError> {
        let io = |source| LintError::Io { path: folder.to_owned(), source };
        let entries = fs::read_dir(folder).map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?;
        let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        for path in &paths {
            match extension(path) {
                "mlpackage" => self.add(path)?,
                "mlmodelc" if !path.with_extension("mlpackage").exists() => self.compiled.push(name(path)),
                "mlmodel" => self.files.push(name(path)),
                _ => {}
            }
        }
        match self.compiled.first() {
            _ if !self.packages.is_empty() || !self.files.is_empty() => {}
            Some(name) => return Err(LintError::Compiled(folder.join(name))),
            None => return Err(LintError::Empty(folder.to_owned())),
        }
        let notes = folder.join("export.json");
        if notes.exists() {
            let ExportNotes { settings: notes } = read_json(&notes)?;
            self.training_seq_lens = notes.training_seq_lens;
            self.compute_units = notes.compute_units;
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
    let text = fs::read_to_string(path).map_err(|source| LintError::Io { path: path.to_owned(), source })?;
    serde_json::from_str(&text)
        .map_err(|error| LintError::File { path: path.to_owned(), message: error.to_string() })
}

fn is_package(path: &Path) -> bool {
    extension(path) == "mlpackage" || path.join("Manifest.json").exists()
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|e| e.to_str()).unwrap_or("")
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
