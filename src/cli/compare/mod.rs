//! `anemeter compare`: two bundles in turns, two reports or packages side by side, or one thing on two runtimes.

mod bundles;
mod packages;
mod reports;
mod runtimes;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::bench::{DepthArgs, PredictArgs};
use super::choice::{AUTO, OrAuto, choice, choice_or_auto};
use super::gate::{Format, Junit};
use super::inputs::{GateFiles, duration, is_url};
use super::python::PythonArg;
use super::{Failure, Output, Result, Status};
use crate::bundle::packages_of;
use crate::coreai::asset::Asset;
use crate::package::Package;
use crate::render;
use crate::text::visible;
use crate::vocabulary::{ComputeUnits, KvForm, RuntimeName};

/// Compare two bundles, two reports or two packages, or one bundle on two runtimes: is B slower than A, and what changed?
#[derive(clap::Args)]
#[command(
    after_help = "Two bundles are benchmarked in one session, interleaved in a random order that is recorded; each launch is a fresh process. \
Two reports are shown side by side, with what changed and the likely causes first. Two packages are compared by operations, weights, \
inputs, cost and predicted placement (two Core AI assets by all but the last two), or with `--measure` benchmarked as bundles are. With `--runtime A,B` one bundle or package runs on two runtimes, and outputs and times per call \
are compared.\n\n\
Exit code 0: B is not slower than A, packages were compared, or runtimes agree; 1: B is slower, or runtimes differ; 2: the \
two cannot be compared; 3: inconclusive because of noise, or reports of different workloads; 4: a runtime is unavailable.\n\n\
Examples:\n  anemeter compare smollm2 smollm2-int8\n  anemeter compare old new --shapes 512 --budget 30m -o comparison\n  \
anemeter compare reports/a reports/b --format md\n  anemeter compare a/model.mlpackage b/model.mlpackage\n  \
anemeter compare a/model.mlpackage b/model.mlpackage --measure\n  anemeter compare smollm2 --runtime coreml,cpu"
)]
pub(super) struct Args {
    /// The baseline: a bundle, a report, a package or compiled model, or a Core AI asset.
    #[arg(value_name = "A")]
    baseline: PathBuf,
    /// The candidate, of the same kind. Omit it to compare two runtimes.
    #[arg(value_name = "B")]
    candidate: Option<PathBuf>,
    /// Benchmark two packages in turns, as two bundles are, instead of comparing what is in them.
    #[arg(long)]
    measure: bool,
    /// The workload for two bundles [default: configs/bench.yaml, built in].
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Sequence lengths to measure [default: all that both bundles have].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    shapes: Option<Vec<usize>>,
    #[command(flatten)]
    depth: DepthArgs,
    #[command(flatten)]
    predict: PredictArgs,
    /// Runtime that executes the bundles; `auto` takes the first that is available and prints its name. Two names compare runtimes.
    #[arg(long, value_name = "RUNTIME", default_value = AUTO, value_delimiter = ',', value_parser = choice_or_auto::<RuntimeName>())]
    runtime: Vec<OrAuto<RuntimeName>>,
    #[command(flatten)]
    python: PythonArg,
    /// Compute units that Core ML may use [default: those of the bundle].
    #[arg(long, value_name = "UNITS", value_parser = choice::<ComputeUnits>())]
    compute_units: Option<ComputeUnits>,
    /// Timed calls of every function on each of two runtimes; at least 20 for a p95.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_name = "N", value_parser = crate::cli::threads::size)]
    threads: Option<usize>,
    /// KV cache form [default: the workload's, or the bundles' first].
    #[arg(long, value_name = "FORM", value_parser = choice::<KvForm>())]
    kv: Option<KvForm>,
    /// Start no launch of a bundle after this time, such as 90s, 20m or 1h.
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = duration)]
    budget: Duration,
    /// Replace reports that are in the folder already.
    #[arg(long, requires = "out")]
    force: bool,
    /// Folder for the reports of both bundles (`a` and `b`), comparison.json and verdict.json.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    files: GateFiles,
    /// Output format; `junit` is for two bundles only.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    junit: Junit,
}

