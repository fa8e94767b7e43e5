//! Constants that are no numbers.

use std::collections::BTreeSet;

use half::f16;

use super::*;
use crate::{Literal, LiteralData};
use anemeter_kernels::tensor::{Bytes, Tensor};

/// Mapped weights are handed back to the system after this many bytes.
const CHUNK: usize = 16 << 20;

pub(super) static NON_FINITE_CONSTANT: Rule = Rule {
    title: "a constant holds infinity or NaN",
    why: "Minus infinity in a mask becomes NaN where a whole row is masked or where it meets another infinity, and the \
          Neural Engine mangles NaN. Every plain floating point constant is read, weights and palettes included. An \
          infinite bound of a `clip` is an open one and not counted.",
    evidence: &[
        "apple/ml-ane-transformers: masks use -1e4",
        "apple/coreai-models: masks use -4e4, never infinity",
        "FluidAudio issue 679: NaN inputs are mangled",
    ],
    remedy: "use -1e4 in masks, and find out why a weight is not finite",
    check: Check::Package(|package, _, sink| {
        let mut seen = BTreeSet::new();
        for function in &package.model.program.functions {
            let graph = Graph::new(function, package.model.interface(&function.name), 0);
            for op in graph.ops().iter().filter(|op| op.is_stored()) {
                for (parameter, literal) in Graph::literals(op).filter(|(_, l)| !is_open_bound(&graph, op, l))
                {
                    if let Some((index, value)) = first_fault(literal, &mut seen) {
                        let message = format!("`{parameter}` has {value} at element {index}");
                        sink.report(Place::op(&graph, op), message);
                    }
                }
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::mask(f32::NEG_INFINITY), || examples::mask(-1e4)),
    ..Rule::error("A32", "non-finite-constant", Documented)
};

/// Whether a constant is nothing but the lower or upper bound of `clip`, and leaves that open.
fn is_open_bound(graph: &Graph<'_>, op: &Op<'_>, literal: &Literal) -> bool {
    let Some((id, value)) = op.output().zip(scalar(literal)) else { return false };
    let bound = if value == f32::NEG_INFINITY { "alpha" } else { "beta" };
    let is_bound = |user: Op<'_>| {
        user.kind() == "clip"
            && user.values().filter(|&v| v == id).count() == 1
            && graph.arg(&user, bound) == Some(id)
    };
    value.is_infinite() && graph.consumers(id).next().is_some() && graph.consumers(id).all(is_bound)
}

/// The number that a constant of one element is.
fn scalar(literal: &Literal) -> Option<f32> {
    let tensor = literal.tensor()?;
    match tensor.dtype() {
        DType::F16 => tensor.view().slice::<f16>().ok().filter(|v| v.len() == 1).map(|v| v[0].to_f32()),
        DType::F32 => tensor.view().slice::<f32>().ok().filter(|v| v.len() == 1).map(|v| v[0]),
        _ => None,
    }
}

/// The first element that is not finite; memory that was looked at before is not looked at again.
fn first_fault(literal: &Literal, seen: &mut BTreeSet<(usize, usize)>) -> Option<(usize, f32)> {
    let (LiteralData::Immediate(bytes) | LiteralData::Blob(bytes)) = &literal.data else { return None };
    let dtype = literal.ty.tensor()?.dtype;
    let is_new = seen.insert((bytes.as_ptr() as usize, bytes.len()));
    if !is_new || !matches!(dtype, DType::F16 | DType::F32) {
        return None;
    }
    let tensor: Tensor = literal.tensor()?;
    match dtype {
        DType::F16 => {
            scan(tensor.view().slice::<f16>().ok()?, bytes, f16::is_finite).map(|(i, v)| (i, v.to_f32()))
        }
        _ => scan(tensor.view().slice::<f32>().ok()?, bytes, f32::is_finite),
    }
}

fn scan<T: Copy>(values: &[T], bytes: &Bytes, is_finite: impl Fn(T) -> bool) -> Option<(usize, T)> {
    let step = CHUNK / size_of::<T>();
    for (index, chunk) in values.chunks(step).enumerate() {
        if let Some(at) = chunk.iter().position(|&value| !is_finite(value)) {
            return Some((index * step + at, chunk[at]));
        }
        if chunk.len() == step {
            bytes.release(index * CHUNK..(index + 1) * CHUNK);
        }
    }
    None
}

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Literal;
    use anemeter_kernels::tensor::Tensor;
    use half::f16;

    pub(super) fn mask(value: f32) -> Case {
        on_input(&[1, 1, 2, 2], |b, x| {
            let numbers = [0.0, value, 0.0, 0.0].map(f16::from_f32);
            let mask = Tensor::from_slice(&[1, 1, 2, 2], &numbers).unwrap();
            let mask = b.constant("mask", Literal::blob(&mask));
            binary(b, "add", x, mask)
        })
    }

    fn clipped(low: f32, high: f32) -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            let low = b.constant("low", Literal::immediate(&Tensor::scalar(f16::from_f32(low))));
            let high = b.constant("high", Literal::immediate(&Tensor::scalar(f16::from_f32(high))));
            b.op("clip").arg("x", x).arg("alpha", low).arg("beta", high).push().unwrap()
        })
    }

    #[test]
    fn bounds_of_clip_may_be_open() {
        let faults = |case: &Case| {
            let report = lint(&case.subject, &case.setting, &[]).unwrap();
            report.findings.iter().filter(|finding| finding.rule == NON_FINITE_CONSTANT.id).count()
        };
        assert_eq!(faults(&clipped(f32::NEG_INFINITY, f32::INFINITY)), 0);
        assert_eq!(faults(&clipped(f32::NEG_INFINITY, 1.0)), 0);
        let shared = on_input(&[1, 64, 1, 32], |b, x| {
            let low = b.constant("low", Literal::immediate(&Tensor::scalar(f16::NEG_INFINITY)));
            let high = b.constant("high", Literal::immediate(&Tensor::scalar(f16::ONE)));
            let y = b.op("clip").arg("x", x).arg("alpha", low).arg("beta", high).push().unwrap();
            binary(b, "add", y, low)
        });
        assert_eq!(faults(&shared), 1);
    }
}
