//! What the machine can do, measured beside the model: memory bandwidth, the clock's step, and a canary whose time
//! shifts when the machine itself is slower.

use std::hint::black_box;
use std::time::Duration;

use crate::generate::Clock;
use anemeter_kernels::probe::{MemoryProbe, decay};
use anemeter_measure::report::MeasuredBandwidth;

/// A buffer that no cache holds.
const BUFFER_BYTES: usize = 256 << 20;
const PASSES: usize = 6;
/// Small enough for every cache.
const CANARY_NUMBERS: usize = 4096;
const CANARY_ROUNDS: usize = 100;
const CANARY_REPEATS: usize = 9;
const CLOCK_READINGS: usize = 10_000;

/// Reads a large buffer with all threads; the best of several passes counts.
pub(super) fn bandwidth(clock: &dyn Clock, threads: usize) -> Result<MeasuredBandwidth, String> {
    bandwidth_of(clock, threads, BUFFER_BYTES)
}

fn bandwidth_of(clock: &dyn Clock, threads: usize, bytes: usize) -> Result<MeasuredBandwidth, String> {
    let memory = MemoryProbe::new(threads, bytes);
    let mut best = Duration::MAX;
    for _ in 0..PASSES {
        let began = clock.now();
        memory.read().map_err(|e| format!("cannot start {threads} threads: {e}"))?;
        best = best.min(clock.now().saturating_sub(began));
    }
    let (seconds, read) = (best.as_secs_f64().max(1e-9), memory.bytes());
    Ok(MeasuredBandwidth { gb_per_s: read as f64 / seconds / 1e9, threads, buffer_bytes: read as u64 })
}

/// The smallest difference between readings of the clock, in nanoseconds.
pub(super) fn clock_resolution(clock: &dyn Clock) -> u64 {
    let mut smallest = Duration::MAX;
    let mut last = clock.now();
    for _ in 0..CLOCK_READINGS {
        let now = clock.now();
        if now > last {
            smallest = smallest.min(now.saturating_sub(last));
        }
        last = now;
    }
    if smallest == Duration::MAX { 0 } else { u64::try_from(smallest.as_nanos()).unwrap_or(u64::MAX) }
}

/// The time of a fixed computation, in milliseconds: the median of several.
pub(super) fn canary(clock: &dyn Clock) -> f64 {
    let mut numbers: Vec<f32> = (0..CANARY_NUMBERS).map(|i| 1.0 + i as f32 * 1e-4).collect();
    let mut times: Vec<Duration> = (0..CANARY_REPEATS)
        .map(|_| {
            let began = clock.now();
            for _ in 0..CANARY_ROUNDS {
                decay(black_box(&mut numbers));
            }
            clock.now().saturating_sub(began)
        })
        .collect();
    times.sort();
    times[CANARY_REPEATS / 2].as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{ManualClock, SystemClock};

    #[test]
    fn probes_give_finite_figures_even_with_a_clock_that_stands_still() {
        let still = ManualClock::default();
        assert_eq!((clock_resolution(&still), canary(&still)), (0, 0.0));
        assert!(bandwidth_of(&still, 1, 1 << 16).unwrap().gb_per_s.is_finite());
        let clock = SystemClock::default();
        assert!(clock_resolution(&clock) > 0);
        let bandwidth = bandwidth_of(&clock, 2, 1 << 20).unwrap();
        assert!(bandwidth.gb_per_s > 0.0 && bandwidth.buffer_bytes == 1 << 20);
    }
}
