//! Core AI assets on the command line, as people see them. The assets are those that Apple's tools made.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::atomic::write_file;
use serde_json::Value;

use crate::support::command::{anemeter, arg};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/coreai/testdata")
}

fn sample(name: &str) -> PathBuf {
    samples().join(name).with_extension("aimodel")
}

/// That some text has all of these.
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn overview_of_a_decoder_with_states() {
    let path = sample("qwen_macos_4bit_float16");
    let text = anemeter(&["inspect", arg(&path), "--ops", "--weights"]);
    let interface = [
        "Core AI asset, aicode 20260317",
        "function main (",
        "keyCache",
        "[2, 1, 2, 512, 16]",
        "logits",
        "[1, ?",
    ];
    assert_has(text.succeeded(), &interface);
    assert_has(text.succeeded(), &["scaled_dot_product_attention", "rms_norm", "rope"]);
    assert_has(
        text.succeeded(),
        &["primitive.blockwise_shift_scale_v2", "blockwise linear", "sint4", "[128, 64]"],
    );
}

#[test]
fn readable_aicode() {
    let text = anemeter(&["inspect", arg(&sample("t_state_fp16_slice_update")), "--mil"]);
    assert!(
        text.succeeded()
            .starts_with("asset version 20250922\n\ngraph \"main\"(\"x\": tensor<1x2x1x4xfloat16>, ")
    );
    let update = "  %16 = primitive.slice_update_v1(%11, %14, %15, %3, %0) : tensor<1x2x8x4xfloat16>\n";
    assert_has(text.succeeded(), &[update, "{value = dense<[1, 2]>}", "  dataflow.output_v1(%18, %19)\n}\n"]);
}

#[test]
fn json_of_an_asset_with_constraints() {
    let path = sample("qwen_ios_none_float16");
    let document: Value =
        serde_json::from_str(anemeter(&["inspect", arg(&path), "--json"]).succeeded()).unwrap();
    assert_eq!(document["schema"], "anemeter-inspect-asset-1");
    assert_eq!(document["dropped_attributes"], serde_json::json!(["MutableBuffers.buffer_mutation"]));
    let functions = document["functions"].as_array().unwrap();
    let extend = functions.iter().find(|function| function["name"] == "extend_512_8").unwrap();
    let names = |what: &str| {
        let ports = extend[what].as_array().unwrap();
        ports.iter().map(|port| port["name"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("states"), ["key_cache", "value_cache"]);
    assert_eq!(names("outputs"), ["out_logits"]);
    assert!(extend["states"][0]["constraints"].as_str().unwrap().ends_with("IOSurface"));
    let bytes = |what: &str| document[what].as_u64().unwrap();
    let file = fs::metadata(path.join("main.mlirb")).unwrap().len();
    assert_eq!(bytes("program_bytes") + bytes("weight_bytes"), file);
}

#[test]
fn every_sample_is_inspected_linted_and_equal_to_itself() {
    for entry in fs::read_dir(samples()).unwrap() {
        let path = entry.unwrap().path();
        assert!(anemeter(&["inspect", arg(&path)]).succeeded().contains("Core AI asset, aicode 20"));
        let compared = anemeter(&["compare", arg(&path), arg(&path)]);
        assert!(compared.succeeded().starts_with("the assets have the same structure and sizes"));
        let linted = anemeter(&["lint", arg(&path), "--json"]);
        let report: Value = serde_json::from_str(&linted.stdout).unwrap();
        let errors = report["counts"]["errors"].as_u64().unwrap();
        assert_eq!(linted.code, i32::from(errors > 0), "{}", path.display());
    }
}

#[test]
fn lint_of_per_block_integers() {
    let path = sample("qwen_macos_4bit_float16");
    let outcome = anemeter(&["lint", arg(&path)]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""));
    assert_has(
        &outcome.stdout,
        &[", for Core AI 27\n", "error C01: integer weights with a scale per block\n"],
    );
    assert_has(&outcome.stdout, &["scales are 64x2 for a weight of 64x64"]);
    let plain = anemeter(&["lint", arg(&sample("t_lut4_group4"))]);
    assert!(plain.succeeded().ends_with("0 errors, 0 warnings, 0 remarks\n"), "{}", plain.stdout);
}

#[test]
fn rules_are_explained_waived_and_in_sarif() {
    let explained = anemeter(&["lint", "--explain", "per-block-integers"]);
    assert!(explained.succeeded().starts_with("C01: integer weights with a scale per block\n"));
    assert_has(
        &explained.stdout,
        &["Evidence:\n- apple/coreai-models issue 279", "It is about Core AI assets."],
    );
    let list = anemeter(&["lint", "--explain", "all"]);
    let path = sample("qwen_macos_4bit_float16");
    let sarif = anemeter(&["lint", arg(&path), "--format", "sarif"]);
    let log: Value = serde_json::from_str(&sarif.stdout).unwrap();
    let rules = anemeter::coreai::lint::rules();
    assert_eq!(log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap().len(), rules.len());
    for rule in rules {
        assert!(list.succeeded().contains(rule.text.title), "{} is not listed", rule.text.id);
    }
    let folder = tempfile::tempdir().unwrap();
    let waivers = folder.path().join("lint.yaml");
    write_file(&waivers, b"waivers:\n  - {rule: C01, where: '*', reason: it is for the GPU}\n").unwrap();
    let waived = anemeter(&["lint", arg(&path), "--waivers", arg(&waivers)]);
    assert!(waived.succeeded().contains("it is for the GPU"), "{}", waived.stdout);
}

#[test]
fn broken_assets_and_options_of_packages_exit_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("broken.aimodel");
    fs::create_dir(&copy).unwrap();
    for name in ["main.mlirb", "main.hash", "metadata.json"] {
        fs::copy(sample("t_lut6").join(name), copy.join(name)).unwrap();
    }
    let program = fs::read(copy.join("main.mlirb")).unwrap();
    write_file(&copy.join("main.mlirb"), &program[..500]).unwrap();
    for command in [&["inspect", arg(&copy)][..], &["lint", arg(&copy)], &["compare", arg(&copy), arg(&copy)]]
    {
        let error = anemeter(command);
        assert!(error.refused().contains("main.mlirb: expected"), "{}", error.stderr);
        assert!(error.stderr.contains("(at byte "), "{}", error.stderr);
    }
    write_file(&copy.join("metadata.json"), br#"{"assetVersion": "9.0"}"#).unwrap();
    assert!(anemeter(&["inspect", arg(&copy)]).refused().contains("to be `2.0`, found `9.0`"));
    let whole = sample("t_lut6");
    assert!(anemeter(&["inspect", arg(&whole), "--cost"]).refused().contains("packages only"));
    assert!(anemeter(&["lint", arg(&whole), "--target", "ios18"]).refused().contains("--target is for"));
    let package = folder.path().join("a.json");
    write_file(&package, b"{}").unwrap();
    assert!(anemeter(&["compare", arg(&whole), arg(&package)]).refused().contains("is a Core AI asset"));
}

/// A copy of a sample that may be damaged.
fn copied(name: &str, folder: &Path) -> PathBuf {
    let copy = folder.join("copy.aimodel");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).unwrap();
    for file in FILES {
        fs::copy(sample(name).join(file), copy.join(file)).unwrap();
    }
    copy
}

