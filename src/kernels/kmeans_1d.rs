//! Optimal k-means of weighted numbers: the palette with the least squared error.
//!
//! In one dimension the clusters of an optimal solution are intervals, so dynamic programming over the cuts between them
//! finds it (Ckmeans.1d.dp, Wang & Song 2011). With prefix sums of `w` and `w x`, what a cluster takes off the sum of squares,
//! `(sum w x)^2 / sum w`, costs a few operations. The best previous cut only moves forward as a cut does, so that each
//! layer is filled by divide and conquer in `O(n log n)` (Grønlund et al. 2017).
//!
//! With many distinct numbers that is done on a grid: first a coarse one, then a finer one, and then among all cuts, each time
//! within a window around what was found before. A window whose edge is reached moves on. Tests hold the result to the
//! optimum with up to 16 clusters, and to an error within 0.05 % of it with 64 and 256.

/// Cuts on the coarse grid: at least, and per cluster. The two grids were chosen for speed at an error that tests bound.
const GRID: usize = 128;
const COARSE: usize = 4;
/// Cuts on the finer grid per cluster.
const FINE: usize = 24;

/// How far a cut may move at first, in cuts of the coarse and of the finer grid.
const COARSE_REACH: usize = 16;
const FINE_REACH: usize = 6;

/// Rounds after which windows are no longer moved.
const ROUNDS: usize = 16;

/// Numbers in ascending order with their weights, summed up.
pub struct WeightedSamples {
    values: Vec<f32>,
    /// Sums of weights, and of weights times numbers, before each number.
    weights: Vec<f64>,
    moments: Vec<f64>,
}

impl WeightedSamples {
    /// From numbers in ascending order and their weights, which must be positive.
    pub fn new(points: impl IntoIterator<Item = (f32, f64)>) -> WeightedSamples {
        let mut samples = WeightedSamples { values: Vec::new(), weights: vec![0.0], moments: vec![0.0] };
        let (mut weights, mut moments) = (0.0, 0.0);
        for (value, weight) in points {
            weights += weight;
            moments += weight * f64::from(value);
            samples.values.push(value);
            samples.weights.push(weights);
            samples.moments.push(moments);
        }
        samples
    }

    /// The distinct numbers, ascending.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Centroids of at most `count` clusters, in ascending order: those whose weighted sum of squared distances to
    /// the numbers is least.
    pub fn centroids(&self, count: usize) -> Vec<f32> {
        let len = self.values.len();
        if len <= count {
            return self.values.clone();
        }
        let cuts = self.cuts(count);
        let bounds = || std::iter::once(0).chain(cuts.iter().map(|&cut| cut as usize)).chain([len]);
        let pairs = bounds().zip(bounds().skip(1)).filter(|(from, to)| from < to);
        pairs.map(|(from, to)| (self.moment(from, to) / self.weight(from, to)) as f32).collect()
    }

    fn cuts(&self, count: usize) -> Vec<u32> {
        let end = self.values.len() as u32;
        let mut grid = self.grid(GRID.max(COARSE * count));
        let mut cuts = self.divide(&vec![&grid[..]; count - 1]);
        let finer = self.grid(FINE * count);
        if finer.len() > grid.len() {
            cuts = self.refine(&cuts, (&grid, COARSE_REACH), &finer);
            grid = finer;
        }
        if grid.len() + 1 >= end as usize {
            return cuts;
        }
        let everywhere: Vec<u32> = (0..=end).collect();
        self.refine(&cuts, (&grid, FINE_REACH), &everywhere)
    }

