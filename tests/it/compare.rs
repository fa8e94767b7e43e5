//! `anemeter compare` on small bundles, their reports and their packages.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::schema::assert_valid;
use crate::support::checkpoints::write_text;
use crate::support::command::{Outcome, anemeter, arg, json};
use crate::support::fixtures::WORKLOAD;
use crate::support::scene::Scene;

/// Two bundles, `a` and `b`, and a workload for them.
fn exported(second: &[&str]) -> Scene {
    let scene = Scene::new();
    write_text(&scene.path("bench.yaml"), WORKLOAD);
    scene.export("a", &["--shapes", "16,32"]).good();
    scene.export("b", second).good();
    scene
}

impl Scene {
    fn compare(&self, first: &str, second: &str, more: &[&str]) -> Outcome {
        let (first, second) = (self.path(first), self.path(second));
        anemeter(&[&["compare", arg(&first), arg(&second)], more].concat())
    }
}

fn package_of(bundle: &Path) -> String {
    let manifest = json(&bundle.join("export.json"));
    manifest["chunks"][0]["file"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn bundles_run_in_the_recorded_order_and_leave_reports_and_a_verdict() {
    let scene = exported(&["--shapes", "16,32", "--precision", "int8"]);
    let (config, out) = (scene.path("bench.yaml"), scene.path("out"));
    let flags = ["--workload", arg(&config), "--out", arg(&out), "--runtime", "cpu"];
    let small = ["--shapes", "16", "--requests", "2", "--threads", "1", "--budget", "1s", "--json"];
    let outcome = scene.compare("a", "b", &[&flags[..], &small].concat());
    assert!([0, 1, 3].contains(&outcome.code), "{}: {}", outcome.code, outcome.stderr);

    let printed: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(printed, json(&scene.path("out/comparison.json")));
    assert_valid("compare", &printed);
    assert_eq!((&printed["schema"], &printed["kind"]), (&"anemeter.compare/1".into(), &"bundles".into()));
    let verdict = json(&scene.path("out/verdict.json"));
    assert_eq!(verdict, printed["verdict"]);
    assert_eq!((&verdict["schema"], &verdict["rule"]), (&"anemeter.verdict/1".into(), &"paired".into()));
    let code = ["pass", "fail", "", "inconclusive"].iter().position(|word| verdict["outcome"] == *word);
    assert_eq!(code, Some(outcome.code as usize));

    let order = printed["order"].as_array().unwrap();
    assert!(!order.is_empty() && order.len().is_multiple_of(4));
    for block in order.chunks(4) {
        assert_eq!(block.iter().filter(|arm| **arm == "candidate").count(), 2, "{block:?}");
    }
    for (name, arm, precision) in [("a", "baseline", "fp16"), ("b", "candidate", "int8:channel")] {
        let report = json(&scene.path("out").join(name).join("report.json"));
        let launches = report["launches"].as_array().unwrap();
        assert_eq!(launches.len(), order.iter().filter(|place| **place == arm).count());
        assert_eq!(report["subject"]["precision"], precision);
        assert_eq!(report["workload"]["seq_lens"], Value::from(vec![16]));
    }
    let changed: Vec<&Value> =
        printed["changes"].as_array().unwrap().iter().map(|change| &change["what"]).collect();
    assert!(changed.contains(&&"precision".into()), "{changed:?}");

    let reports = scene.compare("out/a", "out/b/report.json", &[]);
    assert!([0, 1, 3].contains(&reports.code), "{}", reports.stderr);
    for word in ["Medians", "TTFT", "What changed", "precision", "int8"] {
        assert!(reports.stdout.contains(word), "{word}: {}", reports.stdout);
    }
    let reports = scene.compare("out/a", "out/b", &["--json"]);
    assert_valid("compare", &serde_json::from_str(&reports.stdout).unwrap());
    let page = fs::read_to_string(scene.path("out/b/report.html")).unwrap();
    assert!(page.contains("Candidate against baseline"));
}

#[test]
fn bundles_that_do_other_work_are_refused_with_each_difference() {
    let scene = exported(&["--shapes", "16"]);
    let config = scene.path("bench.yaml");
    let outcome = scene.compare("a", "b", &["--workload", arg(&config), "--runtime", "cpu"]);
    assert_eq!(outcome.code, 2);
    assert!(
        outcome.stderr.contains("list of sequence lengths is `16`, the baseline's is `16,32`"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("help: choose what both bundles have"), "{}", outcome.stderr);
    let missing =
        scene.compare("a", "b", &["--workload", arg(&config), "--shapes", "32", "--runtime", "cpu"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("the bundle has no seq_len 32"), "{}", missing.stderr);
}

#[test]
fn packages_are_set_side_by_side_and_kinds_are_not_mixed() {
    let scene = exported(&["--shapes", "16,64"]);
    let [a, b] = ["a", "b"].map(|name| format!("{name}/{}", package_of(&scene.path(name))));
    let outcome = scene.compare(&a, &b, &[]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    for word in ["Inputs, outputs and states", "Cost of one prediction", "From shapes, not measured"] {
        assert!(outcome.stdout.contains(word), "{word}: {}", outcome.stdout);
    }
    let outcome = scene.compare(&a, &b, &["--json"]);
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(document["kind"], "packages");
    assert_valid("compare", &document);
    assert!(!document["interface"].as_array().unwrap().is_empty());
    assert_eq!(document["operations"], Value::Array(Vec::new()));

    let mixed = scene.compare("b", &a, &["--shapes", "64"]);
    assert_eq!(mixed.code, 2);
    assert!(mixed.stderr.contains("kind of workload is `predict`"), "{}", mixed.stderr);
    let neither = scene.compare("tiny", "a", &[]);
    assert!(neither.code == 2 && neither.stderr.contains("is neither a bundle"), "{}", neither.stderr);
    let junit = scene.compare(&a, &b, &["--format", "junit"]);
    assert_eq!(junit.code, 2);
}

#[test]
fn a_bundle_runs_on_two_runtimes() {
    let scene = exported(&["--shapes", "16"]);
    let (bundle, out) = (scene.path("a"), scene.path("out"));
    let compare = |more: &[&str]| anemeter(&[&["compare", arg(&bundle)], more].concat());
    let command = ["--runtime", "cpu,cpu", "--calls", "20", "--threads", "1", "--out", arg(&out), "--json"];
    let outcome = compare(&command);
    let document: Value = serde_json::from_str(outcome.succeeded()).unwrap();
    assert_valid("compare", &document);
    assert_eq!(document, json(&out.join("comparison.json")));
    assert_eq!((&document["kind"], &document["alike"]), (&"runtimes".into(), &true.into()));
    let functions = document["packages"][0]["functions"].as_array().unwrap();
    let names: Vec<&str> = functions.iter().map(|function| function["function"].as_str().unwrap()).collect();
    assert!(names.contains(&"prefill") && names.contains(&"decode"), "{names:?}");
    for function in functions {
        let outputs = function["outputs"].as_array().unwrap();
        assert!(!outputs.is_empty() && outputs.iter().all(|output| output["max_abs"] == 0.0), "{function}");
        for side in ["baseline", "candidate"] {
            let time = &function[side];
            assert!(
                time["p95_ms"].as_f64() >= time["p50_ms"].as_f64() && time["p50_ms"].as_f64() > Some(0.0)
            );
        }
    }
    let package = bundle.join(package_of(&bundle));
    let text = anemeter(&["compare", arg(&package), "--runtime", "cpu,cpu", "--calls", "3"]);
    for word in ["pass: cpu gives what cpu gives", "greatest difference", "B over A", "prefill"] {
        assert!(text.succeeded().contains(word), "{word}: {}", text.stdout);
    }

    let refused = |more: &[&str]| compare(more).refused().to_owned();
    assert!(refused(&["--runtime", "auto,cpu"]).contains("`auto` is no runtime of its own"));
    assert!(refused(&["--runtime", "cpu,cpu", "--shapes", "16"]).contains("--shapes means nothing"));
    assert!(refused(&["--runtime", "cpu"]).contains("nothing to compare it with"));
    assert!(refused(&["--runtime", "cpu,cpu,cpu"]).contains("--runtime cpu,cpu,cpu: expected one"));
    assert!(refused(&[arg(&bundle), "--runtime", "cpu,cpu"]).contains("two and one thing to run"));
    assert!(refused(&[arg(&bundle), "--runtime", "coreml-rs"]).contains("coreml-rs"));
}

#[cfg(not(target_os = "macos"))]
#[test]
fn runtimes_that_are_not_there_say_why() {
    let scene = exported(&["--shapes", "16"]);
    let bundle = scene.path("a");
    for (runtimes, why) in [
        ("coreml,coreml-rs", "the runtime `coreml` is unavailable: Core ML is part of macOS"),
        ("cpu,coreml-rs", "the runtime `coreml-rs` is unavailable: it is a binding to Core ML"),
    ] {
        let outcome = anemeter(&["compare", arg(&bundle), "--runtime", runtimes]);
        assert_eq!(outcome.code, 4, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    }
}
