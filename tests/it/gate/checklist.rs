//! What a release is checked for, a test per row of the list.

use serde_json::{Value, json as value};

use super::{MEASURED, Scene, bundle, report, three_sessions};
use crate::support::command::{anemeter, arg, json};

fn status(scene: &Scene, candidate: &Value, id: [&str; 3]) -> String {
    scene.check(candidate, id).0
}

#[test]
fn exported_mlprogram_with_enumerated_shapes_matches_training_shapes() {
    let bundle = bundle();
    let manifest = json(&bundle.join("export.json"));
    assert_eq!(manifest["settings"]["seq_lens"], value!([16, 32]));
    let lint = |shapes: &str| {
        anemeter(&["lint", arg(&bundle), "--training-shapes", shapes, "--format", "md"]).stdout
    };
    let differ = "sequence lengths differ from those of the training";
    assert!(!lint("16,32").contains(differ));
    assert!(lint("16,64").contains(differ), "{}", lint("16,64"));
    let scene = three_sessions();
    let mut other = report(1, 10, 1.0);
    other["workload"]["seq_lens"] = value!([16]);
    assert!(
        scene
            .gate(&other, &[])
            .refused()
            .contains("list of sequence lengths is `16`, the baseline's is `16,32`")
    );
}

#[test]
fn no_int64_leaks_and_layernorm_and_softmax_in_fp16() {
    let bundle = bundle();
    let linted = anemeter(&["lint", arg(&bundle)]);
    assert_eq!(linted.code, 0, "{}", linted.stdout);
    let package = std::fs::read_dir(&bundle).unwrap().map(|entry| entry.unwrap().path());
    let package =
        package.into_iter().find(|path| path.extension().is_some_and(|e| e == "mlpackage")).unwrap();
    let mil = anemeter(&["inspect", arg(&package), "--mil"]).succeeded().to_owned();
    assert!(!mil.contains("int64"), "{mil}");
    let softmax: Vec<&str> = mil.lines().filter(|line| line.contains("softmax(")).collect();
    assert!(!softmax.is_empty() && softmax.iter().all(|line| line.contains("fp16")), "{softmax:?}");
}

/// A report with so much of its work on the Neural Engine.
fn resident(share: f64) -> impl Fn(&mut Value) {
    move |report| {
        report["residency"] = value!({ "share": share, "verified": false, "functions": [] });
        report["machine"]["os_build"] = "24F74".into();
    }
}

#[test]
fn ane_residency_empirically_good_and_fails_if_it_drops_more_than_10_percent() {
    let scene = three_sessions();
    scene.change_baseline(resident(0.97));
    let with = |share: f64| {
        let mut candidate = report(1, 10, 1.0);
        resident(share)(&mut candidate);
        ["residency", "residency_drop"].map(|measure| status(&scene, &candidate, [measure, "", ""]))
    };
    assert_eq!(with(0.90), ["pass", "pass"]);
    assert_eq!(with(0.86), ["pass", "fail"]);
    assert_eq!(with(0.70), ["fail", "fail"]);
}

fn verified(cosine: f64, nan: usize) -> Value {
    value!({
        "schema": "anemeter.verification/1", "tool_version": "0.1.0",
        "package_digests": MEASURED.report["subject"]["package_digests"], "checkpoint_digest": "",
        "checkpoint_is_the_exported_one": true, "passed": true, "cosine_min": cosine, "drift_cosine_min": null,
        "nan": nan, "inf": 0, "reference": "candle", "numerics": "fast", "compared": [], "prompts": 8,
        "positions": 256, "failures": [],
    })
}

fn evaluated(f1_drift: f64, ttfa_p95: f64) -> Value {
    value!({
        "schema": "anemeter.quality/1", "tool_version": "0.1.0",
        "package_digests": MEASURED.report["subject"]["package_digests"], "cases_digest": "", "cases": 20,
        "runtime": "cpu", "max_tokens": 64, "kv": "io", "per_seq_len": [], "f1_drift": f1_drift,
        "ttfa_p50": 12.0, "ttfa_p95": ttfa_p95,
    })
}

