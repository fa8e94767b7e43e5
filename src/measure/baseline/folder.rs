//! Documents in a folder of this machine.
//!
//! Writers take turns by a lock on a file; new content appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use anemeter_base::atomic::{create_file, lock_file, write_file};
use anemeter_base::files;

use super::seal::hex;
use super::storage::{Storage, StorageError, StoredObject, Version};

/// The file that writers lock.
const LOCK: &str = ".lock";
/// Keeps that file out of a repository; it is written beside it unless there is one.
const GITIGNORE: (&str, &[u8]) = (".gitignore", b"/.lock\n");
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
    fn lock(&self) -> Result<File, StorageError> {
        let locked = fs::create_dir_all(&self.root).and_then(|()| lock_file(&self.path(LOCK)));
        let locked = locked.map_err(|e| self.failed(LOCK, &e))?;
        let (name, lines) = GITIGNORE;
        if !self.path(name).exists() {
            create_file(&self.path(name), lines).map_err(|e| self.failed(name, &e))?;
        }
        Ok(locked)
    }

    /// The path of a document, in a folder that exists.
    fn writable(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        Ok(path)
    }
}

fn version_of(bytes: &[u8]) -> Version {
    Version { tag: Some(hex(&Sha256::digest(bytes))), version: None }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match files::open(path) {
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

    fn read(&self, name: &str) -> Result<Option<StoredObject>, StorageError> {
        log::debug!("reads {}", self.place(name));
        let bytes = read(&self.path(name)).map_err(|e| self.failed(name, &e))?;
        Ok(bytes.map(|bytes| StoredObject { version: version_of(&bytes), bytes }))
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, StorageError> {
        let _lock = self.lock()?;
        let created = self.writable(name).and_then(|path| create_file(&path, bytes));
        created.map_err(|e| self.failed(name, &e))
    }

    fn replace(&self, name: &str, bytes: &[u8], version: &Version) -> Result<bool, StorageError> {
        let _lock = self.lock()?;
        match self.read(name)? {
            Some(stored) if stored.version == *version => {}
            _ => return Ok(false),
        }
        let written = self.writable(name).and_then(|path| write_file(&path, bytes));
        written.map(|()| true).map_err(|e| self.failed(name, &e))
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
    fn the_lock_stays_out_of_a_repository() {
        let (_temporary, folder) = folder();
        folder.create("a/b.json", b"one").unwrap();
        let ignored = folder.path(".gitignore");
        assert_eq!(fs::read_to_string(&ignored).unwrap(), "/.lock\n");
        write_file(&ignored, b"# ours\n").unwrap();
        folder.create("a/c.json", b"two").unwrap();
        assert_eq!(fs::read_to_string(&ignored).unwrap(), "# ours\n", "a file that is there stays");
        assert_eq!(folder.names().unwrap(), ["a/b.json", "a/c.json"]);
    }

    #[test]
    fn leftovers_are_removed_and_never_listed() {
        let (_temporary, folder) = folder();
        folder.create("a/b.json", b"one").unwrap();
        let leftover = folder.path("a/.c.json.1-0.anemeter-tmp");
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