    /// The best cuts among some ascending places within so many cuts of a grid from those given.
    fn refine(&self, cuts: &[u32], (grid, reach): (&[u32], usize), places: &[u32]) -> Vec<u32> {
        let last = places.len();
        let window = |&cut: &u32| {
            let at = grid.partition_point(|&line| line < cut);
            let low = at.checked_sub(reach).map_or(0, |line| grid[line]);
            let high = grid.get(at + reach).copied().unwrap_or(u32::MAX);
            let from = places.partition_point(|&place| place < low).min(last - 1);
            (from, places.partition_point(|&place| place <= high).max(from + 1))
        };
        let mut windows: Vec<(usize, usize)> = cuts.iter().map(window).collect();
        let mut best = Vec::new();
        for _ in 0..ROUNDS {
            let within: Vec<&[u32]> = windows.iter().map(|&(from, to)| &places[from..to]).collect();
            best = self.divide(&within);
            let mut moved = false;
            for (cut, (from, to)) in best.iter().zip(&mut windows) {
                let at = *from + places[*from..*to].partition_point(|place| place < cut);
                // A cut at the edge of its window may have its optimum beyond it.
                if (at == *from && at > 0) || (at + 1 == *to && *to < last) {
                    let half = (*to - *from).div_ceil(2);
                    (*from, *to) = (at.saturating_sub(half), (at + half + 1).min(last));
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        best
    }

    /// Places for cuts, closest where the best cuts are closest: the density of an optimal quantiser's levels goes with
    /// the cube root of that of the numbers (Panter & Dite 1951).
    fn grid(&self, lines: usize) -> Vec<u32> {
        let len = self.values.len();
        if len <= lines + 1 {
            return (1..len as u32).collect();
        }
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..len)
            .map(|i| {
                let gap = f64::from(self.values[i]) - f64::from(self.values[i - 1]);
                // `density^(1/3) dx` with a density of `weight / gap` and `dx = gap`.
                sum += (gap * gap * self.weight(i - 1, i + 1)).cbrt();
                sum
            })
            .collect();
        let mut next = 0.0;
        let step = sum / (lines + 1) as f64;
        let mut grid = Vec::with_capacity(lines + 1);
        for (before, &sum) in sums.iter().enumerate() {
            if sum > next {
                grid.push(before as u32 + 1);
                next = sum + step;
            }
        }
        grid
    }

    /// The best cuts, one from each of the given ascending lists of places.
    fn divide(&self, places: &[&[u32]]) -> Vec<u32> {
        let end = [self.values.len() as u32];
        let mut layers: Vec<Layer<'_>> = Vec::with_capacity(places.len() + 1);
        for &places in places.iter().chain([&&end[..]]) {
            let layer = match layers.last() {
                Some(previous) => self.layer(previous, places),
                None => self.layer(&Layer { places: &[0], gains: vec![0.0], chosen: vec![0] }, places),
            };
            layers.push(layer);
        }
        let mut cuts = Vec::with_capacity(places.len());
        let mut at = 0;
        for pair in layers.windows(2).rev() {
            at = pair[1].chosen[at] as usize;
            cuts.push(pair[0].places[at]);
        }
        cuts.reverse();
        cuts
    }

    fn layer<'a>(&self, previous: &Layer<'_>, places: &'a [u32]) -> Layer<'a> {
        let mut layer = Layer { places, gains: vec![0.0; places.len()], chosen: vec![0; places.len()] };
        self.fill(previous, &mut layer, (0, places.len()), (0, previous.places.len() - 1));
        layer
    }

    /// The best previous cut for each place of a range, known to be among `choices`.
    fn fill(
        &self,
        previous: &Layer<'_>,
        layer: &mut Layer<'_>,
        (from, to): (usize, usize),
        choices: (usize, usize),
    ) {
        if from >= to {
            return;
        }
        // The choice of the middle bounds those of both halves, since the best previous cut is monotone.
        let middle = from.midpoint(to);
        let place = layer.places[middle] as usize;
        let (mut best, mut chosen) = (f64::NEG_INFINITY, choices.0);
        for choice in choices.0..=choices.1 {
            let cut = previous.places[choice] as usize;
            if cut > place {
                break;
            }
            let gain = previous.gains[choice] + self.gain(cut, place);
            if gain > best {
                (best, chosen) = (gain, choice);
            }
        }
        (layer.gains[middle], layer.chosen[middle]) = (best, chosen as u32);
        self.fill(previous, layer, (from, middle), (choices.0, chosen));
        self.fill(previous, layer, (middle + 1, to), (chosen, choices.1));
    }

    /// How much a cluster takes off the sum of squares.
    #[inline]
    fn gain(&self, from: usize, to: usize) -> f64 {
        let weight = self.weight(from, to);
        let moment = self.moment(from, to);
        if weight > 0.0 { moment * moment / weight } else { 0.0 }
    }

    fn weight(&self, from: usize, to: usize) -> f64 {
        self.weights[to] - self.weights[from]
    }

    fn moment(&self, from: usize, to: usize) -> f64 {
        self.moments[to] - self.moments[from]
    }
}

/// Places of one cut, with the gain of everything before each and the place of the previous cut.
struct Layer<'a> {
    places: &'a [u32],
    gains: Vec<f64>,
    chosen: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least cost by trying every division.
    fn least_cost(points: &[(f32, f64)], count: usize) -> f64 {
        let n = points.len();
        let cost = |from: usize, to: usize| {
            let weight: f64 = points[from..to].iter().map(|p| p.1).sum();
            let mean = points[from..to].iter().map(|p| p.1 * f64::from(p.0)).sum::<f64>() / weight;
            points[from..to].iter().map(|p| p.1 * (f64::from(p.0) - mean).powi(2)).sum::<f64>()
        };
        let mut best: Vec<f64> = (0..=n).map(|to| if to == 0 { 0.0 } else { cost(0, to) }).collect();
        for _ in 1..count {
            let next = |to: usize| (0..to).map(|cut| best[cut] + cost(cut, to)).fold(best[to], f64::min);
            best = (0..=n).map(next).collect();
        }
        best[n]
    }

    fn cost(points: &[(f32, f64)], centroids: &[f32]) -> f64 {
        let distance = |x: f32| {
            centroids
                .iter()
                .map(|&c| f64::from(c) - f64::from(x))
                .map(|d| d * d)
                .fold(f64::INFINITY, f64::min)
        };
        points.iter().map(|&(x, weight)| weight * distance(x)).sum()
    }

    fn sorted(mut values: Vec<f32>) -> Vec<f32> {
        values.sort_unstable_by(f32::total_cmp);
        values.dedup();
        values
    }

    proptest::proptest! {
        #[test]
        fn no_division_is_better(
            values in proptest::collection::vec(-100i32..100, 1..40),
            count in 1usize..9,
        ) {
            let values = sorted(values.iter().map(|&x| (x * x * x) as f32).collect());
            let points: Vec<(f32, f64)> =
                values.iter().enumerate().map(|(i, &x)| (x, 1.0 + (i % 3) as f64)).collect();
            let centroids = WeightedSamples::new(points.iter().copied()).centroids(count);
            assert!(centroids.len() <= count);
            let least = least_cost(&points, count);
            assert!(cost(&points, &centroids) <= least * (1.0 + 1e-5) + 1e-6);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_division_is_better_for_any_weights(
            points in proptest::collection::vec((-1000i32..1000, 1e-4f64..1e3), 1..32),
            count in 1usize..9,
        ) {
            let points: std::collections::BTreeMap<i32, f64> = points.into_iter().collect();
            let points: Vec<(f32, f64)> = points.into_iter().map(|(x, weight)| (x as f32, weight)).collect();
            let centroids = WeightedSamples::new(points.iter().copied()).centroids(count);
            assert!(centroids.len() <= count);
            let (found, least) = (cost(&points, &centroids), least_cost(&points, count));
            assert!(found <= least * (1.0 + 1e-4) + 1e-3, "{found}, at best {least}");
        }
    }

    /// Numbers from a normal distribution, some of them far out.
    fn normal(len: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 + 1e-9
        };
        let mut one = || (-2.0 * uniform().ln()).sqrt() * (std::f32::consts::TAU * uniform()).cos();
        (0..len).map(|i| one() * if i % 97 == 0 { 9.0 } else { 1.0 }).collect()
    }

    #[test]
    fn the_grid_leads_to_the_same_division_as_trying_every_cut() {
        for (seed, count, allowed) in [
            (1, 2, 1e-9),
            (2, 4, 1e-9),
            (3, 8, 1e-9),
            (4, 16, 1e-9),
            (5, 64, 5e-4),
            (6, 64, 5e-4),
            (7, 256, 5e-4),
        ] {
            let values = sorted(normal(3000, seed));
            let samples = WeightedSamples::new(values.iter().map(|&x| (x, 1.0)));
            let all: Vec<u32> = (1..values.len() as u32).collect();
            let exact = samples.divide(&vec![&all[..]; count - 1]);
            let gain = |cuts: &[u32]| {
                let bounds: Vec<usize> =
                    [0].into_iter().chain(cuts.iter().map(|&c| c as usize)).chain([values.len()]).collect();
                bounds.windows(2).map(|pair| samples.gain(pair[0], pair[1])).sum::<f64>()
            };
            let squares: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
            let (found, exact) = (squares - gain(&samples.cuts(count)), squares - gain(&exact));
            assert!(found <= exact * (1.0 + allowed), "{count} clusters: {found}, at best {exact}");
        }
    }

    #[test]
    fn few_numbers_are_their_own_centres() {
        assert_eq!(WeightedSamples::new([(1.0, 2.0), (3.0, 1.0)]).centroids(4), [1.0, 3.0]);
        assert_eq!(WeightedSamples::new([(1.0, 3.0), (3.0, 1.0)]).centroids(1), [1.5]);
        assert!(WeightedSamples::new([]).centroids(4).is_empty());
    }
}
