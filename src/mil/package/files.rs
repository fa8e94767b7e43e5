//! The files of a package: in a folder, which nothing may lead out of, or in memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::error::{ErrorKind, PackageError, Result};
use anemeter_kernels::tensor::Bytes;

/// How the text files begin that stand for large ones in a clone without Git LFS.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Where the files of a package are.
#[derive(Debug)]
pub(super) enum Files {
    /// In a folder, given without symbolic links.
    Folder(PathBuf),
    /// In memory, by path relative to the package.
    Memory(BTreeMap<PathBuf, Bytes>),
}

impl Files {
    /// Checks that a file or folder exists inside the package.
    pub(super) fn check(&self, relative: &Path) -> Result<()> {
        match self {
            Files::Folder(root) => inside(root, relative).map(drop),
            Files::Memory(files) => match files.keys().any(|path| path.starts_with(relative)) {
                true => Ok(()),
                false => Err(missing(relative)),
            },
        }
    }

    /// The resolved path and the content of a file inside the package.
    pub(super) fn map(&self, relative: &Path) -> Result<(PathBuf, Bytes)> {
        let (path, bytes) = match self {
            Files::Folder(root) => {
                let path = inside(root, relative)?;
                let bytes = map_file(&path)?;
                (path, bytes)
            }
            Files::Memory(files) => {
                self.check(relative)?;
                let bytes = files.get(relative).ok_or_else(|| folder_error(relative))?;
                (relative.to_owned(), bytes.clone())
            }
        };
        match bytes.starts_with(LFS_POINTER) {
            true => Err(PackageError::new(ErrorKind::Missing, "is a Git LFS pointer, not the file itself")
                .in_file(&path)
                .with_help("fetch the files: git lfs pull")),
            false => Ok((path, bytes)),
        }
    }
}

/// The resolved path of something that must exist inside a folder.
fn inside(root: &Path, relative: &Path) -> Result<PathBuf> {
    let path = root.join(relative);
    let resolved = fs::canonicalize(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => missing(&path),
        _ => PackageError::io(&path, "open", &e),
    })?;
    match resolved.starts_with(root) {
        true => Ok(resolved),
        false => Err(PackageError::new(ErrorKind::Path, "leads outside the package").in_file(&path)),
    }
}

/// Maps a regular file; anything else could block or never end.
pub(super) fn map_file(path: &Path) -> Result<Bytes> {
    let open_error = |e: io::Error| PackageError::io(path, "open", &e);
    let metadata = fs::metadata(path).map_err(open_error)?;
    if metadata.is_dir() {
        return Err(folder_error(path));
    }
    if !metadata.is_file() {
        return Err(PackageError::new(ErrorKind::Path, "is not a regular file").in_file(path));
    }
    let file = File::open(path).map_err(open_error)?;
    Bytes::map(&file).map_err(|e| PackageError::io(path, "map", &e))
}

fn missing(path: &Path) -> PackageError {
    PackageError::new(ErrorKind::Missing, "does not exist").in_file(path)
}

fn folder_error(path: &Path) -> PackageError {
    PackageError::new(ErrorKind::Path, "is a folder, expected a file").in_file(path)
}
