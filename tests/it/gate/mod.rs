//! `anemeter gate` on reports of a small bundle: verdicts, formats, refusals, more launches.

mod baselines;
mod checklist;
mod formats;
mod rerun;

use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;

use crate::support::checkpoints::{self, tensors, write_text};
use crate::support::command::{Outcome, anemeter, arg, json};
use crate::support::fixtures::WORKLOAD;
use crate::support::scene::Scene;

/// A bundle that was exported and measured once, for all tests.
struct Measured {
    folder: tempfile::TempDir,
    report: Value,
}

static MEASURED: LazyLock<Measured> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    checkpoints::write(&folder.path().join("tiny"), &tensors(7));
    let [checkpoint, bundle, workload, out] =
        ["tiny", "bundle", "bench.yaml", "out"].map(|name| folder.path().join(name));
    let exported = anemeter(&["export", arg(&checkpoint), "-o", arg(&bundle), "--shapes", "16,32"]);
    assert_eq!(exported.code, 0, "{}", exported.stderr);
    write_text(&workload, WORKLOAD);
    let measured = anemeter(&[
        "bench",
        arg(&bundle),
        "--workload",
        arg(&workload),
        "--out",
        arg(&out),
        "--runtime",
        "cpu",
    ]);
    assert_eq!(measured.code, 0, "{}", measured.stderr);
    Measured { folder, report: json(&out.join("report.json")) }
});

fn bundle() -> PathBuf {
    MEASURED.folder.path().join("bundle")
}

/// A report of that bundle whose launches take steady times with noise from a seed, `factor` times as long.
pub(crate) fn report(seed: u64, launches: usize, factor: f64) -> Value {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut noise = move |size: f64| 1.0 + size * (random.f64() + random.f64() + random.f64() - 1.5);
    let mut report = MEASURED.report.clone();
    let template = report["launches"][0].clone();
    let launch = |index: usize| {
        let mut launch = template.clone();
        let offset = noise(0.01) * factor;
        launch["index"] = index.into();
        launch["canary_ms"] = (1.5 * noise(0.002)).into();
        launch["load"]["load_ms"] = (20.0 * noise(0.01)).into();
        launch["memory"]["peak_bytes"] = 30_000_000u64.into();
        for request in launch["requests"].as_array_mut().unwrap() {
            let seq_len = request["seq_len"].as_f64().unwrap();
            request["ttft_ms"] = (seq_len * offset * noise(0.01)).into();
            let step = 2.0 * offset * noise(0.01);
            request["steps_ms"] = vec![step; 3].into();
        }
        launch
    };
    report["launches"] = (0..launches).map(launch).collect::<Vec<_>>().into();
    report
}

/// A baseline of three sessions.
fn three_sessions() -> Scene {
    let scene = Scene::empty();
    for session in 0..3 {
        let mut report = report(100 + session, 8, 1.0);
        // Of other packages, so that a difference is one of the model.
        report["subject"]["package_digests"] = vec!["xxh3:00"].into();
        scene.write(&format!("session{session}.json"), &report);
    }
    scene
}

impl Scene {
    fn write(&self, name: &str, report: &Value) -> PathBuf {
        let path = self.path(name);
        write_text(&path, &report.to_string());
        path
    }

    /// Changes all sessions.
    fn change_baseline(&self, change: impl Fn(&mut Value)) {
        for session in 0..3 {
            let name = format!("session{session}.json");
            let mut report = json(&self.path(&name));
            change(&mut report);
            self.write(&name, &report);
        }
    }

    fn gate(&self, candidate: &Value, args: &[&str]) -> Outcome {
        let candidate = self.write("candidate.json", candidate);
        let sessions = [0, 1, 2].map(|session| self.path(&format!("session{session}.json")));
        let [a, b, c] = sessions.each_ref().map(|path| arg(path));
        anemeter(&[&["gate", arg(&candidate)], args, &["--baseline", a, b, c]].concat())
    }

