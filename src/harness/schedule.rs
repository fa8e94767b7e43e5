//! The order of requests in a launch: rounds over all sequence lengths, each round in an order of its own.

use serde::{Deserialize, Serialize};

/// One request to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Its place in the order.
    pub slot: usize,
    /// The sequence length to run at, or the number of the case to predict.
    pub seq_len: usize,
    /// Whether it is discarded.
    pub warm_up: bool,
}

/// The order of a launch. Lengths are interleaved, so that a disturbance does not hit one length only; the same
/// seed and launch give the same order.
pub fn schedule(seq_lens: &[usize], warm_ups: usize, rounds: usize, seed: u64, launch: usize) -> Vec<Slot> {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..=launch {
        random = random.fork();
    }
    let mut order = Vec::with_capacity(seq_lens.len() * (warm_ups + rounds));
    for round in 0..warm_ups + rounds {
        let mut seq_lens = seq_lens.to_vec();
        random.shuffle(&mut seq_lens);
        let warm_up = round < warm_ups;
        for seq_len in seq_lens {
            order.push(Slot { slot: order.len(), seq_len, warm_up });
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQ_LENS: [usize; 4] = [512, 1024, 2048, 4096];

    #[test]
    fn every_round_has_every_seq_len_once_and_warm_up_comes_first() {
        let order = schedule(&SEQ_LENS, 2, 5, 1, 3);
        assert_eq!(order.len(), 28);
        for (round, slots) in order.chunks(4).enumerate() {
            let mut seq_lens: Vec<usize> = slots.iter().map(|slot| slot.seq_len).collect();
            seq_lens.sort_unstable();
            assert_eq!(seq_lens, SEQ_LENS);
            assert!(slots.iter().all(|slot| slot.warm_up == (round < 2)));
        }
        assert!(order.iter().enumerate().all(|(index, slot)| slot.slot == index));
    }

    #[test]
    fn the_seed_and_the_launch_decide() {
        assert_eq!(schedule(&SEQ_LENS, 1, 5, 7, 0), schedule(&SEQ_LENS, 1, 5, 7, 0));
        assert_ne!(schedule(&SEQ_LENS, 1, 5, 7, 0), schedule(&SEQ_LENS, 1, 5, 8, 0));
        assert_ne!(schedule(&SEQ_LENS, 1, 5, 7, 0), schedule(&SEQ_LENS, 1, 5, 7, 1));
    }

    #[test]
    fn orders_differ_from_round_to_round() {
        let order = schedule(&SEQ_LENS, 0, 20, 1, 0);
        let rounds: Vec<Vec<usize>> =
            order.chunks(4).map(|slots| slots.iter().map(|slot| slot.seq_len).collect()).collect();
        assert!(rounds.iter().any(|round| *round != rounds[0]));
    }
}
