//! `anemeter report`: renders one report, or several by hardware profile.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::gate::{policy, text as verdict_text, today};
use super::output::{create_folder, write_file};
use super::table::Table;
use super::{Failure, Output, Status};
use crate::baseline::storage;
use crate::gate::{self, GatesFile, Look, Options, Verdict};
use crate::render::{self, Align, chart};
use crate::report::Report;

/// Render one report, or several by hardware profile.
#[derive(clap::Args)]
#[command(
    after_help = "Of more than 100 reports, text, Markdown and the page show a row per model, shape and system build.\n\n\
Examples:\n  anemeter report reports/a --format md\n  \
anemeter report reports/a --baseline reports/old --format html --out against.html\n  \
anemeter report reports/* --format html --out fleet.html\n  \
anemeter report reports/a/report.json --format svg --out charts"
)]
pub(super) struct Args {
    /// Report files, or folders with a report.json; paths or URLs.
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Show what a gate says of the one report against this one; several are sessions of one baseline, oldest first.
    #[arg(long, value_name = "REPORT", num_args = 1.., conflicts_with = "verdict")]
    baseline: Vec<PathBuf>,
    /// Show a verdict on the one report, as `anemeter gate --format json` or `anemeter compare --out` wrote it.
    #[arg(long, value_name = "FILE")]
    verdict: Option<PathBuf>,
    /// What to make.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// File to write, or for `svg` the folder for the charts [default: standard output].
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables for the terminal.
    Text,
    /// One page that needs nothing else.
    Html,
    /// Markdown.
    Md,
    /// One row per sample and one per summary.
    Csv,
    /// Charts, a file each.
    Svg,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let reports = read_all(args)?;
    let verdict = verdict(args, &reports)?;
    let text = match (args.format, &verdict) {
        (Format::Text, None) => text(&reports),
        (Format::Text, Some(verdict)) => format!("{}\n{}", verdict_text(verdict), text(&reports)),
        (Format::Html, None) => render::html(&reports)?,
        (Format::Html, Some(verdict)) => render::judged_html(&reports[0], verdict)?,
        (Format::Md, None) => render::markdown(&reports),
        (Format::Md, Some(verdict)) => {
            format!("{}\n{}", render::verdict_markdown(verdict), render::markdown(&reports))
        }
        (Format::Csv, None) => render::csv(&reports)?,
        (Format::Csv, Some(_)) => {
            return Err(Failure::bad_input("there is no place for a verdict among samples")
                .with_help("leave --baseline or --verdict out, or choose another format"));
        }
        (Format::Svg, _) => return charts(args, &reports, verdict.as_ref(), output),
    };
    match &args.out {
        Some(path) => write_file(path, text.as_bytes())?,
        None => output.text(text)?,
    }
    Ok(Status::Good)
}

/// What is said of the one report against its baseline, if there is one.
fn verdict(args: &Args, reports: &[Report]) -> Result<Option<Verdict>, Failure> {
    if args.baseline.is_empty() && args.verdict.is_none() {
        return Ok(None);
    }
    let [report] = reports else {
        let count = reports.len();
        return Err(Failure::bad_input(format!("a verdict is on one report, but {count} are given"))
            .with_help("give one report with --baseline or --verdict"));
    };
    match &args.verdict {
        Some(path) => read_verdict(path, report).map(Some),
        None => judge(report, &args.baseline).map(Some),
    }
}

fn judge(report: &Report, baseline: &[PathBuf]) -> Result<Verdict, Failure> {
    let sessions: Vec<Report> = baseline.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let sessions: Vec<&Report> = sessions.iter().collect();
    let policy = policy(&super::bench::profiles(None)?, report, &GatesFile::built_in()?);
    let options = Options { today: today()?, look: Look::only(), allow_cross_hardware: false };
    Ok(gate::judge(report, &sessions, &policy, &options)?)
}

fn read_verdict(path: &Path, report: &Report) -> Result<Verdict, Failure> {
    let bytes = std::fs::read(path).map_err(|e| Failure::at(path, e))?;
    let verdict = Verdict::parse(&bytes).map_err(|problem| Failure::at(path, problem))?;
    if !verdict.judges(report) {
        let (of, given) = (&verdict.candidate.created, &report.header.created);
        let problem = format!("is on another report: one of {of}, but that of {given} is given");
        return Err(Failure::at(path, problem).with_help("make it again: anemeter gate REPORT --format json"));
    }
    Ok(verdict)
}

