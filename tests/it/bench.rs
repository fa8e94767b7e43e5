//! `anemeter bench`, `report` and `doctor` on a small bundle, with real processes.

use std::fs;

use serde_json::Value;

use crate::schema::assert_valid;
use crate::support::checkpoints::write_text;
use crate::support::command::{Outcome, anemeter, arg, json, program, run};
use crate::support::fixtures::MIXED_WORKLOAD;
use crate::support::scene::Scene;

/// A bundle and a workload for it.
fn exported() -> Scene {
    let scene = Scene::new();
    scene.export("bundle", &["--shapes", "16,32"]).good();
    write_text(&scene.path("bench.yaml"), MIXED_WORKLOAD);
    scene
}

impl Scene {
    fn bench(&self, args: &[&str]) -> Outcome {
        let (bundle, config, out) = (self.path("bundle"), self.path("bench.yaml"), self.path("out"));
        let command =
            ["bench", arg(&bundle), "--workload", arg(&config), "--out", arg(&out), "--runtime", "cpu"];
        anemeter(&[&command, args].concat())
    }
}

#[test]
fn a_report_has_every_sample_and_is_shown_in_every_format() {
    let scene = exported();
    let outcome = scene.bench(&["--soak", "120"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    for word in ["Speed", "TTFT p50", "the cpu runtime does not use the Neural Engine", "Long run"] {
        assert!(outcome.stdout.contains(word), "{word}: {}", outcome.stdout);
    }
    let report = json(&scene.path("out/report.json"));
    assert_eq!(report["schema"], "anemeter.report/1");
    assert_valid("report", &report);
    assert_valid("export", &json(&scene.path("bundle/export.json")));
    assert_eq!(report["residency"], Value::Null);
    assert!(!report["predicted_residency"].as_array().unwrap().is_empty());
    assert!(report["overhead_us_per_step"].as_f64().unwrap() > 0.0);
    assert!(report["bandwidth"]["gb_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["soak"]["steps"].as_u64().unwrap() >= 120);
    for launch in report["launches"].as_array().unwrap() {
        assert_eq!(launch["outcome"], "completed");
        assert_eq!(launch["requests"].as_array().unwrap().len(), 6);
        for request in launch["requests"].as_array().unwrap() {
            assert_eq!(request["steps_ms"].as_array().unwrap().len(), 3);
        }
    }
    let page = fs::read_to_string(scene.path("out/report.html")).unwrap();
    // TTFT, TPS, latency, two distributions, memory, two of the long run.
    assert_eq!((page.matches("<svg ").count(), page.contains("http:")), (8, true));
    rendered(&scene);
}

fn rendered(scene: &Scene) {
    let out = scene.path("out");
    let report = |format: &str| anemeter(&["report", arg(&out), "--format", format]);
    assert!(report("text").succeeded().contains("Provenance"));
    assert!(report("md").succeeded().starts_with("# "));
    assert!(report("csv").succeeded().starts_with("kind,model,profile,runtime,"));
    let history = scene.path("history.html");
    anemeter(&["report", arg(&out), arg(&out), "--format", "html", "--out", arg(&history)]).succeeded();
    assert!(fs::read_to_string(history).unwrap().contains("<title>2 reports – anemeter</title>"));
    let charts = scene.path("charts");
    let outcome = anemeter(&["report", arg(&out), "--format", "svg", "--out", arg(&charts)]);
    assert_eq!(outcome.succeeded().lines().count(), 8);
    assert!(fs::read_to_string(charts.join("ttft.svg")).unwrap().starts_with("<svg "));
    assert!(report("svg").refused().contains("help: give a folder"));
}

#[test]
fn a_worker_that_fails_spoils_the_run_with_a_reason() {
    let scene = exported();
    write_text(&scene.path("p.jsonl"), "{\"prompt\": \"\"}\n");
    let text = MIXED_WORKLOAD.replace("{ source: tokens }", "{ source: jsonl, file: p.jsonl }");
    write_text(&scene.path("bench.yaml"), &text);
    let outcome = scene.bench(&["--json"]);
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let why = report["launches"][0]["outcome"]["failed"]["reported"].as_str().unwrap();
    assert!(why.ends_with("p.jsonl: line 1: the prompt is empty"), "{why}");
    assert!(outcome.stderr.contains("launch 1 failed: "), "{}", outcome.stderr);
    assert_eq!(report["figures"], Value::Array(vec![]));
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let scene = exported();
    let refused = |args: &[&str]| scene.bench(args).refused().to_owned();
    assert_eq!(refused(&["--shapes", "64"]), "error: the bundle has no seq_len 64\nhelp: it has 16, 32\n");
    assert!(refused(&["--launches", "0"]).contains("`launches` is 0, expected 1 to 1000"));
    write_text(&scene.path("bench.yaml"), &MIXED_WORKLOAD.replace("seed: 5", "sed: 5"));
    assert!(refused(&[]).contains("help: did you mean `seed`?"));
    let unavailable = anemeter(&["bench", arg(&scene.path("bundle")), "--runtime", "coreml"]);
    if !cfg!(target_os = "macos") {
        assert_eq!(unavailable.code, 4, "{}", unavailable.stderr);
        assert!(unavailable.stderr.starts_with("error: the runtime `coreml` is unavailable: "));
    }
}

#[test]
fn a_sweep_compares_configurations() {
    let scene = exported();
    let sweep = "schema: anemeter.sweep/1\nbundles: [{ name: tiny, path: bundle }]\nthreads: [1, 2]\n\
                 compute_units: [cpu, cpu+ane]\n";
    write_text(&scene.path("sweep.yaml"), sweep);
    let (sweep, config, out) = (scene.path("sweep.yaml"), scene.path("bench.yaml"), scene.path("sweep"));
    let command = ["bench", "--sweep", arg(&sweep), "--workload", arg(&config), "--out", arg(&out)];
    let command = [&command[..], &["--runtime", "cpu"]].concat();
    let outcome = anemeter(&command);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains("tiny cpu 2 threads") && outcome.stdout.contains("best: tiny cpu "),
        "{}",
        outcome.stdout
    );
    let result = json(&out.join("sweep.json"));
    assert_eq!((&result["seq_len"], &result["rows"][0]["speed_up"]), (&Value::from(16), &Value::from(1.0)));
    assert!(out.join("2-tiny-cpu-2-threads/report.json").exists());
    let not_run = outcome.stdout.split("Not run\n").nth(1).unwrap();
    assert!(not_run.contains("tiny cpu+ane 1 threads  the cpu runtime has no compute units"), "{not_run}");
    assert_eq!(
        (result["rows"].as_array().unwrap().len(), result["not_run"].as_array().unwrap().len()),
        (2, 2)
    );
    assert_eq!(result["rows"][1]["compute_units"], "cpu");

    // The second has a report already, which is known before the first is measured.
    fs::remove_dir_all(out.join("1-tiny-cpu-1-threads")).unwrap();
    let refused = anemeter(&command);
    assert!(refused.refused().contains("2-tiny-cpu-2-threads/report.json: holds a measurement"));
    assert!(!out.join("1-tiny-cpu-1-threads").exists());

    write_text(
        &sweep,
        "schema: anemeter.sweep/1\nbundles: [{ name: tiny, path: bundle }]\ncompute_units: [all]\n",
    );
    let refused = anemeter(&command);
    assert!(refused.refused().contains("nothing can be run: the cpu runtime has no compute units"));
}

#[test]
fn a_report_is_copied_to_a_url_and_replaces_nothing() {
    let scene = exported();
    let (bundle, config) = (scene.path("bundle"), scene.path("bench.yaml"));
    let bench = |out: &str| {
        let mut command = program();
        command.current_dir(scene.folder());
        let args = ["bench", arg(&bundle), "--workload", arg(&config), "--runtime", "cpu", "--launches", "1"];
        run(command.args(args).args(["--shapes", "16", "--json", "--out", out]))
    };
    let url = format!("file://{}", scene.path("shared/monday").display());
    let outcome = bench(&url);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("copied to "), "{}", outcome.stderr);
    let copied = json(&scene.path("shared/monday/report.json"));
    assert_eq!(copied, serde_json::from_str::<Value>(&outcome.stdout).unwrap());
    assert!(scene.path("shared/monday/report.html").exists());
    let local: Vec<_> = fs::read_dir(scene.path("reports")).unwrap().collect();
    assert_eq!(local.len(), 1, "it is in a folder of this machine too");
    assert!(anemeter(&["report", &url]).succeeded().contains("Speed"));

    let again = bench(&url);
    assert!(
        again.refused().contains("report.json: is there already, and is not replaced"),
        "{}",
        again.stderr
    );
    assert!(bench("ftp://host/a").refused().contains("has an unknown scheme"));
    #[cfg(not(feature = "remote"))]
    assert!(bench("s3://bucket/a").refused().contains("build it with the cargo feature `remote`"));
}

#[test]
fn the_doctor_tells_what_fits_and_what_a_report_suggests() {
    let scene = exported();
    let bundle = scene.path("bundle");
    let text = anemeter(&["doctor", arg(&bundle)]);
    let text = text.succeeded();
    for word in ["profile", "because", "coreml", "cpu", "safe to use", "what disturbs a measurement now"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let examined = anemeter(&["doctor", arg(&bundle), "--json"]);
    let examined: Value = serde_json::from_str(examined.succeeded()).unwrap();
    assert_eq!(examined["bundles"][0]["per_seq_len"][0]["fits"], Value::Bool(true));
    let (total, safe) = (&examined["memory"]["total_bytes"], &examined["memory"]["safe_bytes"]);
    assert_eq!(total.as_u64().unwrap() / 4 * 3, safe.as_u64().unwrap());
    assert!(anemeter(&["doctor", "--report", arg(&bundle)]).refused().contains("report.json: "));
}
