//! `anemeter inspect`, as people see it.

use crate::support::command::{anemeter, arg, redact};
use crate::support::fixtures;

#[test]
fn overview_of_an_enumerated_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    let text = anemeter(&["inspect", arg(&path), "--ops", "--weights"]);
    insta::assert_snapshot!(redact(text.succeeded(), folder.path()));
}

#[test]
fn overview_of_a_stateful_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(fixtures::accumulator(), folder.path(), "total.mlpackage");
    insta::assert_snapshot!(redact(anemeter(&["inspect", arg(&path)]).succeeded(), folder.path()));
}

#[test]
fn shared_weights_are_listed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
    insta::assert_snapshot!(redact(
        anemeter(&["inspect", arg(&path), "--weights"]).succeeded(),
        folder.path()
    ));
}

#[test]
fn readable_mil() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    insta::assert_snapshot!(anemeter(&["inspect", arg(&path), "--mil"]).succeeded());
}

#[test]
fn json_is_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
    let outcome = anemeter(&["inspect", arg(&path), "--json"]);
    let document: serde_json::Value = serde_json::from_str(outcome.succeeded()).unwrap();
    assert_eq!(document["schema"], "anemeter-inspect-1");
    assert_eq!(document["functions"][0]["name"], "decode");
    assert_eq!(document["default_function"], "prefill");
    assert_eq!(document["weights"][0]["functions"], serde_json::json!(["decode", "prefill"]));
}

#[test]
fn bad_usage_and_missing_packages_exit_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.mlpackage");
    assert!(anemeter(&["inspect", arg(&missing)]).refused().contains("none.mlpackage"));
    assert!(anemeter(&["inspect", arg(folder.path())]).refused().contains("Manifest.json"));
    assert_eq!(anemeter(&["inspect"]).code, 2);
    assert_eq!(anemeter(&["no-such-command"]).code, 2);
}

#[test]
fn help_lists_what_exists() {
    let outcome = anemeter(&["--help"]);
    insta::assert_snapshot!(outcome.succeeded());
}

#[test]
fn costs_are_shown_with_the_bound_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
    let outcome = anemeter(&["inspect", arg(&path), "--cost", "--bandwidth", "M4=64", "--json"]);
    let document: serde_json::Value = serde_json::from_str(outcome.succeeded()).unwrap();
    assert_eq!(document["basis"], "from shapes, not measured");
    let decode = &document["functions"][0];
    assert_eq!((&decode["function"], &decode["total"]["flops"]), (&"decode".into(), &(2 * 64 + 8).into()));
    assert_eq!(decode["total"]["weight_bytes"], 2 * (64 + 8));
    assert_eq!(decode["total"]["activation_bytes"], 2 * (8 + 8));
    assert_eq!(decode["bounds"][0]["predictions_per_second"].as_f64().unwrap(), 64e9 / 144.0);
    let text = anemeter(&["inspect", arg(&path), "--cost", "--bandwidth", "M4=64"]);
    assert!(text.succeeded().contains("from shapes and not measured"));
    let listed = anemeter(&["inspect", arg(&path), "--cost"]);
    assert!(listed.succeeded().contains("Apple M1 Max, Neural Engine"), "{}", listed.stdout);
    assert!(anemeter(&["inspect", arg(&path), "--cost", "--bandwidth", "M4"]).stderr.contains("CHIP=GB/s"));
}
