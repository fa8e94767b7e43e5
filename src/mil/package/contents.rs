//! What a package that this program wrote consists of: only such a one is replaced.

use std::io;
use std::path::{Path, PathBuf};

use super::{manifest, weights};

/// What Finder leaves in every folder that it shows.
pub const DS_STORE: &str = ".DS_Store";

/// Something in a package that is not part of it; `None` for a package that holds nothing else.
pub fn foreign_file(package: &Path) -> io::Result<Option<PathBuf>> {
    let data = Path::new("Data").join(manifest::AUTHOR);
    let own =
        [PathBuf::from(manifest::FILE), data.join(manifest::MODEL), data.join("weights").join(weights::FILE)];
    foreign_below(package, Path::new(""), &own)
}

fn foreign_below(package: &Path, below: &Path, own: &[PathBuf]) -> io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(package.join(below))? {
        let entry = entry?;
        let inside = below.join(entry.file_name());
        let found = match entry.file_type()?.is_dir() {
            true => foreign_below(package, &inside, own)?,
            false => (entry.file_name() != DS_STORE && !own.contains(&inside)).then(|| entry.path()),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
