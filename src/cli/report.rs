//! `anemeter report`: renders one report, or several by hardware profile.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rayon::prelude::*;
use serde::Serialize;

use super::gate::text as verdict_text;
use super::inputs::{GateFiles, read_report};
use super::output::{create_folder, json, keep_measurement, write_file};
use super::{Failure, Output, Result, Status};
use crate::evaluate::Baseline;
use crate::files;
use crate::gate::{InterimLook, Verdict};
use crate::import::llm_benchmark;
use crate::render::{self, chart};
use crate::report::Report;
use crate::text::visible;
use crate::time::iso8601;

/// Render reports as text, HTML, Markdown, CSV, charts or JSON; several are grouped by hardware profile.
#[derive(clap::Args)]
#[command(
    after_help = "More than 100 reports are summarised: a row per model, sequence length and system build, without samples.\n\n\
Examples:\n  anemeter report reports/a --format md\n  \
anemeter report reports/a --baseline reports/old --format html -o against.html\n  \
anemeter report reports/* --format html -o fleet.html\n  \
anemeter report reports/a/report.json --format svg -o charts\n  \
anemeter report --import qwen3.json -o reports/qwen3"
)]
pub(super) struct Args {
    /// Reports: files, or folders with a report.json; paths or URLs.
    #[arg(required_unless_present = "import", value_name = "REPORT")]
    reports: Vec<PathBuf>,
    /// Import what Apple's `llm-benchmark --output-json` wrote, as a report that is marked as another program's; with --out,
    /// write it to that folder as `anemeter bench` does.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["reports", "baseline", "verdict", "format", "json"])]
    import: Option<PathBuf>,
    /// Show the gate's verdict on the one report against this one; several are sessions of one baseline, oldest first.
    #[arg(long, value_name = "REPORT", num_args = 1.., conflicts_with = "verdict")]
    baseline: Vec<PathBuf>,
    /// Show a verdict on the one report that `anemeter gate --json` or `anemeter compare --out` wrote.
    #[arg(long, value_name = "FILE")]
    verdict: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// File to write, or the folder for the charts of `svg` [default: standard output].
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Replace a measurement that is at the path already.
    #[arg(long, requires = "out")]
    force: bool,
    #[command(flatten)]
    files: GateFiles,
}

impl Args {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables for the terminal.
    Text,
    /// A self-contained page.
    Html,
    /// Markdown.
    Md,
    /// One row per sample and one per summary.
    Csv,
    /// Charts, a file each.
    Svg,
    /// One JSON document: the verdict, if there is one, and the reports.
    Json,
    /// The JSON lines of llama-bench: a test of each prompt, and one of the tokens after it.
    LlamaBench,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'a Verdict>,
    reports: &'a [Report],
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    if let Some(file) = &args.import {
        return import(args, file, output);
    }
    let reports = read_all(args)?;
    let verdict = verdict(args, &reports)?;
    let text = match (args.format(), &verdict) {
        (Format::Text, None) => text(&reports),
        (Format::Text, Some(verdict)) => format!("{}\n{}", verdict_text(verdict), text(&reports)),
        (Format::Html, None) => render::html(&reports)?,
        (Format::Html, Some(verdict)) => render::judged_html(&reports[0], verdict)?,
        (Format::Md, None) => render::markdown(&reports),
        (Format::Md, Some(verdict)) => {
            format!("{}\n{}", render::verdict_markdown(verdict), render::markdown(&reports))
        }
        (Format::Csv, None) => render::csv(&reports)?,
        (Format::LlamaBench, None) => render::llama_bench(&reports)?,
        (Format::Csv | Format::LlamaBench, Some(_)) => {
            return Err(Failure::bad_input("there is no place for a verdict among samples")
                .with_help("leave --baseline or --verdict out, or choose another format"));
        }
        (Format::Json, verdict) => {
            let document = Document { verdict: verdict.as_ref(), reports: &reports };
            json(&document)?
        }
        (Format::Svg, _) => return charts(args, &reports, verdict.as_ref(), output),
    };
    match &args.out {
        Some(path) => {
            keep_measurement(path, args.force)?;
            write_file(path, text.as_bytes())?;
        }
        None if matches!(args.format(), Format::Text | Format::Md) => output.text(text)?,
        None => output.document(text)?,
    }
    Ok(Status::Good)
}

/// Shows the result of another program, and keeps it if a folder is given.
fn import(args: &Args, file: &Path, output: &mut Output) -> Result<Status> {
    let json = files::read(file, Report::LONGEST).map_err(|e| Failure::at(file, e))?;
    let report = llm_benchmark(&json, iso8601(SystemTime::now())).map_err(|e| Failure::at(file, e))?;
    if let Some(folder) = &args.out {
        create_folder(folder)?;
        keep_measurement(&folder.join("report.json"), args.force)?;
        super::bench::write(folder, &report)?;
    }
    output.text(text(std::slice::from_ref(&report)))?;
    output.line(report.residency_note)?;
    Ok(Status::Good)
}

/// What is said of the one report against its baseline, if there is one.
fn verdict(args: &Args, reports: &[Report]) -> Result<Option<Verdict>> {
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
        None => judge(report, args).map(Some),
    }
}

fn judge(report: &Report, args: &Args) -> Result<Verdict> {
    let sessions: Vec<Report> =
        args.baseline.iter().map(|path| read_report(path)).collect::<Result<_, _>>()?;
    let rules = args.files.rules()?;
    Ok(rules.judge(report, Baseline::Sessions(&sessions), InterimLook::only())?)
}

fn read_verdict(path: &Path, report: &Report) -> Result<Verdict> {
    let bytes = files::read(path, Report::LONGEST).map_err(|e| Failure::at(path, e))?;
    let verdict = Verdict::parse(&bytes).map_err(|problem| Failure::at(path, problem))?;
    if !verdict.judges(report) {
        let (of, given) = (&verdict.candidate.created, &report.header.created);
        let problem = format!("is on another report: one of {of}, but that of {given} is given");
        return Err(Failure::at(path, problem).with_help("make it again: anemeter gate REPORT --json"));
    }
    Ok(verdict)
}

/// Reads all reports. Where they are too many to be shown one by one, their samples are not kept in memory.
fn read_all(args: &Args) -> Result<Vec<Report>> {
    let needs_samples = args.reports.len() <= render::DETAILED
        || matches!(args.format(), Format::Csv | Format::Svg | Format::LlamaBench);
    let found: Vec<Result<Report>> = args
        .reports
        .par_iter()
        .map(|path| {
            let mut report = read_report(path)?;
            if !needs_samples {
                report.forget_samples();
            }
            Ok(report)
        })
        .collect();
    found.into_iter().collect()
}

fn text(reports: &[Report]) -> String {
    if reports.len() > render::DETAILED {
        return render::census(reports).iter().map(|table| format!("{table}\n")).collect();
    }
    let mut text = String::new();
    for report in &render::by_profile(reports) {
        text += &format!("{}\n\n", visible(&report.subject.label()));
        for table in render::tables(report) {
            text += &format!("{table}\n");
        }
    }
    text
}

fn charts(args: &Args, reports: &[Report], verdict: Option<&Verdict>, output: &mut Output) -> Result<Status> {
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
