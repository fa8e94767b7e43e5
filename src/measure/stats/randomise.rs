//! A randomisation test of launches that ran in permuted blocks: what would the other orders have shown?
//!
//! The order of launches was drawn, so under no difference every admissible order was as likely as the one that ran.
//! Probabilities are those of the largest statistic of a family, hence corrected for its size:
//!
//! ```text
//! p[i] = #{orders: max over j of t[j](order) >= t[i](the order that ran)} / #orders
//! ```
//!
//! Up to 10,000 orders are enumerated (six per block of four: five blocks), beyond that 20,000 are drawn with a fixed
//! seed. P. H. Westfall and S. S. Young, "Resampling-Based Multiple Testing" (1993), the single-step maxT procedure.

use super::location::locate_sorted;
use super::shift::Shift;

/// Launches of a block, half of them of each arm.
pub const BLOCK: usize = 4;

/// Orders are taken one by one up to this many, and drawn beyond.
const MOST_EXACT: usize = 10_000;
/// Orders to draw besides the one that ran.
const DRAWN: usize = 20_000;
// ASCII of `anemeter`.
const SEED: u64 = 0x616e_656d_6574_6572;

/// Which launches were of the second arm, a bit each, for every admissible order; the one that ran comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orders {
    masks: Vec<u128>,
    launches: usize,
    exact: bool,
}

impl Orders {
    /// Orders admissible for one that ran: `second` says which launches were of the second arm, `present` which gave
    /// values. `None` if it is not made of whole blocks with two of each arm, or has more than 128 launches.
    pub fn of_blocks(second: &[bool], present: &[bool]) -> Option<Orders> {
        // An order is a bit mask of 128 launches.
        let whole = !second.is_empty() && second.len().is_multiple_of(BLOCK) && second.len() <= 128;
        let balanced = |block: &[bool]| block.iter().filter(|second| **second).count() == BLOCK / 2;
        if !whole || second.len() != present.len() || !second.chunks(BLOCK).all(balanced) {
            return None;
        }
        let arrangements: Vec<u128> =
            (0..1 << BLOCK).filter(|mask: &u128| mask.count_ones() as usize == BLOCK / 2).collect();
        let blocks = second.len() / BLOCK;
        let count = arrangements.len().checked_pow(blocks as u32).unwrap_or(usize::MAX);
        let exact = count <= MOST_EXACT;
        let ran = mask(second.iter().copied());
        let others: Vec<u128> = if exact {
            (0..count).map(|number| numbered(number, blocks, &arrangements)).filter(|m| *m != ran).collect()
        } else {
            let mut random = fastrand::Rng::with_seed(SEED);
            let mut draw = || numbered_by(blocks, |_| arrangements[random.usize(..arrangements.len())]);
            (0..DRAWN).map(|_| draw()).collect()
        };
        // Launches that failed leave every order.
        let kept = |order: u128| {
            let places = present.iter().enumerate().filter(|(_, present)| **present);
            mask(places.map(|(place, _)| order >> place & 1 == 1))
        };
        // The order that ran counts as well: no probability is 0 (Phipson & Smyth 2010).
        let masks = std::iter::once(ran).chain(others).map(kept).collect();
        Some(Orders { masks, launches: present.iter().filter(|present| **present).count(), exact })
    }

    /// Whether all admissible orders are there.
    pub fn exact(&self) -> bool {
        self.exact
    }

    /// The number of orders, the one that ran included.
    pub fn count(&self) -> usize {
        self.masks.len()
    }
}

fn mask(bits: impl Iterator<Item = bool>) -> u128 {
    bits.enumerate().fold(0, |mask, (place, bit)| mask | u128::from(bit) << place)
}

fn numbered_by(blocks: usize, mut arrangement: impl FnMut(usize) -> u128) -> u128 {
    (0..blocks).fold(0, |order, block| order | arrangement(block) << (block * BLOCK))
}

fn numbered(mut number: usize, blocks: usize, arrangements: &[u128]) -> u128 {
    numbered_by(blocks, |_| {
        let digit = number % arrangements.len();
        number /= arrangements.len();
        arrangements[digit]
    })
}

