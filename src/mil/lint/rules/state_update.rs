//! How states are read and written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::op::OpClass;

/// Whether an operation gives the elements of `x` as they are.
fn is_same(op: &Op<'_>) -> bool {
    matches!(op.class(), Some(OpClass::View)) || op.kind() == "cast"
}

fn is_same_or_part(op: &Op<'_>) -> bool {
    is_same(op) || matches!(op.class(), Some(OpClass::Slice(_)))
}

pub(super) static STATE_SHIFTED_BY_CONCAT: Rule = Rule {
    title: "a state is shifted by concatenation",
    why: "A window kept by dropping the oldest entry of a state and appending the newest with `concat` failed with \
          error -14 when written back.",
    evidence: &["john-rocky/CoreML-LLM, DECODE_STATE_LAYOUTS: cat(K[1:], k) on a state fails"],
    remedy: "write at a position with slice_update, or blend with a mask: K * (1 - m) + k * m",
    check: Check::Function(|graph, _, sink| {
        for (op, state, data) in writes(graph) {
            let Some(joined) =
                through(graph, data, is_same).and_then(|id| graph.produced_by(id, &["concat"]))
            else {
                continue;
            };
            let is_part = |id: ValueId| {
                let source = through(graph, id, is_same_or_part);
                source.is_some_and(|id| is_read_of(graph, id, state))
            };
            if joined.values().any(is_part) {
                let joined = graph.op_name(&joined);
                let message = format!("is written with `{joined}`, a concat of its own content");
                sink.tensor(graph, &op, state, message);
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::shifted, examples::updated),
    ..Rule::error("A18", "state-shifted-by-concat", SingleReport)
};

/// Every `write_state`: the operation, the state and what is written.
fn writes<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = (Op<'m>, ValueId, ValueId)> + 'g {
    let writes = graph.ops().iter().filter(|op| op.kind() == "write_state");
    writes.filter_map(|op| Some((*op, graph.arg(op, "input")?, graph.arg(op, "data")?)))
}

/// The value behind operations that are passed.
fn through(graph: &Graph<'_>, mut id: ValueId, passes: fn(&Op<'_>) -> bool) -> Option<ValueId> {
    while let Some(op) = graph.producer(id).filter(passes) {
        id = graph.arg(&op, "x")?;
    }
    Some(id)
}

fn is_read_of(graph: &Graph<'_>, id: ValueId, state: ValueId) -> bool {
    graph.produced_by(id, &["read_state"]).is_some_and(|read| graph.arg(&read, "input") == Some(state))
}

pub(super) static STALE_STATE_READ: Rule = Rule {
    title: "a state's content is used before its update, or transposed",
    why: "Converters and compilers expect read, update, write, read, and that what follows uses the second read. Using \
          the first read elsewhere, or a transposed view of the content, broke conversions and compilations.",
    evidence: &[
        "apple/coremltools, passes canonicalize_inplace_pattern and prefer_state_in_downstream",
        "apple/coremltools issues 2275 and 2278: view and transpose of a state break the conversion",
    ],
    remedy: "read the state again after writing it, and give products transposed operands instead",
    check: Check::Function(|graph, _, sink| {
        let mut written: BTreeMap<ValueId, Vec<(usize, ValueId)>> = BTreeMap::new();
        for (write, state, data) in writes(graph) {
            written.entry(state).or_default().push((write.index, data));
        }
        for read in graph.ops().iter().filter(|op| op.kind() == "read_state") {
            let (Some(state), Some(content)) = (graph.arg(read, "input"), read.output()) else { continue };
            for op in graph.consumers(content).filter(|op| op.kind() == "transpose") {
                sink.op(graph, &op, format!("transposes the content of state `{}`", graph.name(state)));
            }
            let mut writes = written.get(&state).into_iter().flatten();
            let Some(&(_, data)) = writes.find(|(index, _)| *index > read.index) else { continue };
            for op in not_behind(graph, data, graph.consumers(content).collect()) {
                let message = format!("uses state `{}` as it was before it is written", graph.name(state));
                sink.op(graph, &op, message);
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::stale, examples::updated),
    ..Rule::warning("A19", "stale-state-read", WidelyReported)
};

/// Those of the operations that a value does not depend on. The nearest are looked at first, and nothing before the
/// operations is, for a model may have a thousand layers before them.
fn not_behind<'m>(graph: &Graph<'m>, id: ValueId, mut ops: Vec<Op<'m>>) -> Vec<Op<'m>> {
    let first = ops.iter().map(|op| op.index).min().unwrap_or(0);
    let (mut seen, mut waiting) = (BTreeSet::new(), VecDeque::from([id]));
    while !ops.is_empty() {
        let Some(id) = waiting.pop_front() else { break };
        let producer = graph.producer(id).filter(|op| op.index >= first);
        let Some(op) = producer.filter(|op| seen.insert(op.index)) else { continue };
        ops.retain(|other| other.index != op.index);
        waiting.extend(op.values());
    }
    ops
}

pub(super) static DYNAMIC_SLICE_UPDATE: Rule = Rule {
    title: "slice_update at a position known only at run time",
    why: "This works in Core ML and is how most stateful exports write their cache, but it crashed the compiler of a \
          successor stack in beta. Worth knowing when a state fails on a new system.",
    evidence: &[
        "Anemll and john-rocky/CoreML-LLM: works on shipping systems",
        "coreai-torch issue 6, apple/coreai-models issue 5: crashes of beta compilers",
    ],
    remedy: "keep an export at hand that needs no index: caches as inputs (the KV cache form `io`), or a mask blend",
    check: Check::Function(|graph, _, sink| {
        for op in graph.runtime_ops().filter(|op| op.kind() == "slice_update") {
            if let Some(begin) = graph.arg(&op, "begin").filter(|&id| !graph.is_constant(id)) {
                sink.op(graph, &op, format!("begins at `{}`", graph.name(begin)));
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::updated, examples::shifted),
    ..Rule::info("A20", "dynamic-slice-update", SingleReport)
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Builder;

    fn cache(b: &mut Builder) -> (ValueId, ValueId, ValueId) {
        let new = input(b, "new", DType::F16, &[1, 4, 1, 32]);
        let kept = state(b, "kept", &[1, 4, 64, 32]);
        let content = read(b, kept);
        (new, kept, content)
    }

    pub(super) fn shifted() -> Case {
        case(|b| {
            let (new, kept, content) = cache(b);
            let begin = [0, 0, 1, 0];
            let tail =
                b.op("slice_by_index").arg("x", content).arg("begin", begin).arg("end", [1, 4, 64, 32]);
            let tail = tail.push().unwrap();
            let next = b.op("concat").args("values", &[tail, new]).arg("axis", 2).push().unwrap();
            write(b, kept, next);
            vec![unary(b, "relu", next)]
        })
    }

    fn update(b: &mut Builder) -> (ValueId, ValueId) {
        let (new, kept, content) = cache(b);
        let begin = input(b, "begin", DType::I32, &[4]);
        let end = input(b, "end", DType::I32, &[4]);
        let op =
            b.op("slice_update").arg("x", content).arg("update", new).arg("begin", begin).arg("end", end);
        let next = op.push().unwrap();
        write(b, kept, next);
        (content, read(b, kept))
    }

    pub(super) fn updated() -> Case {
        case(|b| {
            let (_, after) = update(b);
            vec![unary(b, "relu", after)]
        })
    }

    pub(super) fn stale() -> Case {
        case(|b| {
            let (before, _) = update(b);
            vec![unary(b, "relu", before)]
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::lint::Diagnostics;

    /// Layers that each add what a state has to what comes from the layer before.
    fn layers(count: usize, is_stale: bool) -> Case {
        case(|b| {
            let mut x = input(b, "x", DType::F16, &[1, 4, 1, 32]);
            for layer in 0..count {
                let kept = state(b, &format!("kept_{layer}"), &[1, 4, 1, 32]);
                let before = read(b, kept);
                let next = binary(b, "add", before, x);
                write(b, kept, next);
                let content = if is_stale { before } else { read(b, kept) };
                x = binary(b, "mul", content, x);
            }
            vec![x]
        })
    }

    fn findings(case: &Case) -> usize {
        let model = &case.subject.packages[0].model;
        let function = &model.program.functions[0];
        let graph = Graph::new(function, model.interface(&function.name), 0);
        let mut found = Diagnostics::default();
        let Check::Function(check) = STALE_STATE_READ.check else { panic!("it is about functions") };
        check(&graph, &case.setting, &mut Sink::new(&STALE_STATE_READ, "", &mut found));
        found.findings.len()
    }

    #[test]
    fn thousands_of_layers_take_a_moment() {
        assert_eq!((findings(&layers(3, true)), findings(&layers(3, false))), (3, 0));
        let case = layers(3000, false);
        let began = Instant::now();
        assert_eq!(findings(&case), 0);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
