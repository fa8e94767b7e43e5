//! The cache of compiled models: one folder per package content and build of the system.
//!
//! A model appears in the cache whole or not at all, and processes that want the same one at the same time compile it
//! once: a lock file beside it is held while it is made.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::RuntimeError;
use anemeter_base::atomic::Staging;

/// Where compiled models are, in place of the user's cache folder.
const VARIABLE: &str = "ANEMETER_CACHE_DIR";
const FOLDER: &str = "compiled";
const ENDING: &str = "mlmodelc";
const LOCK: &str = "lock";

/// What a compiled model depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    digest: u128,
    build: String,
}

impl Key {
    /// A package's content, compiled by a build of the system.
    pub fn new(digest: u128, build: &str) -> Key {
        let letters = build.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
        Key { digest, build: letters.take(64).collect() }
    }

    fn name(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

/// A compiled model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// Where it is.
    pub path: PathBuf,
    /// Digest of the package, in hexadecimal.
    pub digest: String,
    /// The build of the system that compiled it.
    pub build: String,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Compiled models in a folder.
#[derive(Debug, Clone)]
pub struct CompileCache {
    root: PathBuf,
}

impl CompileCache {
    /// The cache in a folder, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> CompileCache {
        CompileCache { root: folder.into().join(FOLDER) }
    }

    /// The user's cache: `ANEMETER_CACHE_DIR`, or the folder that the system has for caches.
    pub fn of_user() -> Option<CompileCache> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = || variable("HOME");
        let system = || match cfg!(target_os = "macos") {
            true => home().map(|home| home.join("Library/Caches")),
            false => variable("XDG_CACHE_HOME").or_else(|| Some(home()?.join(".cache"))),
        };
        let folder = variable(VARIABLE).or_else(|| Some(system()?.join("anemeter")))?;
        Some(CompileCache::at(folder))
    }

    /// Where compiled models are.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// The compiled model of a key and whether it was there before; otherwise `make` makes a folder, which is moved in.
    pub fn get_or_make(
        &self,
        key: &Key,
        make: impl FnOnce() -> Result<PathBuf, RuntimeError>,
    ) -> Result<(PathBuf, bool), RuntimeError> {
        let folder = self.root.join(&key.build);
        let target = folder.join(key.name()).with_extension(ENDING);
        if target.is_dir() {
            return Ok((target, true));
        }
        fs::create_dir_all(&folder).map_err(|e| unusable(&folder, &e))?;
        let lock = folder.join(key.name()).with_extension(LOCK);
        let held = hold(&lock).map_err(|e| unusable(&lock, &e))?;
        // Another process may have made it while this one waited.
        let made = match target.is_dir() {
            true => Ok((target, true)),
            false => make().and_then(|made| {
                move_folder(&made, &target).map_err(|e| unusable(&target, &e))?;
                Ok((target, false))
            }),
        };
        drop(held);
        made
    }

    /// Everything in the cache, in order of build and digest.
    pub fn list(&self) -> io::Result<Vec<CacheEntry>> {
        let mut entries = Vec::new();
        for build in folders(&self.root)? {
            for path in
                folders(&build)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == ENDING))
            {
                let text =
                    |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
                entries.push(CacheEntry {
                    digest: text(path.file_stem()),
                    build: text(build.file_name()),
                    bytes: size(&path)?,
                    path,
                });
            }
        }
        Ok(entries)
    }

    /// Removes everything that no process is making right now; gives what was removed.
    pub fn clear(&self) -> io::Result<Vec<CacheEntry>> {
        let entries = self.list()?;
        let mut removed = Vec::new();
        for entry in entries {
            let lock = entry.path.with_extension(LOCK);
            let file = open(&lock)?;
            if file.try_lock().is_err() {
                continue;
            }
            fs::remove_dir_all(&entry.path)?;
            fs::remove_file(&lock)?;
            removed.push(entry);
        }
        Ok(removed)
    }
}

fn unusable(path: &Path, error: &io::Error) -> RuntimeError {
    RuntimeError::Environment(format!("{}: {error}; {VARIABLE} names another folder", path.display()))
}

fn open(lock: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(lock)
}

