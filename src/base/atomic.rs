//! Files and folders that appear whole or not at all.
//!
//! New content is made under a hidden temporary name beside its destination and renamed when it is on disk.
//! A temporary is locked as long as its writer lives; the next writer in the same folder removes those whose
//! lock is free, which are the leftovers of writers that were killed. A process that ends in good order despite work in
//! hand calls [`abandon`] first.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rayon::prelude::*;

/// How the names of unfinished content end.
const UNFINISHED: &str = ".anemeter-tmp";
/// How the names of content end that is being replaced.
const REPLACED: &str = ".anemeter-old";

/// Temporary names that this process has made and neither renamed nor removed. Names are made and renamed under its lock.
static IN_THE_MAKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn in_the_making() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    IN_THE_MAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what this process has not finished, and keeps all of its threads from finishing or beginning anything more:
/// they wait until the process ends. Gives what could not be removed.
pub fn abandon() -> Vec<PathBuf> {
    const ATTEMPTS: usize = 100;
    let names = in_the_making();
    let removed = |path: &PathBuf| {
        // Other threads may still put files into a folder that is being removed, until it has gone.
        (0..ATTEMPTS).any(|_| {
            let gone = remove(path).is_ok() || path.symlink_metadata().is_err();
            if !gone {
                std::thread::sleep(Duration::from_millis(2));
            }
            gone
        })
    };
    let left = names.iter().filter(|path| !removed(path)).cloned().collect();
    std::mem::forget(names);
    left
}

/// Writes a file that is either complete or not there; an existing one is replaced. A symbolic link stays one: the file
/// that it names is written. What is no regular file, such as a pipe or a device, is written to as it is.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Before links are followed: `/dev/stdout` is a link to a pipe that has no path.
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    let path = &follow_links(path)?;
    let (parent, name) = split(path)?;
    let mut temporary = Temporary::file(&parent, name, bytes)?;
    temporary.rename(path, &mut in_the_making())?;
    sync_folder(&parent)
}

/// Writes a file that is either complete or not there. False if there is one of that name, which stays as it is. Where
/// the file system has no hard links, that holds among writers that hold a [`lock_file`].
pub fn create_file(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let (parent, name) = split(path)?;
    let mut temporary = Temporary::file(&parent, name, bytes)?;
    let mut names = in_the_making();
    // A link fails if the name is taken; a rename would replace the file.
    match fs::hard_link(&temporary.path, path) {
        Ok(()) => {}
        Err(_) if path.symlink_metadata().is_ok() => return Ok(false),
        Err(_) => temporary.rename(path, &mut names)?,
    }
    drop(names);
    drop(temporary);
    sync_folder(&parent)?;
    Ok(true)
}

/// Waits until no other process holds this lock. The system frees it when the handle is dropped or its owner dies.
pub fn lock_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.lock().map_err(|e| io::Error::new(e.kind(), format!("cannot be locked: {e}")))?;
    Ok(file)
}

/// A folder in the making.
pub struct Staging {
    temporary: Temporary,
    parent: PathBuf,
    target: PathBuf,
}

impl Staging {
    /// As [`Staging::new`], but fails with [`io::ErrorKind::ResourceBusy`] while another process stages the same folder.
    pub fn exclusive(target: &Path) -> io::Result<Staging> {
        let staging = Staging::new(target)?;
        let own = staging.path().file_name();
        let target_name = staging.target.file_name().map(|name| short(&name.to_string_lossy()));
        let entries = fs::read_dir(&staging.parent)?.filter_map(Result::ok);
        let is_rival = |name: &OsStr| {
            let of_target = name.to_str().and_then(|name| original_name(name, UNFINISHED));
            Some(name) != own && of_target.is_some() && of_target == target_name.as_deref()
        };
        let mut rivals = entries.filter(|entry| is_rival(&entry.file_name()));
        // One whose lock is free belongs to a process that has ended.
        let alive = rivals.any(|rival| File::open(rival.path()).is_ok_and(|f| !lock(&f).unwrap_or(true)));
        match alive {
            true => Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing it")),
            false => Ok(staging),
        }
    }

    /// Starts a folder that is to be at `target`.
    pub fn new(target: &Path) -> io::Result<Staging> {
        let target = &follow_links(target)?;
        let (parent, name) = split(target)?;
        clean(&parent);
        let temporary = Temporary::new(&parent, name, |path| {
            fs::create_dir(path)?;
            File::open(path)
        })?;
        let target = parent.join(name);
        Ok(Staging { temporary, parent, target })
    }

    /// Where its content goes.
    pub fn path(&self) -> &Path {
        &self.temporary.path
    }

