//! Time per operation: tables for people, a Chrome trace for tools.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::milliseconds;
use crate::kernels::probe::Limits;
use crate::render::Table;
use crate::runtime::{Observer, OpExecution};

/// How many operations the table of single ones shows.
const SHOWN: usize = 20;

/// Everything that was executed, in order, and what the machine can do at most.
pub(super) struct Profile {
    limits: Limits,
    began: Instant,
    entries: Vec<Entry>,
}

struct Entry {
    kind: &'static str,
    name: String,
    start: Duration,
    work: Work,
}

/// Time, bytes and operations of one step or of several.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    elapsed: Duration,
    bytes: f64,
    flops: f64,
    /// Seconds that the limits of the machine allow at best.
    bound: f64,
}

impl Work {
    fn add(&mut self, other: Work) {
        self.elapsed += other.elapsed;
        self.bytes += other.bytes;
        self.flops += other.flops;
        self.bound += other.bound;
    }

    /// Time, share of the whole, speeds, and the share of the time that the limits account for.
    fn cells(&self, total: Duration) -> [String; 5] {
        let seconds = self.elapsed.as_secs_f64().max(1e-12);
        let flops =
            if self.flops > 0.0 { format!("{:.1}", self.flops / seconds / 1e9) } else { String::new() };
        [
            milliseconds(self.elapsed),
            format!("{:.1} %", 100.0 * seconds / total.as_secs_f64().max(1e-12)),
            format!("{:.1}", self.bytes / seconds / 1e9),
            flops,
            format!("{:.0} %", 100.0 * self.bound / seconds),
        ]
    }
}

impl Profile {
    pub(super) fn new(limits: Limits) -> Profile {
        Profile { limits, began: Instant::now(), entries: Vec::new() }
    }

    /// Time by kind of operation, then the slowest single operations.
    pub(super) fn tables(&self) -> String {
        const COLUMNS: [&str; 5] = [">time", ">share", ">GB/s", ">GFLOP/s", ">of the limit"];
        let total: Duration = self.entries.iter().map(|e| e.work.elapsed).sum();
        let mut kinds: BTreeMap<&str, (usize, Work)> = BTreeMap::new();
        for entry in &self.entries {
            let kind = kinds.entry(entry.kind).or_default();
            kind.0 += 1;
            kind.1.add(entry.work);
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by(|a, b| b.1.1.elapsed.cmp(&a.1.1.elapsed).then_with(|| a.0.cmp(b.0)));
        let mut by_kind = Table::new(&[&["kind", ">count"][..], &COLUMNS].concat());
        for (kind, (count, work)) in kinds {
            by_kind.row([kind.to_owned(), count.to_string()].into_iter().chain(work.cells(total)));
        }
        let mut slowest: Vec<&Entry> = self.entries.iter().collect();
        slowest.sort_by_key(|entry| std::cmp::Reverse(entry.work.elapsed));
        let mut single = Table::new(&[&["operation", "kind"][..], &COLUMNS].concat());
        for Entry { name, kind, work, .. } in slowest.into_iter().take(SHOWN) {
            single.row([name.clone(), (*kind).to_owned()].into_iter().chain(work.cells(total)));
        }
        format!(
            "{} operations in {}; the machine reads {:.1} GB/s and computes {:.0} GFLOP/s\n\n{by_kind}\n{single}",
            self.entries.len(),
            milliseconds(total),
            self.limits.bytes_per_second / 1e9,
            self.limits.flops_per_second / 1e9
        )
    }

    /// The same as events that trace viewers read.
    pub(super) fn chrome_trace(&self) -> String {
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
        let events: Vec<Event<'_>> = self
            .entries
            .iter()
            .map(|e| Event {
                name: &e.name,
                cat: e.kind,
                ph: "X",
                ts: micros(e.start),
                dur: micros(e.work.elapsed),
                pid: 1,
                tid: 1,
            })
            .collect();
        serde_json::json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
    }
}

#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: u32,
    tid: u32,
}

impl Observer for Profile {
    fn executed(&mut self, step: &OpExecution<'_>) {
        let (bytes, flops) = (step.bytes as f64, step.flops as f64);
        let Limits { bytes_per_second, flops_per_second } = self.limits;
        let bound = (bytes / bytes_per_second.max(1.0)).max(flops / flops_per_second.max(1.0));
        self.entries.push(Entry {
            kind: step.kind,
            name: step.name.to_owned(),
            start: step.started.saturating_duration_since(self.began),
            work: Work { elapsed: step.elapsed, bytes, flops, bound },
        });
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
