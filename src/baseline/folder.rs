//! Documents in a folder of this machine.
//!
//! Writers take turns by a lock on a file, which the system frees when its owner dies. New content is a temporary
//! sibling that is renamed when it is on disk; what killed writers leave is removed by the next one.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::seal::hex;
use super::storage::{Storage, StorageError, Stored, Version};

/// The file that writers lock.
const LOCK: &str = ".lock";
/// How the names of unfinished files begin.
const UNFINISHED: &str = ".unfinished-";
/// A document is never longer than this.
const LONGEST: u64 = 1 << 30;

/// A folder that keeps documents.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// A folder, which need not be there yet.
    pub fn new(root: &Path) -> Folder {
        Folder { root: root.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn failed(&self, name: &str, error: &io::Error) -> StorageError {
        StorageError { at: self.place(name), problem: error.to_string() }
    }

    /// Waits until no other writer is at work.
    fn lock(&self) -> io::Result<File> {
        fs::create_dir_all(&self.root)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(self.path(LOCK))?;
        lock.lock().map_err(|e| io::Error::new(e.kind(), format!("the folder cannot be locked: {e}")))?;
        Ok(lock)
    }

    /// Writes a document under the lock, in place of another or only if there is none.
    fn write(&self, name: &str, bytes: &[u8], replace: bool) -> io::Result<bool> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        remove_unfinished(folder);
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.prefix(UNFINISHED).tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        let kept = if replace { file.persist(&path) } else { file.persist_noclobber(&path) };
        match kept {
            Ok(_) => {}
            Err(e) if !replace && e.error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(e) => return Err(e.error),
        }
        File::open(folder)?.sync_all()?;
        Ok(true)
    }
}

fn version_of(bytes: &[u8]) -> Version {
    Version { tag: Some(hex(&Sha256::digest(bytes))), version: None }
}

/// Whoever holds the lock is the only writer, so all of these are leftovers. What cannot be removed does no harm.
fn remove_unfinished(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for entry in entries.filter(|entry| starts(&entry.file_name(), UNFINISHED)) {
        let _ = fs::remove_file(entry.path());
    }
}

fn starts(name: &OsStr, start: &str) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(start))
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("is longer than {LONGEST} bytes")));
    }
    Ok(Some(bytes))
}

impl Storage for Folder {
    fn place(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn read(&self, name: &str) -> Result<Option<Stored>, StorageError> {
        log::debug!("reads {}", self.place(name));
        let bytes = read(&self.path(name)).map_err(|e| self.failed(name, &e))?;
        Ok(bytes.map(|bytes| Stored { version: version_of(&bytes), bytes }))
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, StorageError> {
        let _lock = self.lock().map_err(|e| self.failed(LOCK, &e))?;
        self.write(name, bytes, false).map_err(|e| self.failed(name, &e))
    }

    fn replace(&self, name: &str, bytes: &[u8], version: &Version) -> Result<bool, StorageError> {
        let _lock = self.lock().map_err(|e| self.failed(LOCK, &e))?;
        match self.read(name)? {
            Some(stored) if stored.version == *version => {}
            _ => return Ok(false),
        }
        self.write(name, bytes, true).map_err(|e| self.failed(name, &e))
    }

    fn names(&self) -> Result<Vec<String>, StorageError> {
        let mut names = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(self.path(&folder)) {
                Ok(entries) => entries,
                Err(e) if folder.is_empty() && e.kind() == ErrorKind::NotFound => return Ok(names),
                Err(e) => return Err(self.failed(&folder, &e)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| self.failed(&folder, &e))?;
                let kind = entry.file_type().map_err(|e| self.failed(&folder, &e))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                if kind.is_dir() {
                    folders.push(name);
                } else if name.ends_with(".json") {
                    names.push(name);
                }
            }
        }
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(&temporary.path().join("new"));
        (temporary, folder)
    }

    #[test]
    fn documents_are_created_once_and_replaced_by_whoever_knows_them() {
        let (_temporary, folder) = folder();
        assert!(folder.read("a/b.json").unwrap().is_none());
        assert_eq!(folder.names().unwrap(), Vec::<String>::new());
        assert!(folder.create("a/b.json", b"one").unwrap());
        assert!(!folder.create("a/b.json", b"two").unwrap());
        let one = folder.read("a/b.json").unwrap().unwrap();
        assert_eq!(one.bytes, b"one");
        assert!(folder.replace("a/b.json", b"two", &one.version).unwrap());
        assert!(!folder.replace("a/b.json", b"three", &one.version).unwrap());
        assert!(!folder.replace("a/none.json", b"three", &one.version).unwrap());
        assert_eq!(folder.read("a/b.json").unwrap().unwrap().bytes, b"two");
        assert_eq!(folder.names().unwrap(), ["a/b.json"]);
    }

    #[test]
    fn leftovers_are_removed_and_never_listed() {
        let (_temporary, folder) = folder();
        folder.create("a/b.json", b"one").unwrap();
        let leftover = folder.path("a/.unfinished-x");
        File::create(&leftover).unwrap();
        assert_eq!(folder.names().unwrap(), ["a/b.json"]);
        folder.create("a/c.json", b"").unwrap();
        assert!(!leftover.exists());
    }

    #[test]
    #[cfg(unix)]
    fn others_may_read_what_is_written() {
        use std::os::unix::fs::PermissionsExt;
        let (_temporary, folder) = folder();
        folder.create("b.json", b"").unwrap();
        File::create(folder.path("plain")).unwrap();
        let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode();
        assert_eq!(mode("b.json"), mode("plain"), "the same as of any new file");
    }
}
