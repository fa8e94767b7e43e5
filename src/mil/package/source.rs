//! Finding what is to be read: a package, a compiled model, or a model of a pipeline in either.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::compiled;
use super::error::{ErrorKind, PackageError, Result};
use super::files::Files;
use super::manifest::{self, Manifest};
use super::pipeline::stage_index;
use anemeter_kernels::tensor::Bytes;

/// Protobuf's own limit on a message.
const LARGEST_MODEL: usize = i32::MAX as usize;

/// Files that hold a model.
pub(super) struct Source {
    /// As it was asked for.
    pub(super) path: PathBuf,
    pub(super) files: Files,
    pub(super) is_compiled: bool,
    /// Which model of a pipeline in a package is meant, from the outermost pipeline on.
    pub(super) stage: Vec<usize>,
}

/// The protobuf file of a package.
pub(super) struct PackageModel {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
    /// Where its weight files are.
    pub(super) weights: PathBuf,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Source> {
        let (folder, stage) = split(path).unwrap_or_else(|| (path.to_owned(), Vec::new()));
        let root = fs::canonicalize(&folder).map_err(|e| PackageError::io(path, "open the package", &e))?;
        if !root.is_dir() {
            return Err(not_a_folder(path));
        }
        let is_package = root.join(manifest::FILE).exists();
        let is_compiled = !is_package && compiled::is_one(&root);
        if !is_package && !is_compiled {
            let text = format!("has no {}, so it is not a Core ML package", manifest::FILE);
            return Err(PackageError::new(ErrorKind::Missing, text).in_file(path));
        }
        Ok(Source { path: path.to_owned(), files: Files::Folder(root), is_compiled, stage })
    }

    /// Files in memory, by path relative to the package or compiled model.
    pub(super) fn in_memory(files: impl IntoIterator<Item = (PathBuf, Bytes)>) -> Source {
        let files = Files::Memory(files.into_iter().collect());
        let is_compiled = files.check(Path::new(compiled::DESCRIPTION)).is_ok();
        Source { path: PathBuf::new(), files, is_compiled, stage: Vec::new() }
    }

    /// The model of a package; every item of the manifest must be there.
    pub(super) fn package_model(&self) -> Result<PackageModel> {
        let (manifest_path, bytes) = self.files.map(Path::new(manifest::FILE))?;
        let manifest = Manifest::parse(&bytes).map_err(|e| e.in_file(&manifest_path))?;
        let data = Path::new("Data");
        let model_item = data.join(manifest.model_path());
        let weights = model_item.with_file_name(manifest::WEIGHTS);
        for item in manifest.paths().map(|item| data.join(item)) {
            match self.files.check(&item) {
                // Git keeps no empty folders: this is missed only if a constant is in it.
                Err(error) if error.kind() == ErrorKind::Missing && item == weights => {}
                checked => checked?,
            }
        }
        let (path, bytes) = self.files.map(&model_item)?;
        check_size(&path, &bytes)?;
        Ok(PackageModel { path, bytes, weights })
    }
}

/// Whether there is something at a path that is meant to be read as a model.
pub(super) fn is_at(path: &Path) -> bool {
    let has_ending = |ending: &str| path.extension().is_some_and(|found| found == ending);
    let is_stage = || split(path).is_some_and(|(_, stage)| !stage.is_empty());
    has_ending("mlpackage") || path.join(manifest::FILE).is_file() || compiled::is_one(path) || is_stage()
}

/// Refuses a model that is larger than any can be.
pub(super) fn check_size(path: &Path, bytes: &Bytes) -> Result<()> {
    if bytes.len() > LARGEST_MODEL {
        let text = format!("has {} bytes; a model has at most {LARGEST_MODEL}", bytes.len());
        return Err(PackageError::new(ErrorKind::Unsupported, text).in_file(path));
    }
    Ok(())
}

/// A package and the model of its pipeline that the rest of a path names, where that is no folder of its own.
fn split(path: &Path) -> Option<(PathBuf, Vec<usize>)> {
    let (mut folder, mut stage) = (path, Vec::new());
    while !folder.exists() {
        stage.insert(0, stage_index(folder.file_name().and_then(OsStr::to_str)?)?);
        folder = folder.parent()?;
    }
    folder.join(manifest::FILE).exists().then(|| (folder.to_owned(), stage))
}

fn not_a_folder(path: &Path) -> PackageError {
    let error = PackageError::new(ErrorKind::Path, "is a file; a package is a folder").in_file(path);
    match path.extension().is_some_and(|e| e == "mlmodel") {
        true => error.with_help("re-convert with convert_to=\"mlprogram\" and save it as .mlpackage"),
        false => error,
    }
}
