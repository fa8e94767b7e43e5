//! The comparison itself: prompts through the reference once, and through every form and length of the package.

use std::collections::BTreeMap;

use super::error::VerifyError;
use super::judge::judge;
use super::metrics::{LogitMetrics, top};
use super::report::{Cell, Difference, Drift, Phase, Report, SCHEMA};
use super::thresholds::Thresholds;
use crate::verify::Oracle;
use anemeter_base::vocabulary::KvForm;

/// A package in one cache form.
pub trait Candidate {
    /// Its cache form.
    fn kv(&self) -> KvForm;

    /// The lengths to compare, the one that others are compared with first.
    fn seq_lens(&self) -> &[usize];

    /// Logits after the prompt and after each further token, at one of its lengths; a new sequence.
    fn logits(&mut self, seq_len: usize, prompt: &[u32], rest: &[u32]) -> Result<Vec<Vec<f32>>, String>;
}

/// What to compare.
#[derive(Debug, Clone)]
pub struct Options {
    /// Tokens that the reference adds to each prompt; fewer at lengths shorter than twice as many.
    pub tokens: usize,
    /// What is good enough.
    pub thresholds: Thresholds,
}

/// What the reference says to a prompt.
struct Expected {
    prompt: Vec<u32>,
    /// Its greedy choices, all but the last.
    rest: Vec<u32>,
    /// After the prompt and after each of `rest`.
    logits: Vec<Vec<f32>>,
}

/// A form and a length, by their places.
type Place = (usize, usize);

