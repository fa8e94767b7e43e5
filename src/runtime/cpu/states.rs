//! States without copies: a read is the state itself as long as nothing is written before its last use, and
//! `slice_update` of what was read, written back, changes the state in place.

use super::plan::{Action, NestedBlock, Operand, Step};
use super::views::Aliases;

/// Turns reads and updates of states into uses of the states themselves. Gives the values that are states, each
/// with the index of its state.
pub(super) fn use_in_place(
    steps: &mut Vec<Step>,
    outputs: &[(String, usize)],
    aliases: &Aliases,
) -> Vec<(usize, usize)> {
    if steps.iter().any(|step| step.action.nested().any(touches_state)) {
        return Vec::new();
    }
    update_in_place(steps, outputs, aliases);
    let reads: Vec<(usize, usize, usize)> = steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| match (&step.action, &step.outputs[..]) {
            (Action::ReadState { state }, &[value]) => Some((at, *state, value)),
            _ => None,
        })
        .collect();
    let uses = UseTable::new(steps, outputs, aliases);
    let mut in_place = Vec::new();
    for (at, state, value) in reads {
        let last = uses.of(value).last;
        let written = (at + 1..steps.len()).find(|&i| writes(&steps[i], state));
        // An update reads nothing of what it changes.
        let lasts = written.is_none_or(|w| last < w || last == w && updates(&steps[w], state));
        if lasts {
            in_place.push((value, state));
        }
    }
    steps.retain(|step| match (&step.action, &step.outputs[..]) {
        (Action::ReadState { .. }, [value]) => !in_place.iter().any(|(v, _)| v == value),
        _ => true,
    });
    in_place
}

/// Finds reads that are updated and written back, and nothing else.
fn update_in_place(steps: &mut Vec<Step>, outputs: &[(String, usize)], aliases: &Aliases) {
    let mut uses_of = UseTable::new(steps, outputs, aliases);
    for read in 0..steps.len() {
        let (&Action::ReadState { state }, &[value]) = (&steps[read].action, &steps[read].outputs[..]) else {
            continue;
        };
        let update = uses_of.of(value).last;
        let Some((step, written)) = steps.get(update).zip(written_back(steps, &uses_of, update, state))
        else {
            continue;
        };
        let is_operand = matches!(step.arguments[0][..], [Operand::Value(x)] if x == value);
        let once =
            step.arguments.iter().flatten().filter(|operand| aliases.reads(**operand, value)).count() == 1;
        let undisturbed = (read + 1..written).all(|i| i == update || !writes(&steps[i], state));
        let unseen = earlier_reads(steps, state, update).all(|other| uses_of.of(other).last <= update);
        if is_operand && once && undisturbed && unseen {
            steps[update].action = Action::UpdateState { state };
            let results = std::mem::take(&mut steps[update].outputs);
            results.iter().for_each(|&result| uses_of.forget(result));
            steps[written].action = Action::Nothing;
            steps[written].arguments.clear();
        }
    }
    steps.retain(|step| !matches!(step.action, Action::Nothing));
}

/// The step that writes the result of a `slice_update` to the state, if that is its only use.
fn written_back(steps: &[Step], uses: &UseTable, update: usize, state: usize) -> Option<usize> {
    let step = steps.get(update)?;
    let &[result] = &step.outputs[..] else { return None };
    if step.def.name != "slice_update" || !matches!(step.action, Action::Kernel) {
        return None;
    }
    let uses = uses.of(result);
    let write = steps.get(uses.last)?;
    let is_write = matches!(write.action, Action::WriteState { state: s } if s == state);
    (uses.count == 1 && is_write && write.outputs.is_empty()).then_some(uses.last)
}

fn earlier_reads(steps: &[Step], state: usize, before: usize) -> impl Iterator<Item = usize> {
    steps[..before].iter().filter_map(move |step| match (&step.action, &step.outputs[..]) {
        (Action::ReadState { state: s }, &[value]) if *s == state => Some(value),
        _ => None,
    })
}

fn writes(step: &Step, state: usize) -> bool {
    updates(step, state) || matches!(step.action, Action::WriteState { state: s } if s == state)
}

fn updates(step: &Step, state: usize) -> bool {
    matches!(step.action, Action::UpdateState { state: s } if s == state)
}

fn touches_state(block: &NestedBlock) -> bool {
    block.steps.iter().any(|step| {
        matches!(step.action, Action::ReadState { .. } | Action::WriteState { .. })
            || step.action.nested().any(touches_state)
    })
}

/// How often a value is used, through its views as well, and the last step that does; as an output it is used
/// after the last step.
#[derive(Clone, Copy)]
struct Uses {
    count: usize,
    last: usize,
}

/// The uses of every value, through views too, counted once for all.
struct UseTable(Vec<Uses>);

