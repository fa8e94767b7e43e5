//! Copies of reports at a URL: in an object store, or in a folder by `file://`.
//!
//! What was measured is always in a folder of this machine first, so that nothing is lost if it cannot be copied.

use std::path::Path;

use crate::baseline::{Storage, storage};
use crate::cli::inputs::is_url;
use crate::cli::{Failure, Result};

/// Files of a report folder; the one that others read comes last, so that it is never there without the rest.
pub(super) const REPORT: [&str; 3] = ["report.html", "report.md", "report.json"];

/// A place that reports are copied to.
pub(super) struct Upload {
    storage: Box<dyn Storage>,
}

impl Upload {
    /// The place, if `out` is a URL. It must be reachable, and have no document `name` yet: what others may read is
    /// not replaced.
    pub(super) fn open(out: Option<&Path>, name: &str) -> Result<Option<Upload>> {
        let Some(url) = out.filter(|out| is_url(out)) else { return Ok(None) };
        let storage = storage(url)?;
        match storage.read(name).map_err(Failure::bad_input)? {
            Some(_) => Err(taken(&storage.place(name))),
            None => Ok(Some(Upload { storage })),
        }
    }

    /// Copies files of a folder to `prefix` below the place.
    pub(super) fn copy(&self, folder: &Path, prefix: &str, names: &[&str]) -> Result<()> {
        let kept = format!("what was measured is in {}", folder.display());
        for name in names {
            let path = folder.join(name);
            let bytes = std::fs::read(&path).map_err(|e| Failure::at(&path, e))?;
            let name = format!("{prefix}{name}");
            match self.storage.create(&name, &bytes) {
                Ok(true) => {}
                Ok(false) => return Err(taken(&self.storage.place(&name)).with_help(kept)),
                Err(error) => return Err(Failure::bad_input(error).with_help(kept)),
            }
        }
        Ok(())
    }

    /// Where a document is, for messages.
    pub(super) fn place(&self, name: &str) -> String {
        self.storage.place(name)
    }
}

fn taken(place: &str) -> Failure {
    Failure::bad_input(format!("{place}: is there already, and is not replaced"))
        .with_help("choose another place for --out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::write_file;

    #[test]
    fn copies_are_whole_and_replace_nothing() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in REPORT {
            write_file(&from.path().join(name), name.as_bytes()).unwrap();
        }
        let url = std::path::PathBuf::from(format!("file://{}/new", to.path().display()));
        let open = || Upload::open(Some(&url), "1-a/report.json");
        let upload = open().unwrap().unwrap();
        upload.copy(from.path(), "1-a/", &REPORT).unwrap();
        for name in REPORT {
            let copied = std::fs::read(to.path().join("new/1-a").join(name)).unwrap();
            assert_eq!(copied, name.as_bytes());
        }
        assert!(open().is_err() && upload.copy(from.path(), "1-a/", &REPORT).is_err());
        assert!(upload.copy(from.path(), "2/", &["missing"]).is_err());
        assert!(Upload::open(None, "report.json").unwrap().is_none());
        assert!(Upload::open(Some(from.path()), "report.json").unwrap().is_none());
    }
}
