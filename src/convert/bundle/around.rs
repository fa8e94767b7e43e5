//! Bundles around packages that others made, in memory: what `export.json` would say of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::files;
use super::{
    Asset, AssetFunction, Bundle, BundleError, Chunk, File, Function, MANIFEST, Manifest, Port, Tokenizer,
};
use crate::contract;
use anemeter_base::advice::Remedy;
use anemeter_coreai::convert::functions as asset_functions;
use anemeter_coreai::{asset, describe};
use anemeter_mil::package::Package;
use anemeter_mil::{Feature, FeatureType, Flexibility, Interface, Model};

/// Packages of one folder, more than which are not one model.
const MOST_PACKAGES: usize = 1024;

/// Whether the content of packages is read to tell them from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digests {
    Compute,
    Skip,
}

impl Bundle {
    /// Opens a bundle, or makes one around a package or a folder of packages. Nothing is written.
    pub fn open_any(path: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        open(path.as_ref(), Digests::Compute)
    }

    /// The same without digests of packages that others made, for what only runs them.
    pub fn open_to_run(path: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        open(path.as_ref(), Digests::Skip)
    }

    /// The same bundle under another name, as a version of that model.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Bundle {
        self.manifest.name = name.into();
        self
    }
}

fn open(path: &Path, digests: Digests) -> Result<Bundle, BundleError> {
    // Not followed: a description that cannot be read is a fault of the bundle, and no reason to guess.
    let is_described = path.join(MANIFEST).symlink_metadata().is_ok();
    if is_described || !(path.is_dir() || is_stage(path)) {
        return Bundle::open(path);
    }
    let path = &with_name(path);
    let packages = packages_of(path)?;
    if packages.is_empty() {
        return Err(BundleError::new(path, "has neither an export.json nor a package in it")
            .with_help(Remedy::ExportOrPackage));
    }
    let folder = if is_model(path) { folder_of(path) } else { path.to_owned() };
    let (mut manifest, opened) = describe(&packages, name_of(path), digests)?;
    // Functions can be measured one by one even if the files beside the packages are not as they should be.
    let recognise = |packages: &contract::Packages<'_>| match manifest.only_runtime() {
        // Contracts are those of Core ML packages.
        Some(_) => Ok(None),
        None => contract::recognise(packages),
    };
    let contract = opened.ask(&manifest, recognise).unwrap_or_else(|error| {
        manifest.warnings.push(error.to_string());
        None
    });
    let named = contract.as_ref().and_then(|contract| contract.tokenizer.as_ref());
    manifest.tokenizer = named.and_then(|named| {
        let read = Tokenizer::read(&folder.join(named), named);
        // Tokens can be generated without text.
        let read = read.map_err(|error| manifest.warnings.push(error.to_string()));
        read.ok().map(|(tokenizer, _)| tokenizer)
    });
    Ok(Bundle { folder, source: path.to_owned(), manifest: manifest.keeping(contract) })
}

/// Whether a path names a model inside a pipeline, which need not be a folder.
pub fn is_stage(path: &Path) -> bool {
    path.parent().is_some_and(Package::is_at) && Package::is_at(path)
}

/// Whether a path is that of a package or of an asset.
fn is_model(path: &Path) -> bool {
    Package::is_at(path) || asset::Asset::is_at(path)
}

/// What a model is called: a package without its ending, or a folder. A model inside a pipeline has the pipeline's name,
/// too.
pub fn name_of(path: &Path) -> String {
    let plain = |path: &Path| {
        let name = path.file_stem().filter(|_| is_model(path)).or(path.file_name());
        name.map_or_else(|| "packages".to_owned(), |name| name.to_string_lossy().into_owned())
    };
    match path.parent().filter(|_| is_stage(path)) {
        Some(pipeline) => format!("{}-{}", plain(pipeline), plain(path)),
        None => plain(path),
    }
}

/// The same path with the name that it leads to, where it ends in `.` or `..`.
fn with_name(path: &Path) -> PathBuf {
    let absolute = || path.canonicalize().ok();
    path.file_name().is_none().then(absolute).flatten().unwrap_or_else(|| path.to_owned())
}

/// The folder that a package is in.
fn folder_of(package: &Path) -> PathBuf {
    match package.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        // The root of a file system, or a path that ends in `..`.
        None => package.join(".."),
    }
}

/// The package or asset at a path, or the packages of a folder by name, or its assets if it has no package.
pub fn packages_of(path: &Path) -> Result<Vec<PathBuf>, BundleError> {
    if is_model(path) {
        return Ok(vec![with_name(path)]);
    }
    let unreadable = |e: std::io::Error| BundleError::new(path, format!("cannot be read: {e}"));
    let entries =
        fs::read_dir(path).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let folders: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(|path| path.is_dir()).collect();
    let of = |is_one: fn(&Path) -> bool| -> Vec<PathBuf> {
        folders.iter().filter(|path| is_one(path)).cloned().collect()
    };
    let mut packages = of(Package::is_at);
    if packages.is_empty() {
        packages = of(asset::Asset::is_at);
    }
    packages.sort();
    if packages.len() > MOST_PACKAGES {
        let message = format!("has {} packages, a model at most {MOST_PACKAGES}", packages.len());
        return Err(BundleError::new(path, message).with_help("give the packages of one model"));
    }
    Ok(packages)
}

