//! Shapes that are not fixed.

use super::pattern::states;
use super::*;
use crate::{ArrayType, Feature, FeatureType, Flexibility, ImageSizes, Interface};

pub(super) static RANGE_SHAPE: Rule = Rule {
    title: "an input has a range of shapes",
    why: "The compiler for the Neural Engine needs shapes that are known. With a range (RangeDim), or a size known \
          only at run time, the function runs on the CPU or the GPU.",
    evidence: &[
        "apple/coremltools, flexible inputs: ranges may run on the CPU or GPU only",
        "FluidAudio issue 537: a RangeDim kept the model off the Neural Engine",
        "apple/coreai-models: static shapes, one function per shape",
    ],
    remedy: "use a list of shapes, or one function per shape",
    check: Check::Function(|graph, _, sink| {
        let inputs = graph.interface.iter().flat_map(|interface| &interface.inputs);
        for feature in inputs {
            let is_open = || {
                let id = graph.function.inputs.iter().copied().find(|&id| graph.name(id) == feature.name);
                id.is_some_and(|id| graph.ty(id).is_some_and(|ty| ty.concrete().is_none()))
            };
            if has_range(feature) || is_open() {
                sink.feature(graph, &feature.name, "may have any shape within bounds");
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::ranged, examples::fixed),
    ..Rule::error("A11", "range-shape", WidelyReported).off_ane()
};

fn has_range(feature: &Feature) -> bool {
    match &feature.ty {
        FeatureType::Array(array) | FeatureType::State(array) => is_range(array),
        FeatureType::Image(image) => matches!(image.sizes, ImageSizes::Range { .. }),
        _ => false,
    }
}

fn is_range(array: &ArrayType) -> bool {
    let varies = |&(low, high): &(u64, Option<u64>)| high != Some(low);
    matches!(&array.flexibility, Flexibility::Ranges(ranges) if ranges.iter().any(varies))
}

pub(super) static ENUMERATED_SHAPES_WITH_STATE: Rule = Rule {
    title: "enumerated shapes in a function with states",
    why: "A function that keeps states and takes inputs of several shapes fails to load or runs on the CPU as a whole.",
    evidence: &[
        "apple/coremltools issue 2600: state and flexible inputs, all on the CPU, unanswered",
        "apple/coremltools issue 2537: flexible shapes and states do not go together",
    ],
    remedy: "use several functions of fixed shapes in one package, which share their weights",
    check: Check::Function(|graph, _, sink| {
        let stateful = graph.interface.filter(|interface| !interface.states.is_empty());
        for feature in stateful.iter().flat_map(|interface| &interface.inputs) {
            if let Some(shapes) = feature.enumerated().filter(|shapes| shapes.len() > 1) {
                let message = format!("has {} shapes, and the function keeps states", shapes.len());
                sink.feature(graph, &feature.name, message);
            }
        }
    }),
    #[cfg(test)]
    examples: (examples::stateful_enumerated, examples::fixed),
    ..Rule::error("A12", "enumerated-shapes-with-state", WidelyReported).off_ane().decided_by("kv")
};

/// Whether an interface has inputs of several shapes.
pub(super) fn is_enumerated(interface: Option<&Interface>) -> bool {
    interface.is_some_and(|i| i.inputs.iter().filter_map(Feature::enumerated).any(|shapes| shapes.len() > 1))
}

pub(super) static FLEXIBLE_STATE: Rule = Rule {
    title: "a state without a fixed shape",
    why: "Core ML refuses states of flexible shape: \"Flexible shape model states are not supported\".",
    evidence: &["apple/coremltools issue 2537, open"],
    remedy: "give each cache length a function and a state of its own",
    check: Check::Function(|graph, _, sink| {
        let declared = graph.interface.iter().flat_map(|interface| &interface.states);
        let flexible = declared.filter(|feature| {
            let (FeatureType::State(array) | FeatureType::Array(array)) = &feature.ty else { return false };
            is_range(array) || is_listed(array)
        });
        let flexible: Vec<&str> = flexible.map(|feature| feature.name.as_str()).collect();
        let open = states(graph).filter(|(_, ty)| ty.concrete().is_none());
        let mut names: Vec<&str> = open.map(|(id, _)| graph.name(id)).chain(flexible).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            sink.feature(graph, name, "has no fixed shape");
        }
    }),
    #[cfg(test)]
    examples: (examples::open_state, examples::fixed),
    ..Rule::error("A13", "flexible-state", Documented).off_ane().decided_by("kv")
};

fn is_listed(array: &ArrayType) -> bool {
    matches!(&array.flexibility, Flexibility::Enumerated(shapes) if shapes.len() > 1)
}

#[cfg(test)]
mod examples {
    use super::*;
    use crate::{FeatureType, Flexibility, Type};

    pub(super) fn fixed() -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            let kept = state(b, "kept", &[1, 64, 1, 32]);
            let before = read(b, kept);
            binary(b, "add", x, before)
        })
    }

    pub(super) fn ranged() -> Case {
        let mut case = case(|b| {
            let x = b.input("x", open_type());
            vec![unary(b, "relu", x)]
        });
        let interface = case.subject.packages[0].model.interface_mut("main").unwrap();
        if let FeatureType::Array(array) = &mut interface.inputs[0].ty {
            array.shape = vec![1, 64, 1, 32];
            array.flexibility =
                Flexibility::Ranges(vec![(1, Some(1)), (64, Some(64)), (1, Some(1)), (1, None)]);
        }
        case
    }

    pub(super) fn stateful_enumerated() -> Case {
        let case = case(|b| {
            let x = b.input("x", open_type());
            let kept = state(b, "kept", &[1, 64, 1, 1]);
            let before = read(b, kept);
            vec![binary(b, "add", x, before)]
        });
        case.enumerated("x", &[vec![1, 64, 1, 32], vec![1, 64, 1, 64]])
    }

    pub(super) fn open_state() -> Case {
        on_input(&[1, 64, 1, 32], |b, x| {
            b.input("kept", Type::State(open_type()));
            unary(b, "relu", x)
        })
    }
}
