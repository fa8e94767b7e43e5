//! Weights of the next product of one token, brought near by threads that have nothing else to do.
//!
//! Between two products there are short steps for one thread. Memory would rest meanwhile, and it is what a token waits for.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fuse;
use super::plan::{Operand, Place, Plan, Step};
use crate::kernels::packed::Codes;
use crate::kernels::simd::fetch;
use crate::mil::op::{KnownValue, Weight};

/// Bytes that are asked for at a time, so that a thread soon looks for work again.
const PIECE: usize = 1024;
/// Bytes that a thread brings near of a product: a part of its own cache.
const MOST: usize = 1 << 18;

/// How far a prediction has come.
pub(super) struct Ahead<'a> {
    plan: &'a Plan,
    now: AtomicUsize,
}

thread_local! {
    /// The step whose weights this thread fetches, and how many bytes it has fetched.
    static FETCHED: Cell<(usize, usize)> = const { Cell::new((usize::MAX, 0)) };
}

impl<'a> Ahead<'a> {
    pub(super) fn new(plan: &'a Plan) -> Ahead<'a> {
        Ahead { plan, now: AtomicUsize::new(usize::MAX) }
    }

    /// Says which step begins.
    pub(super) fn begin(&self, step: usize) {
        self.now.store(step, Ordering::Relaxed);
    }

    /// Fetches a piece of what thread `number` of so many is likely to multiply first of the next product.
    pub(super) fn fetch(&self, number: usize, threads: usize) {
        let Some(&Some(next)) = self.plan.next_products.get(self.now.load(Ordering::Relaxed)) else { return };
        let (step, fetched) = FETCHED.get();
        let fetched = if step == next { fetched } else { 0 };
        if fetched >= MOST {
            return;
        }
        FETCHED.set((next, fetched + PIECE));
        let total: usize = self.weights(next).map(<[u8]>::len).sum();
        // Rows are taken in turns, of which the first ones are that long.
        let mut start = total / (2 * threads) * number + fetched;
        for weight in self.weights(next) {
            if let Some(rest) = weight.get(start..) {
                return fetch(&rest[..rest.len().min(PIECE)]);
            }
            start -= weight.len();
        }
    }

    /// The weights of a step as they are stored.
    fn weights(&self, step: usize) -> impl Iterator<Item = &'a [u8]> {
        let step = &self.plan.steps[step];
        let operands = step.argument("weight").unwrap_or(&[]);
        operands.iter().filter_map(|&operand| stored(self.plan, operand))
    }
}

fn stored(plan: &Plan, operand: Operand) -> Option<&[u8]> {
    let constant = match operand {
        Operand::Constant(constant) => constant,
        Operand::Value(value) => match plan.values[value].place {
            Place::Constant(constant) => constant,
            _ => return None,
        },
    };
    let weight = match &plan.constants[constant].value {
        KnownValue::Tensor(tensor) => Weight::Dense(tensor.view()),
        KnownValue::Packed(packed) => Weight::Packed(&**packed),
    };
    Some(match weight.rows(weight.shape().get(1..)?.iter().product())?.codes {
        Codes::Halves(halves) => bytemuck::cast_slice(halves),
        Codes::Bytes(bytes, _) => bytemuck::cast_slice(bytes),
        Codes::Nibbles(bytes, _) | Codes::Palette(bytes, ..) => bytes,
    })
}

/// For each step, the product of one token that comes next after it.
pub(super) fn next_products(steps: &[Step]) -> Vec<Option<usize>> {
    let mut next = None;
    let mut found: Vec<Option<usize>> = (0..steps.len())
        .rev()
        .map(|at| {
            let after = next;
            if fuse::PRODUCTS.contains(&steps[at].def.name) {
                next = Some(at);
            }
            after
        })
        .collect();
    found.reverse();
    found
}
