//! Compressed weights: held to what they are, and to what they lose.

use std::path::{Path, PathBuf};

use anemeter::bundle::Bundle;
use anemeter::harness::records;
use anemeter::report::Verification;
use anemeter::vocabulary::RuntimeName;
use serde_json::{Value, json};

use super::{export, verify, verify_json};
use crate::support::architectures::{self, Tiny};
use crate::support::checkpoints::write_text;
use crate::support::command::arg;

/// Exports with every matrix compressed, however small it is.
fn compressed(tiny: &Tiny, folder: &Path, precision: &str) -> (PathBuf, PathBuf) {
    let checkpoint = tiny.write(folder);
    let config = folder.join("precision.yaml");
    let rules = format!(
        "coreml: {{precision: {{default: fp16, rules: [{{match: \"*\", precision: \"{precision}\"}}]}}}}\n"
    );
    write_text(&config, &rules);
    let bundle = export(&checkpoint, folder, &["--config", arg(&config), "--overwrite"]);
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
