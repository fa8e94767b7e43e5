//! How long each value is needed.

use super::plan::{Action, Nested, Operand, Step};

/// First and last step of the top block that touches each value.
pub(super) struct Lifetimes {
    pub(super) defined: Vec<usize>,
    pub(super) used: Vec<usize>,
}

impl Lifetimes {
    pub(super) fn of(steps: &[Step], outputs: &[(String, usize)], values: usize) -> Lifetimes {
        let mut lifetimes = Lifetimes { defined: vec![0; values], used: vec![0; values] };
        for (at, step) in steps.iter().enumerate() {
            step.outputs.iter().for_each(|&value| lifetimes.defined[value] = at);
            lifetimes.visit(step, at);
        }
        outputs.iter().for_each(|&(_, value)| lifetimes.used[value] = steps.len());
        lifetimes
    }

    fn visit(&mut self, step: &Step, at: usize) {
        for operand in step.arguments.iter().flatten() {
            if let Operand::Value(value) = operand {
                self.used[*value] = at;
            }
        }
        let nested: &[&Nested] = match &step.action {
            Action::Cond { branches: [then, otherwise] } => &[then, otherwise],
            Action::While { condition, body } => &[condition, body],
            _ => &[],
        };
        for block in nested {
            block.outputs.iter().for_each(|&value| self.used[value] = at);
            block.steps.iter().for_each(|step| self.visit(step, at));
        }
    }
}