#[test]
fn per_shape_drift_at_most_0_01_f1_and_cosine_at_least_0_999_and_no_nans() {
    let scene = three_sessions();
    let with = |drift: f64, cosine: f64, nan: usize| {
        let mut candidate = report(1, 10, 1.0);
        candidate["quality"] = evaluated(drift, 20.0);
        candidate["verification"] = verified(cosine, nan);
        ["f1_drift", "cosine", "not_finite"].map(|measure| status(&scene, &candidate, [measure, "", ""]))
    };
    assert_eq!(with(0.01, 0.9991, 0), ["pass", "pass", "pass"]);
    assert_eq!(with(0.02, 0.9989, 1), ["fail", "fail", "fail"]);
    let unknown = scene.check(&report(1, 10, 1.0), ["cosine", "", ""]);
    assert_eq!(unknown, ("not_gated".into(), "no verification of these packages is recorded".into()));
}

#[test]
fn speed_gates_ttft_and_tps_p50_and_p95_do_not_regress_more_than_5_percent_on_the_same_soc() {
    let scene = three_sessions();
    let (same, slower) = (report(1, 10, 1.0), report(2, 10, 1.12));
    for measure in ["ttft", "tps"] {
        for statistic in ["p50", "p95"] {
            for seq_len in ["16", "32"] {
                assert_eq!(status(&scene, &same, [measure, statistic, seq_len]), "pass");
                assert_eq!(status(&scene, &slower, [measure, statistic, seq_len]), "fail");
            }
        }
    }
    let mut elsewhere = same;
    elsewhere["header"]["hardware_profile_key"] = "apple-m1-max-64gb".into();
    assert!(scene.gate(&elsewhere, &[]).refused().contains("hardware profile is `apple-m1-max-64gb`"));
}

#[test]
fn ttfa_p95_tokens_at_most_25() {
    let scene = three_sessions();
    let with = |tokens: f64| {
        let mut candidate = report(1, 10, 1.0);
        candidate["quality"] = evaluated(0.0, tokens);
        status(&scene, &candidate, ["ttfa", "", ""])
    };
    assert_eq!((with(25.0).as_str(), with(26.0).as_str()), ("pass", "fail"));
}

#[test]
fn batch_policy_documented_interactive_1_and_more_only_for_offline_tasks() {
    let scene = three_sessions();
    let batch = |size: usize| move |report: &mut Value| report["workload"]["batch"] = size.into();
    let mut candidate = report(1, 10, 1.0);
    batch(2)(&mut candidate);
    assert!(scene.gate(&candidate, &[]).refused().contains("batch is `2`, the baseline's is `1`"));
    scene.change_baseline(batch(2));
    let offline = scene.gate(&candidate, &[]);
    assert!(
        offline.stdout.contains("batch 2 is for offline work only on this hardware profile"),
        "{}",
        offline.stdout
    );
    let documented = include_str!("../../../docs/gates.md");
    assert!(documented.contains("batch 1 is interactive"), "the batch policy is documented");
}

#[test]
fn ttft_split_recorded_as_tokenizer_ms_and_first_step_ms() {
    let request = &MEASURED.report["launches"][0]["requests"][0];
    let (ttft, first) = (request["ttft_ms"].as_f64().unwrap(), request["first_step_ms"].as_f64().unwrap());
    assert!(first > 0.0 && first <= ttft);
    assert!(request.get("tokenizer_ms").is_some(), "null if prompts are tokens");
}

#[test]
fn kv_size_budget_logged() {
    let report = &MEASURED.report;
    let per_token = report["subject"]["kv_bytes_per_token"].as_u64().unwrap();
    let architecture = &json(&bundle().join("export.json"))["architecture"];
    assert_eq!(architecture["kv_bytes_per_token"].as_u64(), Some(per_token));
    for limit in report["speed_limits"].as_array().unwrap() {
        assert_eq!(limit["kv_bytes"].as_u64().unwrap(), limit["seq_len"].as_u64().unwrap() * per_token);
    }
    let scene = three_sessions();
    let mut larger = super::report(1, 10, 1.0);
    larger["subject"]["kv_bytes_per_token"] = (per_token + 1).into();
    assert_eq!(status(&scene, &larger, ["kv_bytes", "", ""]), "fail");
}
