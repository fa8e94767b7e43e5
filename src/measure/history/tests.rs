//! Series and changes of made-up months.

use super::*;
use crate::report::testing;
use anemeter_base::text::is_unseen;

fn entries(values: impl Iterator<Item = (f64, &'static str)>) -> Vec<Entry> {
    let entry = |(day, (scale, commit)): (usize, (f64, &str))| {
        let mut report = testing::with_launches((0..3).map(|index| testing::launch(index, scale)).collect());
        report.header.created = format!("2026-{:02}-{:02}T12:00:00Z", 1 + day / 28, 1 + day % 28);
        report.header.git = Some(crate::report::Git { commit: commit.to_owned(), dirty: false });
        report.figures = crate::report::figures(&report.launches);
        Entry::of(&report).unwrap()
    };
    values.enumerate().map(entry).collect()
}

fn stepped() -> Vec<Entry> {
    // A tenth slower from the 15th day on, with a little noise that has no direction.
    let noise = |day: usize| 1.0 + 0.004 * ((day * 7 % 5) as f64 - 2.0);
    entries((0..30).map(move |day| match day < 15 {
        true => (noise(day), "aaa"),
        false => (1.1 * noise(day), "bbb"),
    }))
}

#[test]
fn a_change_is_told_with_what_differs_around_it() {
    let mut shuffled = stepped();
    shuffled.reverse();
    shuffled.extend(stepped());
    let history = history(shuffled, DEFAULT_FALSE_RATE);
    assert_eq!((history.reports, history.schema.as_str()), (30, SCHEMA));
    let ttft = history.series.iter().find(|series| series.metric == Metric::Ttft).unwrap();
    assert_eq!(ttft.points.len(), 30);
    let [change] = &ttft.changes[..] else { panic!("{:?}", ttft.changes) };
    assert!(change.index == 15 && change.is_worse && (change.change_pct - 10.0).abs() < 1.0, "{change:?}");
    let differs = Difference { what: "commit".to_owned(), before: "aaa".to_owned(), after: "bbb".to_owned() };
    assert_eq!(change.differences, [differs]);
    let tps = history.series.iter().find(|series| series.metric == Metric::Tps).unwrap();
    assert!(tps.changes[0].is_worse && tps.changes[0].change_pct < 0.0, "{:?}", tps.changes);
}

#[test]
fn what_was_slowed_down_or_only_checks_makes_no_series() {
    let mut report = testing::report();
    report.runtime.slowed_down_pct = Some(100);
    assert!(Entry::of(&report).is_none());
    let empty = history(Vec::new(), DEFAULT_FALSE_RATE);
    assert_eq!((empty.reports, empty.series.len()), (0, 0));
}

#[test]
fn other_tools_read_what_is_written_for_them() {
    let history = history(stepped(), DEFAULT_FALSE_RATE);
    let csv = formats::otava_csv(&history).unwrap();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let headings = reader.headers().unwrap().clone();
    assert_eq!(headings.iter().take(3).collect::<Vec<_>>(), ["time", "commit", "series"]);
    assert_eq!(reader.records().count(), 30);
    let bencher = formats::bencher(&history);
    let (name, measures) = bencher.as_object().unwrap().iter().next().unwrap();
    assert!(name.contains("seq_len") || name.contains("launch"), "{name}");
    assert!(measures.as_object().unwrap().values().all(|measure| measure["value"].is_number()));
    let action = formats::benchmark_action(&history, true);
    let rates = action.as_array().unwrap();
    assert!(!rates.is_empty() && rates.iter().all(|entry| entry["unit"] == "tok/s"), "{action}");
}

#[test]
fn names_are_seen_and_no_formulas_in_csv() {
    let mut history = history(stepped(), DEFAULT_FALSE_RATE);
    for series in &mut history.series {
        series.profile = "=HYPERLINK(\"x\")\u{202e}".to_owned();
        for point in &mut series.points {
            point.circumstances.commit = Some("@a\u{1b}[2J".to_owned());
        }
    }
    let csv = formats::otava_csv(&history).unwrap();
    assert!(!csv.contains(|c: char| c != '\n' && is_unseen(c)), "{csv}");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let row = reader.records().next().unwrap().unwrap();
    assert_eq!(&row[1], "'@a\\u{1b}[2J");
    assert!(row[2].starts_with("'=HYPERLINK(\"x\")\\u{202e}/"), "{}", &row[2]);
}
