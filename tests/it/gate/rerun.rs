//! `anemeter gate --rerun`: real launches are added while a verdict is open.

use serde_json::Value;

use super::{MEASURED, bundle, report, three_sessions};
use crate::support::command::{arg, json};

#[test]
fn launches_are_added_to_a_copy_of_the_report() {
    let scene = three_sessions();
    let mut few = MEASURED.report.clone();
    few["workload"]["launches"] = 1.into();
    let (bundle, workload) = (bundle(), MEASURED.folder.path().join("bench.yaml"));
    let args = ["--rerun", arg(&bundle), "--workload", arg(&workload), "--budget", "60s"];
    let outcome = scene.gate(&few, &args);
    assert!([0, 1, 3].contains(&outcome.code), "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stderr.contains("inconclusive: measuring 5 more launches"), "{}", outcome.stderr);
    let grown = json(&scene.path("candidate.rerun.json"));
    let launches = grown["launches"].as_array().unwrap();
    assert!(launches.len() >= 6, "{}", launches.len());
    assert!(launches.iter().enumerate().all(|(index, launch)| launch["index"] == index));
    assert_eq!(grown["workload"]["launches"], launches.len());
    assert_eq!(json(&scene.path("candidate.json")), few, "the report itself stays as it was");
}

#[test]
fn another_bundle_or_workload_is_refused_before_anything_runs() {
    let scene = three_sessions();
    let bundle = bundle();
    let rerun = |candidate: &Value| scene.gate(candidate, &["--rerun", arg(&bundle)]).refused().to_owned();
    let other_workload = rerun(&report(1, 4, 1.0));
    assert!(other_workload.contains("another workload\nhelp: give the workload"), "{other_workload}");
    let mut other = report(1, 4, 1.0);
    other["subject"]["package_digests"] = vec!["xxh3:00"].into();
    assert!(rerun(&other).contains("its packages are not those of the report"));
    let budget = scene.gate(&other, &["--rerun", arg(&bundle), "--budget", "20"]);
    assert_eq!(budget.code, 2);
    assert!(budget.stderr.contains("`20` is not a time such as 90s, 20m or 1h"), "{}", budget.stderr);
}
