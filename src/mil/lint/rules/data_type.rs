//! Data types that the Neural Engine does not take.

use super::*;
use crate::{Feature, FeatureType, Type};

pub(super) static FP32_COMPUTE: Rule = Rule {
    title: "an operation computes in fp32",
    why: "The Neural Engine computes in fp16, int8 and int16. An operation with an fp32 result goes to the CPU or \
          the GPU, and every change of device costs a copy. Not counted are casts of a function's outputs and of what \
          `classify` takes, and the scale and bias that Core ML's image inputs are given.",
    evidence: &[
        "apple/coreai-models, neural_engine_rules: fp32 falls back to GPU or CPU",
        "Vx issue 435: fp32 products were never placed on the Neural Engine",
    ],
    remedy: "convert with compute_precision FLOAT16, and give inputs and outputs as fp16",
    check: Check::Shape(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let outputs = &op.operation.outputs;
            let is_last_cast = op.kind() == "cast" && outputs.iter().all(|&id| is_leaving(graph, id));
            let is_expected = is_last_cast || is_image_scaling(graph, &op);
            let mut dtypes = outputs.iter().filter_map(|&id| graph.ty(id)).map(|ty| ty.dtype);
            let wide = dtypes.find(|dtype| matches!(dtype, DType::F32 | DType::F64));
            if let Some(dtype) = wide.filter(|_| !is_expected) {
                sink.op(graph, &op, format!("gives {dtype}"));
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::single_precision, examples::half_precision),
    ..Rule::error("A01", "fp32-compute", Documented).off_ane()
};

/// Whether a value is an output and nothing else, or is only classified, which takes fp32.
fn is_leaving(graph: &Graph<'_>, id: ValueId) -> bool {
    let mut consumers = graph.consumers(id).peekable();
    match consumers.peek() {
        None => graph.is_output(id),
        Some(_) => consumers.all(|op| op.kind() == "classify"),
    }
}

/// Whether an operation is the scale or the bias that coremltools puts behind an image input.
fn is_image_scaling(graph: &Graph<'_>, op: &Op<'_>) -> bool {
    let is_by_constant = || graph.arg(op, "y").is_some_and(|y| graph.is_constant(y));
    let Some(x) = graph.arg(op, "x").filter(|_| matches!(op.kind(), "mul" | "add") && is_by_constant())
    else {
        return false;
    };
    match graph.producer(x) {
        Some(scale) => scale.kind() == "mul" && op.kind() == "add" && is_image_scaling(graph, &scale),
        None => graph.interface.is_some_and(|interface| {
            let is_image = |feature: &Feature| matches!(feature.ty, FeatureType::Image(_));
            interface.inputs.iter().any(|feature| feature.name == graph.name(x) && is_image(feature))
        }),
    }
}

pub(super) static FP32_CONSTANT_PROMOTION: Rule = Rule {
    title: "an fp32 constant lifts an fp16 chain to fp32",
    why: "A literal written as fp32 makes the converter cast its neighbours to fp32 and back: two casts and an \
          fp32 operation that leave the Neural Engine for one number.",
    evidence: &["apple/coreai-models, neural_engine_rules: float literals in Python inject fp32 casts"],
    remedy: "give the constant in fp16, so that no cast is needed",
    check: Check::Function(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let lifted = op.values().find(|&id| is_lifted(graph, id));
            let literal = op
                .values()
                .find(|&id| graph.is_constant(id) && graph.ty(id).is_some_and(|ty| ty.dtype == DType::F32));
            if let (Some(_), Some(literal)) = (lifted, literal) {
                let message =
                    format!("takes fp32 `{}` beside a value cast up from fp16", graph.name(literal));
                sink.op(graph, &op, message);
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::single_precision, examples::half_precision),
    ..Rule::warning("A02", "fp32-constant-promotion", Documented)
};

/// Whether a value was cast from fp16 to fp32.
fn is_lifted(graph: &Graph<'_>, id: ValueId) -> bool {
    let is = |id: ValueId, dtype| graph.ty(id).is_some_and(|ty| ty.dtype == dtype);
    let Some(cast) = graph.produced_by(id, &["cast"]) else { return false };
    is(id, DType::F32) && graph.arg(&cast, "x").is_some_and(|from| is(from, DType::F16))
}

pub(super) static INT64_TENSOR: Rule = Rule {
    title: "int64 anywhere",
    why: "Core ML has no int64 arithmetic: such tensors are refused or cast on the CPU, and an int64 position keeps \
          the state update that uses it off the Neural Engine. The labels of a classifier are int64 by definition and not \
          counted.",
    evidence: &[
        "Core ML model format: integer arrays are int32",
        "john-rocky/CoreML-LLM: int64 state indices broke placement",
        "the export checklist of this project: no int64 leaks",
    ],
    remedy: "make ids and positions int32 before the conversion",
    check: Check::Shape(|graph, _, sink| {
        let classified: Vec<ValueId> = labels(graph).collect();
        for feature in graph.interface.iter().flat_map(|i| i.inputs.iter().chain(&i.outputs)) {
            if classified.iter().any(|&id| graph.name(id) == feature.name) {
                continue;
            }
            if matches!(feature.ty, FeatureType::Int64 | FeatureType::Int64Dictionary) {
                sink.feature(graph, &feature.name, "is declared as int64");
            }
        }
        for (index, value) in graph.function.values.iter().enumerate() {
            let id = ValueId::new(index);
            let (Type::Tensor(ty) | Type::State(ty)) = graph.any_ty(id) else { continue };
            if matches!(ty.dtype, DType::I64 | DType::U64) && !classified.contains(&id) {
                let place = Place::value(graph, id).tensor(&value.name);
                sink.at(graph, place, format!("holds {}", ty.dtype));
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::wide_integers, examples::half_precision),
    ..Rule::error("A03", "int64-tensor", WidelyReported).off_ane()
};

/// What `classify` gives.
fn labels(graph: &Graph<'_>) -> impl Iterator<Item = ValueId> {
    let classified = graph.ops().iter().filter(|op| op.kind() == "classify");
    classified.flat_map(|op| op.operation.outputs.iter().copied())
}

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Builder;
    use anemeter_kernels::tensor::Tensor;

    fn cast(b: &mut Builder, x: ValueId, dtype: &str) -> ValueId {
        b.op("cast").arg("x", x).arg("dtype", dtype).push().unwrap()
    }

    pub(super) fn single_precision() -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            let lifted = cast(b, x, "fp32");
            let scaled = b.op("mul").arg("x", lifted).arg("y", 0.5f32).push().unwrap();
            cast(b, scaled, "fp16")
        })
    }

    pub(super) fn half_precision() -> Case {
        case(|b| {
            let x = input(b, "x", DType::F32, &[1, 64, 1, 32]);
            let half = cast(b, x, "fp16");
            let y = unary(b, "relu", half);
            vec![cast(b, y, "fp32")]
        })
    }

    pub(super) fn wide_integers() -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            b.constant("positions", crate::Literal::immediate(&Tensor::scalar(3i64)));
            unary(b, "relu", x)
        })
    }

    fn ids(case: &Case) -> Vec<&'static str> {
        let report = lint(&case.subject, &case.setting, &[]).unwrap();
        report.findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn labels_of_classifiers_are_int64_and_their_probabilities_fp32() {
        let case = case(|b| {
            let x = input(b, "x", DType::F16, &[1, 2]);
            let probabilities = softmax(b, x, 1);
            let probabilities = cast(b, probabilities, "fp32");
            let items = [3i64, 7].map(|label| crate::Literal::immediate(&Tensor::scalar(label)));
            let ty = Type::List(Box::new(items[0].ty.clone()), 2usize.into());
            let classes = crate::Literal { ty, data: crate::LiteralData::Items(items.to_vec()) };
            let classify = b.op("classify").arg("probabilities", probabilities).arg("classes", classes);
            classify.outputs(&["label", "label_probs"]).push_all().unwrap()
        });
        let interface = case.subject.packages[0].model.interface("main").unwrap();
        assert_eq!(interface.outputs[0].ty, FeatureType::Int64);
        assert_eq!(interface.outputs[1].ty, FeatureType::Int64Dictionary);
        assert_eq!(interface.predicted_probabilities, "label_probs");
        let found = ids(&case);
        assert!(!found.contains(&"A01") && !found.contains(&"A03"), "{found:?}");
    }

    #[test]
    fn scale_and_bias_of_an_image_are_expected_in_fp32() {
        let mut case = case(|b| {
            let x = input(b, "image", DType::F32, &[1, 3, 8, 8]);
            let scaled = b.op("mul").arg("x", x).arg("y", 0.5f32).push().unwrap();
            let biased = b.op("add").arg("x", scaled).arg("y", 0.5f32).push().unwrap();
            vec![cast(b, biased, "fp16")]
        });
        assert!(ids(&case).contains(&"A01"), "the input is no image yet");
        let model = &mut case.subject.packages[0].model;
        let image = crate::ImageType {
            width: 8,
            height: 8,
            color: crate::ColorSpace::Rgb,
            sizes: crate::ImageSizes::Fixed,
        };
        model.interface_mut("main").unwrap().inputs[0].ty = FeatureType::Image(image);
        assert!(!ids(&case).contains(&"A01"), "{:?}", ids(&case));
    }
}
