//! `anemeter history`: months of reports as series, and where they changed.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::inputs::read_report;
use super::output::{json, keep_measurement, write_file};
use super::{Failure, Output, Result, Status};
use crate::baseline::Store;
use crate::history::{DEFAULT_FALSE_RATE, Entry, formats, history};
use crate::render;

/// Show how metrics went over months, and where they changed: between which commits, system builds and packages.
#[derive(clap::Args)]
#[command(
    after_help = "A series has the medians of reports that can be compared: same hardware profile, model, precision and workload.\n\
Change points are found by E-divisive means on logarithms. Reports that were slowed down, or made by an interpreter\n\
that only checks results, are left out.\n\n\
Examples:\n  anemeter history reports\n  anemeter history reports baselines --format html -o history.html\n  \
anemeter history reports --format otava-csv -o otava.csv"
)]
pub(super) struct Args {
    /// Reports, folders of them at any depth, or folders of baselines.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How often a series without a change may have one all the same.
    #[arg(long, value_name = "SHARE", default_value_t = DEFAULT_FALSE_RATE, value_parser = share)]
    false_rate: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// File to write [default: standard output].
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tables for the terminal.
    Text,
    /// A self-contained page with a chart per series.
    Html,
    /// Markdown.
    Md,
    /// One JSON document with every point and change.
    Json,
    /// A CSV file for Apache Otava.
    OtavaCsv,
    /// The newest points in Bencher Metric Format.
    Bencher,
    /// The newest rates for github-action-benchmark (customBiggerIsBetter).
    BenchmarkActionBigger,
    /// The newest times and sizes for github-action-benchmark (customSmallerIsBetter).
    BenchmarkActionSmaller,
}

impl Format {
    /// Whether programs read it: what is not seen is escaped in it already, by its own rules.
    fn is_document(self) -> bool {
        !matches!(self, Format::Text | Format::Html | Format::Md)
    }
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "should be a number".to_owned())?;
    match (0.001..=0.2).contains(&value) {
        true => Ok(value),
        false => Err("should be between 0.001 and 0.2".to_owned()),
    }
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let mut entries = Vec::new();
    for path in &args.paths {
        entries.extend(read(path)?);
    }
    if entries.is_empty() {
        return Err(Failure::bad_input("there is no report that makes a series")
            .with_help("give reports of `anemeter bench`, or a folder of baselines"));
    }
    let history = history(entries, args.false_rate);
    let format = if args.json { Format::Json } else { args.format };
    let text = match format {
        Format::Text => render::history_tables(&history).iter().map(|table| format!("{table}\n")).collect(),
        Format::Html => render::history_html(&history)?,
        Format::Md => {
            render::history_tables(&history).iter().map(|table| render::written(table) + "\n").collect()
        }
        Format::Json => json(&history)?,
        Format::OtavaCsv => {
            formats::otava_csv(&history).map_err(|e| Failure::bad_input(format!("csv: {e}")))?
        }
        Format::Bencher => json(&formats::bencher(&history))?,
        Format::BenchmarkActionBigger => json(&formats::benchmark_action(&history, true))?,
        Format::BenchmarkActionSmaller => json(&formats::benchmark_action(&history, false))?,
    };
    match &args.out {
        Some(path) => {
            keep_measurement(path, false)?;
            write_file(path, text.as_bytes())?;
        }
        None if format.is_document() => output.document(text)?,
        None => output.text(text)?,
    }
    Ok(Status::Good)
}

/// The entries of a report, of a folder of reports, or of baselines with their ancestors.
fn read(path: &Path) -> Result<Vec<Entry>> {
    if !path.is_dir() || path.join("report.json").is_file() {
        return Ok(Entry::of(&read_report(path)?).into_iter().collect());
    }
    let mut entries: Vec<Entry> = reports_below(path)?
        .par_iter()
        .map(|file| Ok(Entry::of(&read_report(file)?)))
        .collect::<Vec<Result<_>>>()
        .into_iter()
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    if entries.is_empty() {
        let store = Store::open(path)?;
        let of_key = |key| -> Result<Vec<Entry>> {
            let blessed = store.history(key)?;
            Ok(blessed.iter().flat_map(|blessed| &blessed.sessions).filter_map(Entry::of).collect())
        };
        let all = store.keys()?.par_iter().map(of_key).collect::<Vec<_>>();
        entries = all.into_iter().collect::<Result<Vec<_>>>()?.concat();
    }
    Ok(entries)
}

/// Every `report.json` below a folder. Links are not followed, so the walk ends.
fn reports_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| Failure::at(&folder, e))? {
            let entry = entry.map_err(|e| Failure::at(&folder, e))?;
            let kind = entry.file_type().map_err(|e| Failure::at(&entry.path(), e))?;
            match () {
                () if kind.is_dir() => folders.push(entry.path()),
                () if kind.is_file() && entry.file_name() == "report.json" => found.push(entry.path()),
                () => {}
            }
        }
    }
    found.sort();
    Ok(found)
}
