//! Baselines that cannot be used: each has its own message, and none is a pass.

use std::fs;

use serde_json::Value;

use super::{report, three_sessions};
use crate::support::checkpoints::write_text;
use crate::support::command::{anemeter, arg};

/// The message about a second session with this content.
fn refused(content: &str) -> String {
    let scene = three_sessions();
    write_text(&scene.path("session1.json"), content);
    scene.gate(&report(1, 10, 1.0), &[]).refused().to_owned()
}

fn changed(change: impl Fn(&mut Value)) -> String {
    let mut session = report(101, 8, 1.0);
    change(&mut session);
    refused(&session.to_string())
}

#[test]
fn a_missing_baseline_is_no_pass() {
    let scene = three_sessions();
    fs::remove_file(scene.path("session1.json")).unwrap();
    let text = scene.gate(&report(1, 10, 1.0), &[]).refused().to_owned();
    assert!(text.contains("session1.json: No such file"), "{text}");
    let (candidate, store) = (scene.write("c.json", &report(1, 10, 1.0)), scene.path("nothing"));
    let text = anemeter(&["gate", arg(&candidate), "--baselines", arg(&store)]).refused().to_owned();
    assert!(text.contains("there is no baseline for "), "{text}");
    assert!(text.contains("help: bless a report"), "{text}");
}

#[test]
fn a_truncated_baseline_is_no_pass() {
    let whole = report(101, 8, 1.0).to_string();
    // Cut at a quote: half of a number would be an "invalid number" instead.
    let half = whole[..whole.len() / 2].rfind('"').unwrap();
    let text = refused(&whole[..half]);
    assert!(text.contains("session1.json: is not a report: EOF while parsing"), "{text}");
}

#[test]
fn a_baseline_of_another_schema_version_is_no_pass() {
    let text = changed(|session| session["schema"] = "anemeter.report/9".into());
    assert!(
        text.contains("has the schema `anemeter.report/9`; this version reads `anemeter.report/1`"),
        "{text}"
    );
}

#[test]
fn a_baseline_of_another_profile_is_no_pass() {
    let text = changed(|session| session["header"]["hardware_profile_key"] = "apple-m2".into());
    assert!(text.contains("the baseline's is `apple-m2`"), "{text}");
}

#[test]
fn a_baseline_without_samples_is_no_pass() {
    let text = changed(|session| session["launches"] = Vec::<Value>::new().into());
    assert!(text.contains("session 2 of 3 of the baseline: has no launches"), "{text}");
    let text = changed(|session| session["launches"][2]["requests"] = Vec::<Value>::new().into());
    assert!(
        text.contains("session 2 of 3 of the baseline: has no samples of seq_len 16 in launch 2"),
        "{text}"
    );
}

#[test]
fn a_baseline_with_samples_that_are_not_numbers_is_no_pass() {
    let text = changed(|session| session["launches"][0]["requests"][0]["ttft_ms"] = Value::Null);
    assert!(text.contains("session1.json: is not a report: invalid type: null, expected f64"), "{text}");
    let text = changed(|session| session["launches"][0]["requests"][0]["ttft_ms"] = 0.0.into());
    assert!(text.contains("has a TTFT of 0 ms in launch 0"), "{text}");
    let text = changed(|session| session["launches"][0]["requests"][0]["steps_ms"][1] = (-1.0).into());
    assert!(text.contains("has a step of -1 ms in launch 0"), "{text}");
}

#[test]
fn a_bad_report_is_no_pass_either() {
    let scene = three_sessions();
    let mut candidate = report(1, 10, 1.0);
    candidate["launches"] = Vec::<Value>::new().into();
    assert!(scene.gate(&candidate, &[]).refused().contains("the report: has no launches"));
}
