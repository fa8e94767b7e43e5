//! A verdict in every format.

use serde_json::Value;

use super::{report, three_sessions};
use crate::support::checkpoints::write_text;
use crate::support::command::{anemeter, arg, program, run};

#[test]
fn a_regression_is_shown_in_every_format() {
    let scene = three_sessions();
    let slow = report(1, 10, 1.12);
    let shown = |format: &str| {
        let outcome = scene.gate(&slow, &["--format", format]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""), "{}", outcome.stdout);
        outcome.stdout
    };
    let text = shown("text");
    for word in
        ["FAIL: ", "10 launches against 24 of 3 blessed sessions", "TTFT p50 at 16", "5 % worse", "Passed"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(shown("md").starts_with("# ❌ Gate: FAIL: "));
    let junit = shown("junit");
    assert!(junit.contains("<testsuites name=\"anemeter gate\"") && junit.contains("<failure "), "{junit}");
    let verdict: Value = serde_json::from_str(&shown("json")).unwrap();
    assert_eq!(
        (verdict["schema"].as_str(), verdict["outcome"].as_str()),
        (Some("anemeter.verdict/1"), Some("fail"))
    );
    let check = &verdict["checks"][0];
    assert_eq!(check["limit"]["regression_pct"], 5.0);
    assert!(check["effect"]["interval_pct"]["low"].as_f64() < check["effect"]["regression_pct"].as_f64());
    assert!(check["effect"]["interval_units"]["high"].as_f64().unwrap() > 0.0);
    assert!(check["false_alarm"].as_f64().unwrap() > 0.0);
}

#[test]
fn junit_tells_what_is_inconclusive_as_the_caller_chooses() {
    let scene = three_sessions();
    let shown = |more: &[&str]| {
        let outcome = scene.gate(&report(1, 4, 1.0), &[&["--format", "junit"], more].concat());
        assert_eq!(outcome.code, 3, "{}", outcome.stderr);
        outcome.stdout
    };
    let [skipped, failed] = [shown(&[]), shown(&["--junit-inconclusive", "failed"])];
    assert!(skipped.contains("<skipped ") && !skipped.contains("<failure "), "{skipped}");
    assert!(failed.contains("<failure "), "{failed}");
    assert!(!skipped.contains("<error ") && !failed.contains("<error "));
}

#[test]
fn a_report_is_judged_by_the_limits_of_the_gate() {
    let scene = three_sessions();
    let gates = scene.path("gates.yaml");
    let waivers = ["ttft", "tps"]
        .map(|metric| format!("  - {{ metric: {metric}, reason: new sampler, expires: 2999-12-31 }}\n"));
    write_text(&gates, &format!("schema: anemeter.gates/1\nwaivers:\n{}", waivers.concat()));
    let slow = report(1, 10, 1.12);
    assert_eq!(scene.gate(&slow, &["--gates", arg(&gates)]).code, 0);
    let [candidate, a, b, c] =
        ["candidate", "session0", "session1", "session2"].map(|name| scene.path(&format!("{name}.json")));
    let shown = anemeter(&[
        "report",
        arg(&candidate),
        "--json",
        "--gates",
        arg(&gates),
        "--baseline",
        arg(&a),
        arg(&b),
        arg(&c),
    ]);
    let shown: Value = serde_json::from_str(shown.succeeded()).unwrap();
    assert_eq!(shown["verdict"]["outcome"], "pass");
    assert_eq!(shown["reports"][0]["subject"], slow["subject"]);
}

#[test]
fn a_report_is_shown_against_its_baseline() {
    let scene = three_sessions();
    let slow = scene.write("candidate.json", &report(1, 10, 1.12));
    let [a, b, c] = [0, 1, 2].map(|session| scene.path(&format!("session{session}.json")));
    let show = |more: &[&str]| anemeter(&[&["report", arg(&slow)], more].concat());
    let against = ["--baseline", arg(&a), arg(&b), arg(&c)];
    let page = show(&[&["--format", "html"], &against[..]].concat());
    for word in ["FAIL: ", "Candidate against baseline", "TTFT p50 at 16", "limit 5 %", "id=\"report-1\""] {
        assert!(page.succeeded().contains(word), "{word}");
    }
    let text = show(&against);
    assert!(text.succeeded().starts_with("FAIL: ") && text.stdout.contains("Provenance"), "{}", text.stdout);
    let charts = scene.path("charts");
    let charts = show(&[&["--format", "svg", "--out", arg(&charts)], &against[..]].concat());
    assert!(charts.succeeded().contains("against.svg"), "{}", charts.stdout);

    let verdict = scene.path("verdict.json");
    let judged = scene.gate(&report(1, 10, 1.12), &["--format", "json"]);
    write_text(&verdict, &judged.stdout);
    let told = show(&["--verdict", arg(&verdict), "--format", "md"]);
    assert!(told.succeeded().starts_with("# ❌ Gate: FAIL: "), "{}", told.stdout);
    write_text(
        &verdict,
        &judged.stdout.replacen("\"package_digests\": [", "\"package_digests\": [\"x\",", 1),
    );
    assert!(show(&["--verdict", arg(&verdict)]).refused().contains("is on another report"));
    write_text(&verdict, "{}");
    assert!(show(&["--verdict", arg(&verdict)]).refused().contains("verdict.json: is not a verdict"));
    let several = anemeter(&["report", arg(&slow), arg(&a), "--baseline", arg(&b)]);
    assert!(several.refused().contains("a verdict is on one report, but 2 are given"));
    assert!(
        show(&[&["--format", "csv"], &against[..]].concat()).refused().contains("no place for a verdict")
    );
}

#[test]
fn github_gets_annotations_beside_the_result() {
    let scene = three_sessions();
    let candidate = scene.write("candidate.json", &report(1, 10, 1.12));
    let session = scene.path("session0.json");
    let args = ["gate", arg(&candidate), "--format", "json", "--baseline", arg(&session)];
    let outcome = run(program().env("GITHUB_ACTIONS", "true").args(args));
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(serde_json::from_str::<Value>(&outcome.stdout).is_ok(), "standard output is the document only");
    assert!(outcome.stderr.contains("::error title=TTFT p50 at 16%3A FAIL::"), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("::warning title=gate::the baseline has 1 of 3 sessions"),
        "{}",
        outcome.stderr
    );
}
