//! The factors of second-order statistics by which errors are carried on.
//!
//! With `H = (U + I) D (U + I)ᵀ`, `U` strictly upper triangular and `D` diagonal, the squared error of a row's outputs is
//!
//! ```text
//! e H eᵀ = sum over k of D[k] (t[k] - q[k])²        t[k] = w[k] + sum over j < k of e[j] U[j, k]        e = w - q
//! ```
//!
//! so that rounding the targets `t` one after the other is GPTQ (Frantar et al. 2023) without an inverse, the form that QuIP
//! (Chee et al. 2023) calls LDLQ. `U` and `D` come from the Cholesky factor of the statistics in reverse order.

use rayon::prelude::*;

use super::statistics::Gram;
use anemeter_kernels::gemm::{Extents, Matrix, multiply};

/// What is added to the diagonal, as a share of its mean; more if tokens are few for the number of inputs.
const DAMPING: f32 = 0.01;

/// Columns that are factorised at a time, and rows that are updated at a time.
const PANEL: usize = 64;
const STRIP: usize = 512;

/// Statistics in the order in which columns are rounded.
pub(super) struct Factor {
    /// The column at each place.
    pub(super) order: Vec<usize>,
    /// The damped statistics, by places.
    pub(super) statistics: Vec<f32>,
    /// `U`, row by row.
    pub(super) feedback: Vec<f32>,
    /// `D`.
    pub(super) pivots: Vec<f32>,
    /// What sums over tokens are multiplied by to be in the units of the statistics.
    scale: f32,
}

impl Factor {
    /// Factorises statistics. Columns are rounded in the order of their weight, blocks of columns and columns in a block
    /// alike, so that columns of a block stay together. `ridge` is added to the diagonal besides damping, as a share of its mean.
    pub(super) fn new(gram: &Gram, block: usize, ridge: f32) -> Factor {
        let columns = gram.columns();
        let order = order(gram, block.clamp(1, columns.max(1)));
        let mean = (0..columns).map(|i| f64::from(gram.at(i, i))).sum::<f64>() / columns.max(1) as f64;
        // Inputs that are all zero say nothing: every error counts the same.
        let scale = if mean > 0.0 && mean.is_finite() { (1.0 / mean) as f32 } else { 0.0 };
        let mut statistics = vec![0.0; columns * columns];
        statistics.par_chunks_mut(columns.max(1)).zip(&order).for_each(|(row, &from)| {
            for (value, &column) in row.iter_mut().zip(&order) {
                *value = gram.at(from, column) * scale;
            }
        });
        let mut share = DAMPING * (1.0 + columns as f32 / gram.tokens().max(1) as f32);
        let mut added = share + ridge + if scale > 0.0 { 0.0 } else { 1.0 };
        damp(&mut statistics, columns, added);
        let lower = loop {
            let mut lower = reversed(&statistics, columns);
            if cholesky(&mut lower, columns) {
                break lower;
            }
            share = (share * 10.0).max(added);
            damp(&mut statistics, columns, share);
            added += share;
        };
        let last = columns.saturating_sub(1);
        let pivot = |k: usize| lower[(last - k) * columns + last - k];
        let mut feedback = vec![0.0; columns * columns];
        feedback.par_chunks_mut(columns.max(1)).enumerate().for_each(|(j, row)| {
            for (k, value) in row.iter_mut().enumerate().skip(j + 1) {
                *value = lower[(last - j) * columns + last - k] / pivot(k);
            }
        });
        let pivots = (0..columns).map(|k| pivot(k) * pivot(k)).collect();
        Factor { order, statistics, feedback, pivots, scale }
    }

    /// For [`Self::solve`] alone.
    pub(super) fn without_statistics(self) -> Factor {
        Factor { statistics: Vec::new(), ..self }
    }

    /// Of inputs of which nothing is known: every error counts the same, and none is carried on.
    pub(super) fn blind(columns: usize) -> Factor {
        let order = (0..columns).collect();
        Factor { order, statistics: Vec::new(), feedback: Vec::new(), pivots: vec![1.0; columns], scale: 0.0 }
    }

    pub(super) fn is_blind(&self) -> bool {
        self.feedback.is_empty()
    }

    pub(super) fn columns(&self) -> usize {
        self.order.len()
    }

