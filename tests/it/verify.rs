//! `anemeter verify`: exports of every architecture against their checkpoints.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::architectures;
use crate::command::{Outcome, anemeter, arg};

/// Exports a checkpoint in all forms.
fn export(checkpoint: &Path, folder: &Path, more: &[&str]) -> PathBuf {
    let bundle = folder.join(format!("{}-bundle", checkpoint.file_name().unwrap().to_str().unwrap()));
    let mut args = vec!["export", arg(checkpoint), "-o", arg(&bundle)];
    args.extend(["--kv", "io,state,none", "--shapes", "16,24", "--query", "4"]);
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
        let (code, report) = verify_json(&bundle, &checkpoint, &["--tokens", "6"]);
        assert_eq!((code, &report["passed"]), (0, &json!(true)), "{}: {report:#}", tiny.name);
        let cells = report["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 3 * 2 * 2);
        for cell in cells {
            assert!(cell["cosine_min"].as_f64().unwrap() >= 0.9999, "{}: {cell}", tiny.name);
            assert_eq!(cell["positions"], if cell["phase"] == "prefill" { 8 } else { 40 });
        }
    }
}
