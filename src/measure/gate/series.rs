//! Launch statistics of two arms, series by series: what both rules compare.

use super::verdict::{Measure, Statistic};
use crate::report::{Launch, Metric, Outcome, Place, Report};
use crate::stats::{Direction, Ordered, Percentile, centre, launch_medians, launch_tails, pooled_tails};

/// One statistic of every launch of both arms, as slow-oriented logarithms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) measure: Measure,
    pub(super) statistic: Statistic,
    pub(super) place: Option<Place>,
    pub(super) metric: Metric,
    pub(super) baseline: Vec<f64>,
    pub(super) candidate: Vec<f64>,
    /// The figure of each arm as reports and baselines show it, over the samples of all its launches. Absent where they
    /// are too few for it, and for a pooled tail, which is relative to the centres of sequence lengths.
    pub(super) figures: [Option<f64>; 2],
    /// Samples behind the arm that has fewer.
    pub(super) samples: usize,
}

/// Something of which there are no samples to compare, and why.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Absent {
    pub(super) measure: Measure,
    pub(super) reason: String,
}

const SPEED: &[(Measure, Metric)] = &[(Measure::Ttft, Metric::Ttft), (Measure::Tps, Metric::Tps)];
/// Of functions that are predicted one by one.
const SPEED_OF_CASES: &[(Measure, Metric)] = &[(Measure::Latency, Metric::Latency)];
const OF_LAUNCHES: [(Measure, Metric); 2] =
    [(Measure::Load, Metric::Load), (Measure::MemoryPeak, Metric::MemoryPeak)];

/// Launches that completed.
pub(super) fn completed(report: &Report) -> Vec<&Launch> {
    report.launches.iter().filter(|launch| launch.outcome == Outcome::Completed).collect()
}

/// All series of two arms at some sequence lengths.
pub(super) fn all(base: &[&Launch], candidate: &[&Launch], places: &[Place]) -> (Vec<Series>, Vec<Absent>) {
    let (mut series, mut absent) = (Vec::new(), Vec::new());
    let mut lacks =
        |measure, what: String| absent.push(Absent { measure, reason: format!("there are launches {what}") });
    let is_of_cases = places.iter().any(|place| place.case().is_some());
    for &(measure, metric) in if is_of_cases { SPEED_OF_CASES } else { SPEED } {
        match speed(measure, metric, [base, candidate], places) {
            Some(found) => series.extend(found),
            None => lacks(measure, format!("without samples of {metric}")),
        }
    }
    for (measure, metric) in OF_LAUNCHES {
        let of_launches = |arm: &[&Launch]| -> Option<Vec<f64>> {
            arm.iter().map(|launch| metric.of_launch(launch).filter(|v| v.is_finite() && *v > 0.0)).collect()
        };
        let (Some(base), Some(candidate)) = (of_launches(base), of_launches(candidate)) else {
            lacks(measure, format!("that do not tell their {metric}"));
            continue;
        };
        let figures = [&base, &candidate].map(|values| figure(metric, Percentile::P50, values));
        let logs = |values: Vec<f64>| values.into_iter().map(f64::ln).collect();
        series.push(Series {
            measure,
            statistic: Statistic::P50,
            place: None,
            metric,
            figures,
            samples: candidate.len().min(base.len()),
            baseline: logs(base),
            candidate: logs(candidate),
        });
    }
    (series, absent)
}

/// Medians, tails and the pooled tail of one metric. `None` if a launch has no sample at a length.
fn speed(measure: Measure, metric: Metric, arms: [&[&Launch]; 2], places: &[Place]) -> Option<Vec<Series>> {
    let samples: Vec<[Vec<Vec<f64>>; 2]> = places
        .iter()
        .map(|place| arms.map(|arm| arm.iter().map(|launch| slow_logs(metric, launch, place)).collect()))
        .collect();
    let count = |arm: &[Vec<f64>]| arm.iter().map(Vec::len).sum::<usize>();
    let fewer = |arms: &[Vec<Vec<f64>>; 2]| count(&arms[0]).min(count(&arms[1]));
    let mut series = Vec::new();
    for (statistic, percentile) in [(Statistic::P50, Percentile::P50), (Statistic::P95, Percentile::P95)] {
        let of_launches = if statistic == Statistic::P50 { launch_medians } else { launch_tails };
        for (logs, place) in samples.iter().zip(places) {
            let (baseline, candidate) = (of_launches(&logs[0])?, of_launches(&logs[1])?);
            let (samples, figures) =
                (fewer(logs), arms.map(|arm| pooled_figure(metric, percentile, arm, place)));
            let place = Some(place.clone());
            series.push(Series { measure, statistic, place, metric, baseline, candidate, figures, samples });
        }
    }
    // One centre for both arms: with one each, a slower candidate would be measured against itself.
    let centres: Vec<f64> =
        samples.iter().map(|arms| centre(&[&arms[0], &arms[1]])).collect::<Option<_>>()?;
    let pooled = |arm: usize| {
        let samples: Vec<Vec<Vec<f64>>> = samples.iter().map(|arms| arms[arm].clone()).collect();
        pooled_tails(&samples, &centres)
    };
    series.push(Series {
        measure,
        statistic: Statistic::PooledTail,
        place: None,
        metric,
        baseline: pooled(0)?,
        candidate: pooled(1)?,
        figures: [None; 2],
        samples: samples.iter().map(fewer).sum(),
    });
    Some(series)
}

