//! Where a bundle goes: nothing but a bundle is replaced, and what it is made from is never written over.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::{ExportError, Occupant};
use crate::atomic::{Staging, follow_links};
use crate::bundle::{Bundle, MANIFEST, Manifest};
use crate::package::{DS_STORE, foreign_file};
use crate::report::{Quality, Record, Verification};

/// A folder that is to become a bundle.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    /// The folder.
    pub(crate) output: PathBuf,
    /// Whether a bundle that is there already is replaced.
    pub(crate) overwrite: bool,
    /// What the bundle is made from, and what each of these is called.
    pub(crate) sources: Vec<(&'static str, PathBuf)>,
}

impl Destination {
    /// Refuses a destination whose content would be lost.
    pub(crate) fn check(&self) -> Result<(), ExportError> {
        for (what, source) in &self.sources {
            check_apart((what, source.as_path()), &self.output)?;
        }
        let output = &self.output;
        let Ok(metadata) = fs::metadata(output) else { return Ok(()) };
        let exists = |what| Err(ExportError::Exists { path: output.clone(), what });
        if !metadata.is_dir() {
            return exists(Occupant::Other);
        }
        if fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_none()) {
            return Ok(());
        }
        let Ok(bundle) = Bundle::open(output) else { return exists(Occupant::Other) };
        if !self.overwrite {
            return exists(Occupant::Bundle);
        }
        match foreign(&bundle).map_err(|e| ExportError::unreadable(output, &e))? {
            Some(path) => Err(ExportError::Exists { path, what: Occupant::Foreign }),
            None => Ok(()),
        }
    }

    /// Makes a bundle in a staged folder and puts it in its place. Errors are about the place.
    pub(crate) fn make(
        &self,
        build: impl FnOnce(&Path) -> Result<Manifest, ExportError>,
    ) -> Result<Bundle, ExportError> {
        let staging = self.stage()?;
        let folder = staging.path().to_owned();
        let made = build(&folder).and_then(|manifest| self.commit(staging, &manifest));
        made.map_err(|error| error.moved(&folder, &self.output))
    }

    /// Starts the bundle's folder, and makes the folders that it is in.
    fn stage(&self) -> Result<Staging, ExportError> {
        let output = &self.output;
        let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
        let made = parent.map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| Staging::exclusive(output)).map_err(|e| ExportError::io(output, &e))
    }

    /// Writes the description of a bundle, and puts all of it in its place.
    fn commit(&self, staging: Staging, manifest: &Manifest) -> Result<Bundle, ExportError> {
        let output = &self.output;
        let text = serde_json::to_string_pretty(manifest).map_err(|e| ExportError::io(output, &e.into()))?;
        write_file(&staging.path().join(MANIFEST), format!("{text}\n").as_bytes())?;
        // Read back before it replaces one that is good.
        Bundle::open(staging.path())?;
        // Much may have come to be there since the work began.
        self.check()?;
        staging.commit().map_err(|e| ExportError::io(output, &e))?;
        Ok(Bundle::open(output)?)
    }
}

/// Writes a file that is not there yet.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ExportError> {
    use std::io::Write;
    let write = || fs::File::create_new(path)?.write_all(bytes);
    write().map_err(|e| ExportError::io(path, &e))
}

/// Refuses a source inside the destination, and a destination inside the source.
pub(crate) fn check_apart((what, source): (&str, &Path), given: &Path) -> Result<(), ExportError> {
    let (Some(source), Some(output)) = (real(source), real(given)) else { return Ok(()) };
    let how = if source == output {
        format!("is the {what} itself")
    } else if source.starts_with(&output) {
        format!("is a folder that holds the {what}")
    } else if output.starts_with(&source) {
        format!("is inside the {what}")
    } else {
        return Ok(());
    };
    Err(ExportError::Overlap { path: given.to_owned(), how })
}

/// A path without symbolic links, as far as it is there.
fn real(path: &Path) -> Option<PathBuf> {
    let mut missing: Vec<&OsStr> = Vec::new();
    // A link to what is not there yet is where it will be.
    let path = std::path::absolute(follow_links(path).ok()?).ok()?;
    let mut there = path.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            return Some(missing.iter().rev().fold(real, |path, name| path.join(name)));
        }
        missing.push(there.file_name()?);
        there = there.parent()?;
    }
}

/// The path of a file from the folder of a bundle, with `/` between its parts; the path as given if there is none.
pub(super) fn from_bundle(output: &Path, file: &Path) -> String {
    let relative = || {
        let (folder, file) = (real(output)?, real(file)?);
        let shared = folder.components().zip(file.components()).take_while(|(a, b)| a == b).count();
        let up = folder.components().skip(shared).map(|_| "..");
        let down = file.components().skip(shared).map(|part| part.as_os_str().to_str());
        // Nothing is shared by two drives.
        let parts: Vec<&str> = up.map(Some).chain(down).collect::<Option<_>>()?;
        (shared > 0).then(|| parts.join("/"))
    };
    relative().unwrap_or_else(|| file.display().to_string())
}

/// Something in a bundle's folder that no export, `verify` or `eval` wrote.
fn foreign(bundle: &Bundle) -> std::io::Result<Option<PathBuf>> {
    let records = [MANIFEST, Verification::FILE, Quality::FILE, DS_STORE];
    for entry in fs::read_dir(bundle.folder())? {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let own = records.contains(&name) || bundle.files().any(|file| file == name);
        if !own || path.symlink_metadata()?.is_symlink() {
            return Ok(Some(path));
        }
        if path.is_dir() {
            let is_asset = path.extension().is_some_and(|ending| ending == "aimodel");
            let found = if is_asset { foreign_in_asset(&path)? } else { foreign_file(&path)? };
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

/// Something in a Core AI asset that is not part of it.
fn foreign_in_asset(asset: &Path) -> std::io::Result<Option<PathBuf>> {
    let own = ["main.mlirb", "main.hash", "metadata.json", DS_STORE];
    let entries: Vec<_> = fs::read_dir(asset)?.collect::<Result<_, _>>()?;
    let foreign = entries.into_iter().find(|entry| own.iter().all(|own| entry.file_name() != *own));
    Ok(foreign.map(|entry| entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_and_its_destination_lie_apart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("model/inner")).unwrap();
        for (checkpoint, output, expected) in [
            ("model", "model", Some("is the checkpoint itself")),
            ("model", "model/inner/../", Some("is the checkpoint itself")),
            ("model", "model/new/bundle", Some("is inside the checkpoint")),
            ("model/inner", "model", Some("is a folder that holds the checkpoint")),
            ("model", "model2", None),
            ("model", "new/bundle", None),
        ] {
            let found =
                check_apart(("checkpoint", at(checkpoint).as_path()), &at(output)).map_err(|e| e.to_string());
            let expected = expected.map_or(Ok(()), |text| Err(format!("{}: {text}", at(output).display())));
            assert_eq!(found, expected, "{checkpoint} to {output}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_do_not_hide_that_a_destination_holds_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("model")).unwrap();
        std::os::unix::fs::symlink("model", folder.path().join("link")).unwrap();
        let checkpoint = folder.path().join("model");
        let source = ("checkpoint", checkpoint.as_path());
        assert!(check_apart(source, &folder.path().join("link")).is_err());
        assert!(check_apart(source, &folder.path().join("link/bundle")).is_err());
    }
}
