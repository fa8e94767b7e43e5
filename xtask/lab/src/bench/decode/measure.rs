//! The measurement itself: interleaved rounds of every function, in this process.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use anemeter::kernels::probe::{self, Limits};
use anemeter::package::Package;
use anemeter::runtime::{self, LoadOptions, Observer, OpExecution, Runtime, Session};
use anemeter::tensor::Tensor;
use anyhow::{Context, Result};
use half::f16;

use super::inputs;

/// Bytes that are read to find how fast memory is.
const READ_BYTES: usize = 512 << 20;

/// How to measure.
pub(crate) struct Bench {
    pub(crate) rounds: usize,
    /// Predictions of one token per round.
    pub(crate) tokens: usize,
    pub(crate) threads: usize,
    /// A function of which to show the time per operation instead.
    pub(crate) profile: Option<String>,
}

/// A function at one of its shapes.
struct Case {
    label: String,
    function: String,
    inputs: Vec<(String, Tensor)>,
    /// Channels of a token.
    width: usize,
    /// Tokens per prediction.
    tokens: usize,
    /// Of the weights, those that only the last token meets.
    head_bytes: f64,
    /// Predictions per round.
    repeats: usize,
    /// Tokens per second, one sample per prediction.
    speeds: Vec<f64>,
}

impl Bench {
    /// Measures a package and says what came out.
    pub(crate) fn run(&self, path: &Path, lengths: &[usize]) -> Result<String> {
        let started = Instant::now();
        let package = Package::open(path)?;
        let options = LoadOptions { threads: Some(self.threads), ..LoadOptions::default() };
        let loaded = runtime::cpu().load(&package, &options)?;
        let load = started.elapsed();
        let mut session = loaded.clone().session();
        let mut cases = self.cases(&package, lengths)?;
        let mut text = String::new();
        if let Some(name) = &self.profile {
            cases.retain(|case| case.label == *name);
        }
        for (i, case) in cases.iter_mut().enumerate() {
            let first = Instant::now();
            case.predict(session.as_mut())?;
            let logits = session.output("logits").context("`logits` is an output")?;
            case.head_bytes = (logits.len() * case.width * size_of::<f16>()) as f64;
            let mut hasher = DefaultHasher::new();
            hasher.write(logits.bytes());
            let digest = hasher.finish();
            if i == 0 {
                let total = started.elapsed();
                writeln!(text, "load {} ms, first token after {} ms", load.as_millis(), total.as_millis())?;
            }
            writeln!(text, "{}: first {} ms, logits {digest:016x}", case.label, first.elapsed().as_millis())?;
        }
        if let Some(name) = &self.profile {
            let case = cases.first();
            let case = case.with_context(|| format!("there is no function `{name}`"))?;
            return Ok(text + &profile(case, session.as_mut(), self.threads)?);
        }
        let memory = peak_bytes()?;
        let mut limits = Vec::new();
        for _ in 0..self.rounds {
            limits.push(probe::limits(self.threads, READ_BYTES)?);
            for case in &mut cases {
                case.round(session.as_mut())?;
            }
        }
        let of = |pick: fn(&Limits) -> f64| limits.iter().map(pick).collect::<Vec<f64>>();
        let (reads, multiplies) = (of(|limit| limit.bytes_per_second), of(|limit| limit.flops_per_second));
        for (name, pick) in [("median", median as fn(Vec<f64>) -> f64), ("best", largest)] {
            let (bandwidth, peak) = (pick(reads.clone()) / 1e9, pick(multiplies.clone()) / 1e9);
            writeln!(text, "{name} limits: memory {bandwidth:.1} GB/s, arithmetic {peak:.0} GFLOP/s")?;
        }
        let weights = package.weight_files().iter().map(|file| file.bytes as f64).sum::<f64>();
        for case in &cases {
            case.line(&mut text, weights, &limits)?;
        }
        writeln!(text, "peak resident memory {:.0} MB, weights {:.0} MB", memory / 1e6, weights / 1e6)?;
        Ok(text)
    }

