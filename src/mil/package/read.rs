//! Opening a package: its files, all of which must be inside it, and the model in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decode::decode;
use super::error::{ErrorKind, PackageError, Result};
use super::files::Files;
use super::manifest::{self, Manifest};
use super::weights::{WeightFile, WeightFiles};
use crate::Model;
use anemeter_kernels::tensor::Bytes;

/// Protobuf's own limit on a message.
const LARGEST_MODEL: usize = i32::MAX as usize;

/// An opened package with mapped weights.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    model_path: PathBuf,
    model_bytes: u64,
    weight_files: Vec<WeightFile>,
    model: Arc<Model>,
}

impl Package {
    /// Opens a package and decodes its model. Weights are mapped and not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Package> {
        let path = path.as_ref();
        log::info!("opens the package {}", path.display());
        let root = fs::canonicalize(path).map_err(|e| PackageError::io(path, "open the package", &e))?;
        if !root.is_dir() {
            return Err(not_a_folder(path));
        }
        if !root.join(manifest::FILE).exists() {
            return Err(not_a_package(path));
        }
        Package::decode(path, Files::Folder(root))
    }

    /// The package made of files in memory, by path relative to it, such as `Manifest.json`.
    pub fn from_files(files: impl IntoIterator<Item = (PathBuf, Bytes)>) -> Result<Package> {
        Package::decode(Path::new(""), Files::Memory(files.into_iter().collect()))
    }

    fn decode(path: &Path, files: Files) -> Result<Package> {
        let (manifest_path, bytes) = files.map(Path::new(manifest::FILE))?;
        let manifest = Manifest::parse(&bytes).map_err(|e| e.in_file(&manifest_path))?;
        let data = Path::new("Data");
        let model_item = data.join(manifest.model_path());
        let folder = model_item.with_file_name(manifest::WEIGHTS);
        for item in manifest.paths().map(|item| data.join(item)) {
            match files.check(&item) {
                // Git keeps no empty folders: this is missed only if a constant is in it.
                Err(error) if error.kind() == ErrorKind::Missing && item == folder => {}
                checked => checked?,
            }
        }
        let (model_path, bytes) = files.map(&model_item)?;
        if bytes.len() > LARGEST_MODEL {
            let text = format!("has {} bytes; a model has at most {LARGEST_MODEL}", bytes.len());
            return Err(PackageError::new(ErrorKind::Unsupported, text).in_file(&model_path));
        }
        let weights = WeightFiles::in_folder(files, folder);
        let (model, weight_files) = decode(&bytes, &weights).map_err(|e| e.in_file(&model_path))?;
        let model_bytes = bytes.len() as u64;
        Ok(Package { path: path.to_owned(), model_path, model_bytes, weight_files, model: Arc::new(model) })
    }

    /// Where the package was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the protobuf model is.
    pub fn model_path(&self) -> &Path {
        &self.model_path
    }

    /// Bytes of the protobuf model.
    pub fn model_bytes(&self) -> u64 {
        self.model_bytes
    }

    /// The weight files the model refers to, by name, with their blobs.
    pub fn weight_files(&self) -> &[WeightFile] {
        &self.weight_files
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The same, to be kept beside the package or longer than it.
    pub fn shared_model(&self) -> Arc<Model> {
        self.model.clone()
    }

    /// The model alone; its weights stay mapped.
    pub fn into_model(self) -> Model {
        Arc::unwrap_or_clone(self.model)
    }
}

fn not_a_folder(path: &Path) -> PackageError {
    let error = PackageError::new(ErrorKind::Path, "is a file; a package is a folder").in_file(path);
    match path.extension().is_some_and(|e| e == "mlmodel") {
        true => error.with_help("re-convert with convert_to=\"mlprogram\" and save it as .mlpackage"),
        false => error,
    }
}

fn not_a_package(path: &Path) -> PackageError {
    if path.extension().is_some_and(|e| e == "mlmodelc") {
        let text = "is a compiled model, which cannot be read";
        return PackageError::new(ErrorKind::Unsupported, text)
            .in_file(path)
            .with_help("give the .mlpackage that it was compiled from");
    }
    let text = format!("has no {}, so it is not a Core ML package", manifest::FILE);
    PackageError::new(ErrorKind::Missing, text).in_file(path)
}
