//! Writing a package so that it appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::contents::foreign_file;
use super::encode::encode;
use super::error::{ErrorKind, PackageError, Result};
use super::manifest::{self, Manifest};
use super::weights::{self, BlobWriter, FileSink};
use crate::verify::Verified;
use anemeter_base::advice::Remedy;
use anemeter_base::atomic::Staging;

/// How to write a package.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Whether to replace a package that is there already.
    pub overwrite: bool,
    /// Whether the folder that the package goes into is itself staged, so that whoever commits it flushes the
    /// package to disk.
    pub staged: bool,
}

/// Observes how many bytes of a package have been written.
pub trait Watch {
    /// So many more bytes of weights were written.
    fn wrote(&self, bytes: u64);
}

/// No observer.
impl Watch for () {
    fn wrote(&self, _: u64) {}
}

/// What a written package came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Weights in the weight file.
    pub blobs: usize,
    /// Weights that were left out because an equal one is in the file.
    pub deduplicated: usize,
    /// Tells packages with other content apart, as [`Package::digest`](super::Package::digest) does.
    pub digest: u128,
    /// Time spent handing bytes to the system.
    pub writing: Duration,
    /// Time spent waiting for them to be on disk.
    pub syncing: Duration,
}

/// Writes a verified model as a package. The same model gives the same bytes each time.
///
/// Weights are streamed, so memory stays small however large they are.
pub fn write(model: &Verified, path: impl AsRef<Path>, options: WriteOptions) -> Result<Summary> {
    write_watched(model, path.as_ref(), options, &())
}

/// As [`write()`], and tells how far it is.
pub fn write_watched(
    model: &Verified,
    path: &Path,
    options: WriteOptions,
    watch: &dyn Watch,
) -> Result<Summary> {
    let model = model.model();
    check_destination(path, options)?;
    let io_error = |e: io::Error| PackageError::io(path, "write", &e);
    let staging = if options.staged { Staging::new(path) } else { Staging::exclusive(path) };
    let staging = staging.map_err(io_error)?;
    let folder = staging.path().join("Data").join(manifest::AUTHOR);
    let weights_folder = folder.join(manifest::WEIGHTS);
    fs::create_dir_all(&weights_folder).map_err(io_error)?;

    let mut sink = FileSink::new(&weights_folder.join(weights::FILE), watch);
    let mut blobs = BlobWriter::new(&mut sink);
    let encoded = encode(model, &mut blobs).map_err(|e| e.in_file(path))?;
    let written = blobs.finish().map_err(io_error)?;
    let writing = sink.writing();
    let started = Instant::now();
    sink.finish().map_err(io_error)?;

    let manifest = Manifest::of(&encoded, written.digest).to_json()?;
    write_new(&folder.join(manifest::MODEL), &encoded).map_err(io_error)?;
    write_new(&staging.path().join(manifest::FILE), &manifest).map_err(io_error)?;
    check_destination(path, options)?;
    let placed = if options.staged { staging.place() } else { staging.commit() };
    placed.map_err(io_error)?;
    let bytes = written.bytes + encoded.len() as u64 + manifest.len() as u64;
    let digest = manifest::content_digest(&encoded, written.digest);
    let (blobs, deduplicated) = (written.blobs, written.deduplicated);
    log::info!("wrote the package {}: {bytes} bytes, {blobs} weights", path.display());
    Ok(Summary { bytes, blobs, deduplicated, digest, writing, syncing: started.elapsed() })
}

/// Refuses to replace anything but a package, and that only if asked to.
fn check_destination(path: &Path, options: WriteOptions) -> Result<()> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let exists = |text: &str| PackageError::new(ErrorKind::Exists, text).in_file(path);
    if !options.overwrite {
        return Err(exists("already exists").with_help(Remedy::Overwrite));
    }
    let is_empty = metadata.is_dir() && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        return Ok(());
    }
    if !path.join(manifest::FILE).is_file() {
        return Err(exists("already exists and is not a Core ML package, so it is not replaced"));
    }
    match foreign_file(path).map_err(|e| exists(&e.to_string()))? {
        None => Ok(()),
        Some(other) => Err(exists(&format!("holds {}, so it is not replaced", other.display()))),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::create_new(path)?.write_all(bytes)
}