impl Args {
    /// The one runtime that executes bundles.
    fn runtime(&self) -> Option<RuntimeName> {
        self.runtime.first().and_then(|runtime| runtime.given())
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
    Asset,
}

impl Kind {
    fn of(path: &Path) -> Result<Kind> {
        let named = |extension: &str| path.extension().is_some_and(|found| found == extension);
        match () {
            () if is_url(path) => Ok(Kind::Report),
            () if Asset::is_at(path) => Ok(Kind::Asset),
            () if Package::is_at(path) => Ok(Kind::Package),
            () if !path.exists() => Err(Failure::at(path, "there is no such file or folder")),
            () if path.join("export.json").is_file() => Ok(Kind::Bundle),
            () if path.join("report.json").is_file() || (path.is_file() && named("json")) => Ok(Kind::Report),
            () if path.is_dir() && !packages_of(path)?.is_empty() => Ok(Kind::Bundle),
            () => Err(Failure::at(path, "is neither a bundle nor a report nor a package").with_help(
                "give a folder with an export.json, a report.json or packages, an .mlpackage, an .mlmodelc or an .aimodel",
            )),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bundle => "a bundle",
            Kind::Report => "a report",
            Kind::Package => "a package",
            Kind::Asset => "a Core AI asset",
        })
    }
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    let first = args.baseline.as_path();
    let second = match (&args.runtime[..], &args.candidate) {
        (&[a, b], None) => return runtimes::run(args, [a, b], output),
        (&[OrAuto::Given(one)], Some(_)) if runtimes::runs_no_bundles(one) => {
            return Err(Failure::bad_input(format!("{one} runs packages, not bundles or reports"))
                .with_help(format!("compare it with another runtime: --runtime coreml,{one}")));
        }
        ([_], Some(second)) => second.as_path(),
        ([_], None) => {
            return Err(Failure::at(first, "nothing to compare it with").with_help(
                "give a second bundle, report or package, or two runtimes: --runtime coreml,cpu",
            ));
        }
        (names, _) => {
            let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            return Err(Failure::bad_input(format!(
                "--runtime {names}: expected one, or two and one thing to run"
            ))
            .with_help("give one bundle or package and two runtimes, or two things and one runtime"));
        }
    };
    let kinds = match [Kind::of(first)?, Kind::of(second)?] {
        // A package is a bundle of one.
        [Kind::Package, Kind::Bundle] | [Kind::Bundle, Kind::Package] => [Kind::Bundle; 2],
        [Kind::Package, Kind::Package] if args.measure => [Kind::Bundle; 2],
        kinds => kinds,
    };
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
        Kind::Asset if args.measure => {
            Err(Failure::at(first, "is a Core AI asset, which `--measure` does not run")
                .with_help("leave `--measure` out to compare what is in them"))
        }
        Kind::Asset => packages::run_assets(args, [first, second], output),
    }
}

/// Prints a comparison that is not a verdict.
fn print(
    (headline, tables): (&str, &[render::Table]),
    document: &impl Serialize,
    format: Format,
    output: &mut Output,
) -> Result<()> {
    match format {
        Format::Json => output.json(document),
        Format::Text => output.text(text(headline, tables)),
        Format::Md => {
            output.line(format_args!("# {headline}\n"))?;
            tables.iter().try_for_each(|table| output.text(render::written(table)))
        }
        Format::Junit => Err(Failure::bad_input("only the comparison of two bundles is a test")
            .with_help("leave `--format junit` out, or use `anemeter gate` on a report")),
    }
}

fn text(headline: &str, tables: &[render::Table]) -> String {
    let tables: String = tables.iter().map(|table| format!("\n{table}")).collect();
    format!("{}\n{tables}", visible(headline))
}