impl UseTable {
    fn new(steps: &[Step], outputs: &[(String, usize)], aliases: &Aliases) -> UseTable {
        let mut table = UseTable(vec![Uses { count: 0, last: 0 }; aliases.len()]);
        for (at, step) in steps.iter().enumerate() {
            table.visit(step, at, aliases);
        }
        // However often it is given, it is given at the end.
        let mut given: Vec<usize> = outputs.iter().map(|&(_, output)| aliases.root(output)).collect();
        given.sort_unstable();
        given.dedup();
        given.into_iter().for_each(|root| table.add(root, steps.len()));
        table
    }

    fn visit(&mut self, step: &Step, at: usize, aliases: &Aliases) {
        for operand in step.arguments.iter().flatten() {
            if let Operand::Value(value) = operand {
                self.add(aliases.root(*value), at);
            }
        }
        for block in step.action.nested() {
            block.outputs.iter().for_each(|&output| self.add(aliases.root(output), at));
            block.steps.iter().for_each(|step| self.visit(step, at, aliases));
        }
    }

    fn add(&mut self, root: usize, at: usize) {
        let uses = &mut self.0[root];
        *uses = Uses { count: uses.count + 1, last: at };
    }

    /// The uses of a value that is no view.
    fn of(&self, value: usize) -> Uses {
        self.0[value]
    }

    fn forget(&mut self, value: usize) {
        self.0[value] = Uses { count: 0, last: 0 };
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use crate::{CpuRuntime, LoadOptions, Session};
    use anemeter_kernels::tensor::{DType, Tensor};
    use anemeter_mil::{Builder, Function, Model, Opset, TensorType, Type, ValueId};

    /// Writes `x` into one row of the state and reads it back, twice; `before` is what was read first.
    fn function(outputs: fn(before: ValueId, after: ValueId, last: ValueId) -> Vec<ValueId>) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[1, 2]));
        let state = f.input("s", Type::State(TensorType::fixed(DType::F16, &[3, 2])));
        let read = |f: &mut Builder, name| f.op("read_state").arg("input", state).named(name).push().unwrap();
        let write = |f: &mut Builder, content, row: i32| {
            let op = f.op("slice_update").arg("x", content).arg("update", x);
            let updated = op.arg("begin", [row, 0]).arg("end", [row + 1, 2]).push().unwrap();
            f.op("write_state").arg("input", state).arg("data", updated).push_all().unwrap();
        };
        let before = read(&mut f, "before");
        write(&mut f, before, 0);
        let after = read(&mut f, "after");
        write(&mut f, after, 2);
        let last = read(&mut f, "last");
        let row = |f: &mut Builder, x| {
            let op = f.op("slice_by_index").arg("x", x).arg("begin", [0, 0]).arg("end", [1, 2]);
            op.push().unwrap()
        };
        let row = row(&mut f, last);
        let sum = f.op("add").arg("x", row).arg("y", x).named("sum").push().unwrap();
        f.finish(&[outputs(before, after, last), vec![sum]].concat())
    }

    fn session(function: Function) -> Box<dyn Session> {
        CpuRuntime.load_model(Model::single(function), &LoadOptions::default()).unwrap().session()
    }

    fn halves(values: &[f32]) -> Vec<f16> {
        values.iter().map(|&x| f16::from_f32(x)).collect()
    }

    fn predict(session: &mut dyn Session, x: [f32; 2]) {
        let x = Tensor::from_slice(&[1, 2], &halves(&x)).unwrap();
        session.predict("main", &[("x", x.view())]).unwrap();
    }

    #[test]
    fn updates_reach_the_state_and_later_reads() {
        let mut session = session(function(|_, _, _| Vec::new()));
        predict(session.as_mut(), [1.0, 2.0]);
        predict(session.as_mut(), [3.0, 4.0]);
        let state = session.state("s").unwrap().slice::<f16>().unwrap().to_vec();
        assert_eq!(state, halves(&[3.0, 4.0, 0.0, 0.0, 3.0, 4.0]));
        assert_eq!(session.output("sum").unwrap().slice::<f16>().unwrap(), halves(&[6.0, 8.0]));
    }

    #[test]
    fn what_was_read_before_an_update_stays_as_it_was() {
        let mut session = session(function(|before, after, last| vec![before, after, last]));
        predict(session.as_mut(), [1.0, 2.0]);
        predict(session.as_mut(), [3.0, 4.0]);
        for (name, expected) in [
            ("before", [1.0, 2.0, 0.0, 0.0, 1.0, 2.0]),
            ("after", [3.0, 4.0, 0.0, 0.0, 1.0, 2.0]),
            ("last", [3.0, 4.0, 0.0, 0.0, 3.0, 4.0]),
        ] {
            assert_eq!(session.output(name).unwrap().slice::<f16>().unwrap(), halves(&expected), "{name}");
        }
        assert_eq!(session.output("sum").unwrap().slice::<f16>().unwrap(), halves(&[6.0, 8.0]));
    }
}
