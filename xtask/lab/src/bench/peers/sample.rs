//! What an engine says of a round, and what several rounds come to.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::resident::Resident;
use super::workload::{DECODED, LONG};
use xtask::median;

/// One round of an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// From opening the model to having picked the first token; what the process did before does not count.
    pub(super) first_token_seconds: f64,
    pub(super) decode_seconds: f64,
    pub(super) prefill_seconds: f64,
    /// The most memory that was resident until the last token was decoded.
    pub(super) peak_bytes: u64,
    /// What is resident then, if the engine tells.
    #[serde(default)]
    pub(super) resident: Option<Resident>,
    /// The tokens it picked.
    pub(super) tokens: Vec<u32>,
}

/// What an engine takes at growing lengths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Growth {
    pub(super) growth: Vec<Point>,
}

/// What it takes at one of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) length: usize,
    /// Of one token.
    pub(super) decode_seconds: f64,
    pub(super) prefill_seconds: f64,
}

/// The document in the last line of what an engine wrote.
pub(super) fn last_line<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("read what was measured from `{line}`"))
}

impl Sample {
    /// Reads what an engine wrote.
    pub(super) fn parse(text: &str) -> Result<Sample> {
        let sample: Sample = last_line(text)?;
        for seconds in [sample.first_token_seconds, sample.decode_seconds, sample.prefill_seconds] {
            ensure!(seconds > 0.0, "a duration of {seconds} s");
        }
        let count = sample.tokens.len();
        ensure!(count == DECODED + 1, "{count} tokens were picked, {} expected", DECODED + 1);
        Ok(sample)
    }

    pub(super) fn decode_speed(&self) -> f64 {
        DECODED as f64 / self.decode_seconds
    }

    pub(super) fn prefill_speed(&self) -> f64 {
        LONG as f64 / self.prefill_seconds
    }
}

/// Median and range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.into_iter().collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Spread { median: median(values), least, most }
    }

    /// With so many digits after the point.
    pub(super) fn text(&self, digits: usize) -> String {
        let Spread { median, least, most } = self;
        format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(in crate::bench::peers) fn sample(decode: f64, prefill: f64, peak_bytes: u64, first: f64) -> Sample {
        Sample {
            first_token_seconds: first,
            decode_seconds: DECODED as f64 / decode,
            prefill_seconds: LONG as f64 / prefill,
            peak_bytes,
            resident: None,
            tokens: vec![7; DECODED + 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_line_counts() {
        let sample = testing::sample(64.0, 256.0, 300, 0.5);
        let text = format!("a warning\n{}\n", serde_json::to_string(&sample).unwrap());
        let read = Sample::parse(&text).unwrap();
        assert_eq!(read, sample);
        assert_eq!((read.decode_speed(), read.prefill_speed()), (64.0, 256.0));
    }

    #[test]
    fn what_cannot_be_true_is_refused() {
        let refused = |change: fn(&mut Sample)| {
            let mut sample = testing::sample(64.0, 256.0, 300, 0.5);
            change(&mut sample);
            Sample::parse(&serde_json::to_string(&sample).unwrap()).unwrap_err().to_string()
        };
        assert_eq!(refused(|sample| sample.tokens.truncate(3)), "3 tokens were picked, 129 expected");
        assert_eq!(refused(|sample| sample.decode_seconds = 0.0), "a duration of 0 s");
        let error = Sample::parse("Segmentation fault").unwrap_err();
        assert_eq!(error.to_string(), "read what was measured from `Segmentation fault`");
        assert!(Sample::parse("").is_err());
    }

    #[test]
    fn growth_is_read_point_by_point() {
        let text = r#"{"growth": [{"length": 128, "decode_seconds": 0.01, "prefill_seconds": 0.2}]}"#;
        let Growth { growth } = last_line(text).unwrap();
        assert_eq!(growth, [Point { length: 128, decode_seconds: 0.01, prefill_seconds: 0.2 }]);
    }

    #[test]
    fn a_spread_shows_median_and_range() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0, 10.0]).text(1), "2.5 (1.0–10.0)");
    }

    proptest! {
        #[test]
        fn no_output_is_too_strange(text in ".*") {
            let _ = Sample::parse(&text);
        }

        #[test]
        fn a_median_lies_in_its_range(values in prop::collection::vec(0.0..1e9f64, 1..20)) {
            let spread = Spread::of(values);
            prop_assert!(spread.least <= spread.median && spread.median <= spread.most);
        }
    }
}
