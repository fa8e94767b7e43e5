//! The ordinary command line with Core ML: `bench` with real worker processes, in both forms, and its failures.

use std::fs;
use std::path::Path;
use std::process::Output;

use anemeter::mil::{ColorSpace, ImageSizes};
use serde_json::Value;

use crate::balance::balanced;
use crate::images;
use crate::scene::Scene;

/// A workload of two launches.
fn workload(source: &str) -> String {
    format!(
        "schema: anemeter.bench/1\nprompts: {{ source: {source} }}\ngenerated_tokens: 4\nlaunches: 2\n\
         requests_per_seq_len: 2\nwarm_up_rounds: 1\nseed: 5\ncool_down_s: 0\nlaunch_limit_s: 1200\n"
    )
}

/// Measures a bundle in one form, with a fault in every worker; gives what was printed and the report.
pub(crate) fn bench(scene: &Scene, bundle: &Path, form: &str, source: &str, fault: &str) -> (Output, Value) {
    let (config, out) = (scene.path("bench.yaml"), scene.path("out"));
    fs::write(&config, workload(source)).unwrap();
    let mut command = scene.anemeter(&["bench", "--force", "--runtime", "coreml", "--kv", form]);
    command.arg(bundle).arg("--workload").arg(config).arg("--out").arg(&out);
    if !fault.is_empty() {
        command.env(coreml_standin::fault::VARIABLE, fault);
    }
    let done = command.output().unwrap();
    let report = fs::read(out.join("report.json")).unwrap_or_else(|_| panic!("{}", text(&done)));
    (done, serde_json::from_slice(&report).unwrap())
}

/// All that a command printed.
pub(crate) fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Every launch ended well.
pub(crate) fn assert_completed(done: &Output, report: &Value) {
    assert_eq!(done.status.code(), Some(0), "{}", text(done));
    for launch in report["launches"].as_array().unwrap() {
        assert_eq!(launch["outcome"], "completed", "{launch}");
        assert!(!launch["requests"].as_array().unwrap().is_empty());
    }
}

#[test]
fn bench_measures_bundles_in_both_forms() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let bundle = scene.tiny_bundle();
    for form in ["io", "state"] {
        let (done, report) = bench(&scene, bundle.folder(), form, "tokens", "");
        assert_completed(&done, &report);
        assert_eq!(report["runtime"]["name"], "coreml", "{form}");
        assert!(!report["residency"]["functions"].as_array().unwrap().is_empty(), "{form}: {}", text(&done));
    }
}

#[test]
fn a_worker_that_fails_says_why() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let bundle = scene.tiny_bundle();
    for (fault, reason) in [
        ("load-fails", "Core ML cannot load the function"),
        ("compile-fails", "Core ML cannot compile"),
        ("prediction-fails:20", "Core ML cannot run the function"),
        ("no-state", "Core ML cannot make the states"),
    ] {
        // Nothing that an earlier run compiled.
        let _ = fs::remove_dir_all(scene.path("cache"));
        let (done, report) = bench(&scene, bundle.folder(), "state", "tokens", fault);
        assert_eq!(done.status.code(), Some(1), "{fault}: {}", text(&done));
        let launches = report["launches"].to_string();
        assert!(launches.contains(reason), "{fault}: {launches}");
    }
}

#[test]
fn a_form_that_fails_its_trial_is_not_taken() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let bundle = scene.tiny_bundle();
    for (fault, form) in [("", "state"), ("no-state", "io"), ("prediction-fails:300", "io")] {
        let (done, report) = bench(&scene, bundle.folder(), "auto", "tokens", fault);
        let choice = &report["kv_choice"];
        assert_eq!(choice["form"], form, "{fault}: {choice} {}", text(&done));
        assert!(!choice["reason"].as_str().unwrap().is_empty());
    }
}

#[test]
fn bench_measures_images_of_every_size() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let sizes = ImageSizes::Enumerated(vec![(7, 5), (16, 4)]);
    let package = scene.package(images::scaled(ColorSpace::Rgb, sizes));
    let out = scene.path("out");
    let mut command = scene.anemeter(&["bench", "--force", "--runtime", "coreml", "--launches", "2"]);
    let done = command.arg(package.path()).arg("--out").arg(&out).output().unwrap();
    let report = fs::read(out.join("report.json")).unwrap_or_else(|_| panic!("{}", text(&done)));
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    for launch in report["launches"].as_array().unwrap() {
        assert_eq!(launch["outcome"], "completed", "{launch}");
        for case in ["main 5x7", "main 4x16"] {
            let predictions = launch["predictions"].as_array().unwrap();
            assert!(predictions.iter().any(|one| one["case"] == case), "{case}: {launch}");
        }
    }
    assert_eq!(report["runtime"]["name"], "coreml");
}