    /// A matrix with its columns in the order of the factor.
    pub(super) fn arrange(&self, rows: &[f32]) -> Vec<f32> {
        let columns = self.columns();
        let mut arranged = vec![0.0; rows.len()];
        let pairs = arranged.par_chunks_mut(columns.max(1)).zip(rows.par_chunks(columns.max(1)));
        pairs.for_each(|(to, from)| {
            to.iter_mut().zip(&self.order).for_each(|(to, &column)| *to = from[column]);
        });
        arranged
    }

    /// Rows `z` with `z H = g`, where `g` are sums over tokens in the order of the weight's columns.
    pub(super) fn solve(&self, sums: &[f32]) -> Vec<f32> {
        let columns = self.columns().max(1);
        let mut rows = self.arrange(sums);
        let mut solved = vec![0.0; rows.len()];
        let each = rows.par_chunks_mut(columns).zip(solved.par_chunks_mut(columns));
        each.for_each(|(row, solved)| {
            row.iter_mut().for_each(|x| *x *= self.scale);
            for k in (0..columns).rev() {
                let line = &self.feedback[k * columns + k + 1..(k + 1) * columns];
                row[k] -= dot(line, &row[k + 1..]);
            }
            row.iter_mut().zip(&self.pivots).for_each(|(x, pivot)| *x /= pivot);
            for k in 0..columns {
                let (value, line) = (row[k], &self.feedback[k * columns + k + 1..(k + 1) * columns]);
                row[k + 1..].iter_mut().zip(line).for_each(|(x, factor)| *x -= value * factor);
            }
            for (value, &column) in row.iter().zip(&self.order) {
                solved[column] = *value;
            }
        });
        solved
    }

    /// What the outputs lose by errors: `e H` for each row of them.
    pub(super) fn gradients(&self, errors: &[f32]) -> Vec<f32> {
        let columns = self.columns();
        let mut gradients = vec![0.0; errors.len()];
        let extents = Extents { m: errors.len() / columns.max(1), k: columns, n: columns };
        let statistics = Matrix::row_major(&self.statistics, columns);
        multiply(extents, Matrix::row_major(errors, columns), statistics, &mut gradients);
        gradients
    }
}

/// Blocks by the sum of their columns' weights, then the columns of each; the heaviest first.
fn order(gram: &Gram, block: usize) -> Vec<usize> {
    let weight = |column: &usize| gram.at(*column, *column);
    let columns: Vec<usize> = (0..gram.columns()).collect();
    let mut blocks: Vec<Vec<usize>> = columns.chunks(block).map(<[usize]>::to_vec).collect();
    let of = |block: &[usize]| block.iter().map(|column| f64::from(weight(column))).sum::<f64>();
    // A shorter block at the end stays there, so that places of a block are where they are expected.
    let whole = gram.columns() / block;
    blocks[..whole].sort_by(|a, b| of(b).total_cmp(&of(a)));
    blocks.iter_mut().for_each(|block| block.sort_by(|a, b| weight(b).total_cmp(&weight(a))));
    blocks.concat()
}

/// The product of two vectors, in as many sums as a register has: one sum would wait for itself.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

fn damp(statistics: &mut [f32], columns: usize, share: f32) {
    statistics.iter_mut().step_by(columns + 1).for_each(|value| *value += share);
}

fn reversed(matrix: &[f32], columns: usize) -> Vec<f32> {
    let mut turned = matrix.to_vec();
    turned.reverse();
    debug_assert_eq!(turned.len(), columns * columns);
    turned
}

/// Replaces the lower triangle of a symmetric matrix by its Cholesky factor; tells whether it has one.
fn cholesky(a: &mut [f32], n: usize) -> bool {
    for start in (0..n).step_by(PANEL) {
        let end = n.min(start + PANEL);
        let (top, below) = a.split_at_mut(end * n);
        let diagonal = &mut top[start * n..];
        if !factorise(diagonal, n, start, end) {
            return false;
        }
        below.par_chunks_mut(n).for_each(|row| {
            for j in start..end {
                let line = &diagonal[(j - start) * n..];
                let sum = dot(&row[start..j], &line[start..j]);
                row[j] = (row[j] - sum) / line[j];
            }
        });
        update(below, n, start..end);
    }
    true
}

