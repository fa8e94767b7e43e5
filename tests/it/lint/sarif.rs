//! SARIF output against the published schema, and what code hosts ask for beyond it.

use std::path::Path;

use serde_json::Value;

use crate::schema::faults;
use crate::support::checkpoints::write_text;
use crate::support::command::{anemeter, arg, json, program, run};
use crate::support::fixtures;
use crate::support::scene::Scene;

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

/// The place of the result of a rule, and the related one, by path and line.
fn places(document: &Value, rule: &str) -> (String, Option<String>) {
    let results = document["runs"][0]["results"].as_array().unwrap();
    let result = results.iter().find(|result| result["ruleId"] == rule).unwrap();
    let place = |location: &Value| {
        let location = &location["physicalLocation"];
        let uri = location["artifactLocation"]["uri"].as_str().unwrap();
        format!("{uri}:{}", location["region"]["startLine"])
    };
    (place(&result["locations"][0]), result["relatedLocations"].as_array().map(|related| place(&related[0])))
}

#[test]
fn findings_of_a_bundle_are_in_the_configuration_that_made_it() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("configs")).unwrap();
    let config = scene.path("configs/small model.yaml");
    write_text(&config, "# for tests\ncoreml:\n  kv: [io]\n  enumerate_shapes: [16, 32]\n");
    scene.export("exports/model", &["--config", arg(&config)]).good();
    let manifest = json(&scene.path("exports/model/export.json"));
    assert_eq!(manifest["settings"]["config"], "../../configs/small model.yaml");
    let lint = |bundle: &str| {
        let mut command = program();
        let outcome = run(command.args(["lint", bundle, "--format", "sarif"]).current_dir(scene.folder()));
        let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(faults(&schema(), &document), Vec::<String>::new());
        document
    };
    let document = lint("exports/model");
    let package = "exports/model/model.mlpackage:1".to_owned();
    // The key that decides is on line 4; what no key decides, and a key that is not set, is on the first line.
    assert_eq!(places(&document, "C05"), ("configs/small%20model.yaml:4".to_owned(), Some(package.clone())));
    assert_eq!(places(&document, "A51"), ("configs/small%20model.yaml:1".to_owned(), Some(package.clone())));
    let bundle = Some("exports/model:1".to_owned());
    assert_eq!(places(&document, "A55"), ("configs/small%20model.yaml:1".to_owned(), bundle));
    let results = document["runs"][0]["results"].as_array().unwrap();
    let finding = results.iter().find(|result| result["ruleId"] == "C05").unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(finding).unwrap());
    // The same from elsewhere, and without the file.
    let from_elsewhere = anemeter(&["lint", arg(&scene.path("exports/model")), "--format", "sarif"]);
    let from_elsewhere: Value = serde_json::from_str(&from_elsewhere.stdout).unwrap();
    assert!(places(&from_elsewhere, "C05").0.ends_with("/configs/small%20model.yaml:4"));
    std::fs::remove_file(&config).unwrap();
    assert_eq!(places(&lint("exports/model"), "C05"), (package, None));
}
