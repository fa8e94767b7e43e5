//! What a model loses by its codes, as the likelihood of a text that no code was chosen by.

use rayon::prelude::*;

use super::hidden::read_range;
use super::linear::product;
use crate::compress::SolutionReader;
use crate::model::Decoder;

/// Elements of the head that are in memory at a time.
const STRIP: usize = 4 << 20;

/// The mean loss of tokens, in nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOut {
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Cross-entropy of the uncompressed model.
    pub exact: f64,
    /// Cross-entropy of the compressed one.
    pub compressed: f64,
    /// Divergence of the compressed model's predictions from those of the uncompressed one (Kullback-Leibler).
    pub divergence: f64,
}

/// The head, and how it is read back if it has codes.
pub(super) struct Table<'a> {
    pub(super) decoder: &'a Decoder,
    pub(super) solution: Option<SolutionReader<'a>>,
}

/// Sums over the logits of a position so far. `most` are the largest logits.
#[derive(Debug, Clone, Copy)]
struct Sums {
    most: [f32; 2],
    sum: [f64; 2],
    /// Sum of the differences of logits, by the share of the uncompressed one.
    difference: f64,
    target: [f32; 2],
}

impl Sums {
    const NONE: Sums =
        Sums { most: [f32::NEG_INFINITY; 2], sum: [0.0; 2], difference: 0.0, target: [0.0; 2] };

    /// Adds logits of the next tokens, of the uncompressed model and the compressed one.
    fn add(&mut self, logits: [&[f32]; 2]) {
        for (which, logits) in logits.into_iter().enumerate() {
            let most = logits.iter().copied().fold(self.most[which], f32::max);
            let shrunk = f64::from(self.most[which] - most).exp();
            self.sum[which] *= shrunk;
            if which == 0 {
                self.difference *= shrunk;
            }
            self.most[which] = most;
            self.sum[which] += logits.iter().map(|x| f64::from((x - most).exp())).sum::<f64>();
        }
        let most = self.most[0];
        let pairs = logits[0].iter().zip(logits[1]);
        self.difference += pairs.map(|(a, b)| f64::from((a - most).exp() * (a - b))).sum::<f64>();
    }

    /// Cross-entropies, and the divergence.
    fn losses(&self) -> [f64; 3] {
        let total = [0, 1].map(|which| f64::from(self.most[which]) + self.sum[which].ln());
        let entropy = [0, 1].map(|which| total[which] - f64::from(self.target[which]));
        [entropy[0], entropy[1], self.difference / self.sum[0] - total[0] + total[1]]
    }
}

impl Table<'_> {
    fn rows(&self, first: usize, last: usize) -> [Vec<f32>; 2] {
        let hidden = self.decoder.hidden;
        let exact = read_range(&self.decoder.head.weight, first * hidden..last * hidden);
        let read = match &self.solution {
            Some(solution) => solution.rows(first..last),
            None => exact.clone(),
        };
        [exact, read]
    }

    /// The loss of sequences whose rows before the head are given, uncompressed and compressed.
    pub(super) fn loss(&self, sequences: &[Vec<u32>], rows: (&[f32], &[f32])) -> HeldOut {
        let Decoder { hidden, vocabulary, head, .. } = self.decoder;
        let targets: Vec<Option<u32>> = sequences
            .iter()
            .flat_map(|ids| ids.iter().skip(1).map(|&id| Some(id)).chain([None]).take(ids.len()))
            .collect();
        let strip = (STRIP / hidden.max(&1)).max(1);
        let mut sums = vec![Sums::NONE; targets.len()];
        for first in (0..*vocabulary).step_by(strip) {
            let last = (*vocabulary).min(first + strip);
            let weights = self.rows(first, last);
            let width = last - first;
            const TOKENS: usize = 256;
            let chunks = sums.chunks_mut(TOKENS).zip(targets.chunks(TOKENS));
            let each = rows.0.chunks(TOKENS * hidden).zip(rows.1.chunks(TOKENS * hidden)).zip(chunks);
            for ((exact, given), (sums, targets)) in each {
                let mut logits = [(exact, &weights[0]), (given, &weights[1])]
                    .map(|(rows, w)| product(rows, w, (*hidden, width)));
                if let Some(cap) = head.softcap {
                    logits
                        .iter_mut()
                        .for_each(|l| l.par_iter_mut().for_each(|x| *x = cap * (*x / cap).tanh()));
                }
                let pairs = logits[0].par_chunks(width).zip(logits[1].par_chunks(width));
                sums.par_iter_mut().zip(pairs).zip(targets).for_each(|((sums, (exact, given)), target)| {
                    sums.add([exact, given]);
                    if let Some(at) = target.map(|id| id as usize).filter(|id| (first..last).contains(id)) {
                        sums.target = [exact[at - first], given[at - first]];
                    }
                });
            }
        }
        let found: Vec<[f64; 3]> = sums
            .iter()
            .zip(&targets)
            .filter(|(_, target)| target.is_some())
            .map(|(sums, _)| sums.losses())
            .collect();
        let mean = |at: usize| found.iter().map(|losses| losses[at]).sum::<f64>() / found.len().max(1) as f64;
        HeldOut { tokens: found.len(), exact: mean(0), compressed: mean(1), divergence: mean(2) }
    }
}

