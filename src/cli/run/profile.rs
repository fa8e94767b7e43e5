//! Time per operation: tables for people, a Chrome trace for tools.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::milliseconds;
use crate::cli::table::Table;
use crate::runtime::{Executed, Observer};

/// How many operations the table of single ones shows.
const SHOWN: usize = 20;

/// Everything that was executed, in order.
pub(super) struct Profile {
    began: Instant,
    entries: Vec<Entry>,
}

struct Entry {
    kind: &'static str,
    name: String,
    start: Duration,
    elapsed: Duration,
}

impl Profile {
    pub(super) fn new() -> Profile {
        Profile { began: Instant::now(), entries: Vec::new() }
    }

    /// Time by kind of operation, then the slowest single operations.
    pub(super) fn tables(&self) -> String {
        let total: Duration = self.entries.iter().map(|e| e.elapsed).sum();
        let share =
            |part: Duration| format!("{:.1} %", 100.0 * part.as_secs_f64() / total.as_secs_f64().max(1e-12));
        let mut kinds: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
        for entry in &self.entries {
            let kind = kinds.entry(entry.kind).or_default();
            kind.0 += 1;
            kind.1 += entry.elapsed;
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by(|a, b| b.1.1.cmp(&a.1.1).then_with(|| a.0.cmp(b.0)));
        let mut by_kind = Table::new(&["kind", ">count", ">time", ">share"]);
        for (kind, (count, time)) in kinds {
            by_kind.row([kind.to_owned(), count.to_string(), milliseconds(time), share(time)]);
        }
        let mut slowest: Vec<&Entry> = self.entries.iter().collect();
        slowest.sort_by_key(|entry| std::cmp::Reverse(entry.elapsed));
        let mut single = Table::new(&["operation", "kind", ">time", ">share"]);
        for entry in slowest.into_iter().take(SHOWN) {
            single.row([
                entry.name.clone(),
                entry.kind.to_owned(),
                milliseconds(entry.elapsed),
                share(entry.elapsed),
            ]);
        }
        format!("{} operations in {}\n\n{by_kind}\n{single}", self.entries.len(), milliseconds(total))
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
                dur: micros(e.elapsed),
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
    fn executed(&mut self, step: &Executed<'_>) {
        self.entries.push(Entry {
            kind: step.kind,
            name: step.name.to_owned(),
            start: step.started.saturating_duration_since(self.began),
            elapsed: step.elapsed,
        });
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
