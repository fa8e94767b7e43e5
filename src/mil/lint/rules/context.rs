//! How long a cache is, and how many a package has.

use super::pattern::states;
use super::*;
use crate::{ArrayType, Feature, FeatureType, Flexibility, Interface};

/// Lengths that decoding is fast at.
const SHORT: u64 = 1024;

pub(super) static NO_SHORT_CONTEXT: Rule = Rule {
    title: "no function for a short context",
    why: "Decoding reads the whole allocated cache, whatever is in it: with 1024, 2048 and 4096 entries a model of 1.7B \
          gave 24.1, 9.4 and 4.9 tokens/s. A package whose shortest cache is longer than 1024 pays at every token.",
    evidence: &[
        "john-rocky/CoreML-LLM, DECODE_STATE_LAYOUTS",
        "apple/coreai-models: a ladder of context lengths, 256 times powers of two",
    ],
    remedy: "export a ladder of lengths, such as 512, 1024, 2048",
    check: Check::Package(|package, _, sink| {
        let lengths = package.model.interfaces().iter().flat_map(|interface| {
            caches(interface).into_iter().map(|(name, length)| (interface.function.as_str(), name, length))
        });
        let shortest = lengths.min_by_key(|&(_, _, length)| length);
        if let Some((function, name, length)) = shortest.filter(|&(_, _, length)| length > SHORT) {
            let place = Place::function(function).tensor(name);
            sink.report(place, format!("is the shortest cache and has {length} entries"));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::cached(2048), || examples::cached(1024)),
    ..Rule::warning("A52", "no-short-context", WidelyReported).decided_by("contexts").of_decoders()
};

/// The caches of a function and their shortest length: states, and inputs that names call caches.
fn caches(interface: &Interface) -> Vec<(&str, u64)> {
    let inputs = interface.inputs.iter().filter(|f| f.name.to_ascii_lowercase().contains("cache"));
    let caches = interface.states.iter().chain(inputs);
    caches.filter_map(|feature| Some((&*feature.name, shortest(feature)?))).collect()
}

fn shortest(feature: &Feature) -> Option<u64> {
    let (FeatureType::Array(array) | FeatureType::State(array)) = &feature.ty else { return None };
    let longest_axis = |shape: &[u64]| shape.iter().rev().take(2).copied().max();
    match array {
        ArrayType { flexibility: Flexibility::Enumerated(shapes), .. } => {
            shapes.iter().filter_map(|shape| longest_axis(shape)).min()
        }
        array => longest_axis(&array.shape),
    }
}

pub(super) static MULTIFUNCTION_PREFILL_STATES: Rule = Rule {
    title: "several functions, several tokens and two states on iOS",
    why: "A package of several functions whose prefill takes more than one token and keeps two states was refused by an \
          iPhone 17 Pro (ANECCompile failed, 11) and accepted by a Mac.",
    evidence: &["john-rocky/CoreML-LLM, STAGE8_DESIGN"],
    remedy: "keep one state, or ship the prefill as a package of its own",
    check: Check::Package(|package, _, sink| {
        let functions = &package.model.program.functions;
        for function in functions.iter().filter(|_| functions.len() > 1) {
            let graph = Graph::new(function, package.model.interface(&function.name), 0);
            let tokens = crate::cost::of(&graph).tokens.unwrap_or(1);
            if states(&graph).count() > 1 && tokens > 1 {
                let message = format!("takes {tokens} tokens and has two states");
                sink.report(Place::function(&function.name), message);
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::pair(2), || examples::pair(1)),
    ..Rule::warning("A53", "multifunction-prefill-states", SingleReport)
        .needing(Needs::Ios)
        .decided_by("kv")
        .of_decoders()
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::{Builder, Model};

    pub(super) fn cached(length: usize) -> Case {
        case(|b| {
            let kept = state(b, "kv_cache", &[2, 4, length, 32]);
            let content = read(b, kept);
            vec![unary(b, "relu", content)]
        })
    }

    pub(super) fn pair(states: usize) -> Case {
        let body = |tokens: usize| {
            move |b: &mut Builder| -> Vec<ValueId> {
                let x = input(b, "hidden", DType::F16, &[1, 64, 1, tokens]);
                for name in ["k", "v"].iter().take(states) {
                    let kept = state(b, name, &[2, 4, 64, 32]);
                    read(b, kept);
                }
                vec![unary(b, "relu", x)]
            }
        };
        let functions = vec![function("decode", body(1)), function("prefill", body(64))];
        Case::of(Model::multi(functions)).on(Target::Ios18)
    }
}
