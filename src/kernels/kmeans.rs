//! k-means of vectors: Lloyd's algorithm from the seeds of k-means++ (Arthur & Vassilvitskii 2007).
//!
//! The same vectors give the same centroids, whatever the version of any library, since packages must be reproducible: hence
//! the generator of its own, a 64-bit LCG with Knuth's MMIX constants and a fixed seed.

/// Iterations at most. Lloyd's algorithm gains little after the first few.
const ROUNDS: usize = 24;

/// The relative gain in squared error below which it stops.
const MIN_GAIN: f64 = 1e-4;

/// Centroids of at most `count` clusters of vectors of `width` numbers, one after the other.
pub fn centroids(vectors: &[f32], width: usize, count: usize) -> Vec<f32> {
    let mut centroids = kmeans_plus_plus(vectors, width, count);
    let mut before = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (mut sums, mut sizes) = (vec![0.0f64; centroids.len()], vec![0usize; centroids.len() / width]);
        let mut cost = 0.0;
        for vector in vectors.chunks_exact(width) {
            let (nearest, distance) = nearest(vector, &centroids, width);
            cost += f64::from(distance);
            sizes[nearest] += 1;
            for (sum, &x) in sums[nearest * width..].iter_mut().zip(vector) {
                *sum += f64::from(x);
            }
        }
        // A centroid without vectors stays where it is.
        let moved = centroids.chunks_exact_mut(width).zip(sums.chunks_exact(width)).zip(&sizes);
        for ((centroid, sums), &size) in moved.filter(|(_, size)| **size > 0) {
            for (x, sum) in centroid.iter_mut().zip(sums) {
                *x = (sum / size as f64) as f32;
            }
        }
        if before - cost <= MIN_GAIN * cost {
            break;
        }
        before = cost;
    }
    centroids
}

/// The centroid that is nearest to a vector, and the square of its distance.
#[inline]
pub fn nearest(vector: &[f32], centroids: &[f32], width: usize) -> (usize, f32) {
    let mut best = (0, f32::INFINITY);
    for (index, centroid) in centroids.chunks_exact(width).enumerate() {
        let distance = squared_distance(vector, centroid);
        if distance < best.1 {
            best = (index, distance);
        }
    }
    best
}

fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

/// Seeds: vectors drawn one after the other, with probabilities in proportion to the squared distance to those drawn.
fn kmeans_plus_plus(vectors: &[f32], width: usize, count: usize) -> Vec<f32> {
    // 2^64 over the golden ratio; any number with mixed bits would do.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The 53 upper bits: an f64 holds no more, and the low bits of an LCG have short periods.
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut centroids: Vec<f32> = vectors.iter().copied().take(width).collect();
    let mut distances: Vec<f32> =
        vectors.chunks_exact(width).map(|vector| squared_distance(vector, &centroids)).collect();
    while centroids.len() < count * width {
        let total: f64 = distances.iter().map(|&d| f64::from(d)).sum();
        if total.is_nan() || total <= 0.0 {
            break;
        }
        let mut left = draw() * total;
        let chosen = distances.iter().position(|&distance| {
            left -= f64::from(distance);
            left < 0.0 && distance > 0.0
        });
        // Rounding may leave a rest after the last vector.
        let chosen = chosen.or_else(|| distances.iter().rposition(|&distance| distance > 0.0));
        let chosen = chosen.expect("a sum above zero has a term above zero");
        let centroid = vectors[chosen * width..(chosen + 1) * width].to_vec();
        for (distance, vector) in distances.iter_mut().zip(vectors.chunks_exact(width)) {
            *distance = distance.min(squared_distance(vector, &centroid));
        }
        centroids.extend(centroid);
    }
    centroids
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
        let centroids = centroids(&vectors, 2, 4);
        for (x, y) in places {
            let (_, distance) = nearest(&[x, y], &centroids, 2);
            assert!(distance < 0.1, "{x} {y}: {distance}");
        }
    }

    #[test]
    fn few_vectors_are_their_own_centres() {
        let vectors = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0];
        let found = centroids(&vectors, 2, 16);
        assert_eq!(found.len(), 4);
        assert_eq!(nearest(&[3.0, 4.0], &found, 2).1, 0.0);
        assert!(centroids(&[], 2, 16).is_empty());
    }
}
