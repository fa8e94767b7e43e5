//! Operations that are not seen on the Neural Engine, by their kind.

use super::*;
use crate::op::OpClass;

pub(super) static SCATTER: Rule = Rule {
    title: "a scatter",
    why: "Scatters run on the CPU, usually in the middle of each layer where a cache is written.",
    evidence: &[
        "apple/coremltools, comments at scatter and index_put in its operations",
        "FluidAudio issue 679: the graph without scatters was wholly on the Neural Engine",
    ],
    remedy: "write caches with slice_update, or blend with a mask",
    check: Check::OpTypes(&["scatter", "scatter_nd", "scatter_along_axis"], "runs on the CPU"),
    #[cfg(test)]
    examples: (examples::scattered, examples::plain),
    ..Rule::error("A21", "scatter", WidelyReported).off_ane()
};

pub(super) static CONTROL_FLOW: Rule = Rule {
    title: "control flow or lists",
    why: "Conditions, loops and lists run on the CPU, and what is inside them with them.",
    evidence: &["smpanaro/more-ane-transformers, NOTES", "hollance/neural-engine, unsupported layers"],
    remedy: "unroll loops, and make a function of each branch",
    check: Check::Shape(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let is_list = op.kind() == "make_list" || op.kind().starts_with("list_");
            if is_list || matches!(op.class(), Some(OpClass::Control)) {
                sink.op(graph, &op, "is control flow");
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::conditional, examples::plain),
    ..Rule::error("A24", "control-flow", WidelyReported).off_ane()
};

pub(super) static MASK_BUILT_IN_GRAPH: Rule = Rule {
    title: "a mask is built in the graph",
    why: "Operations that build masks from lengths or positions (`band_part`, `range_1d`, `fill`) stay on the CPU. \
          Those whose result is constant are not meant.",
    evidence: &["smpanaro/more-ane-transformers, NOTES: band_part and masks built in the graph stay off"],
    remedy: "pass the mask as an fp16 input",
    check: Check::OpTypes(&["band_part", "range_1d", "fill", "fill_like"], "builds a tensor at run time"),
    #[cfg(test)]
    examples: (examples::banded, examples::plain),
    ..Rule::warning("A25", "mask-built-in-graph", SingleReport).off_ane()
};

pub(super) static DATA_DEPENDENT_SHAPE: Rule = Rule {
    title: "a shape that depends on data",
    why: "A tensor whose size is known only once its elements are cannot be planned for the Neural Engine.",
    evidence: &["apple/coremltools, flexible inputs", "hollance/neural-engine, unsupported layers"],
    remedy: "pad to a fixed size and mask what is unused",
    check: Check::Shape(|graph, _, sink| {
        let is_open = |id: ValueId| graph.ty(id).is_some_and(|ty| ty.concrete().is_none());
        for op in graph.runtime_ops() {
            // What follows an open shape is open because of it.
            if op.values().any(is_open) {
                continue;
            }
            if let Some(&id) = op.operation.outputs.iter().find(|&&id| is_open(id)) {
                let ty = graph.ty(id).map(ToString::to_string).unwrap_or_default();
                sink.tensor(graph, &op, id, format!("gives {ty}"));
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::data_dependent, examples::plain),
    ..Rule::error("A26", "data-dependent-shape", WidelyReported).off_ane()
};

pub(super) static RECURRENT_LAYER: Rule = Rule {
    title: "a recurrent layer",
    why: "`lstm`, `gru` and `rnn` have no form on the Neural Engine and run on the CPU.",
    evidence: &["hollance/neural-engine, unsupported layers: RNN, LSTM and GRU"],
    remedy: "unroll the recurrence into products and activations of fixed length",
    check: Check::OpTypes(&["lstm", "gru", "rnn"], "runs on the CPU"),
    #[cfg(test)]
    examples: (examples::recurrent, examples::plain),
    ..Rule::error("A27", "recurrent-layer", WidelyReported).off_ane()
};

pub(super) static SAMPLING_IN_GRAPH: Rule = Rule {
    title: "sampling in the graph: argmax, top-k, sort or cumulative sum",
    why: "These fall to the CPU as an island of 8 or 9 operations at the end, and their results on the Neural Engine \
          were wrong in several reports.",
    evidence: &[
        "john-rocky/CoreML-LLM: 8 to 9 operations on the CPU; argmax of a palettised head differs from the CPU",
        "coreai-torch issues 115 and 116: wrong results of topk and argmax on iPhone 17 Pro",
    ],
    remedy: "give out logits and pick the token on the host",
    check: Check::OpTypes(
        &["reduce_argmax", "reduce_argmin", "topk", "argsort", "cumsum"],
        "runs on the CPU",
    ),
    #[cfg(test)]
    examples: (examples::greedy, examples::plain),
    ..Rule::warning("A28", "sampling-in-graph", WidelyReported).off_ane()
};

#[cfg(test)]
mod examples {
    use super::*;
    use half::f16;

    pub(super) fn plain() -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            b.op("fill").arg("shape", [2, 2]).arg("value", f16::ONE).push().unwrap();
            conv(b, x, (64, 64))
        })
    }

    pub(super) fn scattered() -> Case {
        on_input(&[64, 32], |b, x| {
            let at = input(b, "at", DType::I32, &[1]);
            let new = input(b, "new", DType::F16, &[1, 32]);
            let op = b.op("scatter").arg("data", x).arg("indices", at).arg("updates", new).arg("axis", 0);
            op.arg("mode", "update").arg("validate_indices", false).push().unwrap()
        })
    }

    pub(super) fn conditional() -> Case {
        on_input(&[1, 64], |b, x| {
            let flag = input(b, "flag", DType::Bool, &[]);
            let yes = b.block(&[], |b, _| Ok(vec![unary(b, "relu", x)])).unwrap();
            let no = b.block(&[], |b, _| Ok(vec![unary(b, "abs", x)])).unwrap();
            b.op("cond").arg("pred", flag).nested(yes).nested(no).push().unwrap()
        })
    }

    pub(super) fn banded() -> Case {
        on_input(&[1, 1, 32, 32], |b, x| {
            b.op("band_part").arg("x", x).arg("lower", -1).arg("upper", 0).push().unwrap()
        })
    }

    pub(super) fn data_dependent() -> Case {
        on_input(&[1, 64], |b, x| unary(b, "non_zero", x))
    }

    pub(super) fn recurrent() -> Case {
        on_input(&[4, 1, 8], |b, x| {
            let h = input(b, "h", DType::F16, &[1, 8]);
            let c = input(b, "c", DType::F16, &[1, 8]);
            let weights = || filled(&[32, 8], f16::ONE);
            let op = b.op("lstm").arg("x", x).arg("initial_h", h).arg("initial_c", c);
            let op = op.arg("weight_ih", weights()).arg("weight_hh", weights());
            op.outputs(&["all", "last", "cell"]).push_all().unwrap()[0]
        })
    }

    pub(super) fn greedy() -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            b.op("reduce_argmax").arg("x", x).arg("axis", 1).arg("keep_dims", false).push().unwrap()
        })
    }
}
