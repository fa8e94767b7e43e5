//! Bundles by what they take and what they give: size, speed, quality; and which of them nothing else beats.

use crate::report::{Metric, Place, Report};

/// A bundle by what it takes and what it gives.
#[derive(Debug, Clone, PartialEq)]
pub struct TradeOff {
    /// Its name.
    pub name: String,
    /// Bytes of its packages.
    pub package_bytes: u64,
    /// Tokens or predictions per second, p50.
    pub rate: Option<f64>,
    /// Which of them.
    pub is_of_predictions: bool,
    /// Mean KL divergence from the checkpoint, in nats.
    pub kl: Option<f64>,
    /// The largest divergence that it may have.
    pub kl_limit: Option<f64>,
    /// Perplexity on a text.
    pub perplexity: Option<f64>,
    /// Digest of the checkpoint that it was exported from.
    pub checkpoint_digest: String,
    /// Why nobody should take it.
    pub excluded: Option<String>,
}

impl TradeOff {
    /// What a report says at a place.
    pub fn of(name: &str, report: &Report, place: &Place) -> TradeOff {
        let is_of_predictions = report.is_of_predictions();
        let metric = if is_of_predictions { Metric::PredictionRate } else { Metric::Tps };
        let speed = report.figure_at(metric, Some(place));
        let loss = report.quality_loss();
        TradeOff {
            name: name.to_owned(),
            package_bytes: report.subject.package_bytes,
            rate: speed.and_then(|figure| figure.summary.percentiles.p50),
            is_of_predictions,
            kl: loss.and_then(|loss| loss.kl),
            kl_limit: loss.map(|loss| loss.limits.kl),
            perplexity: report.perplexity(),
            checkpoint_digest: report.subject.checkpoint_digest.clone(),
            excluded: excluded(report),
        }
    }

    /// Whether it is at least as good in everything and better in something. Divergences are compared where both are
    /// known and from one checkpoint; what is known beats nothing unknown.
    fn beats(&self, other: &TradeOff) -> bool {
        let (Some(speed), Some(other_speed)) = (self.rate, other.rate) else {
            return false;
        };
        let (kl, other_kl) = match (self.kl, other.kl) {
            (Some(kl), Some(other_kl)) if self.checkpoint_digest == other.checkpoint_digest => (kl, other_kl),
            (None, None) => (0.0, 0.0),
            _ => return false,
        };
        let (size, other_size) = (self.package_bytes, other.package_bytes);
        let no_worse = speed >= other_speed && size <= other_size && kl <= other_kl;
        no_worse && (speed > other_speed || size < other_size || kl < other_kl)
    }
}

/// Why a report's packages should not be taken, however fast they are.
fn excluded(report: &Report) -> Option<String> {
    let failed = report.failures().count();
    if failed > 0 {
        return Some(format!("{failed} launches failed"));
    }
    let found = report.verified()?;
    match (found.passed, found.problems().first()) {
        (true, None) => None,
        (true, Some(first)) => Some(format!("beyond a limit of quality: {first}")),
        (false, Some(first)) => Some(format!("failed verification: {first}")),
        (false, None) => Some("failed verification".to_owned()),
    }
}

/// Which of some bundles are not beaten by any other that may be taken. What may not be taken never is.
pub fn frontier(all: &[TradeOff]) -> Vec<bool> {
    let allowed = |one: &&TradeOff| one.excluded.is_none() && one.rate.is_some();
    let is_best = |one: &TradeOff| allowed(&one) && !all.iter().filter(allowed).any(|other| other.beats(one));
    all.iter().map(is_best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Verification, testing};

    fn one(name: &str, package_bytes: u64, speed: f64, kl: Option<f64>) -> TradeOff {
        let (name, rate) = (name.to_owned(), Some(speed));
        let checkpoint_digest = "xxh3:01".to_owned();
        let (kl_limit, perplexity, excluded) = (Some(0.1), None, None);
        TradeOff {
            name,
            package_bytes,
            rate,
            is_of_predictions: false,
            kl,
            kl_limit,
            perplexity,
            checkpoint_digest,
            excluded,
        }
    }

    #[test]
    fn what_something_else_beats_is_not_on_the_frontier() {
        let mut all = [
            one("fp16", 400, 10.0, Some(0.0)),
            one("int8", 200, 20.0, Some(0.01)),
            one("slow int8", 210, 15.0, Some(0.02)),
            one("unknown", 210, 15.0, None),
            one("int4", 100, 30.0, Some(0.5)),
        ];
        assert_eq!(frontier(&all), [true, true, false, true, true]);
        all[1].excluded = Some("failed verification".to_owned());
        assert_eq!(frontier(&all), [true, false, true, true, true]);
        assert!(frontier(&[]).is_empty());
    }

    #[test]
    fn divergences_from_different_checkpoints_are_not_compared() {
        let mut all = [one("fp16", 400, 10.0, Some(0.001)), one("stored", 100, 30.0, Some(0.0))];
        assert_eq!(frontier(&all), [false, true]);
        all[1].checkpoint_digest = "xxh3:02".to_owned();
        assert_eq!(frontier(&all), [true, true]);
    }

    #[test]
    fn what_is_wrong_or_loses_too_much_may_not_be_taken() {
        let with = |change: fn(&mut Verification)| {
            let mut report = testing::with_launches(vec![testing::launch(0, 1.0)]);
            let mut found = testing::verification();
            found.quality = Some(testing::quality_loss());
            change(&mut found);
            report.verification = Some(found);
            TradeOff::of("x", &report, &Place::SeqLen(512)).excluded
        };
        assert_eq!(with(|_| ()), None);
        let wrong = with(|found| (found.passed, found.failures) = (false, vec!["io 16: cosine".to_owned()]));
        assert_eq!(wrong.unwrap(), "failed verification: io 16: cosine");
        let lossy = with(|found| found.quality.as_mut().unwrap().kl = Some(0.3)).unwrap();
        assert_eq!(lossy, "beyond a limit of quality: mean KL is 0.3000 nats, limit at most 0.1000 nats");
        assert_eq!(
            TradeOff::of("x", &testing::report(), &Place::SeqLen(512)).excluded.unwrap(),
            "1 launches failed"
        );
    }
}
