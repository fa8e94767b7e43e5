//! What `verify` and `eval` found about the measured packages, as tables of their report.

use super::number::{ABSENT, digits};
use super::table::{Table, table, texts};
use crate::report::{Perplexity, Quality, QualityCheck, QualityLoss, Verification};

/// What `verify` recorded.
pub(super) fn verification(found: &Verification) -> Table {
    let cosine = |value: Option<f64>| value.map_or(ABSENT.to_owned(), |cosine| format!("{cosine:.6}"));
    let compared = found.compared.iter().map(|compared| {
        let seq_lens: Vec<String> = compared.seq_lens.iter().map(ToString::to_string).collect();
        format!("{} at {}", compared.kv, seq_lens.join(", "))
    });
    let origin = match found.checkpoint_is_the_exported_one {
        true => "the one that was exported",
        false => "NOT the one that was exported",
    };
    let smallest_cosine = match found.cosine_limit {
        Some(limit) => format!("{}, limit {limit}", cosine(found.cosine_min)),
        None => cosine(found.cosine_min),
    };
    let mut rows = vec![
        ("right", right(found)),
        ("good", good(found)),
        ("smallest cosine", smallest_cosine),
        ("smallest cosine between lengths", cosine(found.drift_cosine_min)),
        ("not finite", format!("{} NaN, {} infinite", found.nan, found.inf)),
        ("compared", compared.collect::<Vec<_>>().join("; ")),
        ("positions", format!("{} of {} prompts", found.positions, found.prompts)),
        ("reference", found.reference.clone()),
        ("checkpoint", origin.to_owned()),
        ("fp16", found.numerics.clone()),
    ];
    if let Some(loss) = &found.quality {
        let shown = |check: QualityCheck| (check.figure.label(), check.in_words());
        rows.extend(loss.checks().into_iter().map(shown));
        let text = loss.text.as_ref();
        rows.extend(text.map(|text| ("perplexity of the checkpoint", format!("{:.4}", text.checkpoint))));
        rows.extend(text.map(|text| ("perplexity of the packages", format!("{:.4}", text.packages))));
    }
    rows.extend(found.failures.iter().map(|failure| ("not right", failure.clone())));
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    texts("Verification", &["", ""], rows)
}

/// Whether the packages compute what their weights say.
fn right(found: &Verification) -> String {
    match (&found.not_judged, found.passed) {
        (Some(why), true) => format!("not judged: {why}"),
        (_, true) => "yes: it computes what its weights say".to_owned(),
        (_, false) => "NO".to_owned(),
    }
}

/// Whether they lose no more than they may.
fn good(found: &Verification) -> String {
    match found.quality.as_ref().map(QualityLoss::is_good) {
        None => "not measured".to_owned(),
        Some(true) => "yes: within the limits of quality".to_owned(),
        Some(false) => "NO".to_owned(),
    }
}

/// What `eval` recorded, a row per sequence length.
pub(super) fn quality(found: &Quality) -> Table {
    let number = |value: Option<f64>| value.map_or(ABSENT.to_owned(), digits);
    let rows = found.per_seq_len.iter().map(|at| {
        vec![
            at.seq_len.to_string(),
            at.cases.to_string(),
            at.too_long.to_string(),
            format!("{:.3}", at.f1),
            format!("{:.3}", at.name_f1),
            format!("{:.3}", at.exact),
            at.without_call.to_string(),
            number(at.ttfa_p50),
            number(at.ttfa_p95),
        ]
    });
    let drift = found.f1_drift.map_or(ABSENT.to_owned(), |drift| format!("{drift:.3}"));
    let note = format!(
        "{} cases on {}, KV {}, at most {} tokens each. F1 drift between sequence lengths: {drift}. Over all: TTFA p50 {}, p95 {} tokens.",
        found.cases,
        found.runtime,
        found.kv,
        found.max_tokens,
        number(found.ttfa_p50),
        number(found.ttfa_p95)
    );
    let calls = ["F1", "F1 of names", "exact", "without a call", "TTFA p50", "TTFA p95"];
    table("Tool calls", &note, &[&["seq_len", "cases", "too long"], &calls[..]].concat(), rows.collect())
}

