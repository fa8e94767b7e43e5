//! What a long run came to: does memory grow steadily, does speed fall?

use anemeter_measure::report::{LatencyDrift, LeakVerdict, MemoryTrend, SoakPoint};
use anemeter_measure::stats::{Interval, locate, students_t, theil_sen};

/// Points that trends are computed from, at most; more are combined.
const MOST_POINTS: usize = 160;
/// Points of a half or a quarter of the run, at least.
const FEWEST_POINTS: usize = 5;
/// The part of the run that is left out of memory trends: caches and plans are still made.
const SETTLING: f64 = 0.1;
const CONFIDENCE: f64 = 0.99;
/// Growth over the run that is worth a word.
const LEAST_GROWTH_BYTES: f64 = 256.0 * 1024.0;
/// Slowing down that is worth a word.
const LEAST_SLOWDOWN: f64 = 1.05;

/// What memory did. A leak grows throughout, so both halves of the run must grow; a single step, such as
/// a table that was enlarged once, is none.
pub(super) fn memory_trend(points: &[SoakPoint]) -> Option<MemoryTrend> {
    let settled = &points[(points.len() as f64 * SETTLING).ceil() as usize..];
    let series: Vec<(f64, f64)> = settled
        .iter()
        .map(|point| Some((point.steps as f64, point.private_bytes? as f64)))
        .collect::<Option<_>>()?;
    let series = combined(&series);
    let (early, late) = series.split_at(series.len() / 2);
    if early.len() < FEWEST_POINTS {
        return None;
    }
    let bytes_per_step = theil_sen(&series, CONFIDENCE)?;
    let steps = series[series.len() - 1].0 - series[0].0;
    let growth_bytes = bytes_per_step.per_step * steps;
    let grows =
        |part: &[(f64, f64)]| theil_sen(part, CONFIDENCE).is_some_and(|slope| slope.interval.low > 0.0);
    let leaks = growth_bytes >= LEAST_GROWTH_BYTES && grows(early) && grows(late) && grows(&series);
    let verdict = if leaks { LeakVerdict::Leak } else { LeakVerdict::Steady };
    Some(MemoryTrend { bytes_per_step, growth_bytes, verdict })
}

/// What speed did: the last quarter of the run against the first, without the very first point.
pub(super) fn latency_drift(points: &[SoakPoint]) -> Option<LatencyDrift> {
    let points = points.get(1..)?;
    let quarter = points.len() / 4;
    if quarter < FEWEST_POINTS || points.iter().any(|point| point.step_ms <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = points.iter().map(|point| point.step_ms.ln()).collect();
    let (early, late) = (&logs[..quarter], &logs[logs.len() - quarter..]);
    let location = locate([early, late])?;
    let shift = location.centres[1] - location.centres[0];
    let error = (location.variance * 2.0 / quarter as f64).sqrt();
    let reach = students_t(CONFIDENCE, location.degrees)? * error;
    let interval =
        Interval { low: (shift - reach).exp(), high: (shift + reach).exp(), confidence: CONFIDENCE };
    Some(LatencyDrift { late_over_early: shift.exp(), throttled: interval.low > LEAST_SLOWDOWN, interval })
}

/// Fewer points: each the one in the middle of several, by y.
fn combined(series: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = series.len().div_ceil(MOST_POINTS).max(1);
    let middle = |group: &[(f64, f64)]| {
        let mut group = group.to_vec();
        group.sort_by(|a, b| a.1.total_cmp(&b.1));
        (group.iter().map(|point| point.0).sum::<f64>() / group.len() as f64, group[group.len() / 2].1)
    };
    series.chunks(size).map(middle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 2,000 steps in requests of 31, with noise from a seed.
    fn run(seed: u64, bytes: impl Fn(usize) -> f64, step: impl Fn(usize) -> f64) -> Vec<SoakPoint> {
        let mut random = fastrand::Rng::with_seed(seed);
        (1..=65)
            .map(|request| {
                let steps = request * 31;
                // Allocators go up and down by pages; steps vary by some per cent, now and then by much.
                let pages = 4096.0 * random.i32(-20..=20) as f64;
                let burst = if random.u8(0..20) == 0 { 1.4 } else { 1.0 };
                SoakPoint {
                    steps,
                    elapsed_ms: steps as f64 * 10.0,
                    step_ms: step(steps) * (1.0 + 0.03 * (random.f64() - 0.5)) * burst,
                    private_bytes: Some((50e6 + bytes(steps) + pages) as u64),
                }
            })
            .collect()
    }

    fn verdicts(points: &[SoakPoint]) -> (LeakVerdict, bool) {
        (memory_trend(points).unwrap().verdict, latency_drift(points).unwrap().throttled)
    }

    #[test]
    fn clean_runs_are_clean() {
        for seed in 0..200 {
            assert_eq!(verdicts(&run(seed, |_| 0.0, |_| 10.0)), (LeakVerdict::Steady, false), "seed {seed}");
        }
    }

    #[test]
    fn a_leak_is_named_and_its_size_found() {
        for seed in 0..50 {
            let points = run(seed, |steps| 1024.0 * steps as f64, |_| 10.0);
            assert_eq!(verdicts(&points), (LeakVerdict::Leak, false), "seed {seed}");
            let slope = memory_trend(&points).unwrap().bytes_per_step;
            assert!((slope.per_step - 1024.0).abs() < 100.0, "{slope:?}");
        }
    }

    #[test]
    fn throttling_is_named_whether_sudden_or_slow() {
        for seed in 0..50 {
            let sudden = run(seed, |_| 0.0, |steps| if steps > 1000 { 13.0 } else { 10.0 });
            assert_eq!(verdicts(&sudden), (LeakVerdict::Steady, true), "seed {seed}");
            let slow = run(seed, |_| 0.0, |steps| 10.0 * (1.0 + steps as f64 / 8000.0));
            assert_eq!(verdicts(&slow), (LeakVerdict::Steady, true), "seed {seed}");
        }
    }

    #[test]
    fn memory_that_grows_once_does_not_leak() {
        for step in [300, 700, 1100, 1700] {
            let points = run(3, |steps| if steps > step { 8e6 } else { 0.0 }, |_| 10.0);
            assert_eq!(verdicts(&points).0, LeakVerdict::Steady, "at {step}");
        }
    }

    #[test]
    fn short_runs_and_silent_systems_have_no_verdict() {
        let points = run(1, |_| 0.0, |_| 10.0);
        assert!(memory_trend(&points[..8]).is_none() && latency_drift(&points[..8]).is_none());
        let silent: Vec<SoakPoint> =
            points.iter().map(|point| SoakPoint { private_bytes: None, ..point.clone() }).collect();
        assert!(memory_trend(&silent).is_none() && latency_drift(&silent).is_some());
        assert!(memory_trend(&[]).is_none() && latency_drift(&[]).is_none());
    }

    #[test]
    fn long_runs_are_combined() {
        let series: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 5.0)).collect();
        let few = combined(&series);
        assert!(few.len() <= MOST_POINTS && few.iter().all(|point| point.1 == 5.0));
    }
}
