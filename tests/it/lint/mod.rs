//! `anemeter lint`, as people and programs see it.

mod own_exports;
mod sarif;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anemeter::lower::{Options, lower};
use anemeter::vocabulary::KvForm;

use crate::lower::models::{TINY, llama};
use crate::support::command::{anemeter, arg, redact};
use crate::support::compile::Dialect;
use crate::support::{fixtures, mlmodelc};

/// A tiny decoder, written.
fn decoder(folder: &Path, form: KvForm) -> PathBuf {
    let options = Options {
        kv: BTreeSet::from([form]),
        seq_lens: vec![512, 1024],
        contexts: vec![512],
        query: 32,
        ..Options::default()
    };
    let chunk = lower(&llama(TINY, 1), &options).unwrap().remove(0);
    fixtures::write(chunk.model, folder, "decoder.mlpackage")
}

#[test]
fn text_of_a_decoder() {
    let folder = tempfile::tempdir().unwrap();
    let path = decoder(folder.path(), KvForm::State);
    let text = anemeter(&["lint", arg(&path), "--target", "ios18", "--device", "a17"]);
    insta::assert_snapshot!(redact(text.succeeded(), folder.path()));
}

#[test]
fn markdown_of_a_model_with_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(crate::support::tiny::model(), folder.path(), "tiny.mlpackage");
    let outcome = anemeter(&["lint", arg(&path), "--format", "md"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""));
    insta::assert_snapshot!(redact(&outcome.stdout, folder.path()));
}

#[test]
fn explain_tells_the_evidence() {
    insta::assert_snapshot!(anemeter(&["lint", "--explain", "a12"]).succeeded());
}

#[test]
fn every_rule_can_be_explained() {
    let list = anemeter(&["lint", "--explain", "all"]);
    for rule in anemeter::lint::rules() {
        assert!(list.succeeded().contains(rule.title), "{} is not listed", rule.id);
        let text = anemeter(&["lint", "--explain", rule.id]);
        assert!(text.succeeded().starts_with(&format!("{}: {}\n", rule.id, rule.title)));
        assert!(text.stdout.contains("Evidence:\n- "), "{} has no evidence", rule.id);
    }
    let by_name = anemeter(&["lint", "--explain", "fused-attention"]);
    assert!(by_name.succeeded().starts_with("A29: "));
    assert!(anemeter(&["lint", "--explain", "A99"]).refused().contains("no rule `A99`"));
}

#[test]
fn json_is_one_document_with_places() {
    let folder = tempfile::tempdir().unwrap();
    let path = decoder(folder.path(), KvForm::State);
    let outcome = anemeter(&["lint", arg(&path), "--format", "json", "--compute-units", "all"]);
    let document: serde_json::Value = serde_json::from_str(outcome.succeeded()).unwrap();
    assert_eq!((&document["schema"], &document["target"]), (&"anemeter-lint-1".into(), &"macos15".into()));
    let findings = document["findings"].as_array().unwrap();
    let update = findings.iter().find(|finding| finding["rule"] == "A20").unwrap();
    assert_eq!(update["place"]["operation"]["type"], "slice_update");
    assert_eq!(update["place"]["operation"]["name"], "layers_0_attention_updated");
    assert_eq!(update["layers"], serde_json::json!([0, 1, 2]));
    assert_eq!(update["confidence"], "single-report");
    assert!(findings.iter().any(|finding| finding["rule"] == "A55"));
    let placement = &document["placements"][0];
    assert_eq!(placement["basis"], "predicted");
    assert!(placement["residency_by_cost"].as_f64().unwrap() > 0.9);
}

#[test]
fn waivers_accept_findings_and_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(crate::support::tiny::model(), folder.path(), "tiny.mlpackage");
    let config = folder.path().join("lint.yaml");
    let write = |text: &str| anemeter::atomic::write_file(&config, text.as_bytes()).unwrap();
    write(
        "waivers:\n  - {rule: A01, where: 'tiny.mlpackage/main/*', reason: a test of fp32}\n  \
         - {rule: A24, where: '*', reason: a test of branches}\n  - {rule: A10, where: '*/none/*', reason: old}\n",
    );
    let outcome = anemeter(&["lint", arg(&path), "--waivers", arg(&config)]);
    let text = outcome.succeeded();
    assert!(text.contains("waived\n  A01 main: `"), "{text}");
    assert!(text.contains(": a test of branches\n"), "{text}");
    assert!(text.contains("the waiver of A10 at `*/none/*` accepts nothing"), "{text}");
    write("waivers:\n  - {rule: A01, where: '*'}\n");
    let refused = anemeter(&["lint", arg(&path), "--waivers", arg(&config)]);
    assert!(refused.refused().contains("reason"), "{}", refused.stderr);
}

#[test]
fn folders_of_packages_are_looked_at_together() {
    let folder = tempfile::tempdir().unwrap();
    fixtures::write(fixtures::two_functions(), folder.path(), "a.mlpackage");
    fixtures::write(fixtures::accumulator(), folder.path(), "b.mlpackage");
    let compiled = fixtures::write(fixtures::accumulator(), folder.path(), "c.mlpackage");
    mlmodelc::compiled(&compiled, Dialect::Scalars);
    std::fs::remove_dir_all(compiled).unwrap();
    let notes = br#"{"schema": "any", "settings": {"training_seq_lens": [512], "compute_units": "cpu+ane"}}"#;
    anemeter::atomic::write_file(&folder.path().join("export.json"), notes).unwrap();
    let outcome = anemeter(&["lint", arg(folder.path())]);
    let text = outcome.succeeded();
    assert!(text.contains("warning A56") && text.contains("c.mlmodelc"), "{text}");
    assert!(text.contains("c.mlmodelc/main"), "compiled models are looked into: {text}");
    assert!(text.contains("b.mlpackage/main"), "{text}");
    assert!(!text.contains("A55"), "compute units are known and fine: {text}");
    let empty = tempfile::tempdir().unwrap();
    std::fs::create_dir(empty.path().join("c.mlmodelc")).unwrap();
    let message = "c.mlmodelc/coremldata.bin: does not exist";
    assert!(anemeter(&["lint", arg(empty.path())]).refused().contains(message));
    std::fs::remove_dir(empty.path().join("c.mlmodelc")).unwrap();
    assert!(anemeter(&["lint", arg(empty.path())]).refused().contains("help: give an .mlpackage"));
}
