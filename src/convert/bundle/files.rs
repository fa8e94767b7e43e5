//! Which file of a chunk a runtime executes, its package or its Core AI asset, and what functions are called there.

use std::path::{Path, PathBuf};

use super::{Bundle, BundleError, Chunk, File, Manifest, digest_text};
use anemeter_base::advice::Remedy;
use anemeter_base::vocabulary::RuntimeName;
use anemeter_coreai::asset::Asset;
use anemeter_coreai::describe;
use anemeter_mil::package::Package;

impl Chunk {
    /// Its package; none where it is a Core AI asset alone.
    pub fn package(&self) -> Option<&File> {
        let is_asset = self.asset.as_ref().is_some_and(|asset| asset.file.name == self.file.name);
        (!is_asset).then_some(&self.file)
    }

    /// What a runtime executes of it, if it has that.
    pub fn file_of(&self, runtime: RuntimeName) -> Option<&File> {
        match runtime {
            RuntimeName::CoreAi => self.asset.as_ref().map(|asset| &asset.file),
            _ => self.package(),
        }
    }

    /// Its functions, each with what it is called in the file that a runtime executes: an asset has one for each shape.
    pub fn calls(&self, runtime: RuntimeName) -> Vec<(&str, Vec<&str>)> {
        let names = |function: &str| -> Option<Vec<&str>> {
            let asset = self.asset.as_ref().filter(|_| runtime == RuntimeName::CoreAi)?;
            let shapes = asset.functions.iter().filter(|entry| entry.function == function);
            Some(shapes.map(|entry| entry.name.as_str()).collect())
        };
        let functions = self.functions.iter().map(|function| function.name.as_str());
        functions.map(|name| (name, names(name).unwrap_or_else(|| vec![name]))).collect()
    }
}

impl Manifest {
    /// The runtime that executes it, if no other does: Core AI where there are no packages.
    pub fn only_runtime(&self) -> Option<RuntimeName> {
        let is_asset = |chunk: &Chunk| chunk.package().is_none();
        (!self.chunks.is_empty() && self.chunks.iter().all(is_asset)).then_some(RuntimeName::CoreAi)
    }

    /// What a runtime executes of each chunk; of a chunk that has nothing for it, what there is.
    pub fn files_of(&self, runtime: RuntimeName) -> impl Iterator<Item = &File> {
        self.chunks.iter().map(move |chunk| chunk.file_of(runtime).unwrap_or(&chunk.file))
    }

    /// The digests of these files.
    pub fn digests_of(&self, runtime: RuntimeName) -> impl Iterator<Item = &String> {
        self.files_of(runtime).map(|file| &file.digest)
    }
}

impl Bundle {
    /// The file of a chunk that a runtime executes.
    pub fn file_for(&self, chunk: &Chunk, runtime: RuntimeName) -> Result<PathBuf, BundleError> {
        if let Some(file) = chunk.file_of(runtime) {
            return Ok(self.path(&file.name));
        }
        let (path, name) = (self.path(&chunk.file.name), runtime.to_string());
        Err(match runtime {
            RuntimeName::CoreAi => {
                BundleError::new(&path, format!("has no Core AI asset, and `{name}` executes assets"))
                    .with_help(Remedy::ExportAsset)
            }
            _ => BundleError::new(&path, format!("is a Core AI asset, and `{name}` executes packages"))
                .with_help(Remedy::OtherRuntime),
        })
    }

    /// What a runtime executes of a chunk, opened.
    pub fn open_for(&self, chunk: &Chunk, runtime: RuntimeName) -> Result<Package, BundleError> {
        open(&self.file_for(chunk, runtime)?)
    }

    /// The digests of what a runtime executes, of the files as they are.
    pub fn digests_on_disk(&self, runtime: RuntimeName) -> Result<Vec<String>, BundleError> {
        self.manifest().files_of(runtime).map(|file| digest(&self.path(&file.name))).collect()
    }
}

/// The functions of a package or of an asset.
pub(super) fn open(path: &Path) -> Result<Package, BundleError> {
    match Asset::is_at(path) {
        true => Ok(describe::open(path)?),
        false => Ok(Package::open(path)?),
    }
}

/// The digest of a package or of an asset, whose bytes are read.
pub(super) fn digest(path: &Path) -> Result<String, BundleError> {
    match Asset::is_at(path) {
        true => Ok(asset_digest(&Asset::open(path)?.checked_sha256()?)),
        false => Ok(digest_text(Package::open(path)?.digest()?)),
    }
}

/// The digest of an asset as text.
pub fn asset_digest(sha256: &[u8; 32]) -> String {
    let hex: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
