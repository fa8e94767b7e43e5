//! The measurement itself: interleaved rounds of every function, in this process.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::time::{Duration, Instant};

use anemeter::kernels::probe;
use anemeter::package::Package;
use anemeter::runtime::{self, Executed, LoadOptions, Observer, Runtime, Session};
use anemeter::tensor::Tensor;
use anyhow::{Context, Result};

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
    /// Tokens per prediction.
    tokens: usize,
    /// Predictions per round.
    repeats: usize,
    /// Tokens per second, one sample per round.
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
        for (i, case) in cases.iter().enumerate() {
            let first = Instant::now();
            case.predict(session.as_mut())?;
            let logits = session.output("logits").context("`logits` is an output")?;
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
        let mut limits = Vec::new();
        for _ in 0..self.rounds {
            limits.push(probe::limits(self.threads, READ_BYTES));
            for case in &mut cases {
                case.round(session.as_mut())?;
            }
        }
        let bandwidth = median(limits.iter().map(|limit| limit.bytes_per_second).collect());
        let flops = median(limits.iter().map(|limit| limit.flops_per_second).collect());
        writeln!(text, "\nmemory {:.1} GB/s, arithmetic {:.0} GFLOP/s", bandwidth / 1e9, flops / 1e9)?;
        let weights = package.weight_files().iter().map(|file| file.bytes as f64).sum::<f64>();
        for case in &cases {
            case.line(&mut text, weights, (bandwidth, flops))?;
        }
        writeln!(
            text,
            "peak resident memory {:.0} MB, weights {:.0} MB",
            peak_bytes()? / 1e6,
            weights / 1e6
        )?;
        Ok(text)
    }

    fn cases(&self, package: &Package, lengths: &[usize]) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        let mut add = |function: String, at: usize, label: String, repeats: usize| -> Result<()> {
            let interface = package.model().interface(&function).context("a function has an interface")?;
            let inputs = inputs::make(interface, at)?;
            let hidden = inputs.iter().find(|(name, _)| name == "hidden").context("`hidden` is an input")?;
            let tokens = hidden.1.shape()[3];
            cases.push(Case { label, function, inputs, tokens, repeats, speeds: Vec::new() });
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
        let started = Instant::now();
        for _ in 0..self.repeats {
            self.predict(session)?;
        }
        self.speeds.push((self.tokens * self.repeats) as f64 / started.elapsed().as_secs_f64());
        Ok(())
    }

    fn line(&self, text: &mut String, weights: f64, (bandwidth, flops): (f64, f64)) -> Result<()> {
        let speed = median(self.speeds.clone());
        let least = self.speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.speeds.iter().copied().fold(0.0, f64::max);
        write!(text, "{:<22} {speed:8.1} tokens/s ({least:.1} to {most:.1})", self.label)?;
        let passes = speed / self.tokens as f64;
        // All weights but the head's are multiplied with every token.
        writeln!(
            text,
            ", {:.0} % of the bandwidth, {:.0} GFLOP/s ({:.0} % of the peak)",
            100.0 * passes * weights / bandwidth,
            speed * weights / 1e9,
            100.0 * speed * weights / flops
        )?;
        Ok(())
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
    fn executed(&mut self, step: &Executed<'_>) {
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

/// The most memory this process ever had resident; zero where the system does not say.
fn peak_bytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 = line.map_or(Ok(0.0), |line| line.trim().trim_end_matches(" kB").parse())?;
    Ok(kib * 1024.0)
}
