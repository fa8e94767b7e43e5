//! Where a bundle goes: nothing but a bundle is replaced, and a checkpoint is never written over.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::{ExportError, Occupant, Request};
use crate::atomic::Staging;
use crate::bundle::{Bundle, MANIFEST};
use crate::package::{DS_STORE, foreign_file};
use crate::report::{Quality, Record, Verification};

/// Refuses a destination whose content would be lost.
pub(super) fn check(request: &Request) -> Result<(), ExportError> {
    check_apart(&request.checkpoint, &request.output)?;
    let output = &request.output;
    let Ok(metadata) = fs::metadata(output) else { return Ok(()) };
    let exists = |what| Err(ExportError::Exists { path: output.clone(), what });
    if !metadata.is_dir() {
        return exists(Occupant::Other);
    }
    if fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_none()) {
        return Ok(());
    }
    let Ok(bundle) = Bundle::open(output) else { return exists(Occupant::Other) };
    if !request.overwrite {
        return exists(Occupant::Bundle);
    }
    match foreign(&bundle).map_err(|e| ExportError::unreadable(output, &e))? {
        Some(path) => Err(ExportError::Exists { path, what: Occupant::Foreign }),
        None => Ok(()),
    }
}

/// Starts the bundle's folder, and makes the folders that it is in.
pub(super) fn stage(output: &Path) -> Result<Staging, ExportError> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = parent.map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| Staging::exclusive(output)).map_err(|e| ExportError::io(output, &e))
}

/// Refuses a checkpoint inside the destination, and a destination inside the checkpoint.
fn check_apart(checkpoint: &Path, given: &Path) -> Result<(), ExportError> {
    let (Some(checkpoint), Some(output)) = (real(checkpoint), real(given)) else { return Ok(()) };
    let how = if checkpoint == output {
        "is the checkpoint itself"
    } else if checkpoint.starts_with(&output) {
        "is a folder that holds the checkpoint"
    } else if output.starts_with(&checkpoint) {
        "is inside the checkpoint"
    } else {
        return Ok(());
    };
    Err(ExportError::Overlap { path: given.to_owned(), how })
}

/// A path without symbolic links, as far as it is there.
fn real(path: &Path) -> Option<PathBuf> {
    let mut missing: Vec<&OsStr> = Vec::new();
    let path = std::path::absolute(path).ok()?;
    let mut there = path.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            return Some(missing.iter().rev().fold(real, |path, name| path.join(name)));
        }
        missing.push(there.file_name()?);
        there = there.parent()?;
    }
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
        if path.is_dir()
            && let Some(found) = foreign_file(&path)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
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
            let found = check_apart(&at(checkpoint), &at(output)).map_err(|e| e.to_string());
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
        assert!(check_apart(&checkpoint, &folder.path().join("link")).is_err());
        assert!(check_apart(&checkpoint, &folder.path().join("link/bundle")).is_err());
    }
}
