//! What an export leaves behind: packages, tokenizer and `export.json`, which says how they belong together. Bundles are made
//! around packages that others made, too.

mod around;
pub mod contract;
mod driving;
mod error;
mod files;
mod manifest;
mod repair;

use std::path::{Path, PathBuf};

use anemeter_base::advice::Remedy;
use anemeter_base::files::read_text;

pub use anemeter_base::vocabulary::Origin;
pub use around::{describe_adopted, functions, is_stage, name_of, packages_of};
pub use error::BundleError;
pub use files::asset_digest;
pub use manifest::{
    Architecture, Asset, AssetFunction, Checkpoint, Chunk, Encoder, EncoderOutput, Exported, File, Function,
    LayerSensitivity, LongRotation, Manifest, Mask, PerLayerLookup, Phase, Port, QueryScale, Rotated,
    Rotation, SCHEMA, Sensitivity, Settings, Tokenizer, Tool, digest_text,
};
pub use repair::{RangeRepair, RepairedTensor};

/// The file that describes a bundle.
pub const MANIFEST: &str = "export.json";
/// The most that the description of a bundle may take.
const LARGEST_MANIFEST: u64 = 256 << 20;

/// An export on disk.
#[derive(Debug, Clone)]
pub struct Bundle {
    folder: PathBuf,
    /// What was opened: the folder, or a package in it.
    source: PathBuf,
    manifest: Manifest,
}

impl Bundle {
    /// Opens a bundle and checks that the files it names are there.
    pub fn open(folder: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        let folder = folder.as_ref();
        log::info!("opens the bundle {}", folder.display());
        let path = folder.join(MANIFEST);
        let unreadable = |e: std::io::Error| BundleError::unreadable(folder, &path, &e);
        let text = read_text(&path, LARGEST_MANIFEST).map_err(unreadable)?;
        let manifest = Manifest::parse(&text).map_err(|error| BundleError::new(&path, error.to_string()))?;
        let bundle = Bundle { folder: folder.to_owned(), source: folder.to_owned(), manifest };
        for name in bundle.files() {
            bundle.check_file(&path, name)?;
        }
        Ok(bundle)
    }

    /// The bundle's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was opened: the folder, or the package that the bundle is around.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// What `export.json` says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What only the description of an export says, for what cannot do without it.
    pub fn exported(&self) -> Result<Exported<'_>, BundleError> {
        let adopted = "is around packages that others made, and this needs a bundle that was exported";
        let exported = self.manifest.exported();
        exported.ok_or_else(|| BundleError::new(&self.folder, adopted).with_help(Remedy::Export))
    }

    /// Where a file of the bundle is.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Names of the files and packages that it consists of, beside its description.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let manifest = &self.manifest;
        let chunks = manifest.chunks.iter().flat_map(|chunk| {
            let asset = chunk.asset.iter().map(|asset| asset.file.name.as_str());
            let name = chunk.file.name.as_str();
            asset.filter(move |asset| *asset != name).chain([name])
        });
        let tokenizer = manifest.tokenizer.iter().map(|tokenizer| tokenizer.file.name.as_str());
        let embeddings = manifest.host_embeddings.iter().map(|file| file.name.as_str());
        let tables = manifest.contract.iter().flat_map(contract::Contract::files);
        chunks.chain(tokenizer).chain(embeddings).chain(tables)
    }

    fn check_file(&self, manifest: &Path, name: &str) -> Result<(), BundleError> {
        let plain = Path::new(name).components().count() == 1 && !name.contains(['/', '\\']) && name != "..";
        if !plain {
            let message = format!("names the file `{name}`, which is not a plain name");
            return Err(BundleError::new(manifest, message));
        }
        if !self.path(name).exists() {
            let error = BundleError::new(manifest, format!("names `{name}`, which is not in the folder"));
            return Err(error.with_help("export again, or copy the bundle's folder as a whole"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
