//! `anemeter compress`: smaller weights for any ML program.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::table::Table;
use super::units::Bytes;
use super::{Failure, Output, Status};
use crate::compress::{self, Log, Plan, TensorLog};
use crate::mil::verify::Verified;
use crate::package::{self, Package, Summary, WriteOptions};

/// How many of the weights that lose most are shown.
pub(super) const WORST: usize = 10;

/// Compress the weights of a package.
#[derive(clap::Args)]
#[command(
    after_help = "Precisions: fp16, int8, int4, int4:block=32, int8:asym, lut4, lut4:group=16, lut4:vector=2, \
lut4:scale, sparse:0.5, sparse:2:4, sparse:0.5+int8.\nEmbeddings and heads get int8 where the precision is \
narrower; weights under 2048 elements stay. docs/compression.md has the rules.\n\n\
Examples:\n  anemeter compress model.mlpackage -o small.mlpackage --precision int8\n  \
anemeter compress model.mlpackage -o small.mlpackage --config precision.yaml --tensors"
)]
pub(super) struct Args {
    /// The .mlpackage to compress.
    package: PathBuf,
    /// Where to write the compressed package.
    #[arg(short, long, value_name = "PACKAGE")]
    output: PathBuf,
    /// How to store weights.
    #[arg(long, required_unless_present = "config", conflicts_with = "config")]
    precision: Option<String>,
    /// A YAML file with `precision:`, either one precision or `default` and `rules`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Replace a package that is there already.
    #[arg(long)]
    overwrite: bool,
    /// Show every weight, not only those that lose most.
    #[arg(long)]
    tensors: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// The content of a configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    precision: Plan,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    package: &'a Path,
    bytes: u64,
    ratio: f64,
    log: &'a Log,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let plan = plan(args)?;
    let package = Package::open(&args.package)?;
    let (model, compression) = compress::apply(package.model().clone(), &plan)
        .map_err(|error| Failure::from(error).about(&args.package.display().to_string()))?;
    if let Some(pattern) = compression.unmatched_rules().first() {
        return Err(Failure::at(&args.package, format_args!("the rule `{pattern}` matches no weight"))
            .with_help("`anemeter inspect --mil` shows the names of weights"));
    }
    let options = WriteOptions { overwrite: args.overwrite, ..WriteOptions::default() };
    let summary = package::write(&Verified::trust(model), &args.output, options)?;
    let log = compression.log().map_err(|e| Failure::at(&args.package, e))?;
    if args.json {
        let ratio = log.totals.ratio();
        let document = Document { package: &args.output, bytes: summary.bytes, ratio, log: &log };
        output.json(&document)?;
    } else {
        show(args, &log, &summary, output)?;
    }
    Ok(Status::Good)
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    match (&args.precision, &args.config) {
        (Some(precision), _) => Ok(precision.parse::<compress::Precision>()?.into()),
        (None, Some(path)) => {
            let text = fs::read_to_string(path).map_err(|e| Failure::at(path, e))?;
            let config: Config = serde_yaml::from_str(&text).map_err(|e| Failure::at(path, e))?;
            Ok(config.precision)
        }
        (None, None) => Err(Failure::bad_input("neither --precision nor --config is given")),
    }
}

fn show(args: &Args, log: &Log, summary: &Summary, output: &mut Output) -> Result<(), Failure> {
    let totals = &log.totals;
    output.line(format_args!(
        "{}: {} weights compressed, {} kept, {} of weights became {} ({:.2} times smaller), package {}",
        args.output.display(),
        totals.compressed,
        totals.kept,
        Bytes(totals.bytes_before),
        Bytes(totals.bytes_after),
        totals.ratio(),
        Bytes(summary.bytes),
    ))?;
    if args.tensors {
        output.text(table(log.tensors.iter()))
    } else if totals.compressed > 0 {
        output.line(format_args!("\nweights that lose most:"))?;
        output.text(table(log.worst(WORST).into_iter()))
    } else {
        Ok(())
    }
}

pub(super) fn table<'l>(tensors: impl Iterator<Item = &'l TensorLog>) -> Table {
    let mut table = Table::new(&["weight", "precision", ">bits", ">before", ">after", ">SNR dB", ">cosine"]);
    for tensor in tensors {
        table.row([
            tensor.name.clone(),
            tensor.precision.clone(),
            format!("{:.2}", tensor.bits),
            Bytes(tensor.bytes_before).to_string(),
            Bytes(tensor.bytes_after).to_string(),
            tensor.snr_db.map_or_else(|| "exact".to_owned(), |snr| format!("{snr:.1}")),
            format!("{:.6}", tensor.cosine),
        ]);
    }
    table.indented(2)
}
