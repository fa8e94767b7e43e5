//! `anemeter history`: folders of reports and baselines as series, and where they changed.

use anemeter::report::{Report, figures};
use serde_json::Value;

use crate::gate::report;
use crate::support::checkpoints::write_text;
use crate::support::command::{Outcome, anemeter, arg, json};
use crate::support::scene::Scene;

/// A report per day in a folder each; slower by a tenth from the day of the step on.
fn month(step: usize) -> Scene {
    let scene = Scene::empty();
    for day in 0..24 {
        let factor = if day < step { 1.0 } else { 1.1 };
        let mut report: Report = serde_json::from_value(report(day as u64, 4, factor)).unwrap();
        report.header.created = format!("2026-03-{:02}T09:00:00Z", day + 1);
        report.machine.os_build = Some(if day < step { "25A1" } else { "25B7" }.to_owned());
        report.figures = figures(&report.launches);
        let folder = scene.path(&format!("reports/{day}"));
        std::fs::create_dir_all(&folder).unwrap();
        write_text(&folder.join("report.json"), &serde_json::to_string(&report).unwrap());
    }
    scene
}

fn history(scene: &Scene, args: &[&str]) -> Outcome {
    anemeter(&[&["history", arg(&scene.path("reports"))], args].concat())
}

#[test]
fn a_slower_system_is_found_on_its_day_and_named() {
    let scene = month(14);
    let page = scene.path("history.html");
    let document: Value = serde_json::from_str(history(&scene, &["--json"]).succeeded()).unwrap();
    assert_eq!((&document["schema"], &document["reports"]), (&"anemeter.history/1".into(), &24.into()));
    let series = document["series"].as_array().unwrap();
    let ttft: Vec<&Value> = series.iter().filter(|series| series["metric"] == "ttft").collect();
    assert_eq!(ttft.len(), 2, "a series per sequence length");
    for series in ttft {
        let [change] = &series["changes"].as_array().unwrap()[..] else { panic!("{}", series["changes"]) };
        assert_eq!((&change["time"], &change["is_worse"]), (&"2026-03-15T09:00:00Z".into(), &true.into()));
        let differs = change["differences"].as_array().unwrap();
        assert!(
            differs.iter().any(|found| found["what"] == "system" && found["after"] == "25B7"),
            "{change}"
        );
    }
    let text = history(&scene, &[]);
    assert!(text.succeeded().contains("system 25A1 → 25B7"), "{}", text.stdout);
    history(&scene, &["--format", "html", "-o", arg(&page)]).succeeded();
    assert!(std::fs::read_to_string(&page).unwrap().contains("class=\"mark worse\""));
    for (format, begins) in [
        ("md", "## Changes"),
        ("otava-csv", "time,commit,series,"),
        ("bencher", "{"),
        ("benchmark-action-bigger", "["),
    ] {
        let text = history(&scene, &["--format", format]);
        assert!(text.succeeded().starts_with(begins), "{format}: {}", text.stdout);
    }
}

#[test]
fn what_makes_no_series_is_told() {
    let scene = Scene::empty();
    std::fs::create_dir(scene.path("reports")).unwrap();
    let empty = history(&scene, &[]);
    assert_eq!(empty.code, 2, "{}", empty.stderr);
    write_text(&scene.path("reports/report.json"), "{}");
    let broken = history(&scene, &[]);
    assert!(broken.code == 2 && broken.stderr.contains("report.json"), "{}", broken.stderr);
    let rate = history(&scene, &["--false-rate", "0.9"]);
    assert!(rate.code == 2 && rate.stderr.contains("between 0.001 and 0.2"), "{}", rate.stderr);
    // A measurement is not replaced by a page about it.
    let month = month(24);
    let path = month.path("reports/3/report.json");
    let before = json(&path);
    assert_eq!(history(&month, &["-o", arg(&path)]).code, 2);
    assert_eq!(json(&path), before);
}

#[test]
fn json_stays_json_whatever_names_hold() {
    let scene = Scene::empty();
    let mut report: Report = serde_json::from_value(report(1, 4, 1.0)).unwrap();
    let name = "a\u{202e}b\u{7f}c\u{85}d\n::error::e";
    name.clone_into(&mut report.subject.name);
    report.figures = figures(&report.launches);
    std::fs::create_dir_all(scene.path("reports")).unwrap();
    write_text(&scene.path("reports/report.json"), &serde_json::to_string(&report).unwrap());
    for format in ["json", "bencher", "benchmark-action-bigger", "benchmark-action-smaller"] {
        let outcome = history(&scene, &["--format", format]);
        let text = outcome.succeeded();
        assert!(
            !text.contains(|c: char| c != '\n' && c.is_control()) && !text.contains('\u{202e}'),
            "{text}"
        );
        let document: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{format}: {e}\n{text}"));
        let has_name = |text: &str| text.contains(name);
        let keys = document.as_object().into_iter().flat_map(|object| object.keys());
        let names = document.as_array().into_iter().flatten().filter_map(|entry| entry["name"].as_str());
        let models = document["series"].as_array().into_iter().flatten();
        let models = models.filter_map(|series| series["model"].as_str());
        let mut all = keys.map(String::as_str).chain(names).chain(models);
        assert!(all.any(has_name), "{format}: {text}");
    }
}
