//! Decoders whose layers keep states of fixed size: against their references in every form that they have, in packages of
//! their own, and with a fault in each of their parts.

use std::sync::Arc;

use anemeter::bundle::Bundle;
use anemeter::generate::{Driver, SystemClock, sessions};
use anemeter::runtime::{self, LoadOptions};
use anemeter::vocabulary::KvForm;
use anemeter::{checkpoint, oracle};
use half::f16;
use serde_json::json;

use super::faults::{Fault, all_are_found_in, no_layer_drifts, values};
use super::{export_in, set, verify_json};
use crate::support::architectures::Tiny;
use crate::support::command::{anemeter, arg};
use crate::support::hybrids::{self, lfm2, qwen3_5};

const FORMS: &str = "io,none";

#[test]
fn every_hybrid_passes_in_one_package_and_in_two() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in hybrids::all() {
        for chunks in ["1", "2"] {
            let folder = folder.path().join(chunks);
            let checkpoint = tiny.write(&folder);
            let bundle = export_in(FORMS, &checkpoint, &folder, &["--chunks", chunks]);
            let (code, report) = verify_json(&bundle, &checkpoint, &["--tokens", "4", "--layers"]);
            assert_eq!((code, &report["passed"]), (0, &json!(true)), "{}: {report:#}", tiny.name);
            no_layer_drifts(tiny.name, &report, true);
            for cell in report["cells"].as_array().unwrap() {
                // What fp16 leaves of a model whose norms amplify it; activations in fp32 are held to more.
                assert!(cell["cosine_min"].as_f64().unwrap() >= 0.9999, "{}: {cell}", tiny.name);
            }
        }
    }
}

