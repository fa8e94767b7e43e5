//! Several steps as one: what an exported graph repeats is recognised and computed without intermediate tensors.
//!
//! One pattern per file, one line in [`PATTERNS`]. A pattern looks back from its last step. What it replaces must
//! be used nowhere else. Fused steps compute in f32 and round what they store, once; so they are more precise than
//! the steps they stand for, and are not used where every step is to round as a device does.

mod decode_attention;
mod gated_products;
mod gated_silu;
mod graph;
mod masked_softmax;
mod prefill_attention;
mod product;
mod residual;
mod rms_norm;
mod rope;
mod shared_input;
#[cfg(test)]
mod testing;

use smallvec::SmallVec;

use super::plan::{Action, Operand, Step};
use anemeter_mil::Opset;
use anemeter_mil::op::{Call, Kernel, OpClass, OpDef, OpError, Param, define};
use graph::Graph;

pub(super) use graph::Values;

/// Looks for a pattern that ends with the given step. Gives the step that replaces it and the steps that go.
type Pattern = fn(&Graph<'_>, usize) -> Option<FusedStep>;

/// In the order in which they are looked for: some are made of what others have made.
const PATTERNS: &[Pattern] = &[
    rms_norm::find,
    gated_silu::find,
    rope::find,
    prefill_attention::find,
    decode_attention::find,
    masked_softmax::find,
    gated_products::find,
    residual::find,
    shared_input::find,
];

/// Fused steps whose FLOPs are not one per element: the plan has counted them in the steps they stand for.
const PRODUCT: OpClass = OpClass::Product(|_, _| None);
const REDUCTION: OpClass = OpClass::Reduction(|_, _| None);

/// The definition of a fused step. It takes the place of one whose type is known, so that none is inferred.
const fn fused_op(name: &'static str, class: OpClass, params: &'static [Param], eval: Kernel) -> OpDef {
    let infer = |_: &Call<'_>| Err(OpError::new("is made by plans alone"));
    define(class, name, Opset::Ios15, infer, eval).takes(params)
}

/// A step, the steps it makes superfluous, and which of them it takes the place of.
struct FusedStep {
    step: Step,
    replaces: Vec<usize>,
    place: usize,
}

impl FusedStep {
    /// A step that computes what the step `last` gives, in its place.
    fn new(
        def: &'static OpDef,
        graph: &Graph<'_>,
        last: usize,
        arguments: Vec<SmallVec<[Operand; 1]>>,
        mut replaces: Vec<usize>,
    ) -> FusedStep {
        let Step { name, outputs, .. } = &graph.steps[last];
        let (name, outputs) = (name.clone(), outputs.clone());
        // A pattern may find one step in two roles.
        replaces.sort_unstable();
        replaces.dedup();
        let fused_flops = Some(replaces.iter().map(|&step| graph.flops(step)).fold(0, u64::saturating_add));
        let action = Action::Kernel;
        let step = Step { def, name, arguments, outputs, action, dynamic: false, fused_flops };
        FusedStep { step, replaces, place: last }
    }
}

/// Replaces every pattern found in the steps of a function.
pub(super) fn fuse(steps: &mut Vec<Step>, outputs: &[(String, usize)], values: Values<'_>) {
    for pattern in PATTERNS {
        let graph = Graph::new(steps, outputs, values);
        // The longest of the matches that begin alike ends last.
        let found: Vec<FusedStep> = (0..steps.len()).rev().filter_map(|last| pattern(&graph, last)).collect();
        let mut kept: Vec<Option<Step>> = std::mem::take(steps).into_iter().map(Some).collect();
        for FusedStep { step, replaces, place } in found {
            // A step that another match has taken is gone: its pattern stays as it is.
            if replaces.iter().all(|&i| kept[i].is_some()) {
                replaces.into_iter().for_each(|i| kept[i] = None);
                kept[place] = Some(step);
            }
        }
        steps.extend(kept.into_iter().flatten());
    }
}
