//! RMS norm (Zhang & Sennrich 2019) along one axis, `x weight / sqrt(mean(x^2) + epsilon)`, in f32 from the elements to
//! the result. Epsilon has the parts that the fp16 form of an exported graph gives it.

use super::parallel;
use super::simd::{Grid, Isa, LANES, Load, Op, Simd, Store};

/// Vectors of columns that are normalised side by side.
const VECTORS: usize = 8;
const COLUMNS: usize = VECTORS * LANES;
/// Vectors of a row that are summed side by side.
const WAYS: usize = 4;
/// What an element costs, in multiply-adds.
const COST: usize = 4;

/// What is added to the mean of squares before the root is taken: `root^2 + tiny * d^2`, where `d` is the
/// largest magnitude or `floor`, whichever is larger.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the formula says it")]
pub struct Epsilon {
    pub floor: f32,
    pub root: f32,
    pub tiny: f32,
}

impl Epsilon {
    /// The factor for a row of `length` elements with this sum of squares and largest magnitude.
    fn factor(self, squares: f32, largest: f32, length: usize) -> f32 {
        let divisor = largest.max(self.floor);
        let mean = squares / length as f32 + self.root * self.root + self.tiny * divisor * divisor;
        1.0 / mean.sqrt()
    }
}

/// Normalises `[outer, length, inner]` data along its middle axis and multiplies by a weight per element of it.
/// Sums run in index order along a column, and in four by eight chains along a row.
///
/// # Panics
/// If `out` is not as long as `x`, or `weight` as the axis.
pub fn rms_norm<T: Load, W: Load, O: Store>(
    x: &[T],
    weight: &[W],
    inner: usize,
    epsilon: Epsilon,
    out: &mut [O],
) {
    rms_norm_with(Isa::best(), x, weight, inner, epsilon, out);
}

fn rms_norm_with<T: Load, W: Load, O: Store>(
    isa: Isa,
    x: &[T],
    weight: &[W],
    inner: usize,
    epsilon: Epsilon,
    out: &mut [O],
) {
    assert_eq!(x.len(), out.len(), "as many results as elements");
    let block = weight.len() * inner;
    if block == 0 {
        return;
    }
    for (x, out) in x.chunks_exact(block).zip(out.chunks_exact_mut(block)) {
        if inner == 1 {
            isa.run(RowNorm { x, weight, epsilon, out });
        } else {
            let pieces = parallel::pieces(block.saturating_mul(COST));
            divide(
                isa,
                ColumnNorm { x, first: 0, stride: inner, weight, epsilon, out: Grid::new(out, inner) },
                pieces,
            );
        }
    }
}

fn divide<T: Load, W: Load, O: Store>(isa: Isa, columns: ColumnNorm<'_, T, W, O>, pieces: usize) {
    let Some(middle) = parallel::half(columns.out.columns(), COLUMNS, pieces) else {
        return isa.run(columns);
    };
    let ColumnNorm { x, first, stride, weight, epsilon, out } = columns;
    let (out, beside) = out.split_columns(middle);
    let left = ColumnNorm { x, first, stride, weight, epsilon, out };
    let right = ColumnNorm { x, first: first + middle, stride, weight, epsilon, out: beside };
    parallel::join(|| divide(isa, left, pieces / 2), || divide(isa, right, pieces - pieces / 2));
}

/// One row of consecutive elements.
struct RowNorm<'a, T, W, O> {
    x: &'a [T],
    weight: &'a [W],
    epsilon: Epsilon,
    out: &'a mut [O],
}

impl<T: Load, W: Load, O: Store> Op for RowNorm<'_, T, W, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RowNorm { x, weight, epsilon, out } = self;
        let (mut squares, mut largest) = ([s.splat(0.0); WAYS], [s.splat(0.0); WAYS]);
        for x in x.chunks(WAYS * LANES) {
            for ((x, squares), largest) in x.chunks(LANES).zip(&mut squares).zip(&mut largest) {
                let x = T::load_some(s, x);
                *squares = s.mul_add(x, x, *squares);
                *largest = s.max(s.abs(x), *largest);
            }
        }
        let [a, b, c, d] = squares;
        let squares = s.reduce_add(s.add(s.add(a, b), s.add(c, d)));
        let [a, b, c, d] = largest;
        let largest = s.reduce_max(s.max(s.max(a, b), s.max(c, d)));
        let factor = s.splat(epsilon.factor(squares, largest, x.len()));
        let rows = x.chunks(LANES).zip(weight.chunks(LANES)).zip(out.chunks_mut(LANES));
        for ((x, weight), out) in rows {
            let normal = s.mul(T::load_some(s, x), factor);
            O::store_some(s, s.mul(normal, W::load_some(s, weight)), out);
        }
    }
}

/// Neighbouring columns of a matrix whose rows are `stride` apart.
struct ColumnNorm<'a, T, W, O> {
    x: &'a [T],
    first: usize,
    stride: usize,
    weight: &'a [W],
    epsilon: Epsilon,
    out: Grid<'a, O>,
}

