//! A report against its own packages. Whatever differs then, the model does not: no measured difference is called its
//! regression.

use super::comparable::system;
use super::verdict::{Check, Status};
use crate::report::Report;

/// Whether a report measured the very packages of all sessions of its baseline. A digest that is not known tells none apart.
pub(super) fn are_measured(candidate: &Report, sessions: &[&Report]) -> bool {
    let digests = &candidate.subject.package_digests;
    let are_known = !digests.is_empty() && digests.iter().all(|digest| !digest.is_empty());
    are_known && sessions.iter().all(|session| session.subject.package_digests == *digests)
}

/// Says in each measured check that failed what has changed in place of the model. Where nothing that a report records
/// has, it can only be the machine, which a gate does not judge. Gives warnings.
pub(super) fn apply(candidate: &Report, sessions: &[&Report], checks: &mut [Check]) -> Vec<String> {
    let Some(newest) = sessions.last().filter(|_| are_measured(candidate, sessions)) else {
        return Vec::new();
    };
    let changed = changed(candidate, newest);
    for check in checks.iter_mut().filter(|check| check.status == Status::Fail && check.statistic.is_some()) {
        match &changed {
            Some(changed) => check.reason += &format!("; the same packages: {changed}, not the model"),
            None => {
                check.reason =
                    format!("the same packages: the machine changed, not the model: {}", check.reason);
                check.status = Status::Inconclusive;
            }
        }
    }
    let itself = sessions.iter().any(|session| candidate.is_of_session(session));
    vec![match (itself, changed) {
        (true, _) => "the report is a session of its baseline: it is compared with itself".to_owned(),
        (_, Some(changed)) => format!("the same packages as the baseline's: {changed}, not the model"),
        (_, None) => {
            "the same packages as the baseline's: what differs is the machine, not the model".to_owned()
        }
    }]
}

/// What makes the same packages run otherwise, as far as reports record it.
fn changed(candidate: &Report, session: &Report) -> Option<String> {
    let slowed = |report: &Report| report.runtime.slowed_down_pct.unwrap_or(0);
    let program = |report: &Report| (report.header.tool_version.clone(), report.header.tool_digest.clone());
    match () {
        () if slowed(candidate) != slowed(session) => {
            Some(format!("predictions were slowed down by {} % on purpose", slowed(candidate)))
        }
        () if system(candidate) != system(session) => Some("the system changed".to_owned()),
        () if program(candidate) != program(session) => Some("anemeter itself changed".to_owned()),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{Measure, Statistic};
    use super::*;
    use crate::report::testing;

    /// The status and reason of a failing median after a change of the candidate, and the warnings.
    fn applied(change: impl Fn(&mut Report)) -> (Status, String, Vec<String>) {
        let session = testing::report();
        let mut candidate = testing::report();
        candidate.header.created = "2026-05-01T12:00:00Z".to_owned();
        change(&mut candidate);
        let failed =
            |statistic| Check { statistic, ..Check::exact(Measure::Ttft, Status::Fail, "9.0 % slower") };
        let mut checks = [failed(Some(Statistic::P50)), failed(None)];
        let warnings = apply(&candidate, &[&session], &mut checks);
        let [median, exact] = checks;
        assert_eq!(
            (exact.status, exact.reason.as_str()),
            (Status::Fail, "9.0 % slower"),
            "what is exact stays"
        );
        (median.status, median.reason, warnings)
    }

    #[test]
    fn a_machine_that_changed_is_no_regression_of_the_model() {
        let (status, reason, warnings) = applied(|_| ());
        assert_eq!(status, Status::Inconclusive);
        assert_eq!(reason, "the same packages: the machine changed, not the model: 9.0 % slower");
        assert_eq!(
            warnings,
            ["the same packages as the baseline's: what differs is the machine, not the model"]
        );
    }

    #[test]
    fn what_a_report_records_is_named_in_place_of_the_model() {
        type Change = fn(&mut Report);
        let cases: [(Change, &str); 3] = [
            (|r| r.runtime.slowed_down_pct = Some(60), "predictions were slowed down by 60 % on purpose"),
            (|r| r.machine.os_build = Some("25A354".to_owned()), "the system changed"),
            (|r| r.header.tool_digest = Some("xxh3:77".to_owned()), "anemeter itself changed"),
        ];
        for (change, cause) in cases {
            let (status, reason, warnings) = applied(change);
            assert_eq!(status, Status::Fail);
            assert_eq!(reason, format!("9.0 % slower; the same packages: {cause}, not the model"));
            assert_eq!(warnings, [format!("the same packages as the baseline's: {cause}, not the model")]);
        }
    }

    #[test]
    fn a_report_against_itself_says_so_and_other_packages_are_judged() {
        let (_, _, warnings) = applied(|report| report.header.created = testing::report().header.created);
        assert_eq!(warnings, ["the report is a session of its baseline: it is compared with itself"]);
        let other = applied(|report| report.subject.package_digests = vec!["xxh3:99".to_owned()]);
        assert_eq!(other, (Status::Fail, "9.0 % slower".to_owned(), Vec::new()));
        let unknown = applied(|report| report.subject.package_digests.clear());
        assert_eq!(unknown.0, Status::Fail);
    }
}