/// The factor of a block on the diagonal, whose rows are given whole.
fn factorise(rows: &mut [f32], n: usize, start: usize, end: usize) -> bool {
    for i in start..end {
        for j in start..=i {
            let (a, b) = (&rows[(i - start) * n..], &rows[(j - start) * n..]);
            let products = a[start..j].iter().zip(&b[start..j]).map(|(a, b)| f64::from(*a) * f64::from(*b));
            let rest = f64::from(a[j]) - products.sum::<f64>();
            rows[(i - start) * n + j] = if i == j {
                if rest.is_nan() || rest <= 1e-9 {
                    return false;
                }
                rest.sqrt() as f32
            } else {
                (rest / f64::from(rows[(j - start) * n + j])) as f32
            };
        }
    }
    true
}

/// Takes the products of a panel's rows off the rows below it.
fn update(below: &mut [f32], n: usize, panel: std::ops::Range<usize>) {
    let width = panel.len();
    let copied: Vec<f32> = below.chunks(n).flat_map(|row| row[panel.clone()].iter().copied()).collect();
    let count = copied.len() / width;
    for first in (0..count).step_by(STRIP) {
        let last = count.min(first + STRIP);
        let mut products = vec![0.0; (last - first) * last];
        let left = Matrix::row_major(&copied[first * width..], width);
        let right = Matrix::row_major(&copied, width).transposed();
        multiply(Extents { m: last - first, k: width, n: last }, left, right, &mut products);
        let rows = below[first * n..last * n].par_chunks_mut(n).zip(products.par_chunks(last));
        rows.for_each(|(row, products)| {
            row[panel.end..panel.end + last].iter_mut().zip(products).for_each(|(a, b)| *a -= b);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::normal;

    fn gram(columns: usize, tokens: usize) -> Gram {
        let mut gram = Gram::new(columns);
        gram.add(&normal(columns * tokens, 3));
        gram
    }

    #[test]
    fn factors_multiply_to_the_damped_statistics() {
        for (columns, tokens, block) in [(7, 100, 1), (150, 400, 32), (150, 20, 150), (64, 300, 64)] {
            let factor = Factor::new(&gram(columns, tokens), block, 0.0);
            let unit = |j: usize, k: usize| match j.cmp(&k) {
                std::cmp::Ordering::Less => f64::from(factor.feedback[j * columns + k]),
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => 0.0,
            };
            for i in (0..columns).step_by(5) {
                for j in 0..columns {
                    let product: f64 =
                        (0..columns).map(|k| unit(i, k) * f64::from(factor.pivots[k]) * unit(j, k)).sum();
                    let expected = f64::from(factor.statistics[i * columns + j]);
                    assert!((product - expected).abs() < 1e-4, "{i} {j}: {product} for {expected}");
                }
            }
        }
    }

    #[test]
    fn solutions_give_the_sums_back() {
        let (columns, gram) = (70, gram(70, 300));
        let factor = Factor::new(&gram, 1, 0.1);
        let sums = normal(3 * columns, 11);
        let solved = factor.solve(&sums);
        let products = factor.gradients(&factor.arrange(&solved));
        for (product, sum) in products.iter().zip(factor.arrange(&sums)) {
            let wanted = sum * factor.scale;
            assert!((product - wanted).abs() < 1e-4 * (1.0 + wanted.abs()), "{product} for {wanted}");
        }
    }

    #[test]
    fn heavy_columns_come_first_and_blocks_stay_together() {
        let mut gram = Gram::new(6);
        gram.add(&[1.0, 0.0, 5.0, 4.0, 2.0, 9.0]);
        assert_eq!(order(&gram, 1), [5, 2, 3, 4, 0, 1]);
        assert_eq!(order(&gram, 2), [5, 4, 2, 3, 0, 1]);
        assert_eq!(order(&gram, 4), [2, 3, 0, 1, 5, 4], "what is no whole block stays last");
    }

    #[test]
    fn statistics_of_any_rank_have_factors() {
        let mut same = Gram::new(40);
        same.add(&[1.0; 40 * 10]);
        let mut huge = Gram::new(40);
        huge.add(&[1e18; 40]);
        for gram in [Gram::new(40), gram(40, 1), same, huge, Gram::new(0)] {
            let factor = Factor::new(&gram, 8, 0.0);
            assert!(factor.pivots.iter().all(|pivot| pivot.is_finite() && *pivot > 0.0));
            assert!(factor.feedback.iter().all(|feedback| feedback.is_finite()));
        }
    }
}