    /// Flushes the folder and all that is in it to disk and puts it in its place. Whatever is in the place must
    /// be a folder: the two are exchanged, and the old one is removed. At no time is there nothing in the place, where the
    /// system can exchange; elsewhere the old one is moved aside, and put back by the next writer if this one is killed.
    pub fn commit(self) -> io::Result<()> {
        sync_tree(self.path())?;
        let parent = self.parent.clone();
        self.place()?;
        sync_folder(&parent)
    }

    /// As [`Staging::commit`] for a folder inside another staged one, which flushes all of it.
    pub fn place(self) -> io::Result<()> {
        let Staging { mut temporary, parent, target } = self;
        let Some(name) = target.file_name().filter(|_| target.is_dir()) else {
            return temporary.rename(&target, &mut in_the_making());
        };
        let mut names = in_the_making();
        if exchange(&temporary.path, &target).is_ok() {
            drop(names);
            sync_folder(&parent)?;
            // Dropping the temporary removes what was in the place.
            return Ok(());
        }
        let before = File::open(&target)?;
        let _ = lock(&before);
        let aside = parent.join(hidden_name(name, REPLACED));
        fs::rename(&target, &aside)?;
        if let Err(error) = temporary.rename(&target, &mut names) {
            fs::rename(&aside, &target)?;
            return Err(error);
        }
        sync_folder(&parent)?;
        remove(&aside)
    }
}

/// Something under a temporary name, removed unless it is renamed.
struct Temporary {
    path: PathBuf,
    /// Holds the lock.
    handle: File,
    renamed: bool,
}

impl Temporary {
    /// A file with its content on disk.
    fn file(parent: &Path, name: &OsStr, bytes: &[u8]) -> io::Result<Temporary> {
        clean(parent);
        let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let mut temporary = Temporary::new(parent, name, create)?;
        temporary.handle.write_all(bytes)?;
        temporary.handle.sync_all()?;
        Ok(temporary)
    }

    fn new(parent: &Path, name: &OsStr, create: impl Fn(&Path) -> io::Result<File>) -> io::Result<Temporary> {
        const ATTEMPTS: usize = 100;
        for _ in 0..ATTEMPTS {
            let path = parent.join(hidden_name(name, UNFINISHED));
            let mut names = in_the_making();
            let handle = match create(&path) {
                Ok(handle) => handle,
                // Another writer's cleaning may see the new name before it is locked and take it away.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) if e.kind() == io::ErrorKind::NotFound && parent.is_dir() => continue,
                Err(e) => return Err(e),
            };
            // Where nothing can be locked, nothing is cleaned either.
            if lock(&handle).unwrap_or(true) && path.symlink_metadata().is_ok() {
                names.insert(path.clone());
                return Ok(Temporary { path, handle, renamed: false });
            }
        }
        Err(io::Error::other("cannot make a temporary name"))
    }

    fn rename(&mut self, target: &Path, names: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.renamed = true;
        names.remove(&self.path);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = remove(&self.path);
            in_the_making().remove(&self.path);
        }
    }
}

/// Flushes a folder and all that is in it to disk. At the end and all at once they share transactions of the file
/// system and waits for the disk; one after the other, or as they are written, each has its own.
fn sync_tree(folder: &Path) -> io::Result<()> {
    let mut paths = vec![folder.to_owned()];
    let mut seen = 0;
    while let Some(path) = paths.get(seen) {
        if path.is_dir() {
            for entry in fs::read_dir(path.clone())? {
                paths.push(entry?.path());
            }
        }
        seen += 1;
    }
    paths.par_iter().try_for_each(|path| File::open(path)?.sync_all())
}

/// Flushes a folder's list of names to disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes what killed writers left in a folder. What one of them was about to replace is put back instead if
/// its place is empty. Failures are left to the next writer.
fn clean(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with('.')) else { continue };
        if !name.ends_with(UNFINISHED) && !name.ends_with(REPLACED) {
            continue;
        }
        let path = entry.path();
        let plain = entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_dir());
        if !plain || !File::open(&path).is_ok_and(|file| lock(&file).unwrap_or(false)) {
            continue;
        }
        let _ = match original_name(name, REPLACED).map(|original| parent.join(original)) {
            Some(place) if place.symlink_metadata().is_err() => fs::rename(&path, place),
            _ => remove(&path),
        };
    }
}

/// A hidden name that no other temporary has; it tells which process made it.
fn hidden_name(name: &OsStr, ending: &str) -> PathBuf {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = short(&name.to_string_lossy());
    PathBuf::from(format!(".{name}.{}-{serial}{ending}", std::process::id()))
}

/// A name that leaves room for what a hidden one has besides: file systems take 255 bytes. Other names that are as long
/// have other short forms.
fn short(name: &str) -> String {
    const LONGEST: usize = 180;
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let end = (0..=LONGEST - 20).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    format!("{}~{:016x}", &name[..end], hasher.finish())
}

