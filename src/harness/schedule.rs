//! The order of requests in a launch: rounds over all shapes, each round in an order of its own.

use serde::{Deserialize, Serialize};

/// One request to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Its place in the order.
    pub slot: usize,
    /// The shape to run at.
    pub shape: usize,
    /// Whether it is discarded.
    pub warm_up: bool,
}

/// The order of a launch. Shapes are interleaved, so that a disturbance does not hit one shape only; the same
/// seed and launch give the same order.
pub fn schedule(
    shapes: &[usize],
    warm_up_rounds: usize,
    rounds: usize,
    seed: u64,
    launch: usize,
) -> Vec<Slot> {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..=launch {
        random = random.fork();
    }
    let mut order = Vec::with_capacity(shapes.len() * (warm_up_rounds + rounds));
    for round in 0..warm_up_rounds + rounds {
        let mut shapes = shapes.to_vec();
        random.shuffle(&mut shapes);
        let warm_up = round < warm_up_rounds;
        for shape in shapes {
            order.push(Slot { slot: order.len(), shape, warm_up });
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [usize; 4] = [512, 1024, 2048, 4096];

    #[test]
    fn every_round_has_every_shape_once_and_warm_up_comes_first() {
        let order = schedule(&SHAPES, 2, 5, 1, 3);
        assert_eq!(order.len(), 28);
        for (round, slots) in order.chunks(4).enumerate() {
            let mut shapes: Vec<usize> = slots.iter().map(|slot| slot.shape).collect();
            shapes.sort_unstable();
            assert_eq!(shapes, SHAPES);
            assert!(slots.iter().all(|slot| slot.warm_up == (round < 2)));
        }
        assert!(order.iter().enumerate().all(|(index, slot)| slot.slot == index));
    }

    #[test]
    fn the_seed_and_the_launch_decide() {
        assert_eq!(schedule(&SHAPES, 1, 5, 7, 0), schedule(&SHAPES, 1, 5, 7, 0));
        assert_ne!(schedule(&SHAPES, 1, 5, 7, 0), schedule(&SHAPES, 1, 5, 8, 0));
        assert_ne!(schedule(&SHAPES, 1, 5, 7, 0), schedule(&SHAPES, 1, 5, 7, 1));
    }

    #[test]
    fn orders_differ_from_round_to_round() {
        let order = schedule(&SHAPES, 0, 20, 1, 0);
        let rounds: Vec<Vec<usize>> =
            order.chunks(4).map(|slots| slots.iter().map(|slot| slot.shape).collect()).collect();
        assert!(rounds.iter().any(|round| *round != rounds[0]));
    }
}
