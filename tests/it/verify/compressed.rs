//! Compressed weights: held to what they are, and to what they lose.

use std::path::{Path, PathBuf};

use anemeter::bundle::Bundle;
use anemeter::harness::records;
use anemeter::report::Verification;
use anemeter::vocabulary::RuntimeName;
use serde_json::{Value, json};

use super::faults::no_layer_drifts;
use super::{export, verify, verify_json};
use crate::support::architectures::{self, Tiny};
use crate::support::checkpoints::write_text;
use crate::support::command::{self, arg};
use crate::support::damage::put;
use crate::support::decoders::stablelm;

/// Exports with every matrix compressed, however small it is.
fn compressed(tiny: &Tiny, folder: &Path, precision: &str) -> (PathBuf, PathBuf) {
    compressed_with(tiny, folder, precision, &[])
}

fn compressed_with(tiny: &Tiny, folder: &Path, precision: &str, more: &[&str]) -> (PathBuf, PathBuf) {
    let checkpoint = tiny.write(folder);
    let config = folder.join("precision.yaml");
    let rules = format!(
        "coreml: {{precision: {{default: fp16, rules: [{{match: \"*\", precision: \"{precision}\"}}]}}}}\n"
    );
    write_text(&config, &rules);
    let bundle = export(&checkpoint, folder, &[&["--config", arg(&config), "--overwrite"], more].concat());
    (bundle, checkpoint)
}

/// Limits of quality that anything keeps.
fn lenient(folder: &Path) -> PathBuf {
    let path = folder.join("lenient.yaml");
    write_text(&path, "quality: {kl: 1000, top1: 0, top5: 0}\n");
    path
}

fn is_right(bundle: &Path, checkpoint: &Path, limits: &Path, name: &str) -> Value {
    let (code, report) = verify_json(bundle, checkpoint, &["--tokens", "4", "--thresholds", arg(limits)]);
    assert_eq!((code, &report["passed"]), (0, &json!(true)), "{name}: {:#}", report["failures"]);
    assert!(report["reference"].as_str().unwrap().contains("weights as stored"), "{name}");
    assert!(report["quality"]["kl"].as_f64().unwrap() > 1e-6, "{name}: {:#}", report["quality"]);
    report
}

#[test]
fn every_architecture_computes_what_its_compressed_weights_say() {
    let folder = tempfile::tempdir().unwrap();
    let limits = lenient(folder.path());
    for tiny in architectures::all() {
        let (bundle, checkpoint) = compressed(&tiny, folder.path(), "int4:channel");
        is_right(&bundle, &checkpoint, &limits, tiny.name);
    }
}

#[test]
fn every_compression_computes_what_its_weights_say() {
    let folder = tempfile::tempdir().unwrap();
    let limits = lenient(folder.path());
    let tiny = architectures::llama("llama", &json!({}));
    let mut losses = Vec::new();
    for precision in ["int8", "int8:asym", "int4:block=8", "lut4", "lut2", "sparse:0.5"] {
        let (bundle, checkpoint) = compressed(&tiny, folder.path(), precision);
        let report = is_right(&bundle, &checkpoint, &limits, precision);
        losses.push(report["quality"]["kl"].as_f64().unwrap());
    }
    assert!(losses[0] < losses[2] && losses[2] < losses[4], "fewer bits lose more: {losses:?}");
}

#[test]
fn a_wrong_program_is_found_under_compressed_weights() {
    let folder = tempfile::tempdir().unwrap();
    let sound = architectures::llama("sound", &json!({}));
    let (bundle, _) = compressed(&sound, folder.path(), "int8");
    let mut other = Tiny { name: "other", ..sound.clone() };
    other.config["rope_theta"] = json!(100.0);
    let few = ["--tokens", "4", "--kv", "io"];
    let (code, report) = verify_json(&bundle, &other.write(folder.path()), &few);
    assert_eq!((code, &report["layers"][0]["first_drift"]), (1, &json!("layer 0 attention")));

    let mut swapped = Tiny { name: "swapped", ..sound };
    let keys = &mut swapped.tensors.get_mut("model.layers.1.self_attn.k_proj.weight").unwrap().1;
    let half = keys.len() / 2;
    keys.rotate_left(half);
    let (code, report) = verify_json(&bundle, &swapped.write(folder.path()), &few);
    let failures = report["failures"].as_array().unwrap();
    assert_eq!((code, failures.len()), (1, 1), "{failures:?}");
    assert_eq!(failures[0]["at"], "weight layers_1_attention_key_weight");
    assert_eq!(failures[0]["metric"], "weight_cosine");
}

#[test]
fn right_and_good_are_two_answers() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = architectures::llama("llama", &json!({}));
    let (bundle, checkpoint) = compressed(&tiny, folder.path(), "lut2");
    let strict = folder.path().join("strict.yaml");
    write_text(&strict, "quality: {kl: 0}\n");
    let outcome = verify(&bundle, &checkpoint, &["--tokens", "4", "--thresholds", arg(&strict)]);
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("right (computes what its weights say): yes"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("good (within the limits of quality): NO: mean KL is 0."));
    assert!(outcome.stdout.contains("weights that lose most: "), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("hidden states"), "no layer is to blame");
    let record: Verification =
        records::read(&Bundle::open(&bundle).unwrap(), RuntimeName::Cpu).unwrap().unwrap();
    assert!(record.passed && !record.is_good() && record.cosine_min > Some(0.9999));
    assert_eq!(record.quality.unwrap().limits.kl, 0.0);
}

