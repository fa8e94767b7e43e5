//! The files of a checkpoint: mapped, regular, and not outside the folder they belong to.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::Shard;
use super::error::{CheckpointError, Result, quoted};
use anemeter_kernels::tensor::Bytes;

/// Longest JSON or text file that is read: the largest tokenizers take a quarter of it.
const LONGEST_TEXT: usize = 128 << 20;

/// A folder that holds a checkpoint.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Where its files may be once links are followed.
    roots: Vec<PathBuf>,
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) path: PathBuf,
    pub(super) bytes: Bytes,
    mapping: Duration,
}

impl Folder {
    /// The folder at a path.
    pub(super) fn open(path: &Path) -> Result<Folder> {
        let resolved = fs::canonicalize(path).map_err(|e| CheckpointError::io(path, "open", &e))?;
        let roots = hub_blobs(&resolved).into_iter().chain([resolved.clone()]).collect();
        Ok(Folder { path: path.to_owned(), roots })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A file of the folder, or `None` if there is none of that name.
    pub(super) fn find(&self, name: &str) -> Result<Option<Mapped>> {
        let relative = Path::new(name);
        if name.is_empty() || !relative.components().all(|part| matches!(part, Component::Normal(_))) {
            let message = format!("file name {} leads outside the folder", quoted(name));
            return Err(CheckpointError::new(message).in_file(&self.path));
        }
        let path = self.path.join(relative);
        let resolved = match fs::canonicalize(&path) {
            Ok(resolved) => resolved,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(CheckpointError::io(&path, "open", &e)),
        };
        if !self.roots.iter().any(|root| resolved.starts_with(root)) {
            return Err(CheckpointError::new("is a link that leads outside the folder").in_file(&path));
        }
        Mapped::open(&path).map(Some)
    }

    /// A file that must be there.
    pub(super) fn require(&self, name: &str) -> Result<Mapped> {
        self.find(name)?.ok_or_else(|| CheckpointError::new("does not exist").in_file(&self.path.join(name)))
    }
}

/// The folder that the links of a Hugging Face cache lead to: `models--*/snapshots/<revision>` links to
/// `models--*/blobs`.
fn hub_blobs(resolved: &Path) -> Option<PathBuf> {
    let snapshots = resolved.parent().filter(|parent| parent.ends_with("snapshots"))?;
    let repository = snapshots.parent()?;
    let is_hub = repository.file_name()?.to_str()?.starts_with("models--");
    is_hub.then(|| repository.join("blobs"))
}

impl Mapped {
    /// Maps a regular file; anything else could block or never end.
    pub(super) fn open(path: &Path) -> Result<Mapped> {
        let started = Instant::now();
        let metadata = fs::metadata(path).map_err(|e| CheckpointError::io(path, "open", &e))?;
        if !metadata.is_file() {
            return Err(CheckpointError::new("is not a regular file").in_file(path));
        }
        let file = File::open(path).map_err(|e| CheckpointError::io(path, "open", &e))?;
        let bytes = Bytes::map(&file).map_err(|e| CheckpointError::io(path, "map", &e))?;
        Ok(Mapped { path: path.to_owned(), bytes, mapping: started.elapsed() })
    }

    /// The file as one that holds weights.
    pub(super) fn shard(&self) -> Shard {
        Shard { path: self.path.clone(), bytes: self.bytes.clone(), mapping: self.mapping }
    }

    /// An error about this file.
    pub(super) fn error(&self, message: impl Into<String>) -> CheckpointError {
        CheckpointError::new(message).in_file(&self.path)
    }

    /// Its content as text.
    pub(super) fn text(&self) -> Result<&str> {
        if self.bytes.len() > LONGEST_TEXT {
            let message = format!("has {} bytes, at most {LONGEST_TEXT} are read", self.bytes.len());
            return Err(self.error(message));
        }
        std::str::from_utf8(&self.bytes).map_err(|e| self.error(format!("is not text: {e}")))
    }

    /// Its content from JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.text()?).map_err(|e| self.error(format!("is not the JSON expected: {e}")))
    }
}
