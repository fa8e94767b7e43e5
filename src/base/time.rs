//! Moments and days of the calendar, in UTC.

use std::fmt::{self, Write};
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A moment in UTC, in the words of C's `strftime`. Letters without a meaning here stay as they are.
pub fn strftime(time: SystemTime, format: &str) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let month_name = MONTHS[month - 1];
    let day_name = DAYS[(days % 7) as usize];
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let code = letters.next();
        let written = match code {
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('m') => write!(out, "{month:02}"),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('d') => write!(out, "{day:02}"),
            Some('A') => write!(out, "{day_name}"),
            Some('a') => write!(out, "{}", &day_name[..3]),
            Some('H') => write!(out, "{hour:02}"),
            Some('I') => write!(out, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{:02}", second % 60),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
            None => write!(out, "%"),
        };
        debug_assert!(written.is_ok(), "a string takes any text");
    }
    out
}

/// Year, month and day of a day since 1970-01-01.
fn civil(mut days: u64) -> (u64, usize, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let mut year = 1970 + days / DAYS_OF_400_YEARS * 400;
    days %= DAYS_OF_400_YEARS;
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

/// A moment as documents write it: ISO 8601, in UTC, to the second.
pub fn iso8601(time: SystemTime) -> String {
    strftime(time, "%Y-%m-%dT%H:%M:%SZ")
}

/// A day, written `2026-12-31`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(into = "String")]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// The day of a moment, in UTC.
    pub fn of(time: SystemTime) -> Date {
        let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let (year, month, day) = civil(seconds / 86_400);
        Date { year: u16::try_from(year).unwrap_or(u16::MAX), month: month as u8, day: day as u8 }
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, format: &str) -> String {
        strftime(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), format)
    }

    #[test]
    fn moments_read_as_in_python() {
        assert_eq!(at(0, "%A %d %B %Y %H:%M:%S"), "Thursday 01 January 1970 00:00:00");
        assert_eq!(at(951_782_400, "%a %d %b %y"), "Tue 29 Feb 00");
        assert_eq!(at(1_735_689_599, "%Y-%m-%d %I:%M %p"), "2024-12-31 11:59 PM");
        assert_eq!(at(4_107_542_400, "%Y-%m-%d"), "2100-03-01");
        assert_eq!(at(253_402_300_799, "%Y-%m-%d"), "9999-12-31");
        assert_eq!(at(0, "100 %% %q %"), "100 % %q %");
    }

    #[test]
    fn days_are_those_of_moments() {
        let date = |seconds| Date::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(date(951_782_400), Date::parse("2000-02-29").unwrap());
        assert_eq!(date(253_402_300_799), Date::parse("9999-12-31").unwrap());
    }
}
