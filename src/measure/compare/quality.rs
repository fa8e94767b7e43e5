//! Quality of two reports, next to their speeds.

use schemars::JsonSchema;
use serde::Serialize;

use crate::report::{QualityFigure, Report};

/// A figure of quality in both reports, in words; absent where it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QualityPair {
    /// Which figure.
    pub figure: &'static str,
    /// In the first report.
    pub baseline: Option<String>,
    /// In the second.
    pub candidate: Option<String>,
}

/// What each of two reports says of the quality of its packages; nothing that neither says.
pub(super) fn qualities(baseline: &Report, candidate: &Report) -> Vec<QualityPair> {
    let loss = |report: &Report, figure: QualityFigure| {
        let checks = report.quality_loss()?.checks();
        let found = checks.iter().find(|check| check.figure == figure)?.found?;
        Some(figure.shown(found))
    };
    let pair = |figure, of: &dyn Fn(&Report) -> Option<String>| QualityPair {
        figure,
        baseline: of(baseline),
        candidate: of(candidate),
    };
    let pairs = [
        pair("mean KL against the checkpoint", &|report| loss(report, QualityFigure::Kl)),
        pair("top-1", &|report| loss(report, QualityFigure::Top1)),
        pair("top-5", &|report| loss(report, QualityFigure::Top5)),
        pair("increase of perplexity", &|report| loss(report, QualityFigure::Perplexity)),
        pair("perplexity", &|report| report.perplexity().map(|value| format!("{value:.4}"))),
    ];
    pairs.into_iter().filter(|pair| pair.baseline.is_some() || pair.candidate.is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn what_one_of_two_knows_is_shown() {
        let plain = testing::report();
        let mut verified = testing::report();
        let mut found = testing::verification();
        found.quality = Some(testing::quality_loss());
        verified.verification = Some(found);
        let pairs = qualities(&plain, &verified);
        let shown: Vec<_> = pairs.iter().map(|pair| pair.candidate.as_deref().unwrap()).collect();
        assert_eq!(shown, ["0.0110 nats", "95.0 %", "94.0 %", "+0.70 %", "20.1400"]);
        assert!(pairs.iter().all(|pair| pair.baseline.is_none()));
        assert!(qualities(&plain, &plain).is_empty());
    }
}
