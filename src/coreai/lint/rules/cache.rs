//! KV caches: how they are written, and how long they are.

use super::super::graph::OpView;
use super::*;

const UPDATE: &str = "primitive.slice_update";
/// Operands of an update: where it begins, where it ends, and what is written.
const BEGIN: usize = 1;
const END: usize = 2;
const WRITTEN: usize = 4;
/// Positions of a cache from which on it was reported to be corrupt.
const LONG: u64 = 2048;

pub(super) static DATA_INDEXED_UPDATE: Rule = Rule {
    text: RuleText {
        id: "C06",
        slug: "data-indexed-update",
        title: "a slice is written at a position that is computed",
        severity: Severity::Info,
        confidence: Confidence::SingleReport,
        why: "Compilers of the betas crashed on updates at positions that inputs decide. Apple's own recipes write caches so, \
              at `in_step` or at the number of positions; Apple's interpreter is right on it. What remains is to know where \
              to look if a compiler crashes.",
        evidence: &[
            "apple/coreai-torch issue 6 (open) and apple/coreai-models issue 5 (closed), users' reports: compilers crash",
            "apple/coreai-models, primitives/ios/cache.py: Apple's recipe writes its caches at `in_step`",
            "coreai-core 1.0.0b3 on Linux, executed: a state is updated exactly at a position that an input gives",
        ],
        remedy: "if a compiler crashes, give the whole cache as an input and as an output, and select by a mask",
        off_ane: false,
    },
    check: Check::Graph(|graph, sink| {
        for op in graph.ops_named(UPDATE) {
            if !graph.is_constant(&op, BEGIN) || !graph.is_constant(&op, END) {
                sink.op(graph, &op, "its position depends on an input");
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::cache(64, true), || examples::cache(64, false)),
};

pub(super) static LONG_CACHE: Rule = Rule {
    text: RuleText {
        id: "C07",
        slug: "long-cache",
        title: "a cache of 2,048 positions or more",
        severity: Severity::Warning,
        confidence: Confidence::SingleReport,
        why: "Caches of 2,048 positions and more were reported to be corrupt on the GPU of iOS devices, where parts of a model \
              go that the Neural Engine does not take.",
        evidence: &[
            "apple/coreai-models issue 124, a user's report: keys and values from 2,048 positions on are corrupt",
        ],
        remedy: "compare long contexts with short ones on the device, or export a shorter context",
        off_ane: false,
    },
    check: Check::Graph(|graph, sink| {
        for op in graph.ops_named(UPDATE) {
            let Some(state) = state(graph, &op) else { continue };
            let port = &graph.graph.inputs[state];
            let Some((cache, written)) = dims(&port.ty).zip(graph.operand_dims(&op, WRITTEN)) else {
                continue;
            };
            // Positions are the axis that is written in part; layers may be another, and are never as many.
            let partly = cache.iter().zip(written).filter(|(whole, part)| whole != part);
            let longest = partly.filter_map(|(whole, _)| match whole {
                Dim::Fixed(size) if *size >= LONG => Some(size),
                _ => None,
            });
            if let Some(size) = longest.max() {
                sink.port(graph, &port.name, format!("has {size} positions"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::cache(2048, false), || examples::cache(2047, false)),
};

/// The argument whose state an update starts from.
fn state(graph: &GraphView<'_>, update: &OpView<'_>) -> Option<usize> {
    let read = graph.producer(update, 0)?;
    (read.base_name() == "dataflow.read_handle").then(|| graph.argument(&read, 0)).flatten()
}

#[cfg(test)]
mod examples {
    use super::*;
    use crate::{Program, Type};

    /// One position of a cache is written, at one that an input gives if asked for.
    pub(super) fn cache(positions: u64, computed: bool) -> Program {
        let mut draft = Draft::new();
        let whole = fixed(&[1, positions, 4], Scalar::F16);
        let index = fixed(&[3], Scalar::I32);
        let state = draft.input("cache", Type::Handle(Box::new(whole.clone())));
        let row = draft.input("row", fixed(&[1, 1, 4], Scalar::F16));
        let begin = match computed {
            true => draft.input("begin", index.clone()),
            false => draft.splat(index.clone(), &[0; 4]),
        };
        let end = draft.splat(index.clone(), &1i32.to_le_bytes());
        let step = draft.splat(index, &1i32.to_le_bytes());
        let token = draft.op("dataflow.create_token_v1", &[], Type::Token);
        let read = draft.ops("dataflow.read_handle_v1", &[state, token], &[whole.clone(), Type::Token]);
        let updated = draft.op("primitive.slice_update_v1", &[read, begin, end, step, row], whole);
        let written = draft.op("dataflow.write_handle_v1", &[state, updated, read + 1], Type::Token);
        draft.finish(written)
    }
}
