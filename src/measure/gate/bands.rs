//! Speed targets of a profile: sanity bands that warn and never fail.

use super::policy::Policy;
use crate::report::{Figure, Metric, Report};
use anemeter_base::hardware::{Band, BandMetric, BandPercentile, SpeedTargets};
use anemeter_base::vocabulary::RuntimeName;

/// A model is of the targets' kind if its size is within this factor.
const SAME_SIZE: f64 = 1.25;

/// What lies outside its band.
pub(super) fn warnings(report: &Report, policy: &Policy) -> Vec<String> {
    let Some(targets) = &policy.speed_targets else { return Vec::new() };
    let size = report.subject.parameters as f64 / targets.parameters;
    let same_kind = (1.0 / SAME_SIZE..=SAME_SIZE).contains(&size) && report.workload.batch == targets.batch;
    // Bands are those of the Neural Engine, as Core ML uses it.
    if !same_kind || matches!(report.runtime.name, RuntimeName::Cpu | RuntimeName::CoreAi) {
        return Vec::new();
    }
    report.figures.iter().flat_map(|figure| outside(figure, targets)).collect()
}

fn outside(figure: &Figure, targets: &SpeedTargets) -> Vec<String> {
    let metric = match figure.metric {
        Metric::Ttft => BandMetric::Ttft,
        Metric::Tps => BandMetric::Tps,
        _ => return Vec::new(),
    };
    let Some(seq_len) = figure.seq_len else { return Vec::new() };
    let percentiles = [
        (BandPercentile::P50, "p50", figure.summary.percentiles.p50),
        (BandPercentile::P95, "p95", figure.summary.percentiles.p95),
    ];
    let warning = |(percentile, name, value): (BandPercentile, &str, Option<f64>)| {
        let fits = |band: &&Band| {
            (band.metric, band.percentile) == (metric, percentile) && seq_len <= band.max_context
        };
        // Bands hold up to a context; the narrowest that covers this length is meant.
        let band = targets.bands.iter().filter(fits).min_by_key(|band| band.max_context)?;
        let value = value.filter(|value| !(band.low..=band.high).contains(value))?;
        Some(format!(
            "{} {name} at {seq_len} is {value:.1} {}, outside the {} to {} expected of a {} ({})",
            figure.metric, figure.unit, band.low, band.high, targets.model, targets.basis
        ))
    };
    percentiles.into_iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::super::policy::testing::policy;
    use super::*;
    use crate::report::testing;

    #[test]
    fn only_models_of_the_same_kind_are_held_against_bands() {
        let mut report = testing::report();
        report.runtime.name = RuntimeName::CoreMl;
        assert!(warnings(&report, &policy()).is_empty());
        report.subject.parameters = 8_800_000_000;
        let found = warnings(&report, &policy());
        insta::assert_snapshot!(found[0], @"TTFT p50 at 128 is 13.7 ms, outside the 300 to 500 expected of a decoder of about 9 billion parameters, int8 weights, fp16 activations (stated for this machine)");
        assert_eq!(found.len(), 4, "{found:?}");
        report.workload.batch = 2;
        assert!(warnings(&report, &policy()).is_empty());
        report.workload.batch = 1;
        report.runtime.name = RuntimeName::Cpu;
        assert!(warnings(&report, &policy()).is_empty(), "a processor is not a Neural Engine");
    }
}
