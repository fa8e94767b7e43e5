//! Comparisons of reports as tables.

use super::number::{ABSENT, figure};
use super::table::{Align, Table, table, texts};
use crate::compare::{Change, Comparison, QualityPair, Speed};
use crate::gate::Status;
use crate::report::Place;
use crate::stats::Unit;
use crate::words::{SIZE, SPEED, Words, change};

/// Digests and commits are shown so far.
const SHOWN: usize = 32;

/// All tables of a comparison that have rows.
pub fn comparison_tables(compared: &Comparison) -> Vec<Table> {
    let reasons = compared.not_comparable.iter().map(|reason| vec![reason.clone()]).collect();
    let not_alike = texts("Not measured alike", &[""], reasons);
    let all =
        [speeds(compared), qualities(compared), not_alike].into_iter().filter(|table| !table.rows.is_empty());
    all.chain(explained(compared)).collect()
}

/// What changed and may be the cause, if anything did.
pub fn explained(compared: &Comparison) -> Option<Table> {
    let headings = ["what", "A", "B", "cause of slower", "how it acts"];
    let mut found = texts("What changed", &headings, compared.changes.iter().map(changed).collect());
    found.note = "The likeliest cause first. A ranking by what such changes act on, not a proof.".to_owned();
    (!found.rows.is_empty()).then_some(found)
}

fn changed(change: &Change) -> Vec<String> {
    let on: Vec<&str> = change.on.iter().map(|metric| metric.label()).collect();
    let cause = match on.is_empty() {
        true => change.cause.label().to_owned(),
        false => format!("{} ({})", change.cause.label(), on.join(", ")),
    };
    let [before, after] = [&change.baseline, &change.candidate].map(|text| short(text));
    vec![change.what.to_owned(), before, after, cause, change.acts.to_owned()]
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn words(unit: Unit) -> Words {
    match unit {
        Unit::Milliseconds
        | Unit::TokensPerSecond
        | Unit::PredictionsPerSecond
        | Unit::GigabytesPerSecond => SPEED,
        Unit::Bytes => SIZE,
        Unit::Joules | Unit::Share => ["worse", "better"],
    }
}

fn speeds(compared: &Comparison) -> Table {
    let (title, note) = match compared.verdict {
        Some(_) => ("Medians", "Judged where the gate judges; the worst first."),
        None => ("Plain changes of medians", "Not judged: a difference may be noise or another workload."),
    };
    let row = |speed: &Speed| {
        vec![
            speed.metric.label().to_owned(),
            Place::stated(speed.seq_len, speed.case.as_ref())
                .map(|place| place.to_string())
                .unwrap_or_default(),
            figure(speed.baseline, speed.unit),
            figure(speed.candidate, speed.unit),
            change(speed.worse_pct, words(speed.unit)),
            speed.status.map(Status::label).unwrap_or_default().to_owned(),
        ]
    };
    let has_cases = compared.speeds.iter().any(|speed| speed.case.is_some());
    let headings = ["metric", if has_cases { "case" } else { "seq_len" }, "A", "B", "change", "gate"];
    let mut medians = table(title, note, &headings, compared.speeds.iter().map(row).collect());
    if let Some(last) = medians.columns.last_mut() {
        last.align = Align::Left;
    }
    medians
}

/// What speed and size were bought with.
fn qualities(compared: &Comparison) -> Table {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| ABSENT.to_owned());
    let row =
        |pair: &QualityPair| vec![pair.figure.to_owned(), shown(&pair.baseline), shown(&pair.candidate)];
    let rows = compared.quality.iter().map(row).collect();
    table("Quality", "As `verify` and `eval` found it for these packages.", &["figure", "A", "B"], rows)
}

#[cfg(test)]
mod tests {
    use super::super::written;
    use super::*;
    use crate::compare::testing;

    fn shown(compared: &Comparison) -> String {
        let tables: String = comparison_tables(compared).iter().map(written).collect();
        format!("{}\n\n{tables}", compared.headline())
    }

    #[test]
    fn judged_reports_read_well() {
        insta::assert_snapshot!(shown(&testing::slower()));
    }

    #[test]
    fn plain_changes_say_that_they_are() {
        insta::assert_snapshot!(shown(&testing::not_alike()));
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(short(&"é".repeat(40)), format!("{}…", "é".repeat(32)));
        assert_eq!(short("short"), "short");
    }
}