/// Compares candidates with a reference on prompts. `progress` is told how many runs of how many are done.
pub fn compare(
    oracle: &mut dyn Oracle,
    candidates: &mut [Box<dyn Candidate + '_>],
    prompts: &[Vec<u32>],
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report, VerifyError> {
    if prompts.iter().all(Vec::is_empty) {
        return Err(VerifyError::Nothing("no prompt has a token"));
    }
    let places: usize = candidates.iter().map(|candidate| candidate.seq_lens().len()).sum();
    if places == 0 || options.tokens == 0 {
        return Err(VerifyError::Nothing("no cache form, no length or no tokens"));
    }
    let mut comparison =
        Run { metrics: ComparisonMetrics::default(), done: 0, total: places * prompts.len() };
    for (index, prompt) in prompts.iter().enumerate().filter(|(_, prompt)| !prompt.is_empty()) {
        for ((length, steps), places) in lengths(candidates, prompt.len(), options.tokens) {
            let expected = expect(oracle, &prompt[..length], steps)?;
            comparison.run(candidates, &places, index, &expected, progress)?;
        }
    }
    Ok(comparison.metrics.report(oracle.describe(), prompts.len(), options))
}

/// Prompt lengths and steps that fit, each with the places where it is what fits.
fn lengths(
    candidates: &[Box<dyn Candidate + '_>],
    prompt: usize,
    tokens: usize,
) -> BTreeMap<(usize, usize), Vec<Place>> {
    let mut lengths: BTreeMap<_, Vec<Place>> = BTreeMap::new();
    for (form, candidate) in candidates.iter().enumerate() {
        for (place, &seq_len) in candidate.seq_lens().iter().enumerate() {
            let steps = tokens.min(seq_len / 2).max(1);
            let fits = prompt.min((seq_len + 1).saturating_sub(steps)).max(1);
            lengths.entry((fits, steps)).or_default().push((form, place));
        }
    }
    lengths
}

/// The reference's greedy continuation.
fn expect(oracle: &mut dyn Oracle, prompt: &[u32], steps: usize) -> Result<Expected, VerifyError> {
    oracle.reset();
    let mut logits = vec![oracle.feed(prompt)?];
    let mut rest = Vec::new();
    while logits.len() < steps {
        let id = choice(&logits[logits.len() - 1]);
        rest.push(id);
        logits.push(oracle.feed(&[id])?);
    }
    Ok(Expected { prompt: prompt.to_vec(), rest, logits })
}

/// The likeliest token.
fn choice(logits: &[f32]) -> u32 {
    top(logits, 1).first().map_or(0, |&id| u32::try_from(id).unwrap_or(u32::MAX))
}

struct Run {
    metrics: ComparisonMetrics,
    done: usize,
    total: usize,
}

impl Run {
    fn run(
        &mut self,
        candidates: &mut [Box<dyn Candidate + '_>],
        places: &[Place],
        prompt: usize,
        expected: &Expected,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), VerifyError> {
        let mut first: BTreeMap<usize, (usize, Vec<Vec<f32>>)> = BTreeMap::new();
        for &(form, place) in places {
            progress(self.done, self.total);
            let candidate = candidates[form].as_mut();
            let (kv, seq_len) = (candidate.kv(), candidate.seq_lens()[place]);
            let failed = |message| VerifyError::Candidate { kv, seq_len, message };
            let logits = candidate.logits(seq_len, &expected.prompt, &expected.rest).map_err(failed)?;
            check((kv, seq_len), &logits, &expected.logits)?;
            self.metrics.add((kv, seq_len), prompt, expected, &logits);
            match first.get(&form) {
                Some((against, earlier)) => self.metrics.drift((kv, seq_len, *against), earlier, &logits),
                None => drop(first.insert(form, (seq_len, logits))),
            }
            self.done += 1;
            progress(self.done, self.total);
        }
        Ok(())
    }
}

fn check((kv, seq_len): (KvForm, usize), got: &[Vec<f32>], expected: &[Vec<f32>]) -> Result<(), VerifyError> {
    let wrong = |found: String, expected: String| VerifyError::Output { kv, seq_len, found, expected };
    if got.len() != expected.len() {
        return Err(wrong(format!("logits of {} positions", got.len()), format!("{}", expected.len())));
    }
    let mut pairs = got.iter().zip(expected);
    match pairs.find(|(got, expected)| got.len() != expected.len()) {
        Some((got, expected)) => {
            Err(wrong(format!("{} logits", got.len()), format!("a vocabulary of {}", expected.len())))
        }
        None => Ok(()),
    }
}

/// Everything gathered so far.
#[derive(Default)]
struct ComparisonMetrics {
    cells: BTreeMap<(KvForm, usize, Phase), LogitMetrics>,
    drift: BTreeMap<(KvForm, usize, usize), LogitMetrics>,
    differences: Vec<Difference>,
}

impl ComparisonMetrics {
    fn add(&mut self, (kv, seq_len): (KvForm, usize), prompt: usize, expected: &Expected, got: &[Vec<f32>]) {
        for (step, (reference, logits)) in expected.logits.iter().zip(got).enumerate() {
            let phase = if step == 0 { Phase::Prefill } else { Phase::Decode };
            self.cells.entry((kv, seq_len, phase)).or_default().add(reference, logits);
            let (wanted, chosen) = (choice(reference), choice(logits));
            if wanted != chosen {
                self.differences.push(Difference {
                    kv,
                    seq_len,
                    phase,
                    prompt,
                    position: expected.prompt.len() + step,
                    expected: wanted,
                    found: chosen,
                    gap: f64::from(reference[wanted as usize]) - f64::from(reference[chosen as usize]),
                    tolerance: 0.0,
                    tie: false,
                });
            }
        }
    }

    fn drift(&mut self, place: (KvForm, usize, usize), earlier: &[Vec<f32>], now: &[Vec<f32>]) {
        let gathered = self.drift.entry(place).or_default();
        earlier.iter().zip(now).for_each(|(earlier, now)| gathered.add(earlier, now));
    }

    /// The largest gap of the reference's logits that the rounding seen elsewhere may turn.
    fn tolerance(&self, kv: KvForm, seq_len: usize) -> f64 {
        let errors = [Phase::Prefill, Phase::Decode]
            .map(|phase| self.cells.get(&(kv, seq_len, phase)).map_or(0.0, LogitMetrics::error_where_agreed));
        2.0 * errors[0].max(errors[1])
    }

    fn report(mut self, reference: String, prompts: usize, options: &Options) -> Report {
        let mut differences = std::mem::take(&mut self.differences);
        for difference in &mut differences {
            difference.tolerance = self.tolerance(difference.kv, difference.seq_len);
            difference.tie = difference.gap <= difference.tolerance;
        }
        let cells = self.cells.into_iter().map(|((kv, seq_len, phase), gathered)| {
            let summary = gathered.summary();
            Cell { kv, seq_len, phase, summary }
        });
        let drift = self.drift.into_iter().map(|((kv, seq_len, against), gathered)| {
            let summary = gathered.summary();
            Drift { kv, seq_len, against, summary }
        });
        let (cells, drift): (Vec<_>, Vec<_>) = (cells.collect(), drift.collect());
        let thresholds = options.thresholds.clone();
        let failures = judge(&cells, &drift, &differences, &thresholds);
        Report {
            schema: SCHEMA,
            reference,
            prompts,
            tokens: options.tokens,
            passed: failures.is_empty(),
            cells,
            drift,
            differences,
            layers: Vec::new(),
            tensors: Vec::new(),
            remarks: Vec::new(),
            thresholds,
            failures,
            not_judged: None,
            quality: None,
        }
    }
}

#[cfg(test)]
mod tests;
