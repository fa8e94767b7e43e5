//! Data types that the Neural Engine does not take.

use super::*;
use crate::{FeatureType, Type};

pub(super) static FP32_COMPUTE: Rule = Rule {
    title: "an operation computes in fp32",
    why: "The Neural Engine computes in fp16, int8 and int16. An operation with an fp32 result goes to the CPU or \
          the GPU, and every change of device costs a copy. Casts of a function's outputs are not counted.",
    evidence: &[
        "apple/coreai-models, neural_engine_rules: fp32 falls back to GPU or CPU",
        "Vx issue 435: fp32 products were never placed on the Neural Engine",
    ],
    remedy: "convert with compute_precision FLOAT16, and give inputs and outputs as fp16",
    check: Check::Shape(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let outputs = &op.operation.outputs;
            let is_last_cast = op.kind() == "cast" && outputs.iter().all(|&id| is_leaving(graph, id));
            let mut dtypes = outputs.iter().filter_map(|&id| graph.ty(id)).map(|ty| ty.dtype);
            let wide = dtypes.find(|dtype| matches!(dtype, DType::F32 | DType::F64));
            if let Some(dtype) = wide.filter(|_| !is_last_cast) {
                sink.op(graph, &op, format!("gives {dtype}"));
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::single_precision, examples::half_precision),
    ..Rule::error("A01", "fp32-compute", Documented).off_ane()
};

fn is_leaving(graph: &Graph<'_>, id: ValueId) -> bool {
    graph.is_output(id) && graph.consumers(id).next().is_none()
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
          the state update that uses it off the Neural Engine.",
    evidence: &[
        "Core ML model format: integer arrays are int32",
        "john-rocky/CoreML-LLM: int64 state indices broke placement",
        "the export checklist of this project: no int64 leaks",
    ],
    remedy: "make ids and positions int32 before the conversion",
    check: Check::Shape(|graph, _, sink| {
        for feature in graph.interface.iter().flat_map(|i| i.inputs.iter().chain(&i.outputs)) {
            if matches!(feature.ty, FeatureType::Int64 | FeatureType::Int64Dictionary) {
                sink.feature(graph, &feature.name, "is declared as int64");
            }
        }
        for (index, value) in graph.function.values.iter().enumerate() {
            let id = ValueId::new(index);
            let (Type::Tensor(ty) | Type::State(ty)) = graph.any_ty(id) else { continue };
            if matches!(ty.dtype, DType::I64 | DType::U64) {
                let place = Place::value(graph, id).tensor(&value.name);
                sink.at(graph, place, format!("holds {}", ty.dtype));
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::wide_integers, examples::half_precision),
    ..Rule::error("A03", "int64-tensor", WidelyReported).off_ane()
};

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
}
