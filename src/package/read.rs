//! Opening a package: its files, all of which must be inside it, and the model in them.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::decode::decode;
use super::error::{ErrorKind, PackageError, Result};
use super::manifest::{self, Manifest};
use super::weights::{WeightFile, WeightFiles};
use crate::mil::Model;
use crate::tensor::Bytes;

/// Protobuf's own limit on a message.
const LARGEST_MODEL: usize = i32::MAX as usize;

/// An opened package.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    model_path: PathBuf,
    model_bytes: u64,
    weight_files: Vec<WeightFile>,
    model: Model,
}

impl Package {
    /// Opens a package and decodes its model. Weights are mapped and not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Package> {
        let path = path.as_ref();
        let root = package_root(path)?;
        let manifest_path =
            inside(&root, &root.join(manifest::FILE)).map_err(|error| match error.kind() {
                ErrorKind::Missing => not_a_package(path),
                _ => error,
            })?;
        let manifest =
            Manifest::parse(&read_small(&manifest_path)?).map_err(|e| e.in_file(&manifest_path))?;
        let data = root.join("Data");
        for item in manifest.paths() {
            inside(&root, &data.join(item))?;
        }
        let model_item = manifest.model_path().map_err(|e| e.in_file(&manifest_path))?;
        let model_path = inside(&root, &data.join(model_item))?;
        let bytes = map_file(&model_path)?;
        if bytes.len() > LARGEST_MODEL {
            let text = format!("has {} bytes; a model has at most {LARGEST_MODEL}", bytes.len());
            return Err(PackageError::new(ErrorKind::Unsupported, text).in_file(&model_path));
        }
        let folder = model_path.parent().unwrap_or(&root).join("weights");
        let weights = WeightFiles::folder(&root, &folder);
        let (model, weight_files) = decode(&bytes, &weights).map_err(|e| e.in_file(&model_path))?;
        let model_bytes = bytes.len() as u64;
        Ok(Package { path: path.to_owned(), model_path, model_bytes, weight_files, model })
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

    /// The model alone; its weights stay mapped.
    pub fn into_model(self) -> Model {
        self.model
    }
}

/// The package's folder with every symbolic link resolved.
fn package_root(path: &Path) -> Result<PathBuf> {
    let root = fs::canonicalize(path).map_err(|e| PackageError::io(path, "open the package", &e))?;
    if root.is_dir() {
        return Ok(root);
    }
    let error = PackageError::new(ErrorKind::Path, "is a file; a package is a folder").in_file(path);
    Err(match path.extension().is_some_and(|e| e == "mlmodel") {
        true => error.with_help("re-convert with convert_to=\"mlprogram\" and save it as .mlpackage"),
        false => error,
    })
}

fn not_a_package(path: &Path) -> PackageError {
    let text = format!("has no {}, so it is not a Core ML package", manifest::FILE);
    let error = PackageError::new(ErrorKind::Missing, text).in_file(path);
    match path.extension().is_some_and(|e| e == "mlmodelc") {
        true => error.with_help("compiled models cannot be read; open the .mlpackage it was compiled from"),
        false => error,
    }
}

/// The resolved path of something that must exist inside a package; `root` is resolved already.
pub(super) fn inside(root: &Path, path: &Path) -> Result<PathBuf> {
    let resolved = fs::canonicalize(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => PackageError::new(ErrorKind::Missing, "does not exist").in_file(path),
        _ => PackageError::io(path, "open", &e),
    })?;
    match resolved.starts_with(root) {
        true => Ok(resolved),
        false => Err(PackageError::new(ErrorKind::Path, "leads outside the package").in_file(path)),
    }
}

/// Maps a regular file.
pub(super) fn map_file(path: &Path) -> Result<Bytes> {
    Bytes::map(&open_file(path)?).map_err(|e| PackageError::io(path, "map", &e))
}

fn read_small(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_file(path)?.take(manifest::LARGEST + 1);
    { file }.read_to_end(&mut bytes).map_err(|e| PackageError::io(path, "read", &e))?;
    if bytes.len() as u64 > manifest::LARGEST {
        let text = format!("has more than {} bytes", manifest::LARGEST);
        return Err(PackageError::new(ErrorKind::Manifest, text).in_file(path));
    }
    Ok(bytes)
}

/// Opens a regular file; anything else could block or never end.
fn open_file(path: &Path) -> Result<File> {
    let metadata = fs::metadata(path).map_err(|e| PackageError::io(path, "open", &e))?;
    if metadata.is_dir() {
        return Err(PackageError::new(ErrorKind::Path, "is a folder, expected a file").in_file(path));
    }
    if !metadata.is_file() {
        return Err(PackageError::new(ErrorKind::Path, "is not a regular file").in_file(path));
    }
    File::open(path).map_err(|e| PackageError::io(path, "open", &e))
}
