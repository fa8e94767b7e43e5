//! What the machine can do at most: how fast memory is read and how fast numbers are multiplied.

use std::hint::black_box;
use std::io;
use std::thread;
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
///
/// # Errors
/// If the system does not start so many threads.
pub fn limits(threads: usize, bytes: usize) -> io::Result<Limits> {
    const ROUNDS: usize = 3;
    let memory = MemoryProbe::new(threads, bytes);
    let (mut read, mut multiplied) = (0f64, 0f64);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        memory.read()?;
        read = read.max(memory.bytes() as f64 / started.elapsed().as_secs_f64());
        for speed in [multiply_speed::<FEW>(threads)?, multiply_speed::<MANY>(threads)?] {
            multiplied = multiplied.max(speed);
        }
    }
    Ok(Limits { bytes_per_second: read, flops_per_second: multiplied })
}

/// Memory to be read by threads, a part each.
#[derive(Debug)]
pub struct MemoryProbe {
    parts: Vec<Vec<f32>>,
}

impl MemoryProbe {
    /// So many bytes, which should be more than caches hold, in equal parts.
    pub fn new(threads: usize, bytes: usize) -> MemoryProbe {
        let threads = threads.max(1);
        // Not zero: a buffer of zeros may be one page of the system's, mapped all over.
        let part = || vec![1.0; bytes / size_of::<f32>() / threads];
        MemoryProbe { parts: (0..threads).map(|_| part()).collect() }
    }

    /// Bytes that are read.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| size_of_val(&part[..])).sum()
    }

    /// Reads everything once, with a thread for each part.
    ///
    /// # Errors
    /// If the system does not start so many threads.
    pub fn read(&self) -> io::Result<()> {
        on_threads(self.parts.iter().map(|part| || black_box(dispatch(Total { data: part })))).map(|_| ())
    }
}

/// A fixed computation in the first cache: `x <- 0.999 x + 0.001` for every number.
pub fn decay(numbers: &mut [f32]) {
    for number in numbers {
        *number = number.mul_add(0.999, 0.001);
    }
}

/// What each does, all at the same time.
fn on_threads<T: Send>(work: impl Iterator<Item = impl FnOnce() -> T + Send>) -> io::Result<Vec<T>> {
    thread::scope(|scope| {
        let started: io::Result<Vec<_>> =
            work.map(|work| thread::Builder::new().spawn_scoped(scope, work)).collect();
        Ok(started?.into_iter().map(|thread| thread.join().expect("a probe does not panic")).collect())
    })
}

fn multiply_speed<const CHAINS: usize>(threads: usize) -> io::Result<f64> {
    let run = || {
        let (started, mut rounds) = (Instant::now(), 0);
        while started.elapsed() < Duration::from_millis(40) {
            // `x <- 0.999 x + 0.999` tends to 999: no overflow, and no subnormals, which are slow on some processors.
            black_box(dispatch(Chains::<CHAINS> { factor: black_box(0.999) }));
            rounds += 1;
        }
        (rounds * STEPS * CHAINS * WIDE * 2) as f64 / started.elapsed().as_secs_f64()
    };
    Ok(on_threads((0..threads.max(1)).map(|_| run))?.into_iter().sum())
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

    #[test]
    fn memory_is_divided_among_threads() {
        let memory = MemoryProbe::new(3, 12 << 10);
        assert_eq!((memory.parts.len(), memory.bytes()), (3, 12 << 10));
        memory.read().unwrap();
        assert_eq!(MemoryProbe::new(0, 64).parts.len(), 1);
    }

    #[test]
    fn decay_tends_to_one() {
        let mut numbers = [0.0, 1.0, 2.0];
        (0..20_000).for_each(|_| decay(&mut numbers));
        assert!(numbers.iter().all(|number| (number - 1.0).abs() < 1e-3), "{numbers:?}");
    }
}
