//! What one launch says of a metric: its median, its slow tail, and the tail pooled over sequence lengths.
//!
//! Values are slow-oriented logarithms, so that a larger one is always worse. The pooled tail subtracts the centre of
//! each sequence length and takes one p95 over all of them: a launch has few samples per length, and a p95 needs many.

/// Shares of a sample that its median and its slow tail are no better than.
const MEDIAN: f64 = 0.5;
const TAIL: f64 = 0.95;

/// The median of each launch. `None` if one is empty.
pub fn launch_medians(launches: &[Vec<f64>]) -> Option<Vec<f64>> {
    launches.iter().map(|launch| quantile(launch, MEDIAN)).collect()
}

/// The p95 of each launch. `None` if one is empty.
pub fn launch_tails(launches: &[Vec<f64>]) -> Option<Vec<f64>> {
    launches.iter().map(|launch| quantile(launch, TAIL)).collect()
}

/// The p95 of each launch over sequence lengths together, each sample relative to the centre of its length. `samples`
/// has those of every launch at each length, `centres` one per length. `None` if lengths have different numbers of
/// launches, or if a launch has no sample.
pub fn pooled_tails(samples: &[Vec<Vec<f64>>], centres: &[f64]) -> Option<Vec<f64>> {
    let launches = samples.first()?.len();
    if samples.len() != centres.len() || samples.iter().any(|at| at.len() != launches) {
        return None;
    }
    let of_launch = |launch: usize| {
        let relative =
            samples.iter().zip(centres).flat_map(|(at, centre)| at[launch].iter().map(move |y| y - centre));
        quantile(&relative.collect::<Vec<f64>>(), TAIL)
    };
    (0..launches).map(of_launch).collect()
}

/// The median over all launches of a sequence length. `None` if there is no sample.
pub fn centre(launches: &[&[Vec<f64>]]) -> Option<f64> {
    quantile(&launches.iter().flat_map(|arm| arm.iter().flatten().copied()).collect::<Vec<f64>>(), MEDIAN)
}

/// A quantile of type 7, interpolated plainly because values are logarithms already.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = sorted.len().checked_sub(1)? as f64 * share;
    let below = rank.floor();
    let best = sorted[below as usize];
    let worse = sorted.get(below as usize + 1).copied().unwrap_or(best);
    Some(best + (worse - best) * (rank - below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Direction, Ordered};

    #[test]
    fn medians_and_tails_are_those_of_percentiles() {
        let times = [vec![10.0, 12.0, 11.0, 30.0, 10.5], vec![9.0, 9.5]];
        let logs: Vec<Vec<f64>> = times.iter().map(|l| l.iter().map(|t: &f64| t.ln()).collect()).collect();
        let expected = |share: f64| {
            times.each_ref().map(|l| Ordered::new(l, Direction::LowerIsBetter).unwrap().quantile(share).ln())
        };
        let near = |a: &[f64], b: [f64; 2]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(&launch_medians(&logs).unwrap(), expected(0.5)));
        assert!(near(&launch_tails(&logs).unwrap(), expected(0.95)));
        assert_eq!(launch_medians(&[vec![]]), None);
    }

    #[test]
    fn pooling_forgets_how_long_a_seq_len_takes() {
        let short = vec![vec![1.0, 1.1, 1.2], vec![1.0, 1.1, 1.5]];
        let long: Vec<Vec<f64>> = short.iter().map(|l| l.iter().map(|y| y + 3.0).collect()).collect();
        let centres = [centre(&[&short]).unwrap(), centre(&[&long]).unwrap()];
        assert!((centres[1] - centres[0] - 3.0).abs() < 1e-12);
        let both = pooled_tails(&[short.clone(), long], &centres).unwrap();
        let twice: Vec<Vec<f64>> = short.iter().map(|l| [l.clone(), l.clone()].concat()).collect();
        let alone = pooled_tails(&[twice], &centres[..1]).unwrap();
        assert!(both.iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-12), "{both:?} {alone:?}");
        assert_eq!(pooled_tails(&[short], &[]), None);
    }
}
