//! Several steps as one: what an exported graph repeats is recognised and computed without intermediate tensors.
//!
//! One pattern per file, one line in [`PATTERNS`]. A pattern looks back from its last step. What it replaces must
//! be used nowhere else. Fused steps compute in f32 and round what they store, once; so they are more precise than
//! the steps they stand for, and are not used where every step is to round as a device does.

mod attention;
mod gated;
mod gated_products;
mod graph;
mod masked;
mod norm;
mod product;
mod residual;
mod rotation;
mod siblings;
#[cfg(test)]
mod testing;
mod token;

use smallvec::SmallVec;

use super::plan::{Action, Operand, Step};
use crate::mil::op::OpDef;
use graph::Graph;

pub(super) use attention::KIND as ATTENTION;
pub(super) use graph::Values;
pub(super) use token::KIND as TOKEN_ATTENTION;

/// The kinds of steps that are products with all of their weights.
pub(super) const PRODUCTS: [&str; 3] = [siblings::KIND, gated_products::KIND, residual::KIND];

/// Looks for a pattern that ends with the given step. Gives the step that replaces it and the steps that go.
type Pattern = fn(&Graph<'_>, usize) -> Option<Fused>;

/// In the order in which they are looked for: some are made of what others have made.
const PATTERNS: &[Pattern] = &[
    norm::find,
    gated::find,
    rotation::find,
    attention::find,
    token::find,
    masked::find,
    gated_products::find,
    residual::find,
    siblings::find,
];

/// A step, the steps it makes superfluous, and which of them it takes the place of.
struct Fused {
    step: Step,
    replaces: Vec<usize>,
    place: usize,
}

impl Fused {
    /// A step that computes what the step `last` gives, in its place.
    fn new(
        def: &'static OpDef,
        graph: &Graph<'_>,
        last: usize,
        arguments: Vec<SmallVec<[Operand; 1]>>,
        replaces: Vec<usize>,
    ) -> Fused {
        let Step { name, outputs, .. } = &graph.steps[last];
        let (name, outputs) = (name.clone(), outputs.clone());
        Fused {
            step: Step { def, name, arguments, outputs, action: Action::Kernel, dynamic: false },
            replaces,
            place: last,
        }
    }
}

/// Replaces every pattern found in the steps of a function.
pub(super) fn fuse(steps: &mut Vec<Step>, outputs: &[(String, usize)], values: Values<'_>) {
    for pattern in PATTERNS {
        let graph = Graph::new(steps, outputs, values);
        // The longest of the matches that begin alike ends last.
        let found: Vec<Fused> = (0..steps.len()).rev().filter_map(|last| pattern(&graph, last)).collect();
        let mut kept: Vec<Option<Step>> = std::mem::take(steps).into_iter().map(Some).collect();
        for Fused { step, replaces, place } in found {
            // A step that another match has taken is gone: its pattern stays as it is.
            if replaces.iter().all(|&i| kept[i].is_some()) {
                replaces.into_iter().for_each(|i| kept[i] = None);
                kept[place] = Some(step);
            }
        }
        steps.extend(kept.into_iter().flatten());
    }
}
