//! What reading and converting weights takes, file by file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::Weight;

/// Counts what is read of each file of a checkpoint and the time it takes, added up over threads.
#[derive(Debug, Default)]
pub struct ReadStats {
    shards: Vec<Counted>,
}

/// One file's part.
#[derive(Debug, Default)]
struct Counted {
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
    /// Time that threads spent on conversion to fp16.
    pub convert: Duration,
}

impl ReadStats {
    /// A count for each of a checkpoint's files; without files, nothing is counted.
    pub fn new(shards: impl IntoIterator) -> ReadStats {
        ReadStats { shards: shards.into_iter().map(|_| Counted::default()).collect() }
    }

    /// What each file has taken, in the order of the checkpoint.
    pub fn readings(&self) -> Vec<Reading> {
        let read = |counted: &Counted| Reading {
            bytes: counted.bytes.load(Ordering::Relaxed),
            read: Duration::from_nanos(counted.read.load(Ordering::Relaxed)),
            convert: Duration::from_nanos(counted.convert.load(Ordering::Relaxed)),
        };
        self.shards.iter().map(read).collect()
    }

    pub(super) fn add(&self, weight: &Weight, elements: usize, read: Duration, convert: Duration) {
        let Some(shard) = self.shards.get(weight.shard()) else { return };
        shard.bytes.fetch_add(weight.stored_len(elements), Ordering::Relaxed);
        shard.read.fetch_add(read.as_nanos() as u64, Ordering::Relaxed);
        shard.convert.fetch_add(convert.as_nanos() as u64, Ordering::Relaxed);
    }
}
