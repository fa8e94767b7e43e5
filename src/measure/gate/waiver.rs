//! Waivers: something that may be worse for a while, with a reason and a last day.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use anemeter_base::time::Date;

use super::verdict::{Check, Measure, Statistic, Status};

/// Lets a check fail until a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    /// What may be worse.
    pub metric: Measure,
    /// Which statistic of it; all if none is given.
    #[serde(default)]
    pub statistic: Option<Statistic>,
    /// At which sequence length; all if none is given.
    #[serde(default)]
    pub seq_len: Option<usize>,
    /// At which case of the workload `predict`; all if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// On which hardware profile; all if none is given.
    #[serde(default)]
    pub profile: Option<String>,
    /// Why it may be worse.
    pub reason: String,
    /// The last day on which it holds.
    pub expires: Date,
}

impl Waiver {
    fn covers(&self, check: &Check) -> bool {
        self.metric == check.measure
            && self.statistic.is_none_or(|statistic| Some(statistic) == check.statistic)
            && self.seq_len.is_none_or(|seq_len| Some(seq_len) == check.seq_len)
            && self.case.as_ref().is_none_or(|case| Some(case) == check.case.as_ref())
    }

    /// What it is about, for people.
    fn label(&self) -> String {
        let mut check = Check::exact(self.metric, Status::NotGated, "");
        (check.statistic, check.seq_len, check.case) = (self.statistic, self.seq_len, self.case.clone());
        check.label()
    }
}

/// Applies the waivers of a profile: what they cover does not fail, and each that has expired fails by itself. Gives
/// warnings about those that were of no use.
pub(super) fn apply(waivers: &[Waiver], profile: &str, today: Date, checks: &mut Vec<Check>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut expired = Vec::new();
    for waiver in waivers.iter().filter(|w| w.profile.as_deref().is_none_or(|key| key == profile)) {
        let (label, reason, expires) = (waiver.label(), &waiver.reason, waiver.expires);
        if expires < today {
            let text = format!("the waiver for {label} expired on {expires}; its reason was: {reason}");
            // Fails even if the check passes by now: a waiver that is over is to be removed.
            expired.push(Check::exact(Measure::Waiver, Status::Fail, text));
            continue;
        }
        let covered = |check: &&mut Check| {
            matches!(check.status, Status::Fail | Status::Inconclusive) && waiver.covers(check)
        };
        let mut used = false;
        for check in checks.iter_mut().filter(covered) {
            let found = format!("{}: {}", check.status.label(), check.reason);
            check.reason = format!("waived until {expires}: {reason} (found {found})");
            check.status = Status::NotGated;
            check.more_launches = None;
            used = true;
        }
        if !used {
            warnings.push(format!("the waiver for {label} until {expires} covers nothing that failed"));
        }
    }
    checks.append(&mut expired);
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn date(text: &str) -> Date {
        Date::parse(text).unwrap()
    }

    fn waiver(expires: &str) -> Waiver {
        Waiver {
            metric: Measure::Ttft,
            statistic: Some(Statistic::P95),
            seq_len: None,
            case: None,
            profile: Some("apple-m1".to_owned()),
            reason: "new tokenizer".to_owned(),
            expires: date(expires),
        }
    }

    fn tail(status: Status) -> Check {
        let check = Check::exact(Measure::Ttft, status, "slower by 9 %");
        Check { statistic: Some(Statistic::P95), seq_len: Some(512), ..check }
    }

    #[test]
    fn a_waiver_holds_until_its_last_day_and_then_fails() {
        let today = date("2026-05-01");
        let mut checks = vec![tail(Status::Fail)];
        assert!(apply(&[waiver("2026-05-01")], "apple-m1", today, &mut checks).is_empty());
        assert_eq!(checks[0].status, Status::NotGated);
        assert_eq!(checks[0].reason, "waived until 2026-05-01: new tokenizer (found FAIL: slower by 9 %)");

        let mut checks = vec![tail(Status::Pass)];
        apply(&[waiver("2026-04-30")], "apple-m1", today, &mut checks);
        assert_eq!((checks.len(), checks[1].measure, checks[1].status), (2, Measure::Waiver, Status::Fail));
        assert!(checks[1].reason.contains("TTFT p95 expired on 2026-04-30"));
    }

    #[test]
    fn waivers_of_other_profiles_do_not_count_and_useless_ones_are_named() {
        let today = date("2026-05-01");
        let mut checks = vec![tail(Status::Fail)];
        assert!(apply(&[waiver("2027-01-01")], "apple-m2", today, &mut checks).is_empty());
        assert_eq!(checks[0].status, Status::Fail);
        let mut checks = vec![tail(Status::Pass)];
        let warnings = apply(&[waiver("2027-01-01")], "apple-m1", today, &mut checks);
        assert_eq!(warnings, ["the waiver for TTFT p95 until 2027-01-01 covers nothing that failed"]);
        assert_eq!(checks[0].status, Status::Pass);
    }

    #[test]
    fn days_that_do_not_exist_are_refused() {
        for text in
            ["2026-02-29", "2026-13-01", "2026-00-10", "26-01-01", "2026-1-1", "2026-01-01-", "+026-01-01"]
        {
            assert_eq!(Date::parse(text), None, "{text}");
        }
        assert_eq!(date("2024-02-29").to_string(), "2024-02-29");
        assert!(date("2026-09-30") < date("2026-10-01"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_day_or_refused(text in ".{0,12}") {
            if let Some(date) = Date::parse(&text) {
                prop_assert_eq!(date.to_string(), text);
            }
        }
    }
}