/// Values of a launch on slow-oriented logarithms.
fn slow_logs(metric: Metric, launch: &Launch, place: &Place) -> Vec<f64> {
    launch.values(metric, place).map(|value| metric.direction().slow_log(value)).collect()
}

/// A percentile over the samples of all launches of an arm.
fn pooled_figure(metric: Metric, percentile: Percentile, arm: &[&Launch], place: &Place) -> Option<f64> {
    let samples: Vec<f64> = arm.iter().flat_map(|launch| launch.values(metric, place)).collect();
    figure(metric, percentile, &samples)
}

fn figure(metric: Metric, percentile: Percentile, samples: &[f64]) -> Option<f64> {
    Ordered::new(samples, metric.direction())?.percentile(percentile)
}

/// Per cent worse as a difference of slow-oriented logarithms.
pub(super) fn log_of_pct(pct: f64, direction: Direction) -> f64 {
    match direction {
        Direction::LowerIsBetter => (pct / 100.0).ln_1p(),
        // A rate that is 5 % lower takes 1 / 0.95 of the time; no rate is lower by 100 %.
        Direction::HigherIsBetter => -(-pct.min(99.0) / 100.0).ln_1p(),
    }
}

/// A difference of slow-oriented logarithms as per cent worse.
pub(super) fn pct_of_log(log: f64, direction: Direction) -> f64 {
    100.0
        * match direction {
            Direction::LowerIsBetter => log.exp_m1(),
            Direction::HigherIsBetter => -(-log).exp_m1(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn a_family_has_every_statistic_of_every_seq_len() {
        let report = testing::report();
        let arm = completed(&report);
        let (series, absent) = all(&arm, &arm, &report.workload.places());
        assert_eq!((series.len(), absent.len()), (2 * (2 + 2 + 1) + 2, 0));
        assert!(series.iter().all(|s| s.baseline == s.candidate && s.baseline.len() == 2));
        let tail = |s: &&Series| s.statistic == Statistic::PooledTail && s.measure == Measure::Ttft;
        assert_eq!(series.iter().find(tail).unwrap().samples, 8);
        let median = &series[0];
        assert_eq!((median.measure, median.samples), (Measure::Ttft, 4));
        assert_eq!(median.place, Some(Place::SeqLen(128)));
        let expected = (10.0f64.ln() + 15.0f64.ln()) / 2.0;
        assert!((median.baseline[0] - expected).abs() < 1e-12);
    }

    #[test]
    fn predictions_have_latencies_and_no_tokens() {
        let report = testing::predicted(3, 1.0);
        let arm = completed(&report);
        let (series, absent) = all(&arm, &arm, &report.workload.places());
        assert_eq!((series.len(), absent.len()), (2 + 2 + 1 + 2, 0));
        let median = &series[1];
        assert_eq!((median.measure, median.samples), (Measure::Latency, 90));
        assert_eq!(median.place, Some(Place::Case(testing::CASES[1].to_owned())));
        assert!(!series.iter().any(|s| matches!(s.measure, Measure::Ttft | Measure::Tps)));
    }

    #[test]
    fn what_has_no_samples_is_named() {
        let mut report = testing::report();
        for launch in &mut report.launches {
            launch.memory = None;
            launch.requests.iter_mut().for_each(|request| request.steps_ms.clear());
        }
        let arm = completed(&report);
        let (_, absent) = all(&arm, &arm, &report.workload.places());
        let reasons: Vec<&str> = absent.iter().map(|a| a.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "there are launches without samples of TPS",
                "there are launches that do not tell their memory peak"
            ]
        );
    }

    #[test]
    fn per_cent_and_logarithms() {
        for (direction, expected) in
            [(Direction::LowerIsBetter, 1.05f64.ln()), (Direction::HigherIsBetter, -(0.95f64.ln()))]
        {
            assert!((log_of_pct(5.0, direction) - expected).abs() < 1e-12);
            assert!((pct_of_log(expected, direction) - 5.0).abs() < 1e-9);
        }
    }
}
