//! Opening a package or a compiled model: its files, all of which must be inside it, and the model in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::compiled;
use super::decode::{decode, model_at};
use super::error::Result;
use super::source::{self, Source};
use super::weights::{WeightFile, WeightFiles};
use crate::Model;
use anemeter_kernels::tensor::Bytes;

/// What a model was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A package.
    Package,
    /// A model of a pipeline in a package.
    Stage,
    /// A compiled model, which may be one of a compiled pipeline.
    Compiled,
    /// A Core AI asset: what its functions take and give, without operations.
    Asset,
}

/// An opened package, or compiled model, with mapped weights; or an asset, whose weights stay where they are.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    form: Form,
    model_path: PathBuf,
    model_bytes: u64,
    weight_files: Vec<WeightFile>,
    model: Arc<Model>,
    /// The digest of what belongs to the model besides its file and its weights; 0 if there is nothing.
    pub(super) rest: u128,
}

impl Package {
    /// Opens a package, a compiled model (`.mlmodelc`) or a model of a pipeline in either (`PATH/model0`), and decodes
    /// its ML program. Weights are mapped and not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Package> {
        let path = path.as_ref();
        log::info!("opens the package {}", path.display());
        Package::decode(Source::open(path)?)
    }

    /// Whether a path is that of a package, a compiled model or a model of a pipeline in a package, sound or not.
    pub fn is_at(path: &Path) -> bool {
        source::is_at(path)
    }

    /// The package made of files in memory, by path relative to it, such as `Manifest.json`; a compiled model if there
    /// is a `coremldata.bin`.
    pub fn from_files(files: impl IntoIterator<Item = (PathBuf, Bytes)>) -> Result<Package> {
        Package::decode(Source::in_memory(files))
    }

    /// A Core AI asset whose functions somebody else has described; `program` is the file that all of it is in.
    pub fn of_asset(path: &Path, model: Model, program: PathBuf, bytes: u64) -> Package {
        Package {
            path: path.to_owned(),
            form: Form::Asset,
            model_path: program,
            model_bytes: bytes,
            weight_files: Vec::new(),
            model: Arc::new(model),
            rest: 0,
        }
    }

    fn decode(source: Source) -> Result<Package> {
        if source.is_compiled {
            let read = compiled::decode(source.files)?;
            return Ok(Package {
                path: source.path,
                form: Form::Compiled,
                model_path: read.text_path,
                model_bytes: read.text_bytes,
                weight_files: read.weight_files,
                model: Arc::new(read.model),
                rest: read.description_digest,
            });
        }
        let found = source.package_model()?;
        let weights = WeightFiles::in_folder(source.files, found.weights);
        let (model, weight_files) = model_at(&found.bytes, &source.stage)
            .and_then(|(bytes, offset)| decode(bytes, offset, &weights))
            .map_err(|e| e.in_file(&found.path))?;
        let (form, rest) = match &source.stage[..] {
            [] => (Form::Package, 0),
            stage => (Form::Stage, xxh3_128(format!("{stage:?}").as_bytes())),
        };
        Ok(Package {
            path: source.path,
            form,
            model_path: found.path,
            model_bytes: found.bytes.len() as u64,
            weight_files,
            model: Arc::new(model),
            rest,
        })
    }

    /// Where the package was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it was read from.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Where the protobuf model is, or the text of a compiled one.
    pub fn model_path(&self) -> &Path {
        &self.model_path
    }

    /// Bytes of that file.
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
