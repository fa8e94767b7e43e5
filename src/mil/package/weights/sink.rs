//! Where a weight file is written to: a file on disk, or memory. A second thread calls `fdatasync` while blobs are made,
//! so that the final `fsync` of the package has little left to wait for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::package::Watch;

/// Bytes that grow at the end and can be cut off, read back and, at the start, replaced.
pub trait Sink {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Cuts off everything from `len` on.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Fills `out` from `offset` on.
    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Replaces bytes at the start.
    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl Sink for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(())
    }

    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        (&self[start..]).read_exact(out)
    }

    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        self[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// A file that is made when the first bytes arrive. Small pieces are gathered before they are written.
pub struct FileSink<'w> {
    path: PathBuf,
    file: Option<File>,
    gathered: Vec<u8>,
    watch: &'w dyn Watch,
    writing: Duration,
    flushing: Option<Flushing>,
    unflushed: usize,
}

impl<'w> FileSink<'w> {
    /// Pieces are gathered up to this size, and larger ones are written in steps of it. Much larger steps are
    /// slower: the system then looks for memory in one piece for its cache.
    const STEP: usize = 128 << 10;
    /// Bytes after which the disk begins to work while more are made.
    const FLUSHED: usize = 16 << 20;

    /// A file that is to be at a path where there is none.
    pub fn new(path: &Path, watch: &'w dyn Watch) -> FileSink<'w> {
        FileSink {
            path: path.to_owned(),
            file: None,
            gathered: Vec::new(),
            watch,
            writing: Duration::ZERO,
            flushing: None,
            unflushed: 0,
        }
    }

    /// Time spent handing bytes to the system so far.
    pub fn writing(&self) -> Duration {
        self.writing
    }

    /// Hands everything to the system; what is not on disk yet is for whoever commits the folder.
    pub fn finish(mut self) -> io::Result<()> {
        if self.file.is_some() {
            self.flushed()?;
        }
        self.flushing.take().map_or(Ok(()), Flushing::finish)
    }

    /// Lets the disk work on what was written while more is made.
    fn flush_beside(&mut self, written: usize) -> io::Result<()> {
        self.unflushed += written;
        if self.unflushed < FileSink::FLUSHED {
            return Ok(());
        }
        self.unflushed = 0;
        if self.flushing.is_none() {
            let file = self.file()?.try_clone()?;
            self.flushing = Some(Flushing::new(file));
        }
        if let Some(flushing) = &self.flushing {
            flushing.more();
        }
        Ok(())
    }

    fn file(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            let file = File::options().read(true).write(true).create_new(true).open(&self.path)?;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("no file"))
    }

    /// The file with all bytes written to it.
    fn flushed(&mut self) -> io::Result<&mut File> {
        let gathered = std::mem::take(&mut self.gathered);
        self.file()?.write_all(&gathered)?;
        self.gathered = gathered;
        self.gathered.clear();
        self.file()
    }
}

/// A thread that flushes a file to disk whenever there is more of it.
struct Flushing {
    wakes: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Flushing {
    fn new(file: File) -> Flushing {
        let (wakes, woken) = sync_channel(1);
        let thread = thread::spawn(move || woken.iter().try_for_each(|()| file.sync_data()));
        Flushing { wakes, thread }
    }

    /// There is more. A thread that is busy will see it when it looks again.
    fn more(&self) {
        let _ = self.wakes.try_send(());
    }

    /// Waits; an error of the disk is told once only, and may have been told to the thread.
    fn finish(self) -> io::Result<()> {
        drop(self.wakes);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("flushing to disk was cut short")))
    }
}

impl Sink for FileSink<'_> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.watch.wrote(bytes.len() as u64);
        if self.gathered.len() + bytes.len() <= FileSink::STEP {
            self.file()?;
            self.gathered.extend_from_slice(bytes);
            return Ok(());
        }
        let started = Instant::now();
        let file = self.flushed()?;
        bytes.chunks(FileSink::STEP).try_for_each(|step| file.write_all(step))?;
        self.writing += started.elapsed();
        self.flush_beside(bytes.len())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let file = self.flushed()?;
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len)).map(drop)
    }

    fn read_at(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let file = self.flushed()?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(out)?;
        file.seek(SeekFrom::End(0)).map(drop)
    }

    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.flushed()?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(bytes)?;
        file.seek(SeekFrom::End(0)).map(drop)
    }
}