/// The name that something with a hidden one has had before, or is to have.
fn original_name<'a>(hidden: &'a str, ending: &str) -> Option<&'a str> {
    let (name, _writer) = hidden.strip_prefix('.')?.strip_suffix(ending)?.rsplit_once('.')?;
    Some(name)
}

/// Exchanges two folders in one step, where the system can.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What a path names in the end, whether it is there or not.
pub fn follow_links(path: &Path) -> io::Result<PathBuf> {
    const MOST: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST {
        if !path.symlink_metadata().is_ok_and(|there| there.is_symlink()) {
            return Ok(path);
        }
        path = path.parent().unwrap_or(Path::new("")).join(fs::read_link(&path)?);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Locks a file or folder until the handle is dropped; false if another handle has it.
fn lock(handle: &File) -> io::Result<bool> {
    match handle.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// The folder and the name of a path.
fn split(path: &Path) -> io::Result<(PathBuf, &OsStr)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent.to_owned(), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_replaced_whole_and_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_file(&path, b"first").unwrap();
        write_file(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["a.json"]);
        assert!(write_file(&folder.path().join("none/a.json"), b"").is_err());
    }

    #[test]
    fn a_file_is_created_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        assert!(create_file(&path, b"first").unwrap());
        assert!(!create_file(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn leftovers_of_the_dead_are_removed_and_those_of_the_living_kept() {
        let folder = tempfile::tempdir().unwrap();
        let alive = Staging::new(&folder.path().join("alive")).unwrap();
        fs::create_dir(folder.path().join(".dead.1-0.anemeter-tmp")).unwrap();
        fs::create_dir(folder.path().join(".kept.1-1.anemeter-old")).unwrap();
        fs::create_dir(folder.path().join("mine.anemeter-tmp")).unwrap();
        write_file(&folder.path().join("b"), b"").unwrap();
        let hidden = alive.path().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(names(folder.path()), [&hidden, "b", "kept", "mine.anemeter-tmp"]);
        drop(alive);
        assert_eq!(names(folder.path()), ["b", "kept", "mine.anemeter-tmp"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_pipes_stay_pipes() {
        use std::io::Read;
        use std::os::unix::fs::{FileTypeExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("there")).unwrap();
        symlink("there/file", at("link")).unwrap();
        symlink("link", at("link_to_link")).unwrap();
        for content in [b"new", b"two"] {
            write_file(&at("link_to_link"), content).unwrap();
            assert_eq!(fs::read(at("there/file")).unwrap(), content);
        }
        assert!(at("link").symlink_metadata().unwrap().is_symlink());
        symlink("circle", at("circle")).unwrap();
        assert!(write_file(&at("circle"), b"").is_err());

        let pipe = at("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut text = String::new();
                File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        });
        write_file(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
        write_file(Path::new("/dev/null"), b"gone").unwrap();
        assert!(Path::new("/dev/null").symlink_metadata().unwrap().file_type().is_char_device());

        let staging = Staging::new(&at("link_to_folder")).unwrap();
        drop(staging);
        symlink("there", at("link_to_folder")).unwrap();
        Staging::new(&at("link_to_folder")).unwrap().commit().unwrap();
        assert!(at("link_to_folder").symlink_metadata().unwrap().is_symlink());
        assert!(!at("there/file").exists());
    }

    #[test]
    fn of_two_that_stage_one_folder_the_second_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("bundle");
        let first = Staging::exclusive(&target).unwrap();
        let second = Staging::exclusive(&target).map(drop).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
        let other = Staging::exclusive(&folder.path().join("other")).unwrap();
        first.commit().unwrap();
        Staging::exclusive(&target).unwrap().commit().unwrap();
        drop(other);
        assert_eq!(names(folder.path()), ["bundle"]);
    }

    #[test]
    fn names_may_be_as_long_as_the_file_system_takes() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["n".repeat(255), "é".repeat(127)] {
            let path = folder.path().join(&name);
            write_file(&path, b"one").unwrap();
            assert!(!create_file(&path, b"two").unwrap());
            fs::remove_file(&path).unwrap();
            let first = Staging::exclusive(&path).unwrap();
            assert!(Staging::exclusive(&path).is_err());
            first.commit().unwrap();
            Staging::exclusive(&path).unwrap().commit().unwrap();
            assert_eq!(names(folder.path()), [name]);
            fs::remove_dir(&path).unwrap();
        }
    }

    #[test]
    fn a_staged_folder_replaces_the_one_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("p");
        for content in ["one", "two"] {
            let staging = Staging::new(&target).unwrap();
            write_file(&staging.path().join("f"), content.as_bytes()).unwrap();
            staging.commit().unwrap();
            assert_eq!(fs::read_to_string(target.join("f")).unwrap(), content);
        }
        assert_eq!(names(folder.path()), ["p"]);
    }
}
