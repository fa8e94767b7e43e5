//! What a step moves and computes, for comparison with what the machine can do: the cost model of [`anemeter_mil::cost`]
//! over the operands of a plan.

use super::plan::{Operand, Place, Plan, Step};
use super::views::PlanBindings;
use anemeter_mil::Type;
use anemeter_mil::cost::{Cost, Operands, tensor_bytes};
use anemeter_mil::op::{ArgValue, Bindings, KnownValue, OpClass};

/// Bytes and FLOPs of a step; `size` tells the bytes of a value that is no constant.
pub(super) fn of(step: &Step, plan: &Plan, size: impl Fn(usize) -> usize) -> (usize, usize) {
    let written = step.outputs.iter().map(|&value| size(value) as u64).sum();
    let first = step.outputs.first().and_then(|&value| plan.values[value].ty.tensor());
    let cost = Cost::of_call((step.def, step.def.since), &StepOperands { step, plan, size }, first, written);
    let flops = step.fused_flops.unwrap_or(cost.flops);
    let in_memory = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    (in_memory(cost.bytes()), in_memory(flops))
}

/// Bytes of results below which other threads take longer to wake than the plan takes.
const BRIEF: usize = 1 << 14;

/// Whether a plan only moves a few numbers about, such as the vector of one token.
pub(super) fn is_brief(plan: &Plan) -> bool {
    let moves = |step: &Step| !step.dynamic && !matches!(step.def.class, OpClass::Product(_));
    plan.arena_bytes < BRIEF && plan.steps.iter().all(moves)
}

struct StepOperands<'p, S> {
    step: &'p Step,
    plan: &'p Plan,
    size: S,
}

impl<S> StepOperands<'_, S> {
    fn constant(&self, param: usize, index: usize) -> Option<&KnownValue> {
        let constant = match self.step.arguments[param][index] {
            Operand::Constant(constant) => constant,
            Operand::Value(value) => match self.plan.values[value].place {
                Place::Constant(constant) => constant,
                _ => return None,
            },
        };
        Some(&self.plan.constants[constant].value)
    }
}

impl<S> Bindings for StepOperands<'_, S> {
    fn count(&self, param: usize) -> usize {
        self.step.arguments[param].len()
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        match self.step.arguments[param][index] {
            Operand::Constant(constant) => &self.plan.constants[constant].ty,
            Operand::Value(value) => &self.plan.values[value].ty,
        }
    }

    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
        Some(match self.constant(param, index)? {
            KnownValue::Tensor(tensor) => ArgValue::Shared(tensor),
            KnownValue::Packed(weight) => ArgValue::Packed(weight),
        })
    }
}

impl<S: Fn(usize) -> usize> Operands for StepOperands<'_, S> {
    fn bytes(&self, param: usize, index: usize) -> u64 {
        match (self.constant(param, index), self.step.arguments[param][index]) {
            (None, Operand::Value(value)) => (self.size)(value) as u64,
            _ => self.ty(param, index).tensor().map_or(0, tensor_bytes),
        }
    }

    fn stored_bytes(&self, param: usize, index: usize) -> Option<u64> {
        Some(match self.constant(param, index)? {
            KnownValue::Tensor(tensor) => tensor.bytes().len() as u64,
            KnownValue::Packed(weight) => weight.stored_bytes() as u64,
        })
    }
}

impl Operands for PlanBindings<'_> {
    fn bytes(&self, param: usize, index: usize) -> u64 {
        self.ty(param, index).tensor().map_or(0, tensor_bytes)
    }

    fn stored_bytes(&self, param: usize, index: usize) -> Option<u64> {
        Some(match self.value(param, index)? {
            ArgValue::Shared(tensor) => tensor.bytes().len() as u64,
            ArgValue::View(view) => view.bytes().len() as u64,
            ArgValue::Packed(weight) => weight.stored_bytes() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fold_options;
    use super::super::planner::plan;
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::op::Numerics;
    use anemeter_mil::{Builder, Function, Opset, TensorType, propagate};

    fn is_brief_plan(function: &Function) -> bool {
        let (facts, findings) = propagate::propagate(function, &[], fold_options(Numerics::Fast, true));
        assert_eq!(findings, []);
        is_brief(&plan(function, facts, true).unwrap())
    }

    /// A sum, or a product with itself.
    fn function(kind: &str, width: usize) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[width, width]));
        let y = f.op(kind).arg("x", x).arg("y", x).push().unwrap();
        f.finish(&[y])
    }

    #[test]
    fn only_what_moves_a_few_numbers_is_brief() {
        assert!(is_brief_plan(&function("add", 16)));
        assert!(!is_brief_plan(&function("add", 128)), "too many numbers");
        assert!(!is_brief_plan(&function("matmul", 16)), "products are worth other threads");
    }
}
