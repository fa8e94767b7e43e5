//! How large a function is.

use anemeter_base::vocabulary::Choice;
use std::collections::BTreeSet;

use super::*;
use crate::cost;

/// Layers that compiled in one package on an iPhone.
const MAX_LAYERS: usize = 17;
/// FLOPs of a product of two 512 x 512 matrices.
const SMALL: u64 = 2 * 512 * 512 * 512;

pub(super) static WEIGHT_SIZE_LIMIT: Rule = Rule {
    title: "too many bytes of weights in one function",
    why: "The Neural Engine of an iPhone takes about 1 GB of weights per model, that of a Mac about 2 GB; the M1 family \
          addresses 3.75 GB in all. Beyond that a model runs elsewhere without a word, or is killed. An error on iOS, \
          a warning on macOS.",
    evidence: &[
        "apple/coremltools, bisect_model: models for the Neural Engine stay below 1 GB",
        "Anemll, convert.md: 1 GB on iOS, about 2 GB on macOS",
        "smpanaro/more-ane-transformers, NOTES: 3.75 GB on the M1 family",
    ],
    remedy: "divide the layers among more chunks, or compress the weights further",
    check: Check::Function(|graph, setting, sink| {
        let bytes = graph.weight_bytes();
        let (limit, fails) = setting.target.weight_limit();
        let place = || Place::function(&graph.function.name);
        if let Some(space) = setting.device.and_then(Device::address_space).filter(|&n| bytes > n) {
            let message = format!("has {bytes} bytes of weights; the device addresses {space}");
            sink.with(Severity::Error).report(place(), message);
        } else if bytes > limit {
            let severity = if fails { Severity::Error } else { Severity::Warning };
            let message =
                format!("has {bytes} bytes of weights, more than {limit} on {}", setting.target.name());
            sink.with(severity).report(place(), message);
        }
    }),
    #[cfg(test)]
    examples: (|| examples::sized(600_000_000), || examples::sized(400_000_000)),
    ..Rule::error("A48", "weight-size-limit", Documented).decided_by("chunks")
};

pub(super) static LAYER_COUNT_LIMIT: Rule = Rule {
    title: "more than 17 layers in one package for an iPhone",
    why: "A package of 35 layers failed to compile on an iPhone; three chunks were fastest. The number of layers is \
          counted from names.",
    evidence: &["john-rocky/CoreML-LLM, TOPOLOGY_I and CHUNK_CONSOLIDATION: Gemma 4 on iPhone 17 Pro"],
    remedy: "divide the layers among more chunks",
    check: Check::Function(|graph, _, sink| {
        let layers: BTreeSet<u32> = graph.runtime_ops().filter_map(|op| graph.layer(&op)).collect();
        if layers.len() > MAX_LAYERS {
            sink.report(Place::function(&graph.function.name), format!("has {} layers", layers.len()));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::layered(18), || examples::layered(17)),
    ..Rule::warning("A49", "layer-count-limit", SingleReport)
        .needing(Needs::Ios)
        .decided_by("chunks")
        .of_decoders()
};

pub(super) static SMALL_FUNCTION: Rule = Rule {
    title: "a function too small to be worth the Neural Engine",
    why: "Small graphs are eligible and yet run on the CPU: a product of 384 x 384 was left there, one of 512 x 512 was \
          not. A toy model says nothing about placement.",
    evidence: &[
        "Vx issues 435 and 437: preferred from 512 x 512 on",
        "larql issue 312: products with a vector are preferred from 4992 elements on",
        "ask-meridian: 217 of 217 operations eligible, none placed",
    ],
    remedy: "test placement with a model of real size",
    check: Check::Shape(|graph, _, sink| {
        let flops = cost::of(graph).total.flops;
        if flops > 0 && flops < SMALL {
            let message = format!("has {flops} FLOPs, less than a product of 512 x 512 matrices");
            sink.at(graph, Place::function(&graph.function.name), message);
        }
    }),
    #[cfg(test)]
    examples: (|| examples::wide(64), || examples::wide(4096)),
    ..Rule::info("A51", "small-function", WidelyReported)
};

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn sized(elements: usize) -> Case {
        let case = on_input(&[1, 1000, 1, 32], |b, x| conv(b, x, (elements / 1000, 1000)));
        case.on(Target::Ios18)
    }

    pub(super) fn layered(layers: usize) -> Case {
        let case = case(|b| {
            let mut x = input(b, "hidden", DType::F16, &[1, 64, 1, 32]);
            for layer in 0..layers {
                x = b.op("relu").arg("x", x).named(&format!("layers_{layer}_out")).push().unwrap();
            }
            vec![x]
        });
        case.on(Target::Ios18)
    }

    pub(super) fn wide(width: usize) -> Case {
        on_input(&[1, width, 1, 32], |b, x| conv(b, x, (width, width)))
    }
}
