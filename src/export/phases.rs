//! What each part of an export takes.

use std::time::{Duration, Instant};

use crate::bundle::Phase;
use crate::checkpoint::Shard;
use crate::hardware::{System, memory};
use crate::lower::ReadStats;

/// The phases so far.
#[derive(Default)]
pub(super) struct Phases {
    phases: Vec<Phase>,
}

impl Phases {
    /// Does something and records what it took.
    pub(super) fn time<T>(&mut self, name: &str, act: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = act();
        self.add(name, None, started.elapsed(), 0);
        result
    }

    /// Records how a model file was written: the time for handing its bytes over, and for having them on disk.
    pub(super) fn wrote(&mut self, file: &str, (writing, syncing): (Duration, Duration), bytes: u64) {
        self.add("write", Some(file), writing, bytes);
        self.add("fsync", Some(file), syncing, bytes);
    }

    /// Records how each weight file was opened, mapped, read and converted.
    pub(super) fn read(&mut self, shards: &[Shard], stats: &ReadStats) {
        for (shard, reading) in shards.iter().zip(stats.readings()) {
            let name = shard.path.file_name().unwrap_or_default().to_string_lossy();
            self.add("map", Some(&name), shard.mapping, shard.bytes.len() as u64);
            self.add("read", Some(&name), reading.read, reading.bytes);
            self.add("convert", Some(&name), reading.convert, reading.bytes);
        }
    }

    pub(super) fn finish(self) -> Vec<Phase> {
        self.phases
    }

    fn add(&mut self, name: &str, file: Option<&str>, took: Duration, bytes: u64) {
        let (name, file) = (name.to_owned(), file.map(str::to_owned));
        let resident_bytes = memory::footprint(&System).resident;
        self.phases.push(Phase { name, file, seconds: took.as_secs_f64(), bytes, resident_bytes });
    }
}
