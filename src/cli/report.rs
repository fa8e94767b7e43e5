//! `anemeter report`: renders one report, or several by hardware profile.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::output::write_file;
use super::table::Table;
use super::{Failure, Output, Status};
use crate::baseline::storage;
use crate::render::{self, Align, chart};
use crate::report::Report;

/// Render one report, or several by hardware profile.
#[derive(clap::Args)]
#[command(
    after_help = "Of more than 100 reports, text, Markdown and the page show a row per model, shape and system build.\n\n\
Examples:\n  anemeter report reports/a --format md\n  \
anemeter report reports/* --format html --out fleet.html\n  \
anemeter report reports/a/report.json --format svg --out charts"
)]
pub(super) struct Args {
    /// Report files, or folders with a report.json; paths or URLs.
    #[arg(required = true, value_name = "REPORT")]
    reports: Vec<PathBuf>,
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
    let text = match args.format {
        Format::Text => text(&reports),
        Format::Html => render::html(&reports)?,
        Format::Md => render::markdown(&reports),
        Format::Csv => render::csv(&reports)?,
        Format::Svg => return charts(args, &reports, output),
    };
    match &args.out {
        Some(path) => write_file(path, text.as_bytes())?,
        None => output.text(text)?,
    }
    Ok(Status::Good)
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

/// Reads a report file, `report.json` in a folder, or either by URL.
pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let Some(url) = path.to_str().filter(|text| text.contains("://")) else {
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

fn charts(args: &Args, reports: &[Report], output: &mut Output) -> Result<Status, Failure> {
    let Some(folder) = &args.out else {
        return Err(
            Failure::bad_input("charts are several files").with_help("give a folder for them: --out DIR")
        );
    };
    std::fs::create_dir_all(folder).map_err(|e| Failure::bad_input(format!("{}: {e}", folder.display())))?;
    let reports = &render::by_profile(reports)[..];
    let several = render::groups(reports).count() > 1;
    let mut all = Vec::new();
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
