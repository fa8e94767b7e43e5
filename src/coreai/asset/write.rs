//! Writing an asset so that it appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anemeter_base::advice::Remedy;
use anemeter_base::atomic::Staging;
use anemeter_mil::package::{DS_STORE, FileSink, Sink, Watch, WriteOptions};
use sha2::{Digest, Sha256};

use super::{AssetMetadata, HASH, METADATA, PROGRAM};
use crate::bytecode::{Encoded, encode};
use crate::error::{AssetError, ErrorKind, Result, quoted};
use crate::{Program, Resource, ResourceData};

/// What a written asset came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Resources in it.
    pub resources: usize,
    /// References to resources that an equal one answers.
    pub deduplicated: usize,
    /// The SHA-256 of the program with its weights.
    pub sha256: [u8; 32],
    /// Time spent handing bytes to the system.
    pub writing: Duration,
    /// Time spent waiting for them to be on disk.
    pub syncing: Duration,
}

/// Writes a program as an asset. The same program and metadata give the same bytes each time.
///
/// Weights are streamed, so memory stays small however large they are.
pub fn write(program: &Program, metadata: &AssetMetadata, path: impl AsRef<Path>) -> Result<Summary> {
    write_watched(program, metadata, path.as_ref(), WriteOptions::default(), &())
}

/// As [`write()`], with options, and tells how far it is.
pub fn write_watched(
    program: &Program,
    metadata: &AssetMetadata,
    path: &Path,
    options: WriteOptions,
    watch: &dyn Watch,
) -> Result<Summary> {
    check_destination(path, options)?;
    let encoded = encode(program).map_err(|e| e.in_file(path))?;
    let metadata = metadata.to_json().map_err(|e| e.in_file(path))?;
    let io_error = |e: io::Error| AssetError::io(path, "write", &e);
    let staging = if options.staged { Staging::new(path) } else { Staging::exclusive(path) };
    let staging = staging.map_err(io_error)?;

    let mut sink = FileSink::new(&staging.path().join(PROGRAM), watch);
    let sha256 = write_program(&encoded, &mut sink).map_err(io_error)?;
    let writing = sink.writing();
    let started = Instant::now();
    sink.finish().map_err(io_error)?;
    write_new(&staging.path().join(HASH), &sha256).map_err(io_error)?;
    write_new(&staging.path().join(METADATA), &metadata).map_err(io_error)?;
    check_destination(path, options)?;
    let placed = if options.staged { staging.place() } else { staging.commit() };
    placed.map_err(io_error)?;

    let bytes = encoded.byte_len() + (sha256.len() + metadata.len()) as u64;
    let resources = encoded.resources.len();
    log::info!("wrote the asset {}: {bytes} bytes, {resources} weights", path.display());
    let deduplicated = encoded.deduplicated;
    Ok(Summary { bytes, resources, deduplicated, sha256, writing, syncing: started.elapsed() })
}

/// Writes the program with its weights and gives their hash.
fn write_program(encoded: &Encoded, sink: &mut dyn Sink) -> io::Result<[u8; 32]> {
    let mut out = Hashed::new(sink);
    out.write_all(&encoded.head)?;
    for entry in &encoded.resources {
        out.write_all(&entry.header)?;
        write_resource(&mut out, &entry.resource)?;
    }
    out.write_all(&encoded.tail)?;
    out.finish()
}

fn write_resource(out: &mut Hashed<'_>, resource: &Resource) -> io::Result<()> {
    /// What is resident of a mapped source.
    const RESIDENT: usize = 8 << 20;
    match &*resource.0 {
        ResourceData::Bytes(bytes) => {
            for (index, chunk) in bytes.chunks(RESIDENT).enumerate() {
                out.write_all(chunk)?;
                let start = index * RESIDENT;
                bytes.release(start..start + chunk.len());
            }
            Ok(())
        }
        ResourceData::Stream(payload) => {
            let announced = payload.byte_len();
            let mut exactly = Exactly { out, left: announced };
            payload.write_to(&mut exactly)?;
            match exactly.left {
                0 => Ok(()),
                left => {
                    let given = announced - left;
                    Err(io::Error::other(format!("a weight of {announced} bytes gave only {given}")))
                }
            }
        }
    }
}

/// Takes as many bytes as a weight announced, since what comes before it already says where it ends.
struct Exactly<'o, 's> {
    out: &'o mut Hashed<'s>,
    left: u64,
}

impl Write for Exactly<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::other("a weight gave more bytes than it announced"));
        };
        self.left = left;
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands bytes to a sink in pieces, and the same pieces to a thread that hashes them.
struct Hashed<'s> {
    sink: &'s mut dyn Sink,
    piece: Vec<u8>,
    pieces: SyncSender<Vec<u8>>,
    emptied: Receiver<Vec<u8>>,
    thread: JoinHandle<[u8; 32]>,
}

impl<'s> Hashed<'s> {
    const PIECE: usize = 1 << 20;
    /// Pieces that may wait for the thread.
    const WAITING: usize = 4;

    fn new(sink: &'s mut dyn Sink) -> Hashed<'s> {
        let (pieces, to_hash) = sync_channel::<Vec<u8>>(Hashed::WAITING);
        let (give_back, emptied) = sync_channel(Hashed::WAITING + 1);
        let thread = thread::spawn(move || {
            let mut hash = Sha256::new();
            for mut piece in to_hash {
                hash.update(&piece);
                piece.clear();
                // Whoever has ended needs no more memory.
                let _ = give_back.try_send(piece);
            }
            hash.finalize().into()
        });
        Hashed { sink, piece: Vec::with_capacity(Hashed::PIECE), pieces, emptied, thread }
    }

    fn send(&mut self) -> io::Result<()> {
        self.sink.append(&self.piece)?;
        let next = self.emptied.try_recv().unwrap_or_else(|_| Vec::with_capacity(Hashed::PIECE));
        let full = std::mem::replace(&mut self.piece, next);
        self.pieces.send(full).map_err(|_| io::Error::other("hashing was cut short"))
    }

    fn finish(mut self) -> io::Result<[u8; 32]> {
        self.send()?;
        drop(self.pieces);
        self.thread.join().map_err(|_| io::Error::other("hashing was cut short"))
    }
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(Hashed::PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == Hashed::PIECE {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses to replace anything but an asset, and that only if asked to.
fn check_destination(path: &Path, options: WriteOptions) -> Result<()> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let exists = |text: &str| AssetError::new(ErrorKind::Exists, text).in_file(path);
    if !options.overwrite {
        return Err(exists("already exists").with_help(Remedy::Overwrite));
    }
    if !metadata.is_dir() {
        return Err(exists("already exists and is not a Core AI asset, so it is not replaced"));
    }
    let own = [PROGRAM, HASH, METADATA, DS_STORE];
    for entry in fs::read_dir(path).map_err(|e| exists(&e.to_string()))? {
        let name = entry.map_err(|e| exists(&e.to_string()))?.file_name();
        if !own.iter().any(|own| name == *own) {
            let name = quoted(&name.to_string_lossy());
            return Err(exists(&format!("holds {name}, so it is not replaced")));
        }
    }
    Ok(())
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    File::create_new(path)?.write_all(bytes)
}
