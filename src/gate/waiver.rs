//! Waivers: something that may be worse for a while, with a reason and a last day.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::verdict::{Check, Measure, Statistic, Status};

/// A day, written `2026-12-31`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(into = "String")]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// Reads a day; `None` if there is no such day.
    pub fn parse(text: &str) -> Option<Date> {
        let mut parts = text.split('-');
        let mut number = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u16>().ok())?
        };
        let (year, month, day) = (number(4)?, number(2)?, number(2)?);
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        let there_is = parts.next().is_none() && (1..=days).contains(&day);
        there_is.then_some(Date { year, month: month as u8, day: day as u8 })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl From<Date> for String {
    fn from(date: Date) -> String {
        date.to_string()
    }
}

impl<'de> Deserialize<'de> for Date {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Date, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refuse = || serde::de::Error::custom(format!("`{text}` is not a day such as 2026-12-31"));
        Date::parse(&text).ok_or_else(refuse)
    }
}

/// Lets a check fail until a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    /// What may be worse.
    pub metric: Measure,
    /// Which statistic of it; all if none is given.
    #[serde(default)]
    pub statistic: Option<Statistic>,
    /// At which shape; all if none is given.
    #[serde(default)]
    pub shape: Option<usize>,
    /// On which hardware profile; all if none is given.
    #[serde(default)]
    pub profile: Option<String>,
    /// Why.
    pub reason: String,
    /// The last day on which it holds.
    pub expires: Date,
}

impl Waiver {
    fn covers(&self, check: &Check) -> bool {
        self.metric == check.measure
            && self.statistic.is_none_or(|statistic| Some(statistic) == check.statistic)
            && self.shape.is_none_or(|shape| Some(shape) == check.shape)
    }

    /// What it is about, for people.
    fn label(&self) -> String {
        let mut check = Check::exact(self.metric, Status::NotGated, "");
        (check.statistic, check.shape) = (self.statistic, self.shape);
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
            shape: None,
            profile: Some("apple-m1".to_owned()),
            reason: "new tokenizer".to_owned(),
            expires: date(expires),
        }
    }

    fn tail(status: Status) -> Check {
        Check {
            statistic: Some(Statistic::P95),
            shape: Some(512),
            ..Check::exact(Measure::Ttft, status, "slower by 9 %")
        }
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