    fn cases(&self, package: &Package, lengths: &[usize]) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        let mut add = |function: String, at: usize, label: String, repeats: usize| -> Result<()> {
            let interface = package.model().interface(&function).context("a function has an interface")?;
            let inputs = inputs::make(interface, at)?;
            let hidden = inputs.iter().find(|(name, _)| name == "hidden").context("`hidden` is an input")?;
            let (width, tokens) = (hidden.1.shape()[1], hidden.1.shape()[3]);
            let (head_bytes, speeds) = (0.0, Vec::new());
            cases.push(Case { label, function, inputs, width, tokens, head_bytes, repeats, speeds });
            Ok(())
        };
        for (at, &length) in lengths.iter().enumerate() {
            add("decode".to_owned(), at, format!("decode@{length}"), self.tokens)?;
            add(format!("decode_c{length}"), 0, format!("decode_c{length}"), self.tokens)?;
        }
        for (at, &length) in lengths.iter().enumerate() {
            add("prefill".to_owned(), at, format!("prefill@{length}"), 1)?;
            add(format!("prefill_c{length}_q64"), 0, format!("prefill_c{length}_q64"), 4)?;
        }
        Ok(cases)
    }
}

impl Case {
    fn predict(&self, session: &mut dyn Session) -> Result<()> {
        let views: Vec<_> = self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        Ok(session.predict(&self.function, &views)?)
    }

    fn round(&mut self, session: &mut dyn Session) -> Result<()> {
        self.predict(session)?;
        for _ in 0..self.repeats {
            let started = Instant::now();
            self.predict(session)?;
            self.speeds.push(self.tokens as f64 / started.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Median and fastest prediction, each against the median and the best of the limits.
    fn line(&self, text: &mut String, weights: f64, limits: &[Limits]) -> Result<()> {
        write!(text, "{:<20}", self.label)?;
        for (name, pick) in [("median", median as fn(Vec<f64>) -> f64), ("fastest", largest)] {
            let speed = pick(self.speeds.clone());
            let bandwidth = pick(limits.iter().map(|limit| limit.bytes_per_second).collect());
            let peak = pick(limits.iter().map(|limit| limit.flops_per_second).collect());
            let share = match self.tokens {
                1 => format!("{:.0} % of the bandwidth", 100.0 * speed * weights / bandwidth),
                // Two operations for each of the weights, which have two bytes each; the head meets one token.
                tokens => {
                    let met = weights - self.head_bytes + self.head_bytes / tokens as f64;
                    format!("{:.0} % of the arithmetic", 100.0 * speed * met / peak)
                }
            };
            write!(text, "  {name} {speed:7.1} tokens/s, {share}")?;
        }
        Ok(writeln!(text)?)
    }
}

/// Sums by kind of operation over a few predictions. With one thread, time is that of the processor: what other
/// programs take does not count.
struct Kinds {
    times: BTreeMap<String, (usize, Duration)>,
    last: Duration,
    by_processor: bool,
}

impl Observer for Kinds {
    fn executed(&mut self, step: &OpExecution<'_>) {
        let shape = step.outputs.first().map(|view| format!("{:?}", view.shape())).unwrap_or_default();
        let entry = self.times.entry(format!("{} {shape}", step.kind)).or_default();
        entry.0 += 1;
        if self.by_processor {
            let now = processor_time();
            entry.1 += now.saturating_sub(self.last);
            self.last = processor_time();
        } else {
            entry.1 += step.elapsed;
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

/// How long this thread has been running; zero where the system does not say.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

fn profile(case: &Case, session: &mut dyn Session, threads: usize) -> Result<String> {
    const RUNS: u32 = 2;
    let kinds = Kinds { times: BTreeMap::new(), last: processor_time(), by_processor: threads == 1 };
    session.observe(Some(Box::new(kinds)));
    let started = Instant::now();
    for _ in 0..RUNS {
        case.predict(session)?;
    }
    let whole = started.elapsed() / RUNS;
    let observer = session.observe(None).context("the observer is still there")?;
    let kinds = observer.into_any().downcast::<Kinds>().ok().context("the observer is ours")?;
    let mut rows: Vec<_> = kinds.times.into_iter().collect();
    rows.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    let total: Duration = rows.iter().map(|(_, (_, time))| *time / RUNS).sum();
    let mut text = format!("{}: {:.3} ms, in operations {:.3} ms\n", case.label, ms(whole), ms(total));
    for (kind, (count, time)) in rows.into_iter().take(45) {
        let (count, time) = (count / RUNS as usize, time / RUNS);
        let each = time.as_secs_f64() * 1e6 / count.max(1) as f64;
        writeln!(text, "{:9.3} ms {count:5} x {each:9.2} us  {kind}", ms(time))?;
    }
    Ok(text)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn largest(values: Vec<f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

/// The most memory this process ever had resident; zero where the system does not say.
fn peak_bytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line.map_or(Ok(0.0), |line| line.trim().trim_end_matches(" kB").parse())?;
    Ok(kib * 1024.0)
}