#[test]
fn every_architecture_computes_what_its_rotated_weights_say() {
    let folder = tempfile::tempdir().unwrap();
    let limits = lenient(folder.path());
    for tiny in architectures::all() {
        let (bundle, checkpoint) = compressed_with(&tiny, folder.path(), "int4:channel", &["--rotate", "on"]);
        is_right(&bundle, &checkpoint, &limits, tiny.name);
    }
}

/// Models that are rotated in different ways: a tied head with a map before it, a head of its own, norms that take the mean
/// off and have biases, with and without biases of maps, and norms after maps, so that only values are rotated.
fn rotated_models() -> Vec<(Tiny, bool, &'static str)> {
    let tied = json!({"head_dim": 8, "tie_word_embeddings": true});
    let local =
        json!({"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3, "sliding_window_pattern": 2});
    let value = "model.layers.1.self_attn.v_proj.weight";
    vec![
        (architectures::llama("tied", &tied), true, value),
        (architectures::llama("untied", &json!({})), true, value),
        (architectures::gpt2("gpt2", &json!({})), true, "transformer.h.1.mlp.c_fc.weight"),
        (
            stablelm("stablelm", &json!({"partial_rotary_factor": 0.34})),
            true,
            "model.layers.1.mlp.up_proj.weight",
        ),
        (architectures::gemma3("values-only", &local), false, value),
    ]
}

#[test]
fn rotated_weights_and_layers_are_compared_in_their_own_coordinates() {
    let folder = tempfile::tempdir().unwrap();
    let limits = lenient(folder.path());
    for (sound, has_stream, weight) in rotated_models() {
        let name = sound.name;
        let (bundle, checkpoint) = compressed_with(&sound, folder.path(), "int8", &["--rotate", "on"]);
        let rotated = Bundle::open(&bundle).unwrap().manifest().rotated.clone().unwrap();
        assert_eq!((rotated.is_used, rotated.stream.is_some()), (true, has_stream), "{name}");
        assert!(rotated.values.is_some(), "{name}");
        let few = ["--tokens", "4", "--kv", "io", "--layers", "--thresholds", arg(&limits)];
        let (code, report) = verify_json(&bundle, &checkpoint, &few);
        assert_eq!((code, &report["passed"]), (0, &json!(true)), "{name}: {:#}", report["failures"]);
        no_layer_drifts(name, &report, true);

        // Rows of the weight in another order.
        let mut spoiled = Tiny { name: "spoiled", ..sound.clone() };
        let values = &mut spoiled.tensors.get_mut(weight).unwrap().1;
        let half = values.len() / 2;
        values.rotate_left(half);
        let (code, report) = verify_json(&bundle, &spoiled.write(folder.path()), &few);
        let failures = report["failures"].as_array().unwrap();
        assert_eq!(code, 1, "{name}");
        let part = weight.rsplit('.').nth(1).unwrap();
        assert!(failures.iter().any(|failure| failure["metric"] == "weight_cosine"), "{part}: {failures:?}");

        // Weights that are not where the manifest says that they are. The map before a tied head has no place then.
        let file = bundle.join("export.json");
        let mut manifest = command::json(&file);
        manifest["rotated"]["is_used"] = json!(false);
        put(&file, manifest.to_string().as_bytes());
        let (code, report) = verify_json(&bundle, &checkpoint, &few);
        let failures = report["failures"].as_array().unwrap();
        assert_eq!(code, 1, "{name}: {:#}", report["not_judged"]);
        assert!(failures.iter().any(|failure| failure["metric"] == "weight_cosine"), "{name}: {failures:?}");
        let log = manifest["compression"]["tensors"].as_array().unwrap();
        let has_map = log.iter().any(|tensor| tensor["name"] == "head_map_weight");
        assert_eq!(report["not_judged"].as_str().is_some_and(|why| why.contains("head_map_weight")), has_map);
    }
}

#[test]
fn layers_of_a_rotated_model_without_compression_do_not_drift() {
    let folder = tempfile::tempdir().unwrap();
    for (tiny, ..) in rotated_models() {
        let checkpoint = tiny.write(folder.path());
        let bundle = export(&checkpoint, folder.path(), &["--rotate", "on"]);
        let few = ["--tokens", "4", "--kv", "io", "--layers"];
        let (code, report) = verify_json(&bundle, &checkpoint, &few);
        assert_eq!(code, 0, "{}: {:#}", tiny.name, report["failures"]);
        no_layer_drifts(tiny.name, &report, true);

        let mut spoiled = Tiny { name: "spoiled", ..tiny };
        let name = spoiled.tensors.keys().find(|name| name.contains("1.") && name.contains("down_proj"));
        let Some(name) = name.cloned() else { continue };
        spoiled.tensors.get_mut(&name).unwrap().1[17] = half::f16::from_f32(4.0);
        let (code, report) = verify_json(&bundle, &spoiled.write(folder.path()), &few);
        assert_eq!((code, &report["layers"][0]["first_drift"]), (1, &json!("layer 1")), "{report:#}");
    }
}
