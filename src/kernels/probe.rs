//! What the machine can do at most: how fast memory is read and how fast numbers are multiplied.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::simd::{LANES, Op, Simd, WIDE, dispatch};

/// Independent chains of multiply-adds: as many as registers of one instruction set hold, and enough to hide how long
/// each takes on another.
const FEW: usize = 6;
const MANY: usize = 12;
/// Multiply-adds of a chain between looks at the clock.
const STEPS: usize = 1 << 14;

/// Limits that no computation on this machine exceeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes read from memory per second.
    pub bytes_per_second: f64,
    /// Floating-point operations per second, a multiply-add being two.
    pub flops_per_second: f64,
}

/// Measures both with so many threads; memory by reading so many bytes, which should be more than caches hold.
pub fn limits(threads: usize, bytes: usize) -> Limits {
    const ROUNDS: usize = 3;
    let threads = threads.max(1);
    // Not zero: a buffer of zeros may be one page of the system's, mapped all over.
    let buffers: Vec<Vec<f32>> =
        (0..threads).map(|_| vec![1.0; bytes / size_of::<f32>() / threads]).collect();
    let best = |round: &dyn Fn() -> f64| (0..ROUNDS).map(|_| round()).fold(0.0, f64::max);
    Limits {
        bytes_per_second: best(&|| read_speed(&buffers)),
        flops_per_second: best(&|| multiply_speed::<FEW>(threads).max(multiply_speed::<MANY>(threads))),
    }
}

fn read_speed(buffers: &[Vec<f32>]) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for buffer in buffers {
            scope.spawn(|| black_box(dispatch(Total { data: buffer })));
        }
    });
    let bytes: usize = buffers.iter().map(|buffer| size_of_val(&buffer[..])).sum();
    bytes as f64 / started.elapsed().as_secs_f64()
}

fn multiply_speed<const CHAINS: usize>(threads: usize) -> f64 {
    let run = || {
        let (started, mut rounds) = (Instant::now(), 0);
        while started.elapsed() < Duration::from_millis(40) {
            // `x <- 0.999 x + 0.999` tends to 999: no overflow, and no subnormals, which are slow on some processors.
            black_box(dispatch(Chains::<CHAINS> { factor: black_box(0.999) }));
            rounds += 1;
        }
        (rounds * STEPS * CHAINS * WIDE * 2) as f64 / started.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}

/// The sum of all elements, in an order that is as fast as any.
struct Total<'a> {
    data: &'a [f32],
}

impl Op for Total<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 8];
        for group in self.data.as_chunks::<{ 8 * LANES }>().0 {
            let (lanes, _) = group.as_chunks::<LANES>();
            for (sum, lanes) in sums.iter_mut().zip(lanes) {
                *sum = s.add(*sum, s.load(lanes));
            }
        }
        sums.into_iter().map(|sum| s.reduce_add(sum)).sum()
    }
}

/// Chains of multiply-adds that stay in registers.
struct Chains<const CHAINS: usize> {
    factor: f32,
}

impl<const CHAINS: usize> Op for Chains<CHAINS> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let factor = s.splat_wide(self.factor);
        let mut sums = [s.splat_wide(0.0); CHAINS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.splat_wide(i as f32);
        }
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = s.mul_add_wide(*sum, factor, factor);
            }
        }
        // Every lane counts: one that nobody asks for would not be computed.
        sums.into_iter().map(|sum| s.reduce_add(s.fold_wide(sum))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    #[test]
    fn probes_compute_what_they_claim_to() {
        let data: Vec<f32> = (0..640u16).map(f32::from).collect();
        for isa in Isa::all() {
            assert_eq!(isa.run(Total { data: &data }), data.iter().sum::<f32>());
            let fixed_point = isa.run(Chains::<FEW> { factor: 0.5 }) / (FEW * WIDE) as f32;
            assert!((fixed_point - 1.0).abs() < 1e-6, "{fixed_point}");
        }
    }
}