    /// The status and the reason of a check, by its measure, statistic and sequence length.
    fn check(&self, candidate: &Value, id: [&str; 3]) -> (String, String) {
        let outcome = self.gate(candidate, &["--format", "json"]);
        let verdict: Value =
            serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.stderr));
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        let wanted = |check: &&Value| {
            ["measure", "statistic", "seq_len"]
                .iter()
                .zip(id)
                .all(|(key, id)| id.is_empty() || text(&check[key]) == id)
        };
        let check = verdict["checks"].as_array().unwrap().iter().find(wanted).unwrap();
        (text(&check["status"]), text(&check["reason"]))
    }
}

#[test]
fn exit_codes_tell_pass_fail_and_inconclusive() {
    let scene = three_sessions();
    let same = scene.gate(&report(1, 10, 1.0), &[]);
    assert_eq!(same.code, 0, "{}{}", same.stdout, same.stderr);
    assert!(same.stdout.starts_with("pass: "), "{}", same.stdout);
    assert_eq!(scene.gate(&report(1, 10, 1.12), &[]).code, 1);
    let open = scene.gate(&report(1, 4, 1.0), &[]);
    assert_eq!(open.code, 3, "{}", open.stdout);
    assert!(
        open.stdout.contains("there are 4 launches, 6 are needed; 2 more launches would likely settle it")
    );
}

#[test]
fn what_was_not_measured_alike_is_not_compared() {
    let scene = three_sessions();
    let refused = |pointer: &str, value: Value| {
        let mut candidate = report(1, 10, 1.0);
        *candidate.pointer_mut(pointer).unwrap() = value;
        scene.gate(&candidate, &[]).refused().to_owned()
    };
    for (pointer, value, named) in [
        ("/runtime/name", Value::from("coreml"), "runtime is `coreml`, the baseline's is `cpu`"),
        ("/runtime/compute_units", "all".into(), "compute units is `all`"),
        ("/workload/batch", 2.into(), "batch is `2`, the baseline's is `1`"),
        ("/subject/kv_form", "state".into(), "cache form is `state`"),
        ("/workload/digest", "xxh3:00".into(), "workload is `xxh3:00`"),
        ("/header/hardware_profile_key", "apple-m1".into(), "hardware profile is `apple-m1`"),
    ] {
        let text = refused(pointer, value);
        assert!(text.contains("not comparable with the baseline: ") && text.contains(named), "{text}");
        assert!(text.contains("\nhelp: "), "{text}");
    }
}

#[test]
fn crossing_hardware_is_allowed_only_loudly() {
    let scene = three_sessions();
    let mut candidate = report(1, 10, 1.0);
    candidate["header"]["hardware_profile_key"] = "apple-m1".into();
    assert!(scene.gate(&candidate, &[]).refused().contains("--allow-cross-hw"));
    let crossed = scene.gate(&candidate, &["--allow-cross-hw"]);
    assert_eq!(crossed.code, 0, "{}{}", crossed.stdout, crossed.stderr);
    assert!(crossed.stdout.starts_with("pass (CROSS-HARDWARE): "), "{}", crossed.stdout);
    assert!(crossed.stderr.starts_with("warning: --allow-cross-hw: "), "{}", crossed.stderr);
    let verdict: Value =
        serde_json::from_str(&scene.gate(&candidate, &["--allow-cross-hw", "--format", "json"]).stdout)
            .unwrap();
    assert_eq!(verdict["cross_hardware"], true);
}

#[test]
fn a_waiver_holds_until_it_expires() {
    let scene = three_sessions();
    let gated = |expires: &str| {
        let waivers = ["ttft", "tps"]
            .map(|metric| format!("  - {{ metric: {metric}, reason: new sampler, expires: {expires} }}\n"));
        let text = format!("schema: anemeter.gates/1\nwaivers:\n{}", waivers.concat());
        write_text(&scene.path("gates.yaml"), &text);
        let config = scene.path("gates.yaml");
        scene.gate(&report(1, 10, 1.12), &["--gates", arg(&config)])
    };
    let waived = gated("2999-12-31");
    assert_eq!(waived.code, 0, "{}{}", waived.stdout, waived.stderr);
    assert!(
        waived.stdout.contains("waived until 2999-12-31: new sampler (found FAIL: "),
        "{}",
        waived.stdout
    );
    let expired = gated("2020-01-01");
    assert_eq!(expired.code, 1, "{}", expired.stdout);
    assert!(expired.stdout.contains("the waiver for TTFT expired on 2020-01-01"), "{}", expired.stdout);
}
