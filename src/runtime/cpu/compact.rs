//! Leaves of a plan what its steps use, in the order in which they use it: most values of a program are constants, views or
//! inside of fused steps, and what lies side by side is found faster.

use super::plan::{Action, Constant, NestedBlock, Operand, Place, Plan, PlannedValue, Step};

/// Drops values and constants that nothing refers to.
pub(super) fn compact(mut plan: Plan) -> Plan {
    let mut renumbering = Renumbering {
        values: Renumbered::of(std::mem::take(&mut plan.values)),
        constants: Renumbered::of(std::mem::take(&mut plan.constants)),
    };
    plan.inputs.iter_mut().for_each(|(_, value)| renumbering.value(value));
    plan.steps.iter_mut().for_each(|step| renumbering.step(step));
    plan.outputs.iter_mut().for_each(|(_, value)| renumbering.value(value));
    plan.passed.iter_mut().for_each(|(value, _)| renumbering.value(value));
    plan.values = renumbering.values.into_used();
    plan.constants = renumbering.constants.into_used();
    plan
}

struct Renumbering {
    values: Renumbered<PlannedValue>,
    constants: Renumbered<Constant>,
}

impl Renumbering {
    fn step(&mut self, step: &mut Step) {
        for operand in step.arguments.iter_mut().flatten() {
            match operand {
                Operand::Constant(constant) => *constant = self.constants.number(*constant).0,
                Operand::Value(value) => self.value(value),
            }
        }
        step.outputs.iter_mut().for_each(|value| self.value(value));
        match &mut step.action {
            Action::Cond { branches } => branches.iter_mut().for_each(|branch| self.nested(branch)),
            Action::While { condition, body } => {
                self.nested(condition);
                self.nested(body);
            }
            Action::Kernel
            | Action::ReadState { .. }
            | Action::WriteState { .. }
            | Action::UpdateState { .. }
            | Action::Classify { .. }
            | Action::Nothing => {}
        }
    }

    fn nested(&mut self, nested: &mut NestedBlock) {
        nested.inputs.iter_mut().for_each(|value| self.value(value));
        nested.steps.iter_mut().for_each(|step| self.step(step));
        nested.outputs.iter_mut().for_each(|value| self.value(value));
    }

    fn value(&mut self, value: &mut usize) {
        let (number, new) = self.values.number(*value);
        *value = number;
        if let Some(PlannedValue { place: Place::Constant(constant), .. }) = new {
            *constant = self.constants.number(*constant).0;
        }
    }
}

/// Items that are numbered anew as they are used.
struct Renumbered<T> {
    all: Vec<Result<T, usize>>,
    used: Vec<T>,
}

impl<T> Renumbered<T> {
    fn of(items: Vec<T>) -> Renumbered<T> {
        Renumbered { all: items.into_iter().map(Ok).collect(), used: Vec::new() }
    }

    fn into_used(mut self) -> Vec<T> {
        self.used.shrink_to_fit();
        self.used
    }

    /// The new number of an item, and the item itself the first time.
    fn number(&mut self, index: usize) -> (usize, Option<&mut T>) {
        let number = self.used.len();
        match std::mem::replace(&mut self.all[index], Err(number)) {
            Ok(item) => {
                self.used.push(item);
                (number, self.used.last_mut())
            }
            Err(known) => {
                self.all[index] = Err(known);
                (known, None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_numbered_in_the_order_of_their_use() {
        let mut numbers = Renumbered::of(vec!['a', 'b', 'c', 'd']);
        let order: Vec<usize> = [2, 0, 2, 3, 0].into_iter().map(|i| numbers.number(i).0).collect();
        assert_eq!((order, numbers.used), (vec![0, 1, 0, 2, 1], vec!['c', 'a', 'd']));
    }
}
