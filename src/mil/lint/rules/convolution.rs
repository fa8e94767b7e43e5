//! Windows that the Neural Engine does not take.

use super::*;

const MAX_POOL: i64 = 13;
const MAX_POOL_STRIDE: i64 = 2;
const DEPTHWISE: usize = 1024;
const MAX_UPSAMPLE: f32 = 2.0;

pub(super) static UNSUPPORTED_WINDOW: Rule = Rule {
    title: "a window of an unsupported form",
    why: "Reported off the Neural Engine: dilated convolutions, depthwise convolutions of 1024 channels and more, \
          strides with factors other than 2 and 3, strides above 2 with a palette, pooling wider than 13 or with a \
          stride above 2, and upsampling by more than 2.",
    evidence: &[
        "hollance/neural-engine, unsupported layers: dilation, pooling, upsampling",
        "apple/coreai-models: strides have factors 2 and 3, palettised kernels have strides up to 2",
        "john-rocky/CoreML-LLM, LFM2: depthwise convolutions of 1024 groups",
    ],
    remedy: "compose the window of smaller ones",
    check: Check::Shape(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let fault = match op.kind() {
                "conv" | "conv_transpose" => convolution(graph, &op),
                "max_pool" | "avg_pool" | "l2_pool" => pooling(graph, &op),
                "upsample_nearest_neighbor" | "upsample_bilinear" => upsampling(graph, &op),
                _ => None,
            };
            if let Some(fault) = fault {
                sink.op(graph, &op, fault);
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::strided(5), || examples::strided(3)),
    ..Rule::warning("A40", "unsupported-window", WidelyReported).off_ane()
};

fn convolution(graph: &Graph<'_>, op: &Op<'_>) -> Option<String> {
    let largest = |parameter| graph.ints(op, parameter).and_then(|ints| ints.into_iter().max()).unwrap_or(1);
    let (dilation, stride) = (largest("dilations"), largest("strides"));
    let groups = graph.int(op, "groups").and_then(|groups| usize::try_from(groups).ok()).unwrap_or(1);
    let channels = graph.arg_dims(op, "x").and_then(|dims| dims.get(1).copied());
    let weight = graph.arg(op, "weight").and_then(|id| graph.producer(id));
    let is_palette = weight.is_some_and(|op| op.kind().starts_with("constexpr_lut"));
    if dilation > 1 {
        return Some(format!("is dilated by {dilation}"));
    }
    if groups >= DEPTHWISE && Some(groups) == channels {
        return Some(format!("is depthwise over {groups} channels"));
    }
    if !has_factors_2_and_3(stride) {
        return Some(format!("has stride {stride}"));
    }
    (is_palette && stride > 2).then(|| format!("has stride {stride} and a palette"))
}

fn has_factors_2_and_3(mut stride: i64) -> bool {
    for factor in [2, 3] {
        while stride > 1 && stride % factor == 0 {
            stride /= factor;
        }
    }
    stride == 1
}

fn pooling(graph: &Graph<'_>, op: &Op<'_>) -> Option<String> {
    let largest = |parameter| graph.ints(op, parameter).and_then(|ints| ints.into_iter().max()).unwrap_or(1);
    let (kernel, stride) = (largest("kernel_sizes"), largest("strides"));
    (kernel > MAX_POOL || stride > MAX_POOL_STRIDE).then(|| format!("pools {kernel} with stride {stride}"))
}

fn upsampling(graph: &Graph<'_>, op: &Op<'_>) -> Option<String> {
    let factor = |parameter| {
        let whole = graph.int(op, parameter).map(|n| n as f32);
        whole.or_else(|| graph.arg(op, parameter).and_then(|id| graph.number(id))).unwrap_or(1.0)
    };
    let most = factor("scale_factor_height").max(factor("scale_factor_width"));
    (most > MAX_UPSAMPLE).then(|| format!("grows by {most}"))
}

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn strided(stride: i32) -> Case {
        on_input(&[1, 8, 32, 32], |b, x| {
            let weight = b.constant("w", big(&[8, 8, 1, 1]));
            b.op("conv").arg("x", x).arg("weight", weight).arg("strides", [stride, stride]).push().unwrap()
        })
    }

    #[test]
    fn every_form_is_known() {
        let message = |case: Case| {
            let report = lint(&case.subject, &case.setting, &[]).unwrap();
            report.findings.iter().find(|f| f.rule == "A40").map(|f| f.message.clone())
        };
        let pooled = on_input(&[1, 8, 32, 32], |b, x| {
            let op = b.op("max_pool").arg("x", x).arg("kernel_sizes", [14, 14]).arg("strides", [1, 1]);
            op.arg("pad_type", "valid").push().unwrap()
        });
        assert_eq!(message(pooled).unwrap(), "pools 14 with stride 1");
        let grown = on_input(&[1, 8, 32, 32], |b, x| {
            let op = b.op("upsample_nearest_neighbor").arg("x", x);
            op.arg("scale_factor_height", 4).arg("scale_factor_width", 2).push().unwrap()
        });
        assert_eq!(message(grown).unwrap(), "grows by 4");
        let depthwise = on_input(&[1, 1024, 1, 32], |b, x| {
            let weight = b.constant("w", big(&[1024, 1, 1, 1]));
            b.op("conv").arg("x", x).arg("weight", weight).arg("groups", 1024).push().unwrap()
        });
        assert_eq!(message(depthwise).unwrap(), "is depthwise over 1024 channels");
        let dilated = on_input(&[1, 8, 32, 32], |b, x| {
            let weight = b.constant("w", big(&[8, 8, 3, 3]));
            b.op("conv").arg("x", x).arg("weight", weight).arg("dilations", [2, 2]).push().unwrap()
        });
        assert_eq!(message(dilated).unwrap(), "is dilated by 2");
    }
}
