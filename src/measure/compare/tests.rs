//! Reports that differ in known ways.

use super::testing::{compared, not_alike, report, slower};
use super::*;

#[test]
fn comparable_reports_are_judged_and_explained() {
    let compared = slower();
    assert_eq!(compared.verdict.as_ref().unwrap().outcome, Outcome::Fail);
    let causes: Vec<(&str, Cause)> = compared.changes.iter().map(|c| (c.what, c.cause)).collect();
    assert_eq!(causes[0], ("weight bytes per token", Cause::Direct));
    assert!(causes.contains(&("package bytes", Cause::Opposite)), "{causes:?}");
}

#[test]
fn reports_that_were_not_measured_alike_are_plain_changes() {
    let compared = not_alike();
    assert_eq!(compared.verdict, None);
    assert_eq!(compared.not_comparable, ["number of threads is `4`, the baseline's is `2`"]);
    assert!(compared.changes.iter().all(|change| change.cause == Cause::Nothing));
}

#[test]
fn the_same_report_twice_has_no_changes() {
    let report = report(1.0);
    let compared = compared(&report, &report);
    assert_eq!(compared.changes, []);
    assert!(compared.speeds.iter().all(|speed| speed.worse_pct == 0.0));
}

#[test]
fn kinds_have_names_of_their_own_and_act_on_something() {
    let mut names: Vec<&str> = kinds::KINDS.iter().map(|kind| kind.what).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), kinds::KINDS.len());
    assert!(kinds::KINDS.iter().all(|kind| !kind.on.is_empty() && !kind.acts.is_empty()));
}
