//! The adoption of packages that others made: a bundle around them, which every command takes.
//!
//! ```text
//! packages, tokenizer, contract -> linked or copied, described -> export.json with `origin: adopted`
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::bundle::{
    Bundle, BundleError, Manifest, Tokenizer, describe_adopted, is_stage, name_of, packages_of,
};
use crate::export::ExportError;
use crate::export::destination::{Destination, write_file};

/// The name of the tokenizer in a bundle.
const TOKENIZER: &str = "tokenizer.json";

/// What to adopt, and where to.
#[derive(Debug, Clone)]
pub struct Request {
    /// Packages, or folders of packages.
    pub packages: Vec<PathBuf>,
    /// The folder of the bundle.
    pub output: PathBuf,
    /// How text becomes tokens: `tokenizer.json`, with what is beside it.
    pub tokenizer: Option<PathBuf>,
    /// How the packages are driven as a language model.
    pub contract: Option<PathBuf>,
    /// The model's name; that of the first package if there is none.
    pub name: Option<String>,
    /// Whether a bundle that is there already is replaced.
    pub overwrite: bool,
}

/// A bundle that was made, and how.
#[derive(Debug)]
pub struct Adopted {
    /// The bundle.
    pub bundle: Bundle,
    /// Files that share their content with those of the packages.
    pub linked: usize,
    /// Files that were copied, where the file system cannot link.
    pub copied: usize,
}

/// Makes a bundle around packages. It appears whole or not at all; the packages stay as they are.
pub fn adopt(request: &Request) -> Result<Adopted, ExportError> {
    let packages = packages(&request.packages)?;
    let destination = request.destination(&packages);
    destination.check()?;
    let mut manifest = describe_adopted(&packages, request.name(&packages), request.contract.as_deref())?;
    let mut counts = Counts::default();
    let bundle = destination.make(|folder| {
        for package in &packages {
            let name = package.file_name().expect("a package that was described has a name");
            place(package, &folder.join(name), &mut counts)?;
            let chunk = manifest.chunks.iter().find(|chunk| name == chunk.file.name.as_str());
            let asset =
                chunk.filter(|chunk| chunk.package().is_some()).and_then(|chunk| chunk.asset.as_ref());
            if let Some(asset) = asset {
                let (from, to) = (package.with_file_name(&asset.file.name), folder.join(&asset.file.name));
                place(&from, &to, &mut counts)?;
            }
        }
        if let Some((beside, contract)) = request.beside(&packages).zip(manifest.contract.as_ref()) {
            for file in contract.files() {
                place_file(&beside.join(file), &folder.join(file), &mut counts)?;
            }
        }
        let tokenizer = request.tokenizer(&packages, &mut manifest);
        manifest.tokenizer = tokenizer.map(|path| tokenizer_of(&path, folder)).transpose()?;
        Ok(manifest)
    })?;
    Ok(Adopted { bundle, linked: counts.linked, copied: counts.copied })
}

impl Request {
    fn destination(&self, packages: &[PathBuf]) -> Destination {
        let mut sources: Vec<_> = packages.iter().map(|path| ("package", path.clone())).collect();
        sources.extend(self.tokenizer.iter().map(|path| ("tokenizer", path.clone())));
        sources.extend(self.contract.iter().map(|path| ("contract", path.clone())));
        Destination { output: self.output.clone(), overwrite: self.overwrite, sources }
    }

    /// The tokenizer that is given, or else the one that the contract names: relative to its file, or to the packages.
    fn tokenizer(&self, packages: &[PathBuf], manifest: &mut Manifest) -> Option<PathBuf> {
        let named = manifest.contract.as_mut().and_then(|contract| contract.tokenizer.take());
        let folder = self.beside(packages)?;
        self.tokenizer.clone().or(named.map(|named| folder.join(named)))
    }

    /// The folder that files of the contract are in: that of its own file, or of the packages.
    fn beside<'a>(&'a self, packages: &'a [PathBuf]) -> Option<&'a Path> {
        let beside = self.contract.as_ref().or(packages.first())?;
        Some(beside.parent().unwrap_or(Path::new(".")))
    }

    fn name(&self, packages: &[PathBuf]) -> String {
        let first = || packages.first().map(|path| name_of(path));
        self.name.clone().or_else(first).unwrap_or_default()
    }
}

/// All packages, each of a name of its own.
fn packages(given: &[PathBuf]) -> Result<Vec<PathBuf>, ExportError> {
    let mut packages = Vec::new();
    for path in given {
        let found = packages_of(path)?;
        if found.is_empty() {
            let help = "give packages, or a folder that packages are in";
            return Err(BundleError::new(path, "holds no package").with_help(help).into());
        }
        packages.extend(found);
    }
    if let Some(stage) = packages.iter().find(|path| !path.is_dir() && is_stage(path)) {
        let help = "measure it where it is: every command that takes a bundle takes it";
        let message = "is a model inside a pipeline, which has no files of its own to adopt";
        return Err(BundleError::new(stage, message).with_help(help).into());
    }
    let mut names = BTreeSet::new();
    match packages.iter().find(|path| !names.insert(path.file_name())) {
        Some(twice) => {
            let message = "has the name of another package, and a bundle has one of each name";
            Err(BundleError::new(twice, message).with_help("rename one of them").into())
        }
        None => Ok(packages),
    }
}

/// Copies a tokenizer, and finds out what is beside it of templates and tokens.
fn tokenizer_of(path: &Path, folder: &Path) -> Result<Tokenizer, ExportError> {
    let (tokenizer, content) = Tokenizer::read(path, TOKENIZER)?;
    write_file(&folder.join(TOKENIZER), &content)?;
    Ok(tokenizer)
}

/// How files came into a bundle.
#[derive(Debug, Default)]
struct Counts {
    linked: usize,
    copied: usize,
}

/// Puts a package into a bundle: hard links where the file system can, else copies.
fn place(from: &Path, to: &Path, counts: &mut Counts) -> Result<(), ExportError> {
    fs::create_dir(to).map_err(|e| ExportError::io(to, &e))?;
    let unreadable = |e: io::Error| ExportError::unreadable(from, &e);
    let mut entries =
        fs::read_dir(from).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = fs::metadata(&path).map_err(|e| ExportError::unreadable(&path, &e))?.file_type();
        match kind.is_dir() {
            true => place(&path, &target, counts)?,
            false => place_file(&path, &target, counts)?,
        }
    }
    Ok(())
}

/// Puts a file into a bundle. Links are followed: a bundle must not depend on what they lead to.
fn place_file(from: &Path, to: &Path, counts: &mut Counts) -> Result<(), ExportError> {
    let unreadable = |e: io::Error| ExportError::unreadable(from, &e);
    if !fs::metadata(from).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("is neither a file nor a folder")));
    }
    let is_link = fs::symlink_metadata(from).map_err(unreadable)?.is_symlink();
    if !is_link && fs::hard_link(from, to).is_ok() {
        counts.linked += 1;
    } else {
        fs::copy(from, to).map_err(|e| ExportError::io(to, &e))?;
        counts.copied += 1;
    }
    Ok(())
}
