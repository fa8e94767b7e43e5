//! Ratios of two commits, with intervals that come from the rounds.
//!
//! A round gives one ratio of each measure. What is told is their median, with the interval of order statistics that
//! contains the true median in 95 % of cases whatever their distribution is (the sign test inverted). A mean would follow
//! the rounds in which something else took a core.

use anyhow::{Result, ensure};

use super::program::Sample;
use xtask::median;

/// How much longer this commit may take.
const MOST: f64 = 1.03;
const CONFIDENCE: f64 = 0.95;
/// With fewer rounds not even the smallest and the largest ratio enclose the median with that confidence.
pub(super) const FEWEST: usize = 6;

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
    ensure!(head.len().min(base.len()) >= FEWEST, "an interval takes {FEWEST} rounds");
    let row = |&(what, unit, scale, of): &Measure| {
        let mut ratios: Vec<f64> = head.iter().zip(base).map(|(head, base)| of(head) / of(base)).collect();
        ratios.sort_by(f64::total_cmp);
        let outside = beyond(ratios.len());
        let median_of = |samples: &[Sample]| median(samples.iter().map(of).collect()) * scale;
        let medians = [median_of(head), median_of(base)];
        let (low, high) = (ratios[outside], ratios[ratios.len() - 1 - outside]);
        Row { what, unit, medians, ratio: median(ratios), low, high }
    };
    Ok(MEASURES.iter().map(row).collect())
}

/// How many of so many values lie beyond each end of the interval of their median: as many as leave each tail of the
/// binomial distribution with a half at most what the confidence allows.
fn beyond(count: usize) -> usize {
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let mut probability = 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (mut total, mut outside) = (probability, 0);
    while outside + 1 < count.div_ceil(2) {
        probability *= (count - outside) as f64 / (outside + 1) as f64;
        total += probability;
        if total > tail {
            break;
        }
        outside += 1;
    }
    outside
}

/// A table of all rows.
pub(super) fn text(rows: &[Row], [head, base]: &[String; 2], how: &str) -> String {
    let heading = format!(
        "{head} against {base}, medians of {how}; ratios \
         (medians of the rounds' ratios, 95 % intervals).\n\n| what | {head} | {base} | ratio | target | |\n|---|--:|--:|--:|---|---|\n"
    );
    heading + &rows.iter().map(Row::line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(factors: [f64; 8]) -> Vec<Sample> {
        let sample = |factor: f64| Sample { export: factor, compress: 2.0, prefill: 0.5, decode: 0.02 };
        factors.map(sample).to_vec()
    }

    #[test]
    fn ratios_are_judged_by_their_intervals() {
        let verdict = |factors| {
            let rows = rows(&[samples(factors), samples([1.0; 8])]).unwrap();
            rows.iter().find(|row| row.what == "export").unwrap().verdict()
        };
        assert_eq!(verdict([1.0, 1.001, 0.999, 1.0, 1.002, 1.0, 1.01, 0.99]), Verdict::Met);
        assert_eq!(verdict([1.1, 1.101, 1.099, 1.1, 1.2, 1.05, 1.1, 1.1]), Verdict::Missed);
        assert_eq!(verdict([0.9, 1.1, 1.0, 0.9, 1.1, 1.0, 0.9, 1.1]), Verdict::Open);
        // One round that something else disturbed.
        assert_eq!(verdict([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0]), Verdict::Open);
    }

    #[test]
    fn intervals_of_a_median_are_those_of_tables() {
        // Conover, Practical Nonparametric Statistics: of 8 values all, of 10 and 20 the 2nd and 6th from each end.
        assert_eq!([6, 8, 10, 20, 50, 100].map(beyond), [0, 0, 1, 5, 17, 39]);
        assert!(rows(&[Vec::new(), Vec::new()]).is_err());
    }

    #[test]
    fn a_line_shows_medians_ratio_and_interval() {
        let rows = rows(&[samples([1.0; 8]), samples([1.0; 8])]).unwrap();
        let text = text(&rows, &["abc".to_owned(), "def".to_owned()], "8 rounds");
        let line = "| decode, a token | 20.00 ms | 20.00 ms | 1.000 (1.000–1.000) | at most 1.03 | met |\n";
        assert!(text.contains(line), "{text}");
    }
}
