//! SARIF output against the published schema, and what code hosts ask for beyond it.

use std::path::Path;

use serde_json::Value;

use crate::schema::faults;
use crate::support::command::{anemeter, arg, json};
use crate::support::fixtures;

fn schema() -> Value {
    json(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sarif/sarif-schema-2.1.0.json"))
}

fn document(path: &Path, more: &[&str]) -> Value {
    let outcome = anemeter(&[&["lint", arg(path), "--format", "sarif"], more].concat());
    assert_eq!(outcome.stderr, "");
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn documents_fit_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let schema = schema();
    let waivers = folder.path().join("lint.yaml");
    let text = b"waivers:\n  - {rule: A01, where: '*', reason: a test}\n";
    anemeter::atomic::write_file(&waivers, text).unwrap();
    let models = [crate::support::tiny::model(), fixtures::accumulator(), fixtures::enumerated_mlp()];
    for (i, model) in models.into_iter().enumerate() {
        let path = fixtures::write(model, folder.path(), &format!("model {i}.mlpackage"));
        for more in [&[][..], &["--waivers", arg(&waivers)]] {
            let document = document(&path, more);
            assert_eq!(faults(&schema, &document), Vec::<String>::new());
            assert!(!document["runs"][0]["results"].as_array().unwrap().is_empty());
        }
    }
    let wrong = serde_json::json!({ "version": "2.1.0", "runs": [{ "results": [] }] });
    assert_eq!(faults(&schema, &wrong).len(), 1, "the tool is missing");
}

#[test]
fn code_hosts_get_what_they_ask_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::write(crate::support::tiny::model(), folder.path(), "tiny.mlpackage");
    let document = document(&path, &[]);
    assert_eq!(document["version"], "2.1.0");
    assert!(document["$schema"].as_str().unwrap().ends_with("sarif-schema-2.1.0.json"));
    let run = &document["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), anemeter::lint::rules().len());
    for rule in rules {
        for text in ["shortDescription", "fullDescription", "help"] {
            assert!(!rule[text]["text"].as_str().unwrap().is_empty());
        }
    }
    for result in run["results"].as_array().unwrap() {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        assert!(result["partialFingerprints"]["primaryLocationLineHash"].is_string());
        let place = &result["locations"][0]["physicalLocation"];
        assert!(place["artifactLocation"]["uri"].as_str().unwrap().ends_with("tiny.mlpackage"));
        assert_eq!(place["region"]["startLine"], 1);
    }
}
