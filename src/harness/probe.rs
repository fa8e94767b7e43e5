//! What the machine can do, measured beside the model: memory bandwidth, the clock's step, and a canary whose time
//! shifts when the machine itself is slower.

use std::hint::black_box;
use std::time::Duration;

use rayon::prelude::*;

use crate::generate::Clock;
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
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| format!("cannot start {threads} threads: {e}"))?;
    let numbers = vec![1u64; bytes / 8];
    let part = numbers.len().div_ceil(threads).max(1);
    let best = (0..PASSES)
        .map(|_| {
            let began = clock.now();
            let sum: u64 = pool.install(|| numbers.par_chunks(part).map(sum).sum());
            black_box(sum);
            clock.now().saturating_sub(began)
        })
        .min()
        .unwrap_or_default();
    let seconds = best.as_secs_f64().max(1e-9);
    let read = numbers.len() * 8;
    Ok(MeasuredBandwidth { gb_per_s: read as f64 / seconds / 1e9, threads, buffer_bytes: read as u64 })
}

/// Several sums at once, so that adding is not what limits reading.
fn sum(numbers: &[u64]) -> u64 {
    const LANES: usize = 16;
    let mut lanes = [0u64; LANES];
    let chunks = numbers.chunks_exact(LANES);
    let rest: u64 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane = lane.wrapping_add(*number);
        }
    }
    lanes.iter().fold(rest, |total, lane| total.wrapping_add(*lane))
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
                for number in black_box(&mut numbers[..]) {
                    *number = number.mul_add(0.999, 0.001);
                }
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
    fn every_number_is_read_once() {
        for length in [0, 1, 15, 16, 17, 1000] {
            let numbers: Vec<u64> = (0..length).collect();
            assert_eq!(sum(&numbers), numbers.iter().sum::<u64>());
        }
    }

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
