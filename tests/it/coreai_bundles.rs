//! Bundles of Core AI assets through the commands, with a Python that gives zeros for whatever it is asked.

use std::fs;
use std::path::PathBuf;

use anemeter::bundle::Bundle;
use anemeter::harness::records;
use anemeter::report::Verification;
use anemeter::vocabulary::RuntimeName;
use serde_json::Value;

use crate::support::apple_python;
use crate::support::command::{anemeter, arg, json};
use crate::support::scene::Scene;

/// A bundle of assets alone, and the Python that knows them.
fn exported(options: &[&str]) -> (Scene, PathBuf, PathBuf) {
    let scene = Scene::new();
    let format = ["--format", "coreai", "--kv", "io,state", "--shapes", "16,32", "--query", "4"];
    scene.export("assets", &[&format[..], options].concat()).good();
    let bundle = scene.path("assets");
    let python = apple_python::zeros(scene.folder(), &bundle.join("model.aimodel"));
    (scene, bundle, python)
}

#[test]
fn assets_alone_generate_by_the_runtime_that_executes_them() {
    for options in [&[][..], &["--activations", "fp32"]] {
        let (_scene, bundle, python) = exported(options);
        for form in ["io", "state"] {
            let command = ["generate", arg(&bundle), "--token-ids", "1,2,3", "--max-tokens", "3", "--json"];
            let ran = anemeter(&[&command[..], &["--kv", form, "--python", arg(&python)]].concat());
            let document: Value = serde_json::from_str(ran.good()).unwrap();
            assert_eq!((&document["runtime"], &document["kv"]), (&Value::from("coreai"), &Value::from(form)));
            assert_eq!(document["sequences"][0]["ids"], serde_json::json!([0, 0, 0]), "zeros are logits");
            assert!(ran.stderr.contains("Apple's CPU interpreter"), "{}", ran.stderr);
        }
    }
}

