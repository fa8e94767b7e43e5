//! Ratios of two commits, with intervals that come from the rounds.

use anemeter::stats::mean_interval;
use anyhow::{Context, Result};

use super::program::Sample;
use xtask::median;

/// How much longer this commit may take.
const MOST: f64 = 1.03;
const CONFIDENCE: f64 = 0.95;

/// What is compared: its name, its unit, how many of that a second has, and where it is in a sample.
type Measure = (&'static str, &'static str, f64, fn(&Sample) -> f64);

const MEASURES: &[Measure] = &[
    ("decode, a token", "ms", 1e3, |sample| sample.decode),
    ("prefill", "ms", 1e3, |sample| sample.prefill),
    ("export", "s", 1.0, |sample| sample.export),
    ("compress", "s", 1.0, |sample| sample.compress),
];

/// One measure of both commits.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    unit: &'static str,
    /// Medians of this commit and the other.
    medians: [f64; 2],
    ratio: f64,
    low: f64,
    high: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Met,
    Missed,
    /// The interval has the limit in it.
    Open,
}

impl Row {
    pub(super) fn verdict(&self) -> Verdict {
        match (self.high <= MOST, self.low > MOST) {
            (true, _) => Verdict::Met,
            (_, true) => Verdict::Missed,
            _ => Verdict::Open,
        }
    }

    fn line(&self) -> String {
        let Row { what, unit, medians: [head, base], ratio, low, high } = self;
        let verdict = match self.verdict() {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Open => "OPEN: more rounds",
        };
        format!(
            "| {what} | {head:.2} {unit} | {base:.2} {unit} | {ratio:.3} ({low:.3}–{high:.3}) | at most {MOST} | {verdict} |\n"
        )
    }
}

/// The measures of this commit's rounds and the other's. Those of one round make a pair.
pub(super) fn rows([head, base]: &[Vec<Sample>; 2]) -> Result<Vec<Row>> {
    let row = |&(what, unit, scale, of): &Measure| {
        let logs: Vec<f64> = head.iter().zip(base).map(|(head, base)| (of(head) / of(base)).ln()).collect();
        let interval = mean_interval(&logs, CONFIDENCE).context("an interval takes two rounds")?;
        let median_of = |samples: &[Sample]| median(samples.iter().map(of).collect()) * scale;
        let ratio = ((interval.low + interval.high) / 2.0).exp();
        let (low, high) = (interval.low.exp(), interval.high.exp());
        Ok(Row { what, unit, medians: [median_of(head), median_of(base)], ratio, low, high })
    };
    MEASURES.iter().map(row).collect()
}

/// A table of all rows.
pub(super) fn text(rows: &[Row], [head, base]: &[String; 2], how: &str) -> String {
    let heading = format!(
        "{head} against {base}, medians of {how}; ratios \
         (95 % intervals of their geometric means).\n\n| what | {head} | {base} | ratio | target | |\n|---|--:|--:|--:|---|---|\n"
    );
    heading + &rows.iter().map(Row::line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(factors: [f64; 3]) -> Vec<Sample> {
        let sample = |factor: f64| Sample { export: factor, compress: 2.0, prefill: 0.5, decode: 0.02 };
        factors.map(sample).to_vec()
    }

    #[test]
    fn ratios_are_judged_by_their_intervals() {
        let verdict = |factors| {
            let rows = rows(&[samples(factors), samples([1.0; 3])]).unwrap();
            rows.iter().find(|row| row.what == "export").unwrap().verdict()
        };
        assert_eq!(verdict([1.0, 1.001, 0.999]), Verdict::Met);
        assert_eq!(verdict([1.1, 1.101, 1.099]), Verdict::Missed);
        assert_eq!(verdict([0.9, 1.1, 1.0]), Verdict::Open);
    }

    #[test]
    fn a_line_shows_medians_ratio_and_interval() {
        let rows = rows(&[samples([1.0, 1.0, 1.0]), samples([1.0, 1.0, 1.0])]).unwrap();
        let text = text(&rows, &["abc".to_owned(), "def".to_owned()], "3 rounds");
        let line = "| decode, a token | 20.00 ms | 20.00 ms | 1.000 (1.000–1.000) | at most 1.03 | met |\n";
        assert!(text.contains(line), "{text}");
    }
}
