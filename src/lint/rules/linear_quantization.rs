//! Weights as integers and scales.

use super::pattern::{count, linear_maps};
use super::*;

const KIND: &str = "constexpr_blockwise_shift_scale";

/// A weight stored as integers and scales.
struct Scaled<'m> {
    /// The linear map that uses it.
    user: Op<'m>,
    weight: ValueId,
    dtype: DType,
    /// Scales along the axes that are not the output's.
    blocks: usize,
}

/// Integer weights of linear maps. Where scales follow a palette, the palette's rules apply.
fn scaled<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = Scaled<'m>> + 'g {
    linear_maps(graph).filter_map(|(user, weight)| {
        let op = graph.produced_by(weight, &[KIND])?;
        let dtype = graph.arg_ty(&op, "data")?.dtype;
        let scale = graph.arg_dims(&op, "scale")?;
        let output = output_axis(graph, &user, scale.len());
        let inner = scale.iter().enumerate().filter(|&(axis, _)| axis != output);
        let blocks = count(&inner.map(|(_, &n)| n).collect::<Vec<_>>());
        dtype.is_int().then_some(Scaled { user, weight, dtype, blocks })
    })
}

/// The axis of a linear map's weight that its outputs lie along.
pub(super) fn output_axis(graph: &Graph<'_>, op: &Op<'_>, rank: usize) -> usize {
    match op.kind() {
        "matmul" if graph.flag(op, "transpose_y") == Some(true) => rank.saturating_sub(2),
        "matmul" => rank.saturating_sub(1),
        "conv_transpose" => 1,
        _ => 0,
    }
}

pub(super) static A41: Rule = Rule {
    id: "A41",
    title: "integer weights with a scale per block of inputs",
    severity: Severity::Error,
    confidence: Confidence::WidelyReported,
    why: "Scales along the input dimension (per-block quantisation) are for the GPU. On the Neural Engine such weights \
          were left to the CPU without a word, or gave wrong results.",
    evidence: &[
        "apple/coremltools, optimisation guide: per-block int4 is for the GPU of a Mac",
        "ane-book, M4 Max: 97 of 97 convolutions on the CPU, all on the Neural Engine with palettes or per-tensor int8",
        "apple/coreai-models issue 279: per-block int8 gave a cosine of 0.367",
        "pytorch/executorch: the Neural Engine needs channel-wise scales",
    ],
    remedy: "use int8 with one scale per output channel, or a palette",
    off: true,
    needs: Needs::Package,
    check: Check::Shape(|graph, _, sink| {
        for weight in scaled(graph).filter(|weight| weight.blocks > 1) {
            let place = Place::op(graph, &weight.user).tensor(graph.name(weight.weight));
            sink.at(graph, place, format!("is {} with {} blocks per output", weight.dtype, weight.blocks));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::quantized(DType::I8, 2), || examples::quantized(DType::I8, 1)),
};

pub(super) static A42: Rule = Rule {
    id: "A42",
    title: "int4 weights with one scale per channel",
    severity: Severity::Warning,
    confidence: Confidence::Documented,
    why: "It runs, but 16 evenly spaced values per channel are too few: the perplexity of OPT-1.3B went from 16 to 31.",
    evidence: &[
        "apple/coremltools, palettisation performance: int4 per channel 31.5, int4 by blocks of 32 17.0",
    ],
    remedy: "use a palette of 4 bits with groups, or int8",
    off: false,
    needs: Needs::Package,
    check: Check::Function(|graph, _, sink| {
        let narrow =
            |weight: &Scaled<'_>| matches!(weight.dtype, DType::I4 | DType::U4) && weight.blocks == 1;
        for weight in scaled(graph).filter(narrow) {
            let place = Place::op(graph, &weight.user).tensor(graph.name(weight.weight));
            sink.at(graph, place, format!("is {} with one scale per channel", weight.dtype));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::quantized(DType::I4, 1), || examples::quantized(DType::I8, 1)),
};

#[cfg(test)]
mod examples {
    use super::super::super::testing::*;
    use crate::tensor::DType;

    pub(super) fn quantized(dtype: DType, blocks: usize) -> Case {
        case(|b| {
            let x = x(b, &[1, 64, 1, 32]);
            let weight = scaled(b, dtype, (64, 64), blocks);
            vec![conv_by(b, x, weight)]
        })
    }
}