const FILES: [&str; 3] = ["main.mlirb", "main.hash", "metadata.json"];

/// Every command that reads an asset. Those that look at its program refuse it with a message that has this in it.
fn assert_all_refuse(asset: &Path, folder: &Path, message: &str) {
    let adopted = folder.join("adopted");
    for command in [
        &["inspect", arg(asset), "--ops", "--weights"][..],
        &["inspect", arg(asset), "--json"],
        &["lint", arg(asset)],
        &["compare", arg(asset), arg(&sample("t_lut6"))],
        &["adopt", arg(asset), "-o", arg(&adopted)],
    ] {
        let refused = anemeter(command);
        let complaint = refused.complaint();
        assert!(complaint.contains(message), "{command:?}: {complaint}");
        assert_eq!(complaint.matches("error: ").count(), 1, "{complaint}");
        assert!(!adopted.exists());
    }
}

#[test]
fn truncated_programs_are_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["t_lut6", "t_state_fp16_slice_update"] {
        let copy = copied(name, folder.path());
        let program = fs::read(copy.join("main.mlirb")).unwrap();
        for length in [0, 4, 40, program.len() / 2, program.len() - 1] {
            write_file(&copy.join("main.mlirb"), &program[..length]).unwrap();
            assert_all_refuse(&copy, folder.path(), "main.mlirb: expected");
        }
    }
}

#[test]
fn flipped_bytes_are_refused_or_read_and_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let copy = copied("t_multifunc_f1", folder.path());
    let program = fs::read(copy.join("main.mlirb")).unwrap();
    let mut refused = 0;
    for at in (0..program.len()).step_by(program.len() / 60) {
        let mut damaged = program.clone();
        damaged[at] ^= 0xff;
        write_file(&copy.join("main.mlirb"), &damaged).unwrap();
        let shown = anemeter(&["inspect", arg(&copy), "--ops", "--weights"]);
        assert!(matches!(shown.code, 0 | 2), "byte {at}: {} {}", shown.code, shown.stderr);
        assert!(!shown.stderr.contains("panicked"), "byte {at}: {}", shown.stderr);
        if shown.code == 2 {
            assert!(shown.complaint().contains("main.mlirb"), "byte {at}: {}", shown.stderr);
            refused += 1;
        }
    }
    assert!(refused > 10, "{refused} of 60 were noticed");
}

#[test]
fn hashes_and_metadata_that_are_wrong_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let copy = copied("t_lut6", folder.path());
    write_file(&copy.join("main.hash"), &[7; 31]).unwrap();
    assert_all_refuse(&copy, folder.path(), "main.hash");
    // One of another file is noticed where every byte is read.
    write_file(&copy.join("main.hash"), &[7; 32]).unwrap();
    assert_eq!(anemeter(&["inspect", arg(&copy)]).code, 0);
    let adopted = folder.path().join("adopted");
    let refused = anemeter(&["adopt", arg(&copy), "-o", arg(&adopted)]);
    assert!(refused.complaint().contains("is not what `main.hash` was made of"), "{}", refused.stderr);
    assert!(!adopted.exists());

    let deep = format!("{{\"assetVersion\": \"2.0\", \"a\": {}", "[".repeat(100_000));
    for (metadata, message) in [
        (&b""[..], "metadata.json: "),
        (b"[1, 2]", "metadata.json: "),
        (br#"{"producer": "x"}"#, "assetVersion"),
        (br#"{"assetVersion": 2}"#, "metadata.json: "),
        (br#"{"assetVersion": "3.0"}"#, "to be `2.0`, found `3.0`"),
        (b"{\"assetVersion\": \"2.0\", \"author\": \"\xff\"}", "metadata.json: "),
        (deep.as_bytes(), "metadata.json: "),
    ] {
        let copy = copied("t_lut6", folder.path());
        write_file(&copy.join("metadata.json"), metadata).unwrap();
        assert_all_refuse(&copy, folder.path(), message);
    }
}
