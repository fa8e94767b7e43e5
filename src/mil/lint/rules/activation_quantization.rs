//! Quantised activations.

use super::*;
use anemeter_base::vocabulary::Choice;

pub(super) static QUANTIZED_ACTIVATIONS: Rule = Rule {
    title: "activations are quantised",
    why: "int8 activations help from A17 Pro and M4 on; older chips gain nothing. In language models on iPhones they \
          failed to compile and lost the model (cosine 0.5). On a Mac target without a device it is a remark.",
    evidence: &[
        "apple/coremltools, optimisation guide: W8A8 benefits A17 Pro and M4 or later",
        "john-rocky/CoreML-LLM, STAGE1_W4A8_FINAL: ANECCompile failed on quantize operations, cosine 0.50 to 0.57",
        "coreai-torch issue 112: a multiply between quantize and dequantize was wrong",
    ],
    remedy: "keep activations in fp16 and quantise weights only",
    check: Check::Function(|graph, setting, sink| {
        let is_phone = setting.target.platform() == Platform::Ios;
        let (severity, message) = match setting.device {
            _ if is_phone => (Severity::Warning, "may fail to compile on iPhones".to_owned()),
            Some(device) if !device.has_fast_int8() => {
                (Severity::Warning, format!("gains nothing on {}", device.name()))
            }
            Some(_) => return,
            None => (Severity::Info, "gains nothing on chips before M4".to_owned()),
        };
        for op in graph.runtime_ops().filter(|op| matches!(op.kind(), "quantize" | "dequantize")) {
            sink.with(severity).at(graph, Place::op(graph, &op), message.clone());
        }
    }),
    #[cfg(test)]
    examples: (|| examples::quantized(Device::M2), || examples::quantized(Device::M4)),
    ..Rule::warning("A46", "quantized-activations", WidelyReported)
};

#[cfg(test)]
mod examples {
    use super::*;
    use half::f16;

    pub(super) fn quantized(device: Device) -> Case {
        let case = on_input(&[1, 64, 1, 32], |b, x| {
            let scale = f16::from_f32(0.1);
            let op = b.op("quantize").arg("input", x).arg("scale", scale).arg("output_dtype", "int8");
            let narrow = op.push().unwrap();
            b.op("dequantize").arg("input", narrow).arg("scale", scale).push().unwrap()
        });
        case.with(|setting| setting.device = Some(device))
    }
}
