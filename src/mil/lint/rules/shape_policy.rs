//! The export checklist: sequence lengths and batches.

use std::collections::BTreeSet;

use super::pattern::{has_layers, is_recurrent_state, sequence_length};
use super::*;
use crate::graph;

/// Lengths with the best ratio of throughput to latency.
const BEST: &[usize] = &[512, 1024, 2048];
/// The longest length that is taken at all.
const LONGEST: usize = 4096;
/// The largest batch for offline work.
const MAX_BATCH: usize = 4;
const NAMES: &str = "an input whose name speaks of ids, hidden, mask or cache";

pub(super) static UNTRAINED_SEQUENCE_LENGTH: Rule = Rule {
    title: "sequence lengths differ from those of the training",
    why: "A model trained at certain lengths and exported at others drifts where nobody looks, and lengths that were \
          trained but not exported are padded. Lengths are those of tokens, caches and states, as inputs name them.",
    evidence: &[CHECKLIST, "this project: F1 may drift by 0.01 between sequence lengths at most"],
    remedy: "export at the sequence lengths of the training",
    check: Check::Package(|package, setting, sink| {
        let trained: BTreeSet<u64> = setting.training_seq_lens.iter().flatten().copied().collect();
        let graphs: Vec<Graph<'_>> = graph::graphs(&package.model).filter(has_layers).collect();
        let exported: BTreeSet<u64> =
            graphs.iter().filter_map(sequence_length).map(|(_, length)| length as u64).collect();
        if exported.is_empty() && !graphs.is_empty() {
            return sink.skip(None, NAMES);
        }
        for length in exported.difference(&trained).filter(|_| !exported.is_empty()) {
            sink.report(Place::package(""), format!("has length {length}, which was not trained"));
        }
        for length in trained.difference(&exported).filter(|_| !exported.is_empty()) {
            sink.report(Place::package(""), format!("has no length {length}, which was trained"));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::trained(256), || examples::trained(512)),
    ..Rule::error("C02", "untrained-sequence-length", Policy)
        .needing(Needs::TrainingSeqLens)
        .decided_by("enumerate_shapes")
        .of_decoders()
};

pub(super) static SEQUENCE_LENGTH: Rule = Rule {
    title: "a sequence length outside the best set",
    why: "512, 1024 and 2048 have the best ratio of throughput to latency. 4096 is supported and somewhat slower for its \
          tiling (a warning), anything longer loses the Neural Engine's advantage (an error), and other lengths work \
          (a remark).",
    evidence: &[CHECKLIST],
    remedy: "use 512, 1024 or 2048, and process longer sequences in chunks",
    check: Check::Shape(|graph, _, sink| {
        if !has_layers(graph) {
            return;
        }
        let Some((id, length)) = sequence_length(graph) else {
            if graph.shape_index == 0 {
                sink.skip(Some(&graph.function.name), NAMES);
            }
            return;
        };
        let (severity, message) = match length {
            length if BEST.contains(&length) => return,
            length if length > LONGEST => (Severity::Error, format!("length {length} is beyond {LONGEST}")),
            length if length > 2048 => (Severity::Warning, format!("length {length} is tiled")),
            length => (Severity::Info, format!("length {length} is not one of {BEST:?}")),
        };
        sink.with(severity).at(graph, Place::value(graph, id), message);
    }),
    #[cfg(test)]
    examples: (|| examples::long(8192, 1), || examples::long(1024, 1)),
    ..Rule::warning("C05", "sequence-length", Policy).decided_by("enumerate_shapes").of_decoders()
};

pub(super) static BATCH_SIZE: Rule = Rule {
    title: "a batch of more than one",
    why: "Interactive use has a batch of 1. Batches of 2 to 4 raise throughput and hurt the slowest tokens, and are for \
          offline work only (a warning); larger ones are not for the Neural Engine (an error).",
    evidence: &[CHECKLIST],
    remedy: "export with a batch of 1, or waive this rule for offline work with that reason",
    check: Check::Function(|graph, _, sink| {
        let named = graph.function.inputs.iter().copied().filter(|&id| {
            let name = graph.name(id).to_ascii_lowercase();
            (name.contains("ids") || name.contains("hidden")) && !is_recurrent_state(graph, id)
        });
        let batches: Vec<(ValueId, usize)> =
            named.filter_map(|id| Some((id, *graph.dims(id)?.first()?))).collect();
        if batches.is_empty() && has_layers(graph) {
            return sink.skip(Some(&graph.function.name), "an input whose name speaks of ids or hidden");
        }
        for (id, batch) in batches.into_iter().filter(|&(_, batch)| batch > 1) {
            let severity = if batch > MAX_BATCH { Severity::Error } else { Severity::Warning };
            let message = format!("has a batch of {batch}");
            sink.with(severity).at(graph, Place::value(graph, id).dimension(0), message);
        }
    }),
    #[cfg(test)]
    examples: (|| examples::long(512, 2), || examples::long(512, 1)),
    ..Rule::warning("C06", "batch-size", Policy).decided_by("batch").of_decoders()
};

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn long(length: usize, batch: usize) -> Case {
        case(|b| {
            let x = input(b, "hidden", DType::F16, &[batch, 64, 1, length]);
            vec![conv(b, x, (64, 64))]
        })
    }

    pub(super) fn trained(length: u64) -> Case {
        long(512, 1).with(|setting| setting.training_seq_lens = Some(vec![length]))
    }

    #[test]
    fn the_state_of_a_recurrent_layer_is_no_sequence() {
        let case = case(|b| {
            let x = input(b, "x", DType::F16, &[4, 2, 8]);
            let hidden = input(b, "hidden_state", DType::F16, &[2, 1, 128]);
            let weight = b.constant("w", big(&[8, 8]));
            let x = b.op("linear").arg("x", x).arg("weight", weight).push().unwrap();
            let start = b.op("squeeze").arg("x", hidden).arg("axes", [1]).push().unwrap();
            let (by_x, by_h) = (b.constant("ih", big(&[128, 8])), b.constant("hh", big(&[128, 128])));
            let rnn = b.op("rnn").arg("x", x).arg("initial_h", start);
            rnn.arg("weight_ih", by_x).arg("weight_hh", by_h).outputs(&["y", "h"]).push_all().unwrap()
        });
        let report = lint(&case.subject, &case.setting, &[]).unwrap();
        let found: Vec<_> = report.findings.iter().map(|finding| finding.rule).collect();
        assert!(!found.contains(&"C05") && !found.contains(&"C06"), "{found:?}");
    }
}
