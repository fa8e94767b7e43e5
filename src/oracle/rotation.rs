//! The orthogonal maps that `export --rotate` multiplies into weights, made anew from what `docs/compression.md` says of
//! them: signs, a Hadamard matrix of the largest power of two in the width, an orthogonal matrix of the rest, and a
//! reflection where the mean has to stay.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A map of vectors of one width.
#[derive(Debug, Clone)]
pub(super) struct Rotation {
    signs: Vec<f64>,
    /// Width of the Hadamard matrix.
    power: usize,
    /// Rows of the orthogonal matrix.
    rest: Vec<Vec<f64>>,
    /// The unit vector that is reflected.
    mirror: Option<Vec<f64>>,
}

impl Rotation {
    pub(super) fn new(width: usize, seed: u64, keeps_mean: bool) -> Rotation {
        let width = width.max(1);
        let odd = width >> width.trailing_zeros();
        let sign = |i: u64| if bits(seed, i).is_multiple_of(2) { 1.0 } else { -1.0 };
        let mut rotation = Rotation {
            signs: (0..width as u64).map(sign).collect(),
            power: width / odd,
            rest: orthonormal(odd, !seed),
            mirror: None,
        };
        if keeps_mean {
            let mut moved = vec![1.0; width];
            rotation.turn(&mut moved);
            moved.iter_mut().for_each(|x| *x -= 1.0);
            let length = dot(&moved, &moved).sqrt();
            rotation.mirror = (length > 1e-6).then(|| moved.iter().map(|x| x / length).collect());
        }
        rotation
    }

    pub(super) fn width(&self) -> usize {
        self.signs.len()
    }

    /// As `export.json` names it.
    pub(super) fn describe(&self) -> String {
        match (self.power, self.rest.len()) {
            (power, 1) => format!("Hadamard {power}"),
            (1, odd) => format!("orthogonal {odd}"),
            (power, odd) => format!("Hadamard {power} x orthogonal {odd}"),
        }
    }

    /// From the checkpoint's coordinates to the program's.
    pub(super) fn turn(&self, x: &mut [f64]) {
        x.iter_mut().zip(&self.signs).for_each(|(x, sign)| *x *= sign);
        self.hadamard(x);
        self.mix(x, |to, from| self.rest[to][from]);
        self.reflect(x);
    }

    /// From the program's coordinates to the checkpoint's.
    pub(super) fn turn_back(&self, x: &mut [f64]) {
        self.reflect(x);
        self.mix(x, |to, from| self.rest[from][to]);
        self.hadamard(x);
        x.iter_mut().zip(&self.signs).for_each(|(x, sign)| *x *= sign);
    }

    /// Symmetric, and its own inverse.
    fn hadamard(&self, x: &mut [f64]) {
        let length = (self.power as f64).sqrt();
        for run in x.chunks_mut(self.power) {
            sylvester(run);
            run.iter_mut().for_each(|x| *x /= length);
        }
    }

    fn mix(&self, x: &mut [f64], factor: impl Fn(usize, usize) -> f64) {
        if self.rest.len() == 1 {
            return;
        }
        let before = x.to_vec();
        for (to, run) in x.chunks_mut(self.power).enumerate() {
            for (lane, x) in run.iter_mut().enumerate() {
                let parts = before.iter().skip(lane).step_by(self.power).enumerate();
                *x = parts.map(|(from, part)| factor(to, from) * part).sum();
            }
        }
    }

    fn reflect(&self, x: &mut [f64]) {
        let Some(mirror) = &self.mirror else { return };
        let share = 2.0 * dot(x, mirror);
        x.iter_mut().zip(mirror).for_each(|(x, part)| *x -= share * part);
    }
}

/// Sylvester's matrix: that of half the size four times, the last negative.
fn sylvester(run: &mut [f64]) {
    if run.len() < 2 {
        return;
    }
    let (low, high) = run.split_at_mut(run.len() / 2);
    sylvester(low);
    sylvester(high);
    for (low, high) in low.iter_mut().zip(high) {
        (*low, *high) = (*low + *high, *low - *high);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn bits(seed: u64, index: u64) -> u64 {
    xxh3_64_with_seed(&index.to_le_bytes(), seed)
}

/// Rows of normal numbers, each made orthogonal to those before it.
fn orthonormal(size: usize, seed: u64) -> Vec<Vec<f64>> {
    let uniform = |index: u64| (bits(seed, index) >> 11) as f64 * 2f64.powi(-53);
    // Box and Muller's.
    let normal = |index: u64| {
        (-2.0 * (1.0 - uniform(2 * index)).ln()).sqrt()
            * (std::f64::consts::TAU * uniform(2 * index + 1)).cos()
    };
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for row in 0..size {
        let mut next: Vec<f64> = (0..size)
            .map(|column| if size == 1 { 1.0 } else { normal((row * size + column) as u64) })
            .collect();
        // Once more, for what rounding left.
        for other in rows.iter().chain(rows.iter()) {
            let share = dot(&next, other);
            next.iter_mut().zip(other).for_each(|(x, other)| *x -= share * other);
        }
        let length = dot(&next, &next).sqrt();
        next.iter_mut().for_each(|x| *x /= length);
        rows.push(next);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_come_back_at_their_length() {
        for (width, name) in [(8, "Hadamard 8"), (24, "Hadamard 8 x orthogonal 3"), (9, "orthogonal 9")] {
            for keeps_mean in [false, true] {
                let rotation = Rotation::new(width, 5, keeps_mean);
                assert_eq!((rotation.describe().as_str(), rotation.width()), (name, width));
                let before: Vec<f64> = (0..width).map(|i| ((i * 7) % 5) as f64 - 1.0).collect();
                let mut x = before.clone();
                rotation.turn(&mut x);
                assert!((dot(&x, &x) - dot(&before, &before)).abs() < 1e-9);
                let mean_moved = (x.iter().sum::<f64>() - before.iter().sum::<f64>()).abs();
                assert!(mean_moved < 1e-9 || !keeps_mean, "{name}: {mean_moved}");
                rotation.turn_back(&mut x);
                assert!(x.iter().zip(&before).all(|(a, b)| (a - b).abs() < 1e-9), "{x:?}");
            }
        }
    }

    #[test]
    fn the_hadamard_matrix_is_known() {
        let mut run = [1.0, 2.0, 3.0, 4.0];
        sylvester(&mut run);
        assert_eq!(run, [10.0, -2.0, -4.0, 0.0]);
    }
}
