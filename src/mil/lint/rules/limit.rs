//! Ranks and sizes that the Neural Engine's compiler takes.

use super::pattern::half_outputs;
use super::*;

/// Widest spatial axis.
const MAX_SPATIAL: usize = 16384;
/// Most channels.
const MAX_CHANNELS: usize = 65536;
/// Longest sum of products.
const MAX_REDUCTION: usize = 16384;

pub(super) static RANK_ABOVE_5: Rule = Rule {
    title: "a tensor has more than five dimensions",
    why: "The compiler for the Neural Engine rejects tensors of rank 6 and more. Tables of palettes are constants \
          with an axis or two more than their weight, and are not meant.",
    evidence: &["apple/coreai-models, neural_engine_rules: rank 5 is accepted, 6 and more rejected"],
    remedy: "fold axes together with a reshape before the operation",
    check: Check::Shape(|graph, _, sink| ranks(graph, sink, 6..usize::MAX)),
    #[cfg(test)]
    examples: (|| examples::reshaped(&[1, 2, 2, 2, 2, 32]), || examples::reshaped(&[1, 16, 1, 32])),
    ..Rule::error("A04", "rank-above-5", Documented).off_ane()
};

pub(super) static RANK_5: Rule = Rule {
    title: "a tensor has five dimensions",
    why: "Rank 5 is accepted on paper, but caches of rank 5 failed to compile where the same model with rank 4 was \
          placed as a whole.",
    evidence: &[
        "Anemll: its rules ask for rank 4 at most",
        "FluidAudio issue 679: rank 5 caches failed in ANECCompile, rank 4 was wholly on the Neural Engine",
    ],
    remedy: "use rank 4, with heads and batch folded into one axis",
    check: Check::Shape(|graph, _, sink| ranks(graph, sink, 5..6)),
    #[cfg(test)]
    examples: (|| examples::reshaped(&[1, 2, 4, 2, 32]), || examples::reshaped(&[1, 16, 1, 32])),
    ..Rule::warning("A05", "rank-5", WidelyReported)
};

fn ranks(graph: &Graph<'_>, sink: &mut Sink<'_>, refused: std::ops::Range<usize>) {
    for op in graph.runtime_ops() {
        for &id in &op.operation.outputs {
            let Some(ty) = graph.ty(id) else { continue };
            if let Some(rank) = ty.rank().filter(|rank| refused.contains(rank)) {
                sink.tensor(graph, &op, id, format!("has rank {rank}: {ty}"));
            }
        }
    }
}

pub(super) static SPATIAL_AXIS_LIMIT: Rule = Rule {
    title: "height or width beyond 16384",
    why: "The last two axes of a tensor are its height and width, and neither may exceed 16384: the operation goes to \
          the CPU. A vocabulary on the last axis is the usual cause.",
    evidence: &[
        "Anemll, .cursorrules and llama_model.py: 16384 is the limit of height and width",
        "smpanaro/more-ane-transformers, NOTES: sizes beyond 16384 go to the CPU",
    ],
    remedy: "put the long axis on the channels, as (batch, channels, 1, sequence) does, or split it",
    check: Check::Shape(|graph, _, sink| {
        for (op, id, dims) in half_outputs(graph).filter(|(.., dims)| dims.len() > 2) {
            for axis in dims.len() - 2..dims.len() {
                if dims[axis] > MAX_SPATIAL {
                    let place = Place::op(graph, &op).tensor(graph.name(id)).dimension(axis);
                    sink.at(graph, place, format!("{:?} has {} in axis {axis}", &dims[..], dims[axis]));
                }
            }
        }
    }),
    #[cfg(test)]
    examples: (|| activated("relu", &[1, 1, 1, 20000]), || activated("relu", &[1, 20000, 1, 32])),
    ..Rule::error("A06", "spatial-axis-limit", WidelyReported).off_ane()
};

pub(super) static CHANNEL_LIMIT: Rule = Rule {
    title: "more than 65536 channels",
    why: "A head over a large vocabulary has more channels than one project allows, while another runs 262144 \
          unsplit: the compiler may tile it, or may not. Which is faster has to be measured.",
    evidence: &[
        "Anemll: channels up to 65536, the head is split into 8 or 16 convolutions",
        "john-rocky/CoreML-LLM: an unsplit head of 262144 ran on the Neural Engine, splitting cost 4.6 %",
    ],
    remedy: "measure the head unsplit and split (the export option head_split)",
    check: Check::Shape(|graph, _, sink| {
        for (op, id, dims) in half_outputs(graph) {
            if let Some(&channels) = dims.get(1).filter(|&&n| n > MAX_CHANNELS && matches!(dims.len(), 2 | 4))
            {
                let place = Place::op(graph, &op).tensor(graph.name(id)).dimension(1);
                sink.at(graph, place, format!("has {channels} channels"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| activated("relu", &[1, 70000, 1, 32]), || activated("relu", &[1, 65536, 1, 32])),
    ..Rule::warning("A07", "channel-limit", WidelyReported)
};

pub(super) static INNER_DIMENSION_LIMIT: Rule = Rule {
    title: "a product sums over more than 16384 elements",
    why: "Products whose inner dimension exceeds 16384 were not admitted to the Neural Engine.",
    evidence: &["larql issue 312: an inner dimension of up to 16384 is admissible"],
    remedy: "split the product and add the parts",
    check: Check::Shape(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let inner = match op.kind() {
                "linear" => graph.arg_dims(&op, "weight").and_then(|dims| dims.last().copied()),
                "matmul" => graph.arg_dims(&op, "x").and_then(|dims| {
                    let back = if graph.flag(&op, "transpose_x").unwrap_or(false) { 2 } else { 1 };
                    dims.len().checked_sub(back).map(|axis| dims[axis])
                }),
                _ => None,
            };
            if let Some(inner) = inner.filter(|&n| n > MAX_REDUCTION) {
                sink.op(graph, &op, format!("sums over {inner} elements"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::product(20000), || examples::product(16384)),
    ..Rule::warning("A08", "inner-dimension-limit", SingleReport).off_ane()
};

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn reshaped(dims: &[i32]) -> Case {
        let size = dims.iter().product::<i32>() as usize;
        on_input(&[1, size], |b, x| b.op("reshape").arg("x", x).arg("shape", dims).push().unwrap())
    }

    pub(super) fn product(inner: usize) -> Case {
        on_input(&[1, 32, inner], |b, x| {
            let y = input(b, "y", DType::F16, &[1, inner, 32]);
            matmul(b, x, y)
        })
    }
}
