//! Records beside a bundle: which packages they are about, and how they are written.

use super::output::note;
use super::{Failure, Result};
use crate::atomic::write_file;
use crate::bundle::{Bundle, Chunk, digest_text};
use crate::package::Package;
use crate::report::Record;

/// Digests of a bundle's packages as they are on disk.
pub(super) fn package_digests(bundle: &Bundle) -> Result<Vec<String>> {
    let digest = |chunk: &Chunk| {
        let package = Package::open(bundle.path(&chunk.file.name))?;
        Ok(digest_text(package.digest()?))
    };
    bundle.manifest().chunks.iter().map(digest).collect()
}

pub(super) fn write<R: Record>(bundle: &Bundle, record: &R) -> Result<()> {
    if !bundle.is_on_disk() {
        // The folder of packages that others made is theirs.
        note(format_args!(
            "not recorded: a bundle keeps {}, and `anemeter adopt` makes one of packages",
            R::FILE
        ));
        return Ok(());
    }
    let path = bundle.path(R::FILE);
    let text = record.to_json().map_err(|e| Failure::at(&path, e))?;
    write_file(&path, text.as_bytes()).map_err(|e| {
        Failure::at(&path, format_args!("cannot be written: {e}"))
            .with_help("`bench`, `bless` and `gate` rely on the record; to do without it: --no-record")
    })
}
