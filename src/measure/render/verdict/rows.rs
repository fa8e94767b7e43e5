//! The tables of a verdict, as text in cells.

use crate::gate::{Check, Outcome, Rule, Status, Verdict};
use crate::render::Table;
use crate::render::number::{ABSENT, digits, figure};
use crate::words;

const GROUPS: [(Status, &str); 4] = [
    (Status::Fail, "Failed"),
    (Status::Inconclusive, "Inconclusive"),
    (Status::Pass, "Passed"),
    (Status::NotGated, "Not gated"),
];

/// The verdict in a line.
pub fn headline(verdict: &Verdict) -> String {
    let Verdict { candidate, baseline, .. } = verdict;
    let against = match verdict.rule {
        Rule::Stored => format!("{} of {} blessed sessions", baseline.launches, baseline.sessions),
        Rule::Paired => format!("{} interleaved ones", baseline.launches),
    };
    let loud = match verdict {
        Verdict { cross_hardware: true, .. } => " (CROSS-HARDWARE)",
        Verdict { same_packages: true, .. } => " (the same packages)",
        _ => "",
    };
    format!(
        "{}{loud}: {} on {} with {}, {} launches against {against}",
        verdict.outcome.label(),
        candidate.name,
        candidate.hardware_profile_key,
        candidate.runtime,
        candidate.launches
    )
}

/// Tables of the checks, one per status that occurs, and one of the warnings.
pub fn verdict_tables(verdict: &Verdict) -> Vec<Table> {
    let mut tables: Vec<Table> = GROUPS
        .iter()
        .filter_map(|(status, title)| {
            let checks: Vec<&Check> = verdict.with(*status).collect();
            (!checks.is_empty()).then(|| table(title, *status, &checks, verdict))
        })
        .collect();
    if !verdict.warnings.is_empty() {
        let rows = verdict.warnings.iter().map(|warning| vec![warning.clone()]);
        tables.push(Table::new(&[""]).titled("Warnings", "").with(rows));
    }
    tables
}

fn table(title: &str, status: Status, checks: &[&Check], verdict: &Verdict) -> Table {
    let measured = status != Status::NotGated;
    let headings: &[&str] = match measured {
        true => &["check", ">baseline", ">now", ">change", ">95 % range", ">limit", "why"],
        false => &["check", "why"],
    };
    let row = |check: &&Check| {
        let mut cells = vec![check.label()];
        if measured {
            cells.extend(change(check));
            cells.push(check.limit.map_or_else(|| ABSENT.to_owned(), |limit| limit.to_string()));
        }
        cells.push(why(check));
        cells
    };
    Table::new(headings).titled(title, note(status, verdict)).with(checks.iter().map(row))
}

/// Baseline, candidate, the change and its range.
fn change(check: &Check) -> [String; 4] {
    let Some(effect) = &check.effect else { return [(); 4].map(|()| ABSENT.to_owned()) };
    let value = |value: Option<f64>| match (value, effect.unit) {
        (Some(value), Some(unit)) => figure(value, unit),
        (Some(value), None) => digits(value),
        (None, _) => ABSENT.to_owned(),
    };
    let range = effect.interval_pct.map(|range| words::range(range.low, range.high, check.measure.words()));
    [
        value(effect.baseline),
        value(effect.candidate),
        check.measure.change(effect.regression_pct),
        range.unwrap_or_else(|| ABSENT.to_owned()),
    ]
}

/// Why a check came out as it did, with what would settle it.
pub(super) fn why(check: &Check) -> String {
    match check.more_launches {
        Some(1) => format!("{}; 1 more launch would likely settle it", check.reason),
        Some(more) => format!("{}; {more} more launches would likely settle it", check.reason),
        None => check.reason.clone(),
    }
}

fn note(status: Status, verdict: &Verdict) -> String {
    match (status, verdict.outcome) {
        (Status::Fail, _) => format!(
            "Without any change, speed checks together fail at most {} % of the time.",
            digits(verdict.false_alarm * 100.0)
        ),
        (Status::Inconclusive, Outcome::Inconclusive) => {
            "Quieten the machine, or measure more launches.".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::verdict;
    use super::*;

    #[test]
    fn a_verdict_reads_well() {
        let verdict = verdict();
        let mut text = headline(&verdict) + "\n";
        for table in verdict_tables(&verdict) {
            text += &format!("\n{}\n", table.title);
            for row in &table.rows {
                text += &format!("  {}\n", row.join(" | "));
            }
            text += &table.note;
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn crossing_hardware_is_in_the_first_line() {
        let crossed = Verdict { cross_hardware: true, ..verdict() };
        assert!(headline(&crossed).starts_with("FAIL (CROSS-HARDWARE): "));
        let same = Verdict { same_packages: true, ..verdict() };
        assert!(headline(&same).starts_with("FAIL (the same packages): "));
    }
}