/// Mean divergence, from the logits of some rows before the head, of those of others; each has the table of its logits, or
/// that of the model.
pub(super) fn divergences(
    decoder: &Decoder,
    tables: &[SolutionReader<'_>],
    reference: &[f32],
    streams: &[(&[f32], Option<usize>)],
) -> Vec<f64> {
    let Decoder { hidden, vocabulary, head, .. } = decoder;
    let positions = reference.len() / (*hidden).max(1);
    let strip = (STRIP / hidden.max(&1) / 4).max(1);
    let mut sums = vec![vec![Sums::NONE; positions]; streams.len()];
    for first in (0..*vocabulary).step_by(strip) {
        let last = (*vocabulary).min(first + strip);
        let width = last - first;
        let exact = read_range(&head.weight, first * hidden..last * hidden);
        let read: Vec<Vec<f32>> = tables.iter().map(|table| table.rows(first..last)).collect();
        let logits = |rows: &[f32], table: &[f32]| {
            let mut logits = product(rows, table, (*hidden, width));
            if let Some(cap) = head.softcap {
                logits.par_iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
            }
            logits
        };
        let reference = logits(reference, &exact);
        for ((rows, table), sums) in streams.iter().zip(&mut sums) {
            let found = logits(rows, table.map_or(&exact, |table| &read[table]));
            let pairs = reference.par_chunks(width).zip(found.par_chunks(width));
            sums.par_iter_mut().zip(pairs).for_each(|(sums, (exact, found))| sums.add([exact, found]));
        }
    }
    let mean =
        |sums: &Vec<Sums>| sums.iter().map(|sums| sums.losses()[2]).sum::<f64>() / positions.max(1) as f64;
    sums.iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_of_logits_give_what_all_of_them_do() {
        let (exact, given) = ([1.0f32, -2.0, 3.0, 0.5, 7.0], [0.8f32, -1.0, 3.5, 0.0, 6.0]);
        let share = |logits: &[f32; 5], at: usize| {
            let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            f64::from(logits[at]).exp() / total
        };
        let divergence: f64 =
            (0..5).map(|at| share(&exact, at) * (share(&exact, at) / share(&given, at)).ln()).sum();
        let wanted = [-share(&exact, 3).ln(), -share(&given, 3).ln(), divergence];
        for cut in 1..5 {
            let mut sums = Sums { target: [exact[3], given[3]], ..Sums::NONE };
            sums.add([&exact[..cut], &given[..cut]]);
            sums.add([&exact[cut..], &given[cut..]]);
            let found = sums.losses();
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} for {wanted:?}");
        }
    }
}
