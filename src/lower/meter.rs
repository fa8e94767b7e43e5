//! What reading and converting weights takes, file by file.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::Weight;

/// Counts what is read of each file and the time it takes, added up over threads.
#[derive(Debug, Default)]
pub struct Meter {
    files: Vec<Counted>,
}

/// One file's part.
#[derive(Debug)]
struct Counted {
    addresses: Range<usize>,
    bytes: AtomicU64,
    read: AtomicU64,
    convert: AtomicU64,
}

/// What a file's weights have taken so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Bytes of the file that were converted.
    pub bytes: u64,
    /// Time spent waiting for the file's pages.
    pub read: Duration,
    /// Time spent converting.
    pub convert: Duration,
}

impl Meter {
    /// A meter of files that are mapped at the given memory.
    pub fn new<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Meter {
        let counted = |bytes: &[u8]| Counted {
            addresses: bytes.as_ptr().addr()..bytes.as_ptr().addr() + bytes.len(),
            bytes: AtomicU64::new(0),
            read: AtomicU64::new(0),
            convert: AtomicU64::new(0),
        };
        Meter { files: files.into_iter().map(counted).collect() }
    }

    /// What each file has taken, in the order they were given in.
    pub fn readings(&self) -> Vec<Reading> {
        let read = |counted: &Counted| Reading {
            bytes: counted.bytes.load(Ordering::Relaxed),
            read: Duration::from_nanos(counted.read.load(Ordering::Relaxed)),
            convert: Duration::from_nanos(counted.convert.load(Ordering::Relaxed)),
        };
        self.files.iter().map(read).collect()
    }

    pub(super) fn add(&self, weight: &Weight, range: &Range<usize>, read: Duration, convert: Duration) {
        let address = weight.source_bytes(range.clone()).as_ptr().addr();
        let Some(file) = self.files.iter().find(|file| file.addresses.contains(&address)) else { return };
        file.bytes.fetch_add(weight.stored_len(range.len()), Ordering::Relaxed);
        file.read.fetch_add(read.as_nanos() as u64, Ordering::Relaxed);
        file.convert.fetch_add(convert.as_nanos() as u64, Ordering::Relaxed);
    }
}
