//! A decoder small enough to be computed by hand: two layers of attention with one head, learned positions, a tied head.

use half::f16;

pub(crate) const VOCABULARY: usize = 24;
pub(crate) const HIDDEN: usize = 8;
pub(crate) const CONTEXT: usize = 16;
pub(crate) const LAYERS: usize = 2;

/// Its weights, each a multiple that fp16 has.
pub(crate) struct Decoder {
    pub(crate) table: Vec<f32>,
    pub(crate) places: Vec<f32>,
    /// Query, key and value of each layer.
    pub(crate) layers: Vec<[Vec<f32>; 3]>,
    /// Positions that the first layer sees.
    pub(crate) window: usize,
}

impl Decoder {
    pub(crate) fn new(seed: u64) -> Decoder {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut matrix = |rows: usize| -> Vec<f32> {
            (0..rows * HIDDEN).map(|_| f16::from_f32(1.5 * random.f32() - 0.75).to_f32()).collect()
        };
        Decoder {
            table: matrix(VOCABULARY),
            places: matrix(CONTEXT),
            layers: (0..LAYERS).map(|_| std::array::from_fn(|_| matrix(HIDDEN))).collect(),
            window: CONTEXT,
        }
    }

    /// Logits after the last token, without a cache, in f32.
    pub(crate) fn logits(&self, ids: &[u32]) -> Vec<f32> {
        let row = |matrix: &[f32], at: usize| matrix[at * HIDDEN..][..HIDDEN].to_vec();
        let mut x: Vec<Vec<f32>> = ids
            .iter()
            .enumerate()
            .map(|(position, &id)| sum(&row(&self.table, id as usize), &row(&self.places, position)))
            .collect();
        for (layer, [query, key, value]) in self.layers.iter().enumerate() {
            let window = if layer == 0 { self.window } else { CONTEXT };
            let project =
                |matrix: &[f32]| -> Vec<Vec<f32>> { x.iter().map(|x| product(matrix, x)).collect() };
            let (queries, keys, values) = (project(query), project(key), project(value));
            for (position, query) in queries.iter().enumerate() {
                let first = (position + 1).saturating_sub(window);
                let weights: Vec<f32> =
                    keys[first..=position].iter().map(|key| dot(query, key).exp()).collect();
                let total: f32 = weights.iter().sum();
                for (weight, value) in weights.iter().zip(&values[first..]) {
                    let part: Vec<f32> = value.iter().map(|value| value * weight / total).collect();
                    x[position] = sum(&x[position], &part);
                }
            }
        }
        product(&self.table, x.last().unwrap())
    }

    /// The likeliest tokens after a prompt, one after the other.
    pub(crate) fn greedy(&self, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut ids = prompt.to_vec();
        for _ in 0..count {
            let logits = self.logits(&ids);
            let best = (0..VOCABULARY).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            ids.push(u32::try_from(best).unwrap());
        }
        ids.split_off(prompt.len())
    }
}

fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn product(matrix: &[f32], x: &[f32]) -> Vec<f32> {
    matrix.chunks_exact(HIDDEN).map(|row| dot(row, x)).collect()
}
