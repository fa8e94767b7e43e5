//! How states are declared.

use super::pattern::states;
use super::*;

/// What the last axis of a state is a multiple of.
const WIDTH: usize = 32;

pub(super) static UNALIGNED_STATE: Rule = Rule {
    title: "a state's last axis is not a multiple of 32",
    why: "A state of width 270 failed on the Neural Engine where one of 256 worked; the requirement is not documented.",
    evidence: &[
        "apple/coremltools issue 2631: macOS 15.2 on M4, multiples of 32 work",
        "john-rocky/CoreML-LLM: padding did not cure its error -14",
    ],
    remedy: "pad the head width to a multiple of 32, or keep the cache in inputs and outputs",
    check: Check::Function(|graph, _, sink| {
        for (id, ty) in states(graph) {
            let last = ty.concrete().and_then(|dims| dims.last().map(|&last| (dims.len() - 1, last)));
            if let Some((axis, last)) = last.filter(|(_, last)| last % WIDTH != 0) {
                let place = Place::value(graph, id).dimension(axis);
                sink.report(place, format!("is {last} wide in {ty}"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::kept(&[&[2, 4, 64, 24]]), || examples::kept(&[&[2, 4, 64, 32]])),
    ..Rule::warning("A14", "unaligned-state", SingleReport).decided_by("contexts")
};

pub(super) static MULTIPLE_STATES: Rule = Rule {
    title: "several states in one function",
    why: "One state per function is safe. Two worked in some models; three or more, or caches mixed with other states, \
          ended in error 11 (0x1d) at the first prediction. Two are a warning, more an error.",
    evidence: &["john-rocky/CoreML-LLM, MLSTATE_PATTERN and LFM2 findings"],
    remedy: "keep keys and values of all layers in one state, as rows of its first axis",
    check: Check::Function(|graph, _, sink| {
        let count = states(graph).count();
        let severity = if count > 2 { Severity::Error } else { Severity::Warning };
        if count > 1 {
            sink.with(severity).report(Place::function(&graph.function.name), format!("has {count} states"));
        }
    }),
    #[cfg(test)]
    examples: (
        || examples::kept(&[&[2, 4, 64, 32], &[2, 4, 64, 32], &[2, 4, 64, 32]]),
        || examples::kept(&[&[2, 4, 64, 32]]),
    ),
    ..Rule::error("A15", "multiple-states", SingleReport)
};

pub(super) static STATE_NOT_RANK_4: Rule = Rule {
    title: "a state that is not of rank 4",
    why: "Rank 4 is the form of state that projects have seen on the Neural Engine, on M1 to M4 and iPhone 15 to 17.",
    evidence: &[
        "Anemll: one state [2 layers, heads, context, width] for all its models",
        "Anemll issue 27: rank 4 with convolutions worked where others failed",
        "john-rocky/CoreML-LLM, MLSTATE_PATTERN",
    ],
    remedy: "shape the state as [2 * layers, heads, context, width]",
    check: Check::Function(|graph, _, sink| {
        for (id, ty) in states(graph).filter(|(_, ty)| ty.rank() != Some(4)) {
            sink.report(Place::value(graph, id), format!("is {ty}"));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::kept(&[&[4, 64, 32]]), || examples::kept(&[&[2, 4, 64, 32]])),
    ..Rule::warning("A16", "state-not-rank-4", WidelyReported)
};

pub(super) static STATE_NOT_FP16: Rule = Rule {
    title: "a state that is not fp16",
    why: "States hold fp16 and nothing else: Core ML refuses other types.",
    evidence: &["apple/coremltools, stateful models: fp16 only, iOS 18 and macOS 15 or later"],
    remedy: "declare the state as fp16",
    check: Check::Function(|graph, _, sink| {
        for (id, ty) in states(graph).filter(|(_, ty)| ty.dtype != DType::F16) {
            sink.report(Place::value(graph, id), format!("holds {}", ty.dtype));
        }
    }),
    #[cfg(test)]
    examples: (examples::single_precision, || examples::kept(&[&[2, 4, 64, 32]])),
    ..Rule::error("A17", "state-not-fp16", Documented).off_ane()
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::{TensorType, Type};

    pub(super) fn kept(shapes: &[&[usize]]) -> Case {
        case(|b| {
            let names = ["a", "b", "c"];
            let states: Vec<_> = shapes.iter().zip(names).map(|(dims, name)| state(b, name, dims)).collect();
            let contents: Vec<_> = states.into_iter().map(|kept| read(b, kept)).collect();
            contents.into_iter().map(|content| unary(b, "relu", content)).collect()
        })
    }

    pub(super) fn single_precision() -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            b.input("kept", Type::State(TensorType::fixed(DType::F32, &[2, 4, 64, 32])));
            unary(b, "relu", x)
        })
    }
}
