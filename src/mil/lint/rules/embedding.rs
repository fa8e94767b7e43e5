//! Lookups in tables.

use super::pattern::has_layers;
use super::*;
use crate::op::OpClass;

/// Ids that 16 bits hold.
const MAX_IDS: usize = 65536;

pub(super) static GATHER_AMONG_LAYERS: Rule = Rule {
    title: "a gather among the layers",
    why: "A gather runs on the CPU. At the start of a function it is an island before the first layer, which costs a \
          change of device at every prediction. A function that only looks up embeddings is not meant.",
    evidence: &[
        "apple/ml-ane-transformers: the embedding lookup is among the 4 of 606 operations on the CPU",
        "smpanaro/more-ane-transformers, NOTES: gather stays on the CPU",
    ],
    remedy: "look embeddings up in a function of their own or on the host, and pass rotations as inputs",
    check: Check::Shape(|graph, _, sink| {
        if has_layers(graph) {
            for op in graph.runtime_ops().filter(|op| matches!(op.class(), Some(OpClass::Lookup))) {
                sink.op(graph, &op, "looks up rows at run time");
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::lookup(100, true), || examples::lookup(100, false)),
    ..Rule::warning("A22", "gather-among-layers", WidelyReported).off_ane().decided_by("embeddings")
};

pub(super) static LARGE_EMBEDDING: Rule = Rule {
    title: "an embedding of more than 65536 tokens in the graph",
    why: "The Neural Engine was seen to cast ids to 16 bits: a larger vocabulary then gives wrong rows without an \
          error. In a function that only looks up embeddings it is a warning, because such a function can be loaded \
          for the CPU.",
    evidence: &["pytorch/executorch issue 7616: ids cast to uint16, vocabularies beyond 65536 break"],
    remedy: "look embeddings up on the host, or load the lookup for the CPU only",
    check: Check::Shape(|graph, _, sink| {
        let severity = if has_layers(graph) { Severity::Error } else { Severity::Warning };
        for op in graph.runtime_ops().filter(|op| matches!(op.class(), Some(OpClass::Lookup))) {
            let Some(table) = graph.arg(&op, "x").filter(|&id| graph.is_constant(id)) else { continue };
            let axis = graph.int(&op, "axis").unwrap_or(0);
            let Some(dims) = graph.dims(table) else { continue };
            let rows = shape::axis(axis, dims.len()).map_or(0, |axis| dims[axis]);
            if rows > MAX_IDS {
                let place = Place::op(graph, &op).tensor(graph.name(table)).dimension(0);
                sink.with(severity).at(graph, place, format!("has {rows} rows"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::lookup(70000, true), || examples::lookup(65536, true)),
    ..Rule::error("A23", "large-embedding", SingleReport).off_ane().decided_by("embeddings")
};

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn lookup(rows: usize, layers: bool) -> Case {
        case(|b| {
            let ids = input(b, "input_ids", DType::I32, &[1, 32]);
            let table = b.constant("table", big(&[rows, 64]));
            let found = b.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
            let columns = b.op("transpose").arg("x", found).arg("perm", [0, 2, 1]).push().unwrap();
            let x = b.op("expand_dims").arg("x", columns).arg("axes", [2]).push().unwrap();
            vec![if layers { conv(b, x, (64, 64)) } else { x }]
        })
    }
}