/// What `export.json` says of packages that others made, with the contract of a file or else the one that they keep.
pub fn describe_adopted(
    packages: &[PathBuf],
    name: String,
    contract_file: Option<&Path>,
) -> Result<Manifest, BundleError> {
    let (manifest, opened) = describe(packages, name, Digests::Compute)?;
    let contract = opened.ask(&manifest, |packages| match contract_file {
        Some(path) => contract::read(path, packages).map(Some),
        None => contract::recognise(packages),
    });
    Ok(manifest.keeping(contract?))
}

fn describe(paths: &[PathBuf], name: String, digests: Digests) -> Result<(Manifest, Opened), BundleError> {
    let folder = paths.first().map(|path| folder_of(path)).unwrap_or_default();
    let mut opened = Opened { packages: Vec::new(), folder };
    let mut chunks = Vec::new();
    let mut warnings = Vec::new();
    for path in paths {
        let package = files::open(path)?;
        let file = file(path, &package, digests)?;
        let asset = match asset::Asset::is_at(path) {
            true => Some(itself(&file, package.model())),
            // It is not what was asked for, so that a broken one is no reason to refuse.
            false => asset_beside(path, package.model(), digests).unwrap_or_else(|error| {
                warnings.push(error.to_string());
                None
            }),
        };
        chunks.push(chunk(file, asset, package.model()));
        opened.packages.push(package);
    }
    let manifest = Manifest { warnings, ..Manifest::of_packages(name, chunks) };
    Ok((manifest, opened))
}

/// The packages that a description is of, in the order of its chunks.
struct Opened {
    packages: Vec<Package>,
    /// The folder that the first is in.
    folder: PathBuf,
}

impl Opened {
    /// Asks something of the packages together.
    fn ask<T>(&self, manifest: &Manifest, ask: impl FnOnce(&contract::Packages<'_>) -> T) -> T {
        let names = manifest.chunks.iter().map(|chunk| chunk.file.name.as_str());
        let packages: Vec<(&str, &Model)> = names.zip(self.packages.iter().map(Package::model)).collect();
        ask(&contract::Packages { packages: &packages, folder: &self.folder })
    }
}

fn file(path: &Path, package: &Package, digests: Digests) -> Result<File, BundleError> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(BundleError::new(path, "has a name that is not UTF-8, which export.json cannot hold")
            .with_help("rename the package"));
    };
    let digest = match digests {
        Digests::Compute => files::digest(path)?,
        Digests::Skip => String::new(),
    };
    let weights: u64 = package.weight_files().iter().map(|file| file.bytes).sum();
    Ok(File { name: name.to_owned(), bytes: package.model_bytes() + weights, digest })
}

fn chunk(file: File, asset: Option<Asset>, model: &Model) -> Chunk {
    Chunk {
        file,
        first_layer: 0,
        layers: 0,
        masks: Vec::new(),
        rotations: Vec::new(),
        query_scales: Vec::new(),
        functions: functions(model),
        asset,
    }
}

/// An asset that is a chunk of its own: its functions are called what they are called in it.
fn itself(file: &File, model: &Model) -> Asset {
    let names = model.interfaces().iter().map(|interface| interface.function.clone());
    let functions = names.map(|name| AssetFunction { function: name.clone(), name, shape: 0 });
    Asset { file: file.clone(), functions: functions.collect() }
}

/// The asset of the same name beside a package, if it has functions of the package.
fn asset_beside(package: &Path, model: &Model, digests: Digests) -> Result<Option<Asset>, BundleError> {
    let path = package.with_extension("aimodel");
    if !asset::Asset::is_at(&path) {
        return Ok(None);
    }
    let described = describe::open(&path)?;
    let has = |name: &str| described.model().interface(name).is_some();
    let functions = asset_functions(model).filter(|found| has(&found.name));
    let functions: Vec<AssetFunction> = functions
        .map(|found| AssetFunction { name: found.name, function: found.function, shape: found.shape })
        .collect();
    if functions.is_empty() {
        return Ok(None);
    }
    Ok(Some(Asset { file: file(&path, &described, digests)?, functions }))
}

/// What a host has to know of the functions of a model.
pub fn functions(model: &Model) -> Vec<Function> {
    model.interfaces().iter().map(function).collect()
}

fn function(interface: &Interface) -> Function {
    let ports = |features: &[Feature]| features.iter().map(port).collect();
    Function {
        name: interface.function.clone(),
        inputs: ports(&interface.inputs),
        outputs: ports(&interface.outputs),
        states: ports(&interface.states),
    }
}

fn port(feature: &Feature) -> Port {
    let (dtype, shapes) = match &feature.ty {
        FeatureType::Array(array) | FeatureType::State(array) => {
            let mut shapes = vec![array.shape.clone()];
            if let Flexibility::Enumerated(all) = &array.flexibility {
                shapes.clone_from(all);
            }
            shapes.retain(|shape| !shape.is_empty());
            (array.dtype.to_string(), shapes)
        }
        _ => (String::new(), Vec::new()),
    };
    Port { name: feature.name.clone(), dtype, shapes }
}
