//! Weights as integers and scales.

use super::pattern::{LinearMap, count, linear_maps};
use super::*;

const KIND: &str = "constexpr_blockwise_shift_scale";

/// A weight stored as integers and scales.
struct ScaledWeight<'m> {
    map: LinearMap<'m>,
    dtype: DType,
    /// Scales along the axes that are not the output's.
    blocks: usize,
}

/// Integer weights of linear maps. Where scales follow a palette, the palette's rules apply.
fn scaled_weights<'g, 'm>(graph: &'g Graph<'m>) -> impl Iterator<Item = ScaledWeight<'m>> + 'g {
    linear_maps(graph).filter_map(|map| {
        let op = graph.produced_by(map.weight, &[KIND])?;
        let dtype = graph.arg_ty(&op, "data")?.dtype;
        let scale = graph.arg_dims(&op, "scale")?;
        let output = map.output_axis(graph, scale.len());
        let inner = scale.iter().enumerate().filter(|&(axis, _)| axis != output);
        let blocks = count(&inner.map(|(_, &n)| n).collect::<Vec<_>>());
        dtype.is_int().then_some(ScaledWeight { map, dtype, blocks })
    })
}

pub(super) static PER_BLOCK_QUANTIZATION: Rule = Rule {
    title: "integer weights with a scale per block of inputs",
    why: "Scales along the input dimension (per-block quantisation) are for the GPU. On the Neural Engine such weights \
          were left to the CPU without a word, or gave wrong results.",
    evidence: &[
        "apple/coremltools, optimisation guide: per-block int4 is for the GPU of a Mac",
        "ane-book, M4 Max: 97 of 97 convolutions on the CPU, all on the Neural Engine with palettes or per-tensor int8",
        "apple/coreai-models issue 279: per-block int8 gave a cosine of 0.367",
        "pytorch/executorch: the Neural Engine needs channel-wise scales",
    ],
    remedy: "use int8 with one scale per output channel, or a palette",
    check: Check::Shape(|graph, _, sink| {
        for weight in scaled_weights(graph).filter(|weight| weight.blocks > 1) {
            let message = format!("is {} with {} blocks per output", weight.dtype, weight.blocks);
            sink.tensor(graph, &weight.map.op, weight.map.weight, message);
        }
    }),
    #[cfg(test)]
    examples: (|| quantized(DType::I8, 2), || quantized(DType::I8, 1)),
    ..Rule::error("A41", "per-block-quantization", WidelyReported).off_ane().decided_by("precision")
};

pub(super) static INT4_PER_CHANNEL: Rule = Rule {
    title: "int4 weights with one scale per channel",
    why: "It runs, but 16 evenly spaced values per channel are too few: the perplexity of OPT-1.3B went from 16 to 31.",
    evidence: &[
        "apple/coremltools, palettisation performance: int4 per channel 31.5, int4 by blocks of 32 17.0",
    ],
    remedy: "use a palette of 4 bits with groups, or int8",
    check: Check::Function(|graph, _, sink| {
        let narrow =
            |weight: &ScaledWeight<'_>| matches!(weight.dtype, DType::I4 | DType::U4) && weight.blocks == 1;
        for weight in scaled_weights(graph).filter(narrow) {
            let message = format!("is {} with one scale per channel", weight.dtype);
            sink.tensor(graph, &weight.map.op, weight.map.weight, message);
        }
    }),
    #[cfg(test)]
    examples: (|| quantized(DType::I4, 1), || quantized(DType::I8, 1)),
    ..Rule::warning("A42", "int4-per-channel", Documented).decided_by("precision")
};

#[cfg(test)]
fn quantized(dtype: DType, blocks: usize) -> Case {
    convolved(|b| scaled(b, dtype, (64, 64), blocks))
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn outputs_of_a_left_factor_are_its_rows() {
        let case = on_input(&[64, 32], |b, x| {
            let op = b.op("constexpr_blockwise_shift_scale").arg("data", zeros(DType::I8, &[16, 64]));
            let weight = op.arg("scale", filled(&[16, 1], f16::ONE)).push().unwrap();
            matmul(b, weight, x)
        });
        let findings = lint(&case.subject, &case.setting, &[]).unwrap().findings;
        assert!(
            findings.iter().all(|finding| finding.rule != "A41"),
            "one scale per output is not per block"
        );
    }
}
