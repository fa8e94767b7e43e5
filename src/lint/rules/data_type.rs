//! Data types that the Neural Engine does not take.

use super::*;
use crate::mil::{FeatureType, Type};

pub(super) static A01: Rule = Rule {
    id: "A01",
    title: "an operation computes in fp32",
    severity: Severity::Error,
    confidence: Confidence::Documented,
    why: "The Neural Engine computes in fp16, int8 and int16. An operation with an fp32 result goes to the CPU or \
          the GPU, and every change of device costs a copy. Casts of a function's outputs are not counted.",
    evidence: &[
        "apple/coreai-models, neural_engine_rules: fp32 falls back to GPU or CPU",
        "Vx issue 435: fp32 products were never placed on the Neural Engine",
    ],
    remedy: "convert with compute_precision FLOAT16, and give inputs and outputs as fp16",
    off: true,
    needs: Needs::Package,
    check: Check::Shape(|graph, _, sink| {
        for op in graph.runtime_ops() {
            let wide =
                |id: &ValueId| graph.ty(*id).is_some_and(|ty| matches!(ty.dtype, DType::F32 | DType::F64));
            let is_last_cast =
                op.kind() == "cast" && op.operation.outputs.iter().all(|&id| is_leaving(graph, id));
            if let Some(&id) = op.operation.outputs.iter().find(|id| wide(id))
                && !is_last_cast
            {
                let dtype = graph.ty(id).map_or(DType::F32, |ty| ty.dtype);
                sink.op(graph, &op, format!("gives {dtype}"));
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::single_precision, examples::half_precision),
};

fn is_leaving(graph: &Graph<'_>, id: ValueId) -> bool {
    graph.is_output(id) && graph.consumers(id).next().is_none()
}

pub(super) static A02: Rule = Rule {
    id: "A02",
    title: "an fp32 constant lifts an fp16 chain to fp32",
    severity: Severity::Warning,
    confidence: Confidence::Documented,
    why: "A literal written as fp32 makes the converter cast its neighbours to fp32 and back: two casts and an \
          fp32 operation that leave the Neural Engine for one number.",
    evidence: &["apple/coreai-models, neural_engine_rules: float literals in Python inject fp32 casts"],
    remedy: "give the constant in fp16, so that no cast is needed",
    off: false,
    needs: Needs::Package,
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
};

/// Whether a value was cast from fp16 to fp32.
fn is_lifted(graph: &Graph<'_>, id: ValueId) -> bool {
    let is = |id: ValueId, dtype| graph.ty(id).is_some_and(|ty| ty.dtype == dtype);
    let Some(cast) = graph.produced_by(id, &["cast"]) else { return false };
    is(id, DType::F32) && graph.arg(&cast, "x").is_some_and(|from| is(from, DType::F16))
}

pub(super) static A03: Rule = Rule {
    id: "A03",
    title: "int64 anywhere",
    severity: Severity::Error,
    confidence: Confidence::WidelyReported,
    why: "Core ML has no int64 arithmetic: such tensors are refused or cast on the CPU, and an int64 position keeps \
          the state update that uses it off the Neural Engine.",
    evidence: &[
        "Core ML model format: integer arrays are int32",
        "john-rocky/CoreML-LLM: int64 state indices broke placement",
        "the export checklist of this project: no int64 leaks",
    ],
    remedy: "make ids and positions int32 before the conversion",
    off: true,
    needs: Needs::Package,
    check: Check::Shape(|graph, _, sink| {
        for feature in graph.interface.iter().flat_map(|i| i.inputs.iter().chain(&i.outputs)) {
            if matches!(feature.ty, FeatureType::Int64 | FeatureType::Int64Dictionary) {
                let place = Place::function(&graph.function.name).tensor(&feature.name);
                sink.report(place, "is declared as int64");
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
};

#[cfg(test)]
mod examples {
    use super::super::super::testing::*;
    use crate::mil::{Builder, ValueId};
    use crate::tensor::{DType, Tensor};

    fn cast(b: &mut Builder, x: ValueId, dtype: &str) -> ValueId {
        b.op("cast").arg("x", x).arg("dtype", dtype).push().unwrap()
    }

    pub(super) fn single_precision() -> Case {
        case(|b| {
            let x = x(b, &[1, 64, 1, 32]);
            let lifted = cast(b, x, "fp32");
            let scaled = b.op("mul").arg("x", lifted).arg("y", 0.5f32).push().unwrap();
            vec![cast(b, scaled, "fp16")]
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
        case(|b| {
            let x = x(b, &[1, 64, 1, 32]);
            b.constant("positions", crate::mil::Literal::immediate(&Tensor::scalar(3i64)));
            vec![unary(b, "relu", x)]
        })
    }
}