/// What `eval` recorded of a text.
pub(super) fn perplexity(found: &Perplexity) -> Table {
    let Perplexity { runtime, kv, window, tokens, nats_per_token, perplexity, .. } = found;
    let row = vec![
        format!("{runtime}, KV {kv}"),
        format!("{perplexity:.4}"),
        format!("{nats_per_token:.4}"),
        tokens.to_string(),
        window.to_string(),
    ];
    let headings = ["measured with", "perplexity", "nats per token", "tokens", "window"];
    table("Perplexity", "Of a text, as `eval` found it for these packages.", &headings, vec![row])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::{markdown, tables};
    use crate::report::testing;

    fn verified(passed: bool, failures: &[&str]) -> Verification {
        let record = json!({
            "schema": "anemeter.verification/1", "tool_version": "0.1.0", "package_digests": [], "checkpoint_digest": "",
            "checkpoint_is_the_exported_one": passed, "passed": passed, "cosine_min": 0.999_95, "drift_cosine_min": null,
            "nan": 0, "inf": 2, "reference": "llama at f32", "numerics": "fast",
            "compared": [{ "kv": "io", "seq_lens": [128, 512] }], "prompts": 8, "positions": 256, "failures": failures,
        });
        serde_json::from_value(record).unwrap()
    }

    fn evaluated() -> Quality {
        let quality = json!({
            "seq_len": 128, "cases": 20, "too_long": 1, "f1": 0.875, "name_f1": 0.95, "exact": 0.7, "without_call": 2,
            "ttfa_p50": 4.0, "ttfa_p95": null,
        });
        let record = json!({
            "schema": "anemeter.quality/1", "tool_version": "0.1.0", "package_digests": [], "cases_digest": "",
            "cases": 21, "runtime": "cpu", "max_tokens": 64, "kv": "io", "per_seq_len": [quality], "f1_drift": 0.005,
            "ttfa_p50": 4.0, "ttfa_p95": 12.5,
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn what_was_found_is_in_the_tables_of_a_report() {
        let mut report = testing::report();
        let found = |title: &str| ["Verification", "Tool calls"].contains(&title);
        assert!(!tables(&report).iter().any(|table| found(&table.title)));
        (report.verification, report.quality) = (Some(verified(true, &[])), Some(evaluated()));
        let text = markdown(&[report]);
        let written = |title: &str| {
            let from = text.find(&format!("## {title}")).unwrap();
            text[from..].split("\n## ").next().unwrap().to_owned()
        };
        insta::assert_snapshot!(written("Verification") + &written("Tool calls"));
    }

    #[test]
    fn the_perplexity_of_an_evaluation_is_in_its_report() {
        let mut report = testing::report();
        let perplexity = json!({
            "text_digest": "", "runtime": "cpu", "kv": "io", "window": 512, "tokens": 4227, "nats_per_token": 3.2,
            "perplexity": 24.5325,
        });
        let mut found = evaluated();
        (found.per_seq_len, found.perplexity) =
            (Vec::new(), Some(serde_json::from_value(perplexity).unwrap()));
        report.quality = Some(found);
        let all = tables(&report);
        let table = all.iter().find(|table| table.title == "Perplexity").unwrap();
        assert_eq!(table.rows, [["cpu, KV io", "24.5325", "3.2000", "4227", "512"]]);
        assert!(all.iter().all(|table| table.title != "Tool calls"));
    }

    #[test]
    fn what_is_not_good_enough_is_named() {
        let table = verification(&verified(false, &["cosine 0.9 at 512"]));
        let has = |row: [&str; 2]| table.rows.contains(&row.map(str::to_owned).to_vec());
        assert!(
            has(["right", "NO"]) && has(["not right", "cosine 0.9 at 512"]) && has(["good", "not measured"])
        );
        assert!(has(["checkpoint", "NOT the one that was exported"]));
        assert!(has(["not finite", "0 NaN, 2 infinite"]));
    }

    #[test]
    fn the_smallest_cosine_has_its_limit_where_a_record_says_it() {
        let smallest = |cosine_limit| {
            let table = verification(&Verification { cosine_limit, ..verified(true, &[]) });
            table.rows.into_iter().find(|row| row[0] == "smallest cosine").unwrap().remove(1)
        };
        assert_eq!(smallest(Some(0.999)), "0.999950, limit 0.999");
        assert_eq!(smallest(None), "0.999950", "as records from before are");
    }

    #[test]
    fn what_is_lost_is_shown_with_its_limit() {
        let quality = Some(testing::quality_loss());
        let table = verification(&Verification { quality, ..verified(true, &[]) });
        let has = |row: [&str; 2]| table.rows.contains(&row.map(str::to_owned).to_vec());
        assert!(has(["good", "yes: within the limits of quality"]));
        assert!(has(["mean KL", "mean KL is 0.0110 nats, limit at most 0.1000 nats"]));
        assert!(has(["perplexity of the packages", "20.1400"]));
    }
}
