//! Clustering of vectors: k-means from well spread beginnings, the same ones each time.

/// Rounds of moving the centres at most.
const ROUNDS: usize = 24;

/// Moves the sum of squares must still make, relative to it, to go on.
const WORTHWHILE: f64 = 1e-4;

/// Centres of at most `count` clusters of vectors of `width` numbers, one after the other.
pub fn centres(vectors: &[f32], width: usize, count: usize) -> Vec<f32> {
    let mut centres = spread(vectors, width, count);
    let mut before = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (mut sums, mut sizes) = (vec![0.0f64; centres.len()], vec![0usize; centres.len() / width]);
        let mut cost = 0.0;
        for vector in vectors.chunks_exact(width) {
            let (nearest, distance) = nearest(vector, &centres, width);
            cost += f64::from(distance);
            sizes[nearest] += 1;
            for (sum, &x) in sums[nearest * width..].iter_mut().zip(vector) {
                *sum += f64::from(x);
            }
        }
        let moved = centres.chunks_exact_mut(width).zip(sums.chunks_exact(width)).zip(&sizes);
        for ((centre, sums), &size) in moved.filter(|(_, size)| **size > 0) {
            for (x, sum) in centre.iter_mut().zip(sums) {
                *x = (sum / size as f64) as f32;
            }
        }
        if before - cost <= WORTHWHILE * cost {
            break;
        }
        before = cost;
    }
    centres
}

/// The centre that is nearest to a vector, and the square of its distance.
#[inline]
pub fn nearest(vector: &[f32], centres: &[f32], width: usize) -> (usize, f32) {
    let mut best = (0, f32::INFINITY);
    for (index, centre) in centres.chunks_exact(width).enumerate() {
        let distance = squared(vector, centre);
        if distance < best.1 {
            best = (index, distance);
        }
    }
    best
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

/// Vectors drawn one after the other, each with a chance that grows with the square of its distance to those drawn.
fn spread(vectors: &[f32], width: usize, count: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut centres: Vec<f32> = vectors.iter().copied().take(width).collect();
    let mut distances: Vec<f32> =
        vectors.chunks_exact(width).map(|vector| squared(vector, &centres)).collect();
    while centres.len() < count * width {
        let total: f64 = distances.iter().map(|&d| f64::from(d)).sum();
        if total <= 0.0 {
            break;
        }
        let mut left = draw() * total;
        let chosen = distances.iter().position(|&distance| {
            left -= f64::from(distance);
            left < 0.0 && distance > 0.0
        });
        let chosen = chosen.or_else(|| distances.iter().rposition(|&distance| distance > 0.0)).unwrap_or(0);
        let centre = vectors[chosen * width..(chosen + 1) * width].to_vec();
        for (distance, vector) in distances.iter_mut().zip(vectors.chunks_exact(width)) {
            *distance = distance.min(squared(vector, &centre));
        }
        centres.extend(centre);
    }
    centres
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_heaps_are_found() {
        let places = [(0.0, 0.0), (10.0, 0.0), (0.0, 10.0), (-10.0, -10.0)];
        let vectors: Vec<f32> = (0..400)
            .flat_map(|i| {
                let (x, y) = places[i % 4];
                let jitter = |j: usize| ((i * 31 + j * 17) % 13) as f32 * 0.05 - 0.3;
                [x + jitter(1), y + jitter(2)]
            })
            .collect();
        let centres = centres(&vectors, 2, 4);
        for (x, y) in places {
            let (_, distance) = nearest(&[x, y], &centres, 2);
            assert!(distance < 0.1, "{x} {y}: {distance}");
        }
    }

    #[test]
    fn few_vectors_are_their_own_centres() {
        let vectors = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0];
        let found = centres(&vectors, 2, 16);
        assert_eq!(found.len(), 4);
        assert_eq!(nearest(&[3.0, 4.0], &found, 2).1, 0.0);
        assert!(centres(&[], 2, 16).is_empty());
    }
}
