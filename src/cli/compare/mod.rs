//! `anemeter compare`: two bundles in turns, two reports or packages side by side, or one thing on two runtimes.

mod bundles;
mod packages;
mod reports;
mod runtimes;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::gate::{Format, duration};
use super::report::{is_url, terminal_table};
use super::{Failure, Output, Status};
use crate::bundle::ComputeUnits;
use crate::render;

/// Compare two bundles, reports or packages, or two runtimes: is the second slower, what changed, and why?
#[derive(clap::Args)]
#[command(
    after_help = "Two bundles run in turns in one session, each launch a fresh process, in an order that is drawn and recorded. \
Two reports are set side by side: what changed beside what got slower, likely causes first. Two packages: operations, weights, \
inputs, cost and predicted placement. With `--runtime A,B` one bundle or package runs on two runtimes: what differs, and what a call \
takes on each.\n\n\
Exit code 0: B is not slower than A, packages were compared, or runtimes give the same; 1: B is slower, or runtimes differ; 2: the \
two cannot be compared; 3: noise leaves it open, or reports were not measured alike; 4: a runtime is unavailable.\n\n\
Examples:\n  anemeter compare smollm2 smollm2-int8\n  anemeter compare old new --shapes 512 --budget 30m --out comparison\n  \
anemeter compare reports/a reports/b --format md\n  anemeter compare a/model.mlpackage b/model.mlpackage\n  anemeter compare smollm2 --runtime coreml,cpu"
)]
pub(super) struct Args {
    /// What is compared with: a bundle, a report or a package.
    #[arg(value_name = "A")]
    baseline: PathBuf,
    /// What is judged, of the same kind; left out for two runtimes.
    #[arg(value_name = "B")]
    candidate: Option<PathBuf>,
    /// The workload of two bundles [default: that of configs/bench.yaml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Measure only these shapes.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    shapes: Option<Vec<usize>>,
    /// Measured requests per shape and launch, in place of the configuration's number.
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// What executes the bundles; `auto` takes the first that is available and says which. Two names compare runtimes.
    #[arg(long, value_name = "RUNTIME", default_value = "auto", value_delimiter = ',',
          value_parser = ["auto", "cpu", "coreml", "coreml-rs"])]
    runtime: Vec<String>,
    /// Where Core ML may place operations [default: as the bundle says].
    #[arg(long, value_name = "UNITS")]
    compute_units: Option<ComputeUnits>,
    /// Timed calls of every function on each of two runtimes; 20 or more give a p95.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
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
    /// The one runtime that executes bundles.
    fn runtime(&self) -> &str {
        self.runtime.first().map_or("auto", String::as_str)
    }

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
        match () {
            () if is_url(path) => Ok(Kind::Report),
            () if !path.exists() => Err(Failure::at(path, "there is no such file or folder")),
            () if named("mlpackage") || path.join("Manifest.json").is_file() => Ok(Kind::Package),
            () if path.join("export.json").is_file() => Ok(Kind::Bundle),
            () if path.join("report.json").is_file() || (path.is_file() && named("json")) => Ok(Kind::Report),
            () => Err(Failure::at(path, "is neither a bundle nor a report nor a package")
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
    let first = args.baseline.as_path();
    let second = match (&args.runtime[..], &args.candidate) {
        ([a, b], None) => return runtimes::run(args, [a, b], output),
        ([one], Some(_)) if one == "coreml-rs" => {
            return Err(Failure::bad_input("coreml-rs runs packages, not bundles or reports")
                .with_help("compare it with another runtime: --runtime coreml,coreml-rs"));
        }
        ([_], Some(second)) => second.as_path(),
        ([_], None) => {
            return Err(Failure::at(first, "nothing to compare it with").with_help(
                "give a second bundle, report or package, or two runtimes: --runtime coreml,cpu",
            ));
        }
        (names, _) => {
            let names = names.join(",");
            return Err(Failure::bad_input(format!(
                "--runtime {names}: expected one, or two and one thing to run"
            ))
            .with_help("give one bundle or package and two runtimes, or two things and one runtime"));
        }
    };
    let kinds = [Kind::of(first)?, Kind::of(second)?];
    if kinds[0] != kinds[1] {
        let [a, b] = kinds;
        let (first, second) = (first.display(), second.display());
        return Err(Failure::bad_input(format!("{first} is {a}, but {second} is {b}"))
            .with_help("compare two bundles, two reports or two packages"));
    }
    match kinds[0] {
        Kind::Bundle => bundles::run(args, [first, second], output),
        Kind::Report => reports::run(args, [first, second], output),
        Kind::Package => packages::run(args, [first, second], output),
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
