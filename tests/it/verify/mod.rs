//! `anemeter verify`: exports of every architecture against their checkpoints.

mod against;
mod compressed;
mod decoder_faults;
mod faults;
mod gemma4;
mod hybrids;
mod range;

use std::path::{Path, PathBuf};

use anemeter::advice::{Advice, Remedy};
use anemeter::bundle::Bundle;
use anemeter::harness::records;
use anemeter::report::Verification;
use anemeter::vocabulary::RuntimeName;
use half::f16;
use serde_json::{Value, json};

use crate::support::architectures::{self, Tiny};
use crate::support::checkpoints::write_text;
use crate::support::command::{self, Outcome, anemeter, arg};
use crate::support::damage::put;

/// Exports a checkpoint in all forms.
fn export(checkpoint: &Path, folder: &Path, more: &[&str]) -> PathBuf {
    export_in(ALL_FORMS, checkpoint, folder, more)
}

/// Every form of the KV cache.
const ALL_FORMS: &str = "io,state,none";

/// Exports a checkpoint in some forms.
fn export_in(forms: &str, checkpoint: &Path, folder: &Path, more: &[&str]) -> PathBuf {
    let bundle = folder.join(format!("{}-bundle", checkpoint.file_name().unwrap().to_str().unwrap()));
    let mut args = vec!["export", arg(checkpoint), "-o", arg(&bundle)];
    args.extend(["--kv", forms, "--shapes", "16,24", "--query", "4"]);
    args.extend(more);
    let outcome = anemeter(&args);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    bundle
}

fn verify(bundle: &Path, checkpoint: &Path, more: &[&str]) -> Outcome {
    let mut args = vec!["verify", arg(bundle), "--checkpoint", arg(checkpoint)];
    args.extend(more);
    anemeter(&args)
}

fn verify_json(bundle: &Path, checkpoint: &Path, more: &[&str]) -> (i32, Value) {
    let outcome = verify(bundle, checkpoint, &[&["--json"], more].concat());
    (outcome.code, serde_json::from_str(&outcome.stdout).unwrap())
}

#[test]
fn every_architecture_and_form_passes() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in architectures::all() {
        let checkpoint = tiny.write(folder.path());
        let bundle = export(&checkpoint, folder.path(), &[]);
        let (code, report) = verify_json(&bundle, &checkpoint, &["--tokens", "4", "--layers"]);
        assert_eq!((code, &report["passed"]), (0, &json!(true)), "{}: {report:#}", tiny.name);
        faults::no_layer_drifts(tiny.name, &report, true);
        let cells = report["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 3 * 2 * 2);
        for cell in cells {
            assert!(cell["cosine_min"].as_f64().unwrap() >= 0.9999, "{}: {cell}", tiny.name);
            assert_eq!(cell["positions"], if cell["phase"] == "prefill" { 8 } else { 24 });
        }
    }
}

fn set(tiny: &mut Tiny, tensor: &str, index: usize, value: f32) {
    tiny.tensors.get_mut(tensor).unwrap().1[index] = f16::from_f32(value);
}

