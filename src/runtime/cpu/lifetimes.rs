//! How long each value is needed.

use super::plan::{Operand, Step};
use super::views::Aliases;

/// First and last step of the top block that touches each value.
pub(super) struct Lifetimes {
    pub(super) defined: Vec<usize>,
    pub(super) used: Vec<usize>,
}

impl Lifetimes {
    /// A value is in use as long as any of its parts.
    pub(super) fn of(steps: &[Step], outputs: &[(String, usize)], aliases: &Aliases) -> Lifetimes {
        let values = aliases.len();
        let mut lifetimes = Lifetimes { defined: vec![0; values], used: vec![0; values] };
        for (at, step) in steps.iter().enumerate() {
            step.outputs.iter().for_each(|&value| lifetimes.defined[value] = at);
            lifetimes.visit(step, at);
        }
        outputs.iter().for_each(|&(_, value)| lifetimes.used[value] = steps.len());
        for value in 0..values {
            let root = aliases.root(value);
            lifetimes.used[root] = lifetimes.used[root].max(lifetimes.used[value]);
        }
        lifetimes
    }

    fn visit(&mut self, step: &Step, at: usize) {
        for operand in step.arguments.iter().flatten() {
            if let Operand::Value(value) = operand {
                self.used[*value] = at;
            }
        }
        for block in step.action.nested() {
            block.outputs.iter().for_each(|&value| self.used[value] = at);
            block.steps.iter().for_each(|step| self.visit(step, at));
        }
    }
}
