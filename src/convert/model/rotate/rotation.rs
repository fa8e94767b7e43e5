//! Orthogonal maps that take few operations: a Hadamard transform of the largest power of two that divides the width, with
//! random signs (QuIP#, Tseng et al. 2024), and a random orthogonal matrix of what is left.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An orthogonal map `Qᵀ` of vectors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rotation {
    width: usize,
    /// Width of the Hadamard transform.
    power: usize,
    /// Signs of the elements, times what the transform is normalised by.
    factors: Vec<f32>,
    /// The orthogonal matrix of `width / power`, row by row.
    rest: Vec<f32>,
    /// What is reflected last, of length one.
    mirror: Option<Vec<f32>>,
}

impl Rotation {
    /// A map of vectors of a width.
    pub(crate) fn new(width: usize, seed: u64) -> Rotation {
        let power = match width {
            0 => 1,
            width => 1 << width.trailing_zeros(),
        };
        let scale = 1.0 / (power as f32).sqrt();
        let sign = |index: usize| if random(seed, index as u64) & 1 == 0 { scale } else { -scale };
        let factors = (0..width).map(sign).collect();
        Rotation { width, power, factors, rest: orthogonal(width / power, seed), mirror: None }
    }

    /// A map that keeps the mean of every vector, so that what layer norms take off stays the same: the vector of ones is
    /// reflected back to where it was.
    pub(crate) fn keeping_mean(width: usize, seed: u64) -> Rotation {
        let mut rotation = Rotation::new(width, seed);
        let mut ones = vec![1.0; width];
        rotation.apply(&mut ones, 1);
        ones.iter_mut().for_each(|x| *x -= 1.0);
        let length = ones.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        if length > 1e-6 {
            ones.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
            rotation.mirror = Some(ones);
        }
        rotation
    }

    /// The width of the vectors.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// In words, such as `Hadamard 64 x orthogonal 9`.
    pub(crate) fn describe(&self) -> String {
        match (self.power, self.width / self.power.max(1)) {
            (power, 1) => format!("Hadamard {power}"),
            (1, rest) => format!("orthogonal {rest}"),
            (power, rest) => format!("Hadamard {power} x orthogonal {rest}"),
        }
    }

    /// Applies the map to `lanes` vectors, whose elements lie side by side.
    pub(crate) fn apply(&self, elements: &mut [f32], lanes: usize) {
        debug_assert_eq!(elements.len(), self.width * lanes);
        let lanes = lanes.max(1);
        for (lane, factor) in elements.chunks_mut(lanes).zip(&self.factors) {
            lane.iter_mut().for_each(|x| *x *= factor);
        }
        elements.chunks_mut(self.power * lanes).for_each(|run| hadamard(run, lanes));
        let count = self.width / self.power;
        if count > 1 {
            let mut mixed = vec![0.0; elements.len()];
            let stride = self.power * lanes;
            for (row, out) in self.rest.chunks(count).zip(mixed.chunks_mut(stride)) {
                for (factor, part) in row.iter().zip(elements.chunks(stride)) {
                    out.iter_mut().zip(part).for_each(|(out, x)| *out += factor * x);
                }
            }
            elements.copy_from_slice(&mixed);
        }
        if let Some(mirror) = &self.mirror {
            let mut sums = vec![0.0f32; lanes];
            for (lane, share) in elements.chunks(lanes).zip(mirror) {
                sums.iter_mut().zip(lane).for_each(|(sum, x)| *sum += share * x);
            }
            for (lane, share) in elements.chunks_mut(lanes).zip(mirror) {
                lane.iter_mut().zip(&sums).for_each(|(x, sum)| *x -= 2.0 * share * sum);
            }
        }
    }
}