/// For each series of a family: how often an admissible order makes any series of the family look as slow or
/// slower. Values are in running order, those of launches without values left out. `None` if a series does not
/// have a value per launch, or has too few.
pub fn family_probabilities(series: &[Vec<f64>], orders: &Orders) -> Option<Vec<f64>> {
    let fits =
        |values: &Vec<f64>| values.len() == orders.launches && values.iter().all(|value| value.is_finite());
    if series.is_empty() || !series.iter().all(fits) {
        return None;
    }
    let sorted: Vec<Vec<(f64, usize)>> = series.iter().map(|values| in_order(values)).collect();
    let mut room = Room::new(orders.launches);
    let observed: Vec<_> =
        sorted.iter().map(|values| room.t(values, orders.masks[0])).collect::<Option<_>>()?;
    let mut as_slow = vec![0usize; series.len()];
    for &order in &orders.masks {
        // An order without two arms, possible where launches failed, counts as slow.
        let slowest = sorted
            .iter()
            .map(|values| room.t(values, order).unwrap_or(f64::INFINITY))
            .fold(f64::NEG_INFINITY, f64::max);
        for (count, t) in as_slow.iter_mut().zip(&observed) {
            *count += usize::from(slowest >= *t);
        }
    }
    Some(as_slow.into_iter().map(|count| count as f64 / orders.masks.len() as f64).collect())
}

fn in_order(values: &[f64]) -> Vec<(f64, usize)> {
    let mut sorted: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    sorted
}

/// Room for the launches of both arms.
struct Room {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Room {
    fn new(launches: usize) -> Room {
        Room { first: vec![0.0; launches + 1], second: vec![0.0; launches + 1] }
    }

    fn t(&mut self, sorted: &[(f64, usize)], order: u128) -> Option<f64> {
        let mut counts = [0, 0];
        for &(value, place) in sorted {
            // Written to both and counted in one: which one is chance, and a branch on chance is slow.
            let in_second = (order >> place & 1) as usize;
            self.first[counts[0]] = value;
            self.second[counts[1]] = value;
            counts[0] += 1 - in_second;
            counts[1] += in_second;
        }
        let location = locate_sorted([&self.first[..counts[0]], &self.second[..counts[1]]])?;
        Some(Shift::of(&location, counts).t())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alternating(launches: usize) -> Vec<bool> {
        (0..launches).map(|launch| launch % 2 == 1).collect()
    }

    #[test]
    fn five_blocks_have_every_order_and_six_are_drawn() {
        let orders = |launches: usize| Orders::of_blocks(&alternating(launches), &vec![true; launches]);
        let five = orders(20).unwrap();
        assert_eq!((five.count(), five.exact()), (6usize.pow(5), true));
        let mut masks = five.masks.clone();
        masks.sort_unstable();
        masks.dedup();
        assert_eq!(masks.len(), five.count());
        assert_eq!(five.masks[0], 0b1010_1010_1010_1010_1010);
        assert!(five.masks.iter().all(|mask| mask.count_ones() == 10));
        let six = orders(24).unwrap();
        assert_eq!((six.count(), six.exact()), (20_001, false));
        assert_eq!(orders(22), None);
        assert_eq!(Orders::of_blocks(&[true, true, true, false], &[true; 4]), None);
    }

    #[test]
    fn launches_without_values_are_left_out() {
        let orders =
            Orders::of_blocks(&alternating(8), &[true, true, false, true, true, true, true, true]).unwrap();
        assert_eq!((orders.launches, orders.masks[0]), (7, 0b101_0110));
        assert!(family_probabilities(&[vec![0.0; 8]], &orders).is_none());
        assert!(family_probabilities(&[vec![0.0; 7]], &orders).is_some());
    }

    #[test]
    fn a_clear_shift_is_as_rare_as_can_be() {
        let second = alternating(20);
        let orders = Orders::of_blocks(&second, &[true; 20]).unwrap();
        let values: Vec<f64> =
            (0..20).map(|i| 0.001 * f64::from(i % 3) + if second[i as usize] { 0.1 } else { 0.0 }).collect();
        let noise: Vec<f64> = (0..20).map(|i| 0.001 * f64::from(i * 7 % 5)).collect();
        let p = family_probabilities(&[values, noise], &orders).unwrap();
        assert!((p[0] - 1.0 / 7776.0).abs() < 1e-9, "{p:?}");
        assert!(p[1] > 0.1, "{p:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn swapping_labels_at_random_gives_uniform_probabilities(seed in 0u64..1000) {
            let mut random = fastrand::Rng::with_seed(seed);
            let values: Vec<f64> = (0..12).map(|_| random.f64()).collect();
            let orders = Orders::of_blocks(&alternating(12), &[true; 12]).unwrap();
            let mut below = 0;
            for index in 0..orders.count() {
                let mut rotated = orders.clone();
                rotated.masks.swap(0, index);
                let p = family_probabilities(std::slice::from_ref(&values), &rotated).unwrap()[0];
                below += usize::from(p <= 0.05);
            }
            // Exact by construction: at most 5 % of the orders can be among the 5 % that look slowest.
            prop_assert!(below as f64 <= 0.05 * orders.count() as f64);
        }
    }
}
