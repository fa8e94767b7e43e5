//! Gemma 4: chunks that share keys and values, inputs of layers from the host, and seeded faults in every part of its own.

use half::f16;
use serde_json::json;

use super::faults::{Fault, all_are_found, no_layer_drifts, values};
use super::{export, set, verify_json};
use crate::support::architectures::Tiny;
use crate::support::decoders;
use crate::support::gemma4::{self, gemma4};

#[test]
fn chunks_batches_and_tables_of_the_host_give_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in gemma4::all() {
        let checkpoint = tiny.write(folder.path());
        for more in [
            &["--chunks", "2"][..],
            &["--chunks", "3", "--embeddings", "host"],
            &["--batch", "2", "--embeddings", "graph"],
            &["--chunks", "2", "--batch", "2", "--embeddings", "host"],
        ] {
            let bundle = export(&checkpoint, folder.path(), &[&["--overwrite"], more].concat());
            let (code, report) = verify_json(&bundle, &checkpoint, &["--tokens", "4", "--layers"]);
            assert_eq!((code, &report["passed"]), (0, &json!(true)), "{} {more:?}: {report:#}", tiny.name);
            no_layer_drifts(tiny.name, &report, !more.contains(&"host"));
        }
    }
}

fn fault(name: &'static str, spoil: fn(&mut Tiny), expected: Option<&'static str>) -> Fault {
    Fault { name, sound: gemma4("sound", &json!({})), spoil, expected }
}

fn times(tiny: &mut Tiny, tensor: &str, factor: f32) {
    values(tiny, tensor).iter_mut().for_each(|x| *x = f16::from_f32(x.to_f32() * factor));
}

#[test]
fn inputs_of_layers() {
    all_are_found(vec![
        fault(
            "what is looked up for one layer",
            |tiny| {
                let table = values(tiny, "model.embed_tokens_per_layer.weight");
                // Rows have three layers of sixteen numbers.
                table.chunks_mut(48).for_each(|row| row[16..32].reverse());
            },
            Some("layer 1"),
        ),
        fault(
            "the projection of one layer's inputs",
            |tiny| {
                let rows = values(tiny, "model.per_layer_model_projection.weight");
                rows[2 * 16 * 24..].rotate_left(24);
            },
            Some("layer 2"),
        ),
        fault(
            "their norm",
            |tiny| times(tiny, "model.per_layer_projection_norm.weight", 2.0),
            Some("layer 0"),
        ),
        fault(
            "a gate of inputs",
            |tiny| values(tiny, "model.layers.1.per_layer_input_gate.weight").rotate_left(24),
            Some("layer 1"),
        ),
        fault(
            "what a layer makes of its input",
            |tiny| values(tiny, "model.layers.2.per_layer_projection.weight").rotate_left(16),
            Some("layer 2"),
        ),
        fault(
            "the factor on a layer",
            |tiny| set(tiny, "model.layers.1.layer_scalar", 0, 0.3),
            Some("layer 1"),
        ),
    ]);
}

#[test]
fn heads_and_shared_keys() {
    all_are_found(vec![
        fault(
            "queries of a layer that shares keys",
            |tiny| {
                let query = values(tiny, "model.layers.2.self_attn.q_proj.weight");
                let half = query.len() / 2;
                query.rotate_left(half);
            },
            Some("layer 2 attention"),
        ),
        fault("the window", |tiny| tiny.config["sliding_window"] = json!(5), Some("layer 0 attention")),
        fault(
            "the share that is rotated",
            |tiny| {
                tiny.config["rope_parameters"] = json!({"full_attention": {"rope_type": "proportional",
                    "rope_theta": 1e6, "partial_rotary_factor": 0.75}});
            },
            Some("layer 1 attention"),
        ),
        fault(
            "keys of wide heads",
            |tiny| values(tiny, "model.layers.1.self_attn.k_proj.weight").rotate_left(24 * 8),
            Some("layer 1 attention"),
        ),
        fault(
            "the wide MLP of a layer that shares keys",
            |tiny| set(tiny, "model.layers.2.mlp.down_proj.weight", 70, 4.0),
            Some("layer 2"),
        ),
        Fault {
            name: "how queries grow",
            sound: decoders::ministral3("sound", 4, 0.9),
            spoil: |tiny| tiny.config["rope_parameters"]["llama_4_scaling_beta"] = json!(0.1),
            expected: Some("layer 0 attention"),
        },
    ]);
}