#[test]
fn thresholds_and_tables() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = architectures::llama("llama", &json!({})).write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &["--chunks", "2"]);
    let few = ["--kv", "state,none", "--shapes", "24,16", "--tokens", "3"];
    let outcome = verify(&bundle, &checkpoint, &few);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    for line in [
        "against llama (textbook, candle-core, f32)",
        "8 prompts, up to 3 tokens after each",
        "the same tokens at two lengths",
        "greedy tokens: 96 of 96 the same, 0 differ within a tie",
        "passed",
    ] {
        assert!(outcome.stdout.lines().any(|found| found == line), "{line}: {}", outcome.stdout);
    }
    assert!(outcome.stderr.lines().all(|line| line.starts_with("compared ")), "{}", outcome.stderr);

    let config = folder.path().join("strict.yaml");
    write_text(&config, "verify:\n  max_abs: 0\n");
    let outcome = verify(&bundle, &checkpoint, &[&few[..], &["--thresholds", arg(&config)]].concat());
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains("beyond its threshold: none 16 prefill: max_abs is "),
        "{}",
        outcome.stdout
    );
    assert!(outcome.stdout.ends_with("failed\n"));

    let exact = verify(&bundle, &checkpoint, &[&few[..], &["--numerics", "fp16-exact"]].concat());
    assert_eq!(exact.code, 0, "{}{}", exact.stdout, exact.stderr);
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = architectures::llama("llama", &json!({})).write(folder.path());
    let other = architectures::gpt2("gpt2", &json!({})).write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &[]);
    let file = folder.path().join("file");
    write_text(&file, "verify: {cosin: 1}");
    let none = folder.path().join("none");
    for (bundle, checkpoint, more, message) in [
        (&bundle, &other, &[][..], "is a gpt2 model, the bundle's is llama"),
        (&none, &checkpoint, &[], "there is no such bundle or package"),
        (&bundle, &none, &[], "does not exist"),
        (&bundle, &checkpoint, &["--shapes", "99"], "the form `io` has no length 99, but 16, 24"),
        (&bundle, &checkpoint, &["--thresholds", arg(&file)], "did you mean `cosine`?"),
        (&bundle, &checkpoint, &["--prompts", arg(&file)], "--prompts needs a tokenizer"),
        (&bundle, &checkpoint, &["--tokens", "0"], "'--tokens <N>'"),
    ] {
        let outcome = verify(bundle, checkpoint, more);
        let error = outcome.refused();
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn what_was_found_is_recorded_beside_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let sound = architectures::llama("sound", &json!({}));
    let checkpoint = sound.write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &[]);
    let opened = Bundle::open(&bundle).unwrap();
    assert_eq!(records::read::<Verification>(&opened, RuntimeName::Cpu).unwrap(), None);

    let few = ["--kv", "io,state", "--shapes", "16,24", "--tokens", "2"];
    let outcome = verify(&bundle, &checkpoint, &few);
    assert!(!outcome.stderr.contains("note:"), "{}", outcome.stderr);
    let found: Verification = records::read(&opened, RuntimeName::Cpu).unwrap().unwrap();
    assert!(found.passed && found.checkpoint_is_the_exported_one && found.cosine_min > Some(0.9999));
    assert_eq!((found.nan, found.inf, found.positions, found.failures.len()), (0, 0, 2 * 2 * 2 * 8, 0));
    assert_eq!(
        command::json(&bundle.join("verify.json"))["compared"],
        json!([{"kv": "io", "seq_lens": [16, 24]}, {"kv": "state", "seq_lens": [16, 24]}])
    );
    assert_eq!(found.checkpoint_digest, opened.exported().unwrap().checkpoint.digest);

    let mut other = Tiny { name: "other", ..sound };
    set(&mut other, "model.norm.weight", 3, -1.0);
    let outcome = verify(&bundle, &other.write(folder.path()), &few);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.stderr.contains("note: the checkpoint other has the digest xxh3-sampled:"),
        "{}",
        outcome.stderr
    );
    let found: Verification = records::read(&opened, RuntimeName::Cpu).unwrap().unwrap();
    assert!(!found.passed && !found.checkpoint_is_the_exported_one && !found.failures.is_empty());

    exported_again_is_not_verified(&checkpoint, &bundle);
}

fn exported_again_is_not_verified(checkpoint: &Path, bundle: &Path) {
    let kept = std::fs::read(bundle.join("verify.json")).unwrap();
    let again = ["export", arg(checkpoint), "-o", arg(bundle), "--shapes", "16", "--overwrite"];
    assert_eq!(anemeter(&again).code, 0);
    assert!(!bundle.join("verify.json").exists(), "a new bundle takes the place of the whole folder");
    put(&bundle.join("verify.json"), &kept);
    let opened = Bundle::open(bundle).unwrap();
    assert_eq!(
        records::read::<Verification>(&opened, RuntimeName::Cpu).unwrap(),
        None,
        "the record is of other packages"
    );
    write_text(&bundle.join("verify.json"), "{");
    let error = records::read::<Verification>(&opened, RuntimeName::Cpu).unwrap_err();
    assert!(error.to_string().contains("verify.json: is not the record of a verification"), "{error}");
    assert_eq!(error.remedy(), Some(Remedy::VerifyAgain));
}
