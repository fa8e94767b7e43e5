//! Rounding column by column, the error of each carried on to those after it; then coordinate descent on the codes.

use rayon::prelude::*;

use super::factor::Factor;
use anemeter_kernels::gemm::{Extents, Matrix, multiply};

/// Columns between which errors are carried on one by one; to those after them they are carried on all at once.
pub(super) const CHUNK: usize = 128;

/// Passes over the codes of a row before descent ends, changes or not.
const SWEEPS: usize = 6;

/// Rows of a weight in the order of a factor, while they are encoded.
pub(super) struct Rows<'a, G> {
    pub(super) factor: &'a Factor,
    /// Elements, row by row.
    pub(super) weights: Vec<f32>,
    /// Elements minus what is read back for them.
    pub(super) errors: Vec<f32>,
    /// Codes and what they stand for, by row.
    pub(super) coded: Vec<CodedRow<G>>,
}

/// The codes of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CodedRow<G> {
    pub(super) codes: Vec<u8>,
    /// What codes stand for: one for all of them, or for each block.
    pub(super) grids: Vec<G>,
}

/// What codes stand for.
pub(super) trait Grid: Sync + Send {
    /// The code nearest to a number, and what is read back for it.
    fn nearest(&self, value: f32) -> (u8, f32);
}

/// Columns of one row whose targets are known.
pub(super) struct Chunk<'a> {
    factor: &'a Factor,
    /// The first of them.
    pub(super) start: usize,
    /// Their elements.
    pub(super) weights: &'a [f32],
    /// Their elements plus what errors of columns before them carry on.
    pub(super) targets: &'a [f32],
}

impl Chunk<'_> {
    /// Rounds the columns to a grid in turn and gives the loss; `errors` and `codes` are those of the columns.
    pub(super) fn round(&self, grid: &impl Grid, errors: &mut [f32], codes: &mut [u8]) -> f64 {
        let (columns, len) = (self.factor.columns(), self.targets.len());
        let mut targets = [0.0; CHUNK];
        targets[..len].copy_from_slice(self.targets);
        let mut loss = 0.0;
        for k in 0..len {
            let (code, read) = grid.nearest(targets[k]);
            let (place, miss) = (self.start + k, targets[k] - read);
            loss += self.factor.pivots[place] * miss * miss;
            (codes[k], errors[k]) = (code, self.weights[k] - read);
            if self.factor.is_blind() {
                continue;
            }
            let feedback = &self.factor.feedback[place * columns + place + 1..][..len - k - 1];
            carry(errors[k], feedback, &mut targets[k + 1..len]);
        }
        f64::from(loss)
    }
}

/// `to += factor * from`.
fn carry(factor: f32, from: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

impl<'a, G: Grid + Clone> Rows<'a, G> {
    /// Rows, with columns in the order of the weight; `grids` are what codes of each row stand for, as far as that is known.
    pub(super) fn new(
        factor: &'a Factor,
        weights: &[f32],
        mut grids: impl FnMut(usize) -> Vec<G>,
    ) -> Rows<'a, G> {
        let columns = factor.columns().max(1);
        let coded = |row: usize| CodedRow { codes: vec![0; columns], grids: grids(row) };
        let coded = (0..weights.len() / columns).map(coded).collect();
        Rows { factor, weights: factor.arrange(weights), errors: vec![0.0; weights.len()], coded }
    }

    /// Encodes chunks of columns one after the other, all rows of each in parallel.
    pub(super) fn encode(
        &mut self,
        chunk: usize,
        encode: impl Fn(&Chunk<'_>, &mut [f32], &mut CodedRow<G>) + Sync,
    ) {
        let columns = self.factor.columns();
        let rows = self.coded.len();
        for start in (0..columns).step_by(chunk.clamp(1, CHUNK)) {
            let end = columns.min(start + chunk.clamp(1, CHUNK));
            let mut targets = vec![0.0; rows * (end - start)];
            if !self.factor.is_blind() {
                let extents = Extents { m: rows, k: start, n: end - start };
                let feedback = Matrix::row_major(&self.factor.feedback[start..], columns);
                multiply(extents, Matrix::row_major(&self.errors, columns), feedback, &mut targets);
            }
            let each = targets.par_chunks_mut(end - start).zip(self.weights.par_chunks(columns));
            let each = each.zip(self.errors.par_chunks_mut(columns)).zip(&mut self.coded);
            each.for_each(|(((targets, weights), errors), coded)| {
                let weights = &weights[start..end];
                targets.iter_mut().zip(weights).for_each(|(target, weight)| *target += weight);
                let chunk = Chunk { factor: self.factor, start, weights, targets };
                encode(&chunk, &mut errors[start..end], coded);
            });
        }
    }

    /// Improves codes one at a time, each with all others as they are, until none changes (QuantEase, Behdin et al. 2023).
    /// `block` places share a grid. `after` may then change the grids of a row; it is given the row's errors and gradients.
    pub(super) fn descend(
        &mut self,
        block: usize,
        after: impl Fn(&Factor, &mut CodedRow<G>, &mut [f32], &mut [f32]) + Sync,
    ) {
        let (factor, columns) = (self.factor, self.factor.columns().max(1));
        if factor.is_blind() {
            return;
        }
        let mut gradients = factor.gradients(&self.errors);
        let rows = self.errors.par_chunks_mut(columns).zip(gradients.par_chunks_mut(columns));
        let rows = rows.zip(self.weights.par_chunks(columns)).zip(&mut self.coded);
        rows.for_each(|(((errors, gradients), weights), coded)| {
            for _ in 0..SWEEPS {
                if sweep(factor, weights, (errors, gradients), coded, block) == 0 {
                    break;
                }
            }
            after(factor, coded, errors, gradients);
        });
    }

    /// Squared error of the outputs, in the units of the normalised statistics.
    #[cfg(test)]
    pub(super) fn loss(&self) -> f64 {
        let gradients = self.factor.gradients(&self.errors);
        self.errors.iter().zip(gradients).map(|(e, g)| f64::from(*e) * f64::from(g)).sum()
    }
}

/// One pass over the codes of a row; gives how many changed.
fn sweep<G: Grid>(
    factor: &Factor,
    weights: &[f32],
    (errors, gradients): (&mut [f32], &mut [f32]),
    coded: &mut CodedRow<G>,
    block: usize,
) -> usize {
    let columns = weights.len();
    let mut changed = 0;
    for k in 0..columns {
        let read = weights[k] - errors[k];
        let ideal = read + gradients[k] / factor.statistics[k * columns + k];
        let (code, wanted) = coded.grids[k / block].nearest(ideal);
        if code != coded.codes[k] && wanted != read {
            let line = &factor.statistics[k * columns..(k + 1) * columns];
            carry(read - wanted, line, gradients);
            (coded.codes[k], errors[k]) = (code, weights[k] - wanted);
            changed += 1;
        }
    }
    changed
}
