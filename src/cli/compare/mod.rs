//! `anemeter compare`: two bundles in turns, or two reports or packages side by side.

mod bundles;
mod packages;
mod reports;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::gate::{Format, duration};
use super::report::terminal_table;
use super::{Failure, Output, Status};
use crate::render;

/// Compare two bundles, reports or packages: is the second slower, what changed, and why?
#[derive(clap::Args)]
#[command(
    after_help = "Two bundles run in turns in one session, each launch a fresh process, in an order that is drawn and recorded. \
Two reports are set side by side: what changed beside what got slower, likely causes first. Two packages: operations, weights, \
inputs, cost and predicted placement.\n\n\
Exit code 0: B is not slower than A, or packages were compared; 1: B is slower; 2: the two cannot be compared; 3: noise leaves it \
open, or reports were not measured alike.\n\n\
Examples:\n  anemeter compare smollm2 smollm2-int8\n  anemeter compare old new --shapes 512 --budget 30m --out comparison\n  \
anemeter compare reports/a reports/b --format md\n  anemeter compare a/model.mlpackage b/model.mlpackage"
)]
pub(super) struct Args {
    /// What is compared with: a bundle, a report or a package.
    #[arg(value_name = "A")]
    baseline: PathBuf,
    /// What is judged, of the same kind.
    #[arg(value_name = "B")]
    candidate: PathBuf,
    /// The workload of two bundles [default: that of configs/bench.yaml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Measure only these shapes.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    shapes: Option<Vec<usize>>,
    /// Measured requests per shape and launch, in place of the configuration's number.
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// What executes the bundles; `auto` takes the first that is available and says which.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cpu", "coreml"])]
    runtime: String,
    /// Threads of the `cpu` runtime; the number of physical cores if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Form of the key-value cache [default: the configuration's, or the bundles' first].
    #[arg(long, value_name = "FORM", value_parser = ["io", "state", "none"])]
    kv: Option<String>,
    /// No more launches of bundles begin after this time, such as 90s, 20m or 1h.
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = duration)]
    budget: Duration,
    /// Folder for the reports of both bundles, `a` and `b`, comparison.json and verdict.json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Limits and waivers [default: those of configs/gates.yaml].
    #[arg(long, value_name = "FILE")]
    gates: Option<PathBuf>,
    /// Hardware profiles [default: those of configs/hardware_profiles.yaml].
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// How to print the comparison; `junit` is for bundles.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl Args {
    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// What can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bundle,
    Report,
    Package,
}

impl Kind {
    fn of(path: &Path) -> Result<Kind, Failure> {
        let named = |extension: &str| path.extension().is_some_and(|found| found == extension);
        let is_url = path.to_str().is_some_and(|text| text.contains("://"));
        match () {
            () if is_url => Ok(Kind::Report),
            () if !path.exists() => {
                Err(Failure::bad_input(format!("{}: there is no such file or folder", path.display())))
            }
            () if named("mlpackage") || path.join("Manifest.json").is_file() => Ok(Kind::Package),
            () if path.join("export.json").is_file() => Ok(Kind::Bundle),
            () if path.join("report.json").is_file() || (path.is_file() && named("json")) => Ok(Kind::Report),
            () => Err(Failure::bad_input(format!(
                "{}: is neither a bundle nor a report nor a package",
                path.display()
            ))
            .with_help("give a folder with an export.json, a report.json, or an .mlpackage")),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bundle => "a bundle",
            Kind::Report => "a report",
            Kind::Package => "a package",
        })
    }
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let [first, second] = [&args.baseline, &args.candidate];
    let kinds = [Kind::of(first)?, Kind::of(second)?];
    if kinds[0] != kinds[1] {
        let [a, b] = kinds;
        let (first, second) = (first.display(), second.display());
        return Err(Failure::bad_input(format!("{first} is {a}, but {second} is {b}"))
            .with_help("compare two bundles, two reports or two packages"));
    }
    match kinds[0] {
        Kind::Bundle => bundles::run(args, output),
        Kind::Report => reports::run(args, output),
        Kind::Package => packages::run(args, output),
    }
}

/// Prints a comparison that is not a verdict.
fn print(
    (headline, tables): (&str, &[render::Table]),
    document: &impl Serialize,
    format: Format,
    output: &mut Output,
) -> Result<(), Failure> {
    match format {
        Format::Json => output.json(document),
        Format::Text => output.text(text(headline, tables)),
        Format::Md => {
            output.line(format_args!("# {}\n", headline.escape_debug()))?;
            tables.iter().try_for_each(|table| output.text(render::written(table)))
        }
        Format::Junit => Err(Failure::bad_input("only the comparison of two bundles is a test")
            .with_help("leave `--format junit` out, or use `anemeter gate` on a report")),
    }
}

fn text(headline: &str, tables: &[render::Table]) -> String {
    let tables: String = tables.iter().map(|table| format!("\n{}", terminal_table(table))).collect();
    format!("{}\n{tables}", headline.escape_debug())
}
