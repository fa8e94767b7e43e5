//! `cargo xtask bench history`: what a fleet's reports and baselines cost to read, at a quarter, a half and all of them.

mod reports;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;

use anemeter::baseline::{Judgement, Proposal, Provenance, Sessions, Store};

use crate::bench::export::measured::{Measured, parse};
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};
use xtask::record;

/// Seconds that a command may take over all reports.
const LONGEST_S: f64 = 60.0;
/// How much longer a command may take over twice as many reports.
const STEEPEST: f64 = 2.6;
/// Below this a ratio of times says nothing.
const NOTHING_S: f64 = 0.2;
/// How many parts of the reports are measured: a quarter, a half, all.
const PARTS: [usize; 3] = [4, 2, 1];

/// A command that is measured, as it would be typed beside the reports.
struct Subject {
    name: &'static str,
    /// What it is given before the reports.
    arguments: &'static [&'static str],
    /// Whether the names of all reports follow.
    takes_reports: bool,
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "report --format html",
        arguments: &["report", "--format", "html", "--out", "fleet.html"],
        takes_reports: true,
    },
    Subject {
        name: "report --format md",
        arguments: &["report", "--format", "md", "--out", "fleet.md"],
        takes_reports: true,
    },
    Subject { name: "gate", arguments: &["gate", "report-00000.json"], takes_reports: false },
    Subject { name: "baselines log", arguments: &["baselines", "log"], takes_reports: false },
    Subject { name: "baselines verify", arguments: &["baselines", "verify"], takes_reports: false },
];

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let count: usize = arguments.opt_value_from_str("--reports")?.unwrap_or(10_000);
    let program: Option<PathBuf> = arguments.opt_value_from_str("--program")?;
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    ensure!(count >= 4, "--reports {count}: at least 4 are needed");
    let program = match program {
        Some(program) => fs::canonicalize(&program).with_context(|| format!("find {}", program.display()))?,
        None => project.release("anemeter")?,
    };
    let folder = project.target.join("bench-history");
    make_empty(&folder)?;
    let mut made = 0;
    let mut bytes = 0;
    let mut columns: Vec<Vec<Measured>> = Vec::new();
    for part in PARTS {
        let wanted = count / part;
        bytes += make(&folder, made..wanted)?;
        made = wanted;
        println!("{made} reports, {:.0} kB each", bytes as f64 / made as f64 / 1e3);
        let measured = SUBJECTS.iter().map(|subject| measure(project, &program, subject, made));
        columns.push(measured.collect::<Result<_>>()?);
    }
    let (table, missed) = table(&columns, count, bytes);
    println!("{table}");
    if recorded {
        let command = format!("cargo xtask bench history --reports {count}");
        record::write(project, "bench history", &command, &table)?;
    }
    fs::remove_dir_all(&folder)?;
    if missed > 0 {
        bail!("{missed} targets were missed");
    }
    Ok(Outcome::Checked(format!("{count} reports, all targets met")))
}

/// Writes reports of these numbers and blesses each of them; gives the bytes of the reports.
fn make(folder: &Path, numbers: std::ops::Range<usize>) -> Result<u64> {
    let store = Store::open(&folder.join("baselines"))?;
    let mut bytes = 0;
    for number in numbers {
        let report = reports::report(number);
        let text = serde_json::to_vec(&report)?;
        bytes += text.len() as u64;
        fs::write(folder.join(file(number)), text)?;
        let provenance = Provenance { when: report.header.created.clone(), ..Provenance::default() };
        let proposal = Proposal { reports: vec![report], sessions: Sessions::New, provenance };
        let blessed = store.bless(&proposal, |_| Ok::<_, std::convert::Infallible>(Judgement::default()));
        blessed.map_err(|e| anyhow::anyhow!("{e}"))?;
    }
    Ok(bytes)
}

fn file(number: usize) -> String {
    format!("report-{number:05}.json")
}

fn measure(project: &Project, program: &Path, subject: &Subject, reports: usize) -> Result<Measured> {
    // A gate that fails or is inconclusive has done its work.
    const JUDGED: &str = "\"$@\"; code=$?; test $code -eq 0 -o $code -eq 1 -o $code -eq 3";
    let mut command = project.command("python3");
    command.arg(project.root.join("xtask/python/measure.py")).args(["sh", "-c", JUDGED, "sh"]);
    command.arg(program).args(subject.arguments).current_dir(project.target.join("bench-history"));
    if subject.takes_reports {
        command.args((0..reports).map(file));
    }
    parse(&mut command).with_context(|| format!("measure `{}`", subject.name))
}

/// What was measured, and how many targets were missed.
fn table(columns: &[Vec<Measured>], count: usize, bytes: u64) -> (String, usize) {
    let mut missed = 0;
    let mut text = format!(
        "{count} synthetic reports of {:.0} kB, each blessed: 10 profiles, 50 models, {} system builds.\n\n\
         | command | {} | {} | {} reports | per doubling | target | |\n|---|--:|--:|--:|--:|---|---|\n",
        bytes as f64 / count as f64 / 1e3,
        reports::builds(count),
        count / PARTS[0],
        count / PARTS[1],
        count / PARTS[2],
    );
    for (row, subject) in SUBJECTS.iter().enumerate() {
        let cells: Vec<Measured> = columns.iter().map(|column| column[row]).collect();
        let [.., half, all] = cells[..] else { continue };
        let growth = all.seconds / half.seconds.max(1e-9);
        let good = all.seconds <= LONGEST_S && (growth <= STEEPEST || all.seconds < NOTHING_S);
        missed += usize::from(!good);
        let shown =
            |cell: &Measured| format!("{:.2} s, {:.0} MB", cell.seconds, cell.peak_bytes as f64 / 1e6);
        text += &format!(
            "| `{}` | {} | {growth:.2} × | at most {LONGEST_S} s and {STEEPEST} × | {} |\n",
            subject.name,
            cells.iter().map(shown).collect::<Vec<_>>().join(" | "),
            if good { "met" } else { "MISSED" },
        );
    }
    (text, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: f64) -> Vec<Measured> {
        vec![Measured { seconds, cpu_seconds: seconds, peak_bytes: 5_000_000, status: 0 }; SUBJECTS.len()]
    }

    #[test]
    fn quadratic_growth_is_a_missed_target() {
        let (text, missed) = table(&[measured(1.0), measured(2.0), measured(4.0)], 1000, 78_000_000);
        assert_eq!(missed, 0, "{text}");
        assert!(text.contains("| `gate` | 1.00 s, 5 MB | 2.00 s, 5 MB | 4.00 s, 5 MB | 2.00 × |"), "{text}");
        let (text, missed) = table(&[measured(1.0), measured(4.0), measured(16.0)], 1000, 78_000_000);
        assert_eq!((missed, text.matches("MISSED").count()), (SUBJECTS.len(), SUBJECTS.len()));
        assert_eq!(table(&[measured(0.01), measured(0.01), measured(0.1)], 1000, 1).1, 0);
    }

    #[test]
    fn every_report_can_be_blessed_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = make(folder.path(), 0..3).unwrap();
        assert!(bytes > 3 * 20_000, "{bytes}");
        let audit = Store::open(&folder.path().join("baselines")).unwrap().verify().unwrap();
        assert_eq!((audit.baselines, audit.findings.len()), (3, 0));
    }
}