/// Waits for a lock. A lock file that was removed meanwhile guards nothing, so the one in its place is taken.
fn hold(lock: &Path) -> io::Result<File> {
    loop {
        let file = open(lock)?;
        file.lock()?;
        if is_still_there(&file, lock) {
            return Ok(file);
        }
    }
}

#[cfg(unix)]
fn is_still_there(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata().and_then(|held| Ok((held, fs::metadata(path)?)));
    found.is_ok_and(|(held, there)| (held.dev(), held.ino()) == (there.dev(), there.ino()))
}

#[cfg(not(unix))]
fn is_still_there(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Moves a folder; from another file system it is copied beside its destination first.
fn move_folder(from: &Path, to: &Path) -> io::Result<()> {
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    let staging = Staging::new(to)?;
    copy(from, staging.path())?;
    staging.commit()?;
    // What is left behind is in the system's folder for temporaries.
    let _ = fs::remove_dir_all(from);
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => {
                fs::create_dir_all(&target)?;
                copy(&entry.path(), &target)?;
            }
            false => {
                fs::copy(entry.path(), &target)?;
                File::open(&target)?.sync_all()?;
            }
        }
    }
    Ok(())
}

/// Folders in a folder, sorted; none if it does not exist.
fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use anemeter_base::atomic::write_file;

    fn made(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.join("weights")).unwrap();
        write_file(&path.join("model.mil"), b"program").unwrap();
        write_file(&path.join("weights/weight.bin"), b"1234").unwrap();
        path
    }

    #[test]
    fn a_model_is_made_once_per_content_and_build() {
        let (folder, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = CompileCache::at(folder.path());
        let never = || -> Result<PathBuf, RuntimeError> { panic!("made again") };
        let key = Key::new(7, "24C101");
        let (path, cached) = cache.get_or_make(&key, || Ok(made(work.path(), "a"))).unwrap();
        assert!(!cached && path.join("weights/weight.bin").is_file() && !work.path().join("a").exists());
        assert_eq!(cache.get_or_make(&key, never).unwrap(), (path.clone(), true));
        let newer = Key::new(7, "25A1 (beta)/..");
        let (other, cached) = cache.get_or_make(&newer, || Ok(made(work.path(), "b"))).unwrap();
        assert!(!cached && other != path && other.starts_with(cache.folder()));
        let entries = cache.list().unwrap();
        assert_eq!(
            entries.iter().map(|e| e.build.as_str()).collect::<Vec<_>>(),
            ["24C101", "25A1--beta----"]
        );
        assert_eq!((entries[0].bytes, entries[0].digest.as_str()), (11, "00000000000000000000000000000007"));
        assert_eq!(cache.clear().unwrap(), entries);
        assert_eq!(cache.list().unwrap(), []);
    }

    #[test]
    fn two_at_once_compile_once() {
        let (folder, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = CompileCache::at(folder.path());
        let count = AtomicUsize::new(0);
        let key = Key::new(1, "x");
        let wait = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    wait.wait();
                    let make = || Ok(made(work.path(), &count.fetch_add(1, Ordering::SeqCst).to_string()));
                    assert!(cache.get_or_make(&key, make).unwrap().0.is_dir());
                });
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_fails_leaves_nothing_and_what_is_being_made_stays() {
        let (folder, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = CompileCache::at(folder.path());
        let key = Key::new(2, "x");
        let error = cache.get_or_make(&key, || Err(RuntimeError::Environment("no".to_owned())));
        assert_eq!(error.unwrap_err().to_string(), "no");
        assert_eq!(cache.list().unwrap(), []);
        let (path, _) = cache.get_or_make(&key, || Ok(made(work.path(), "a"))).unwrap();
        let held = hold(&path.with_extension(LOCK)).unwrap();
        assert_eq!(cache.clear().unwrap(), []);
        drop(held);
        assert_eq!(cache.clear().unwrap().len(), 1);
    }

    #[test]
    fn copies_from_elsewhere_are_complete() {
        let (folder, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = made(work.path(), "a");
        let to = folder.path().join("copy");
        fs::create_dir(&to).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("weights/weight.bin")).unwrap(), b"1234");
        assert_eq!(size(&to).unwrap(), 11);
    }
}