impl<T: Load, W: Load, O: Store> Op for ColumnNorm<'_, T, W, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ColumnNorm { x, first, stride, weight, epsilon, mut out } = self;
        let length = weight.len();
        for start in (0..out.columns()).step_by(COLUMNS) {
            let width = COLUMNS.min(out.columns() - start);
            let row = |i: usize| &x[i * stride + first + start..][..width];
            let (mut squares, mut largest) = ([s.splat(0.0); VECTORS], [s.splat(0.0); VECTORS]);
            for i in 0..length {
                for (v, x) in row(i).chunks(LANES).enumerate() {
                    let x = T::load_some(s, x);
                    squares[v] = s.mul_add(x, x, squares[v]);
                    largest[v] = s.max(s.abs(x), largest[v]);
                }
            }
            let mut factors = [s.splat(0.0); VECTORS];
            for v in 0..VECTORS {
                let (mut sums, mut sizes) = ([0.0; LANES], [0.0; LANES]);
                s.store(squares[v], &mut sums);
                s.store(largest[v], &mut sizes);
                for (sum, size) in sums.iter_mut().zip(sizes) {
                    *sum = epsilon.factor(*sum, size, length);
                }
                factors[v] = s.load(&sums);
            }
            for (i, weight) in weight.iter().enumerate() {
                let weight = s.splat(weight.widen());
                let out = &mut out.row(i)[start..][..width];
                for (v, (x, out)) in row(i).chunks(LANES).zip(out.chunks_mut(LANES)).enumerate() {
                    let normal = s.mul(T::load_some(s, x), factors[v]);
                    O::store_some(s, s.mul(normal, weight), out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    const EPSILON: Epsilon = Epsilon { floor: 1.0 / 256.0, root: 0.003, tiny: 6e-8 };

    fn expected(x: &[f32], weight: &[f32], inner: usize) -> Vec<f64> {
        let length = weight.len();
        let mut out = vec![0.0; x.len()];
        for start in (0..x.len()).step_by(length * inner) {
            for column in start..start + inner {
                let at = |i: usize| f64::from(x[column + i * inner]);
                let squares: f64 = (0..length).map(|i| at(i) * at(i)).sum();
                let largest = (0..length).map(|i| at(i).abs()).fold(f64::from(EPSILON.floor), f64::max);
                let root = f64::from(EPSILON.root);
                let mean =
                    squares / length as f64 + root * root + f64::from(EPSILON.tiny) * largest * largest;
                for i in 0..length {
                    out[column + i * inner] = at(i) / mean.sqrt() * f64::from(weight[i]);
                }
            }
        }
        out
    }

    #[test]
    fn rows_and_columns_are_within_their_bound_on_every_isa() {
        for (outer, length, inner) in [(1, 576, 1), (2, 37, 1), (1, 64, 70), (2, 9, 3), (1, 130, 513)] {
            let x: Vec<f32> = (0..outer * length * inner)
                .map(|i| f16::from_f32(((i * 37 % 101) as f32 - 40.0) * 3.0).to_f32())
                .collect();
            let weight: Vec<f32> = (0..length).map(|i| 0.5 + (i % 7) as f32 / 8.0).collect();
            let halves: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
            let mut first = vec![0.0; x.len()];
            rms_norm(&x, &weight, inner, EPSILON, &mut first);
            for (found, expected) in first.iter().zip(expected(&x, &weight, inner)) {
                assert!(
                    (f64::from(*found) - expected).abs() <= expected.abs() * 1e-5,
                    "{found} for {expected}"
                );
            }
            for isa in Isa::all() {
                let (mut again, mut narrow) = (vec![0.0; x.len()], vec![f16::ZERO; x.len()]);
                rms_norm_with(isa, &x, &weight, inner, EPSILON, &mut again);
                rms_norm_with(isa, &halves, &weight, inner, EPSILON, &mut narrow);
                assert_eq!(again, first, "{isa:?}");
                assert!(narrow.iter().zip(&first).all(|(n, &f)| *n == f16::from_f32(f)), "{isa:?}");
            }
        }
    }

    #[test]
    fn threads_do_not_change_the_result() {
        let x: Vec<f32> = (0..128 * 700).map(|i| (i * 31 % 97) as f32 - 48.0).collect();
        let weight = [1.5; 128];
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = vec![0.0; x.len()];
            pool.install(|| rms_norm(&x, &weight, 700, EPSILON, &mut out));
            out
        };
        assert!((2..4).all(|threads| with(threads) == with(1)));
    }

    #[test]
    fn a_column_of_zeros_stays_zero() {
        let mut out = [1.0; 4];
        rms_norm(&[0.0; 4], &[1.0; 4], 1, EPSILON, &mut out);
        assert_eq!(out, [0.0; 4]);
    }
}