#[test]
fn other_runtimes_refuse_assets_alone() {
    let (scene, bundle, python) = exported(&[]);
    let (checkpoint, out) = (scene.path("tiny"), scene.path("report"));
    for command in [
        &["generate", arg(&bundle), "--token-ids", "1", "--runtime", "cpu"][..],
        &["bench", arg(&bundle), "--runtime", "cpu", "--out", arg(&out)],
        &["verify", arg(&bundle), "--checkpoint", arg(&checkpoint), "--runtime", "cpu"],
        &["compare", arg(&bundle), "--runtime", "cpu,coreai", "--python", arg(&python)],
    ] {
        let ran = anemeter(command);
        let complaint = ran.complaint();
        assert!(complaint.contains("is a Core AI asset, and `cpu` executes packages"), "{complaint}");
    }
    scene.export("packages", &["--shapes", "16"]).good();
    let packages = scene.path("packages");
    let command =
        ["generate", arg(&packages), "--token-ids", "1", "--runtime", "coreai", "--python", arg(&python)];
    let ran = anemeter(&command);
    assert!(ran.complaint().contains("has no Core AI asset, and `coreai` executes assets"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--format coreml,coreai"), "{}", ran.stderr);
}

#[test]
fn what_is_shown_of_a_bundle_is_that_of_its_assets() {
    let (scene, bundle, _) = exported(&[]);
    let shown = anemeter(&["inspect", arg(&bundle)]);
    assert!(shown.good().contains("Core AI asset") && shown.stdout.contains("decode_32"), "{}", shown.stdout);
    let linted = anemeter(&["lint", arg(&bundle)]);
    assert!(
        linted.code <= 1 && linted.stdout.contains("for Core AI 27"),
        "{}{}",
        linted.stdout,
        linted.stderr
    );
    anemeter(&["doctor", arg(&bundle), "--python", "/no/such/python"]).good();
    let both = scene.path("both");
    scene.export("both", &["--shapes", "16", "--format", "coreml,coreai"]).good();
    let shown = anemeter(&["inspect", arg(&both)]);
    assert!(
        shown.good().contains("model.mlpackage") && shown.stdout.contains("model.aimodel"),
        "{}",
        shown.stdout
    );
    let linted = anemeter(&["lint", arg(&both)]);
    assert!(linted.stderr.contains("model.aimodel has rules of its own"), "{}", linted.stderr);
}

#[test]
fn a_verification_and_a_report_are_about_the_assets_and_are_no_baseline() {
    let (scene, bundle, python) = exported(&[]);
    let checkpoint = scene.path("tiny");
    let command = ["verify", arg(&bundle), "--checkpoint", arg(&checkpoint), "--tokens", "2", "--kv", "io"];
    let verified = anemeter(&[&command[..], &["--shapes", "16", "--python", arg(&python)]].concat());
    assert_eq!(verified.code, 1, "zeros are not right: {}", verified.stderr);
    assert!(verified.stderr.contains("executes the asset with fp16 activations"), "{}", verified.stderr);
    let opened = Bundle::open(&bundle).unwrap();
    let record: Verification = records::read(&opened, RuntimeName::CoreAi).unwrap().unwrap();
    assert!(record.package_digests[0].starts_with("sha256:") && record.numerics == "coreai");

    let out = scene.path("report");
    let command =
        ["bench", arg(&bundle), "-p", "4", "-g", "4", "--launches", "1", "--out", arg(&out), "--kv", "io"];
    let benched = anemeter(&[&command[..], &["--python", arg(&python)]].concat());
    assert_eq!(benched.code, 0, "{}", benched.stderr);
    let report = json(&out.join("report.json"));
    assert_eq!(report["runtime"]["engine"]["kind"], "cpu_interpreter");
    assert_eq!(report["subject"]["package_digests"][0], record.package_digests[0].as_str());
    let overheads = report["runtime"]["engine"]["overheads"].as_array().unwrap();
    assert!(overheads.iter().any(|of| of["function"] == "decode_16"), "{overheads:?}");
    let baselines = scene.path("baselines");
    let blessed = anemeter(&["bless", arg(&out), "--baselines", arg(&baselines), "--scratch"]);
    assert_eq!(blessed.code, 1, "{}", blessed.stderr);
    assert!(blessed.stdout.contains("was executed by Apple's CPU interpreter"), "{}", blessed.stdout);
    assert!(!baselines.exists() || fs::read_dir(&baselines).unwrap().next().is_none(), "nothing is blessed");
}

#[test]
fn sums_are_rounded_by_the_interpreter_and_not_by_the_framework() {
    let (scene, bundle, python) = exported(&[]);
    let checkpoint = scene.path("tiny");
    let said = || {
        let command =
            ["verify", arg(&bundle), "--checkpoint", arg(&checkpoint), "--tokens", "2", "--kv", "io"];
        anemeter(&[&command[..], &["--shapes", "16", "--python", arg(&python)]].concat()).stderr
    };
    let rounded = "with fp16 activations, whose sums the interpreter rounds";
    assert!(said().contains(rounded), "{}", said());
    apple_python::on_macos_27(&python);
    let said = said();
    assert!(said.contains("with fp16 activations: the system's Core AI framework"), "{said}");
    assert!(!said.contains(rounded), "{said}");
}

#[test]
fn an_asset_and_a_folder_of_assets_are_bundles() {
    let (scene, bundle, python) = exported(&[]);
    let asset = bundle.join("model.aimodel");
    let opened = Bundle::open_any(&asset).unwrap();
    assert_eq!(opened.manifest().only_runtime(), Some(RuntimeName::CoreAi));
    let functions: Vec<&str> =
        opened.manifest().chunks[0].functions.iter().map(|of| of.name.as_str()).collect();
    assert!(functions.contains(&"decode_16"), "{functions:?}");
    let adopted = scene.path("adopted");
    anemeter(&["adopt", arg(&asset), "-o", arg(&adopted)]).good();
    assert!(adopted.join("model.aimodel/main.mlirb").is_file());
    let out = scene.path("report");
    let command = ["bench", arg(&adopted), "--launches", "1", "--out", arg(&out), "--functions", "decode_16"];
    let benched = anemeter(&[&command[..], &["--python", arg(&python)]].concat());
    assert_eq!(benched.code, 0, "{}", benched.stderr);
}