/// Reads all reports. Where they are too many to be shown one by one, their samples are not kept in memory.
fn read_all(args: &Args) -> Result<Vec<Report>, Failure> {
    let needs_samples =
        args.reports.len() <= render::DETAILED || matches!(args.format, Format::Csv | Format::Svg);
    let found: Vec<Result<Report, Failure>> = args
        .reports
        .par_iter()
        .map(|path| {
            let mut report = read(path)?;
            if !needs_samples {
                report.forget_samples();
            }
            Ok(report)
        })
        .collect();
    found.into_iter().collect()
}

/// Whether a path is a URL.
pub(super) fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://"))
}

/// Reads a report file, `report.json` in a folder, or either by URL.
pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let Some(url) = path.to_str().filter(|_| is_url(path)) else {
        return Report::read(path).map_err(Failure::bad_input);
    };
    let url = url.trim_end_matches('/');
    let (folder, name) = match url.rsplit_once('/') {
        Some((folder, name)) if name.ends_with(".json") => (folder, name),
        _ => (url, "report.json"),
    };
    let storage = storage(Path::new(folder))?;
    let wrong = |problem: String| Failure::bad_input(format!("{}: {problem}", storage.place(name)));
    let stored = storage.read(name).map_err(Failure::bad_input)?;
    let stored = stored.ok_or_else(|| wrong("there is no report".to_owned()))?;
    Report::parse(&stored.bytes).map_err(wrong)
}

fn text(reports: &[Report]) -> String {
    if reports.len() > render::DETAILED {
        return render::census(reports).iter().map(|table| format!("{}\n", terminal_table(table))).collect();
    }
    let mut text = String::new();
    for report in &render::by_profile(reports) {
        text += &format!("{}\n\n", report.subject.name.escape_debug());
        for table in render::tables(report) {
            text += &format!("{}\n", terminal_table(&table));
        }
    }
    text
}

/// A table for the terminal, with its title above and its note below.
pub(super) fn terminal_table(table: &render::Table) -> String {
    let headings = table.columns.iter().map(|column| match column.align {
        Align::Left => column.heading.clone(),
        Align::Right => format!(">{}", column.heading),
    });
    let headings: Vec<String> = headings.collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut plain = Table::new(&headings).indented(2);
    for row in &table.rows {
        plain.row(row.iter().cloned());
    }
    let note = if table.note.is_empty() { String::new() } else { format!("  {}\n", table.note) };
    let without_headings = table.columns.iter().all(|column| column.heading.is_empty());
    let plain = plain.to_string();
    let lines = if without_headings { plain.split_once('\n').map_or("", |(_, rows)| rows) } else { &plain };
    format!("{}\n{lines}{note}", table.title)
}

fn charts(
    args: &Args,
    reports: &[Report],
    verdict: Option<&Verdict>,
    output: &mut Output,
) -> Result<Status, Failure> {
    let Some(folder) = &args.out else {
        return Err(
            Failure::bad_input("charts are several files").with_help("give a folder for them: --out DIR")
        );
    };
    create_folder(folder)?;
    let reports = &render::by_profile(reports)[..];
    let several = render::groups(reports).count() > 1;
    let mut all = Vec::new();
    if let Some(verdict) = verdict {
        all.extend(chart::against(verdict, chart::Theme::File)?);
    }
    for (index, group) in render::groups(reports).enumerate() {
        let prefix = if several { format!("profile-{}-", index + 1) } else { String::new() };
        for found in chart::comparisons(group, chart::Theme::File)? {
            all.push(chart::Chart { name: format!("{prefix}{}", found.name), ..found });
        }
    }
    for (index, report) in reports.iter().enumerate() {
        let prefix = if reports.len() > 1 { format!("{}-", index + 1) } else { String::new() };
        for found in chart::charts(report, chart::Theme::File)? {
            all.push(chart::Chart { name: format!("{prefix}{}", found.name), ..found });
        }
    }
    for chart in all {
        let path = folder.join(format!("{}.svg", chart.name));
        write_file(&path, chart.svg.as_bytes())?;
        output.line(path.display())?;
    }
    Ok(Status::Good)
}
