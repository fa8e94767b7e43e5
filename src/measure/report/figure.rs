//! Figures over the samples of all launches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Launch, Metric, Outcome, Place, Scope};
use crate::stats::{
    Direction, Interval, Mix, Percentile, Summary, Unit, launch_interval, mean_interval, mix, summarise,
};
use anemeter_base::hardware::ProductionMix;

/// Confidence of all intervals in reports.
const CONFIDENCE: f64 = 0.95;

/// A metric in a few numbers, at one sequence length or over launches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The metric.
    pub metric: Metric,
    /// The sequence length; absent for metrics of whole launches, and where there is a case.
    pub seq_len: Option<usize>,
    /// The case of the workload `predict`; absent for metrics of whole launches, and where there is a sequence length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// What it counts.
    pub unit: Unit,
    /// Which way is better.
    pub direction: Direction,
    /// Launches that gave values.
    pub launches: usize,
    /// The values in a few numbers.
    pub summary: Summary,
    /// Interval of the median, from the medians of launches.
    pub p50_interval: Option<Interval>,
    /// Interval of the slow tail, from that of launches; absent where the tail itself is.
    pub p95_interval: Option<Interval>,
    /// Interval of the mean, from the means of launches.
    pub mean_interval: Option<Interval>,
}

/// A metric over the production mix of sequence lengths, from the medians at each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixFigure {
    /// The metric.
    pub metric: Metric,
    /// What it counts.
    pub unit: Unit,
    /// The weighted figure and how much of the mix was measured.
    pub mix: Mix,
}

impl Figure {
    /// Where it holds; `None` for metrics of whole launches.
    pub fn place(&self) -> Option<Place> {
        Place::stated(self.seq_len, self.case.as_ref())
    }
}

/// Figures of all metrics that have values, in the order of [`Metric::ALL`] and then of places. Failed launches do not
/// count.
pub fn figures(launches: &[Launch]) -> Vec<Figure> {
    let completed: Vec<&Launch> = launches.iter().filter(|l| l.outcome == Outcome::Completed).collect();
    let places = places(completed.iter().copied());
    let mut figures = Vec::new();
    for metric in Metric::ALL {
        if metric.scope() == Scope::Launch {
            let values =
                completed.iter().map(|launch| metric.of_launch(launch).into_iter().collect()).collect();
            figures.extend(figure(metric, None, values));
            continue;
        }
        for place in &places {
            let values = completed.iter().map(|launch| launch.values(metric, place).collect()).collect();
            figures.extend(figure(metric, Some(place), values));
        }
    }
    figures
}

/// Where something was measured in any of some launches.
pub(super) fn places<'a>(launches: impl Iterator<Item = &'a Launch>) -> Vec<Place> {
    let mut found: Vec<Place> = Vec::new();
    for place in launches.flat_map(Launch::places) {
        if !found.contains(&place) {
            found.push(place);
        }
    }
    // Stable: cases keep the order in which they first ran, after all sequence lengths.
    found.sort_by_key(|place| place.seq_len().unwrap_or(usize::MAX));
    found
}

/// Figures over the mix, for the metrics that users wait for.
pub fn mix_figures(figures: &[Figure], weights: &ProductionMix) -> Vec<MixFigure> {
    let of = |metric: Metric| {
        let parts: Vec<(f64, Option<f64>)> = weights
            .seq_lens
            .iter()
            .zip(&weights.weights)
            .map(|(&seq_len, &weight)| {
                let figure = figures.iter().find(|f| f.metric == metric && f.seq_len == Some(seq_len));
                (weight, figure.and_then(|figure| figure.summary.percentiles.p50))
            })
            .collect();
        let mix = mix(&parts, metric.direction())?;
        Some(MixFigure { metric, unit: metric.unit(), mix })
    };
    [Metric::Ttft, Metric::Tps].into_iter().filter_map(of).collect()
}

fn figure(metric: Metric, place: Option<&Place>, mut launches: Vec<Vec<f64>>) -> Option<Figure> {
    launches.retain(|values| !values.is_empty());
    let direction = metric.direction();
    let summary = summarise(&launches.concat(), direction)?;
    let interval = |percentile| launch_interval(&launches, direction, percentile, CONFIDENCE);
    let means: Vec<f64> =
        launches.iter().filter_map(|values| Some(summarise(values, direction)?.mean)).collect();
    Some(Figure {
        metric,
        seq_len: place.and_then(Place::seq_len),
        case: place.and_then(Place::case).map(str::to_owned),
        unit: metric.unit(),
        direction,
        launches: launches.len(),
        summary,
        p50_interval: interval(Percentile::P50),
        p95_interval: summary.percentiles.p95.and_then(|_| interval(Percentile::P95)),
        mean_interval: mean_interval(&means, CONFIDENCE),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn find(figures: &[Figure], metric: Metric, seq_len: Option<usize>) -> &Figure {
        figures.iter().find(|figure| figure.metric == metric && figure.seq_len == seq_len).unwrap()
    }

    #[test]
    fn figures_come_from_completed_launches_only() {
        let report = testing::report();
        let figures = figures(&report.launches);
        let ttft = find(&figures, Metric::Ttft, Some(128));
        assert_eq!((ttft.launches, ttft.summary.count), (2, 4));
        assert_eq!(ttft.summary.minimum, 10.0);
        assert!(ttft.p50_interval.is_some() && ttft.p95_interval.is_none());
        assert_eq!(ttft.summary.percentiles.p95, None);
        let load = find(&figures, Metric::Load, None);
        assert_eq!((load.summary.count, load.unit), (2, Unit::Milliseconds));
    }

    #[test]
    fn the_mix_weighs_medians() {
        let report = testing::report();
        let figures = figures(&report.launches);
        let median = |metric, seq_len| find(&figures, metric, Some(seq_len)).summary.percentiles.p50.unwrap();
        let weights = ProductionMix { seq_lens: vec![128, 512, 1024], weights: vec![0.5, 0.25, 0.25] };
        let mixed = mix_figures(&figures, &weights);
        let expected = (0.5 * median(Metric::Ttft, 128) + 0.25 * median(Metric::Ttft, 512)) / 0.75;
        assert_eq!(mixed[0].metric, Metric::Ttft);
        assert!((mixed[0].mix.value - expected).abs() < 1e-9);
        assert_eq!(mixed[0].mix.covered, 0.75);
        assert_eq!(mixed[1].unit, Unit::TokensPerSecond);
        assert!(mix_figures(&figures, &ProductionMix { seq_lens: vec![7], weights: vec![1.0] }).is_empty());
    }

    #[test]
    fn nothing_measured_gives_no_figure() {
        assert!(figures(&[]).is_empty());
        let failed = testing::report().launches.remove(2);
        assert!(figures(&[failed]).is_empty());
    }
}