#[test]
fn a_function_for_each_length_computes_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = lfm2("lfm2", &json!({})).write(folder.path());
    let bundle = export_in(FORMS, &checkpoint, folder.path(), &["--shapes-as", "functions"]);
    let text = std::fs::read_to_string(bundle.join("export.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(manifest["settings"]["shapes_as"], "functions");
    let functions = manifest["chunks"][0]["functions"].as_array().unwrap();
    let mut names: Vec<&str> = functions.iter().map(|function| function["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let expected = [
        "decode_16",
        "decode_24",
        "embed_1",
        "embed_16",
        "embed_24",
        "main_16",
        "main_24",
        "prefill_16",
        "prefill_24",
    ];
    assert_eq!(names, expected);
    let (code, report) = verify_json(&bundle, &checkpoint, &["--tokens", "12"]);
    assert_eq!((code, &report["passed"]), (0, &json!(true)), "{report:#}");
}

#[test]
fn forms_that_a_hybrid_does_not_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("bundle");
    let refused = |tiny: Tiny, more: &[&str], expected: &str| {
        let checkpoint = tiny.write(folder.path());
        let outcome =
            anemeter(&[&["export", arg(&checkpoint), "-o", arg(&output), "--shapes", "16"], more].concat());
        assert_eq!(outcome.code, 2, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
        assert!(!output.exists());
    };
    refused(
        lfm2("lfm2", &json!({})),
        &["--kv", "state"],
        "states of convolutions, which are inputs and outputs",
    );
    let enumerated = ["--shapes-as", "enumerated"];
    refused(qwen3_5("qwen3_5", &json!({})), &enumerated, "each length is another program");
    let halved = qwen3_5("halved", &json!({"mamba_ssm_dtype": "bfloat16"}));
    refused(halved, &[], "`mamba_ssm_dtype` is `bfloat16`, but states are computed in float32");
}

fn fault(name: &'static str, sound: Tiny, spoil: fn(&mut Tiny), expected: &'static str) -> Fault {
    Fault { name, sound, spoil, expected: Some(expected) }
}

#[test]
fn faults_of_short_convolutions() {
    let sound = || lfm2("sound", &json!({}));
    all_are_found_in(
        FORMS,
        vec![
            fault(
                "a kernel turned round",
                sound(),
                |tiny| values(tiny, "model.layers.2.conv.conv.weight").reverse(),
                "layer 2 attention",
            ),
            fault(
                "both gates exchanged",
                sound(),
                |tiny| {
                    let matrix = values(tiny, "model.layers.0.conv.in_proj.weight");
                    let third = matrix.len() / 3;
                    let (before, after) = matrix[..2 * third].split_at_mut(third);
                    before.swap_with_slice(after);
                },
                "layer 0 attention",
            ),
            fault(
                "one element of the output projection",
                sound(),
                |tiny| set(tiny, "model.layers.2.conv.out_proj.weight", 7, 4.0),
                "layer 2 attention",
            ),
            fault(
                "one scale of the norm of query heads",
                sound(),
                |tiny| set(tiny, "model.layers.1.self_attn.q_layernorm.weight", 2, -4.0),
                "layer 1 attention",
            ),
            fault(
                "one element of an MLP",
                sound(),
                |tiny| set(tiny, "model.layers.1.feed_forward.w3.weight", 17, 6.0),
                "layer 1",
            ),
        ],
    );
}

#[test]
fn faults_of_delta_rules() {
    let sound = || qwen3_5("sound", &json!({}));
    all_are_found_in(
        FORMS,
        vec![
            fault(
                "another decay",
                sound(),
                |tiny| values(tiny, "model.layers.0.linear_attn.A_log").fill(f16::from_f32(2.5)),
                "layer 0 attention",
            ),
            fault(
                "another bias of the decay",
                sound(),
                |tiny| values(tiny, "model.layers.2.linear_attn.dt_bias").fill(f16::from_f32(4.0)),
                "layer 2 attention",
            ),
            fault(
                "heads write another share",
                sound(),
                |tiny| values(tiny, "model.layers.0.linear_attn.in_proj_b.weight").reverse(),
                "layer 0 attention",
            ),
            fault(
                "a kernel turned round",
                sound(),
                |tiny| values(tiny, "model.layers.2.linear_attn.conv1d.weight").reverse(),
                "layer 2 attention",
            ),
            fault(
                "one scale of the norm before the gate",
                sound(),
                |tiny| set(tiny, "model.layers.2.linear_attn.norm.weight", 3, -4.0),
                "layer 2 attention",
            ),
            fault(
                "queries and gates exchanged in attention",
                sound(),
                |tiny| {
                    let matrix = values(tiny, "model.layers.1.self_attn.q_proj.weight");
                    let head = matrix.len() / 8;
                    matrix.chunks_mut(2 * head).for_each(|both| both.rotate_left(head));
                },
                "layer 1 attention",
            ),
        ],
    );
}

/// Prompts of several pieces, one that ends within the first and one of a full sequence, and tokens after them.
#[test]
fn delta_rules_go_on_from_piece_to_piece() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = qwen3_5("qwen3_5", &json!({"max_position_embeddings": 256}));
    let path = tiny.write(folder.path());
    let output = folder.path().join("bundle");
    let export = ["export", arg(&path), "-o", arg(&output), "--kv", "io,none", "--shapes", "131,200"];
    let outcome = anemeter(&export);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let bundle = Bundle::open(&output).unwrap();
    let mut oracle = oracle::open(&checkpoint::open(&path).unwrap(), 200).unwrap();
    let ids: Vec<u32> = (0..200u32).map(|i| i * i % 31 + i % 5).collect();
    for form in [KvForm::Io, KvForm::None] {
        let sessions = sessions(&bundle, &runtime::cpu(), &LoadOptions::default()).unwrap();
        let mut driver =
            Driver::new(&bundle, sessions, Some(form), Arc::new(SystemClock::default())).unwrap();
        for prompt in [2, 50, 131, 140, 198] {
            oracle.reset();
            let expected = oracle.feed(&ids[..prompt]).unwrap();
            driver.prefill(&[&ids[..prompt]], None).unwrap();
            let same = |found: &[f32], expected: &[f32], tokens: usize| {
                let cosine = anemeter::stats::cosine(found, expected);
                assert!(cosine >= 0.99999, "{form}: {cosine} after {tokens} of a prompt of {prompt}");
            };
            same(driver.logits(0), &expected, prompt);
            for (place, &id) in (prompt..).zip(&ids[prompt..]).take(2) {
                driver.step(&[id]).unwrap();
                same(driver.logits(0), &oracle.feed(&[id]).unwrap(), place + 1);
            }
        }
    }
}
