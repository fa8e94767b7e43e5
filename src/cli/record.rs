//! Records beside a bundle: which packages they are about, and how they are written.

use super::Failure;
use crate::bundle::{Bundle, Chunk, Record, digest_text};
use crate::package::Package;
use crate::package::atomic::write_file;

/// Digests of a bundle's packages as they are on disk.
pub(super) fn package_digests(bundle: &Bundle) -> Result<Vec<String>, Failure> {
    let digest = |chunk: &Chunk| {
        let package = Package::open(bundle.path(&chunk.file.name))?;
        Ok(digest_text(package.digest()?))
    };
    bundle.manifest().chunks.iter().map(digest).collect()
}

/// Writes a record. A bundle may be where nothing can be written, so the problem is text.
pub(super) fn write<R: Record>(bundle: &Bundle, record: &R) -> Result<(), String> {
    let path = bundle.path(R::FILE);
    let text = record.to_json().map_err(|e| format!("{}: {e}", path.display()))?;
    write_file(&path, text.as_bytes()).map_err(|e| format!("{}: cannot be written: {e}", path.display()))
}