/// The Hadamard transform of a power of two of elements, each of some lanes, without its factor.
fn hadamard(run: &mut [f32], lanes: usize) {
    let mut half = lanes;
    while half < run.len() {
        for pair in run.chunks_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// Random bits.
fn random(seed: u64, index: u64) -> u64 {
    xxh3_64_with_seed(&index.to_le_bytes(), seed)
}

/// A random orthogonal matrix: normal numbers, made orthonormal row by row (Gram-Schmidt, twice for precision).
fn orthogonal(size: usize, seed: u64) -> Vec<f32> {
    if size == 1 {
        return vec![1.0];
    }
    let unit = |index: usize| (random(!seed, index as u64) >> 11) as f64 / (1u64 << 53) as f64;
    let normal = |index: usize| {
        let radius = (-2.0 * (1.0 - unit(2 * index)).ln()).sqrt();
        radius * (std::f64::consts::TAU * unit(2 * index + 1)).cos()
    };
    let mut rows: Vec<Vec<f64>> =
        (0..size).map(|row| (0..size).map(|column| normal(row * size + column)).collect()).collect();
    for row in 0..size {
        let (before, rest) = rows.split_at_mut(row);
        let current = &mut rest[0];
        for _ in 0..2 {
            for other in before.iter() {
                let dot: f64 = current.iter().zip(other).map(|(a, b)| a * b).sum();
                current.iter_mut().zip(other).for_each(|(a, b)| *a -= dot * b);
            }
        }
        let length = current.iter().map(|x| x * x).sum::<f64>().sqrt();
        current.iter_mut().for_each(|x| *x /= length);
    }
    rows.concat().into_iter().map(|x| x as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(rotation: &Rotation, vector: &[f32]) -> Vec<f32> {
        let mut vector = vector.to_vec();
        rotation.apply(&mut vector, 1);
        vector
    }

    #[test]
    fn lengths_and_angles_stay_at_every_width() {
        for width in [1, 2, 9, 64, 96, 576, 770] {
            for rotation in [Rotation::new(width, 7), Rotation::keeping_mean(width, 7)] {
                let a: Vec<f32> = (0..width).map(|i| ((i * 37) % 11) as f32 - 5.0).collect();
                let b: Vec<f32> = (0..width).map(|i| ((i * 13) % 7) as f32 - 2.0).collect();
                let dot = |a: &[f32], b: &[f32]| -> f64 {
                    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
                };
                let (x, y) = (turned(&rotation, &a), turned(&rotation, &b));
                for (before, after) in [(dot(&a, &b), dot(&x, &y)), (dot(&a, &a), dot(&x, &x))] {
                    assert!((before - after).abs() < 1e-4 * (1.0 + dot(&a, &a)), "{width}: {before} {after}");
                }
            }
        }
    }

    #[test]
    fn outliers_are_spread() {
        let mut outlier = vec![0.0; 576];
        outlier[40] = 100.0;
        let largest =
            turned(&Rotation::new(576, 1), &outlier).into_iter().fold(0.0f32, |a, x| a.max(x.abs()));
        assert!(largest < 12.5, "{largest}: at most the largest of nine shares of 100 / 8");
    }

    #[test]
    fn the_mean_can_be_kept() {
        let rotation = Rotation::keeping_mean(96, 3);
        let vector: Vec<f32> = (0..96).map(|i| (i % 5) as f32).collect();
        let mean = |vector: &[f32]| vector.iter().sum::<f32>() / 96.0;
        assert!((mean(&turned(&rotation, &vector)) - mean(&vector)).abs() < 1e-4);
        assert!((mean(&turned(&Rotation::new(96, 3), &vector)) - mean(&vector)).abs() > 1e-2);
    }

    #[test]
    fn lanes_are_vectors_of_their_own() {
        let rotation = Rotation::keeping_mean(12, 5);
        let vectors = [(0..12).map(|i| i as f32).collect::<Vec<_>>(), vec![1.0; 12], vec![-2.5; 12]];
        let mut lanes: Vec<f32> = (0..36).map(|i| vectors[i % 3][i / 3]).collect();
        rotation.apply(&mut lanes, 3);
        for (at, vector) in vectors.iter().enumerate() {
            let lane: Vec<f32> = lanes.iter().skip(at).step_by(3).copied().collect();
            let alone = turned(&rotation, vector);
            assert!(lane.iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-5), "{lane:?} {alone:?}");
        }
    }

    #[test]
    fn maps_are_named_and_the_same_every_time() {
        let names = [64, 576, 9].map(|width| Rotation::new(width, 0).describe());
        assert_eq!(names, ["Hadamard 64", "Hadamard 64 x orthogonal 9", "orthogonal 9"]);
        assert_eq!(Rotation::new(576, 4), Rotation::new(576, 4));
        assert_ne!(Rotation::new(576, 4), Rotation::new(576, 5));
    }
}
