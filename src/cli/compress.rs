//! `anemeter compress`: quantised, palettised or sparse weights for any ML program.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::inputs;
use super::units::Bytes;
use super::{Failure, Output, Result, Status};
use crate::compress::{self, ExpectedLoss, Log, Plan, Precision, Raised, TensorLog};
use crate::config;
use crate::export::destination::check_apart;
use crate::mil::verify::verify_rewritten;
use crate::package::{self, Package, Summary, WriteOptions};
use crate::render::Table;

/// How many of the weights that lose most are shown.
pub(super) const WORST: usize = 10;

/// Compress the weights of any Core ML package: quantise, palettise (LUT) or prune them.
#[derive(clap::Args)]
#[command(
    after_help = "Precisions: fp16, int8, int4, int4:block=32, int8:asym, lut4, lut4:group=16, lut4:tensor, \
lut4:vector=2, lut4:scale, sparse:0.5, sparse:2:4, sparse:0.5+int8.\nEmbeddings and heads get at least int8; \
weights of less than 2048 elements are not compressed. A package for iOS 15 becomes one for iOS 16. \
docs/compression.md has the rules.\n\n\
Examples:\n  anemeter compress model.mlpackage -o small.mlpackage --precision int8\n  \
anemeter compress model.mlpackage -o small.mlpackage --rules precision.yaml --tensors"
)]
pub(super) struct Args {
    /// The .mlpackage to compress.
    package: PathBuf,
    /// The compressed package to write.
    #[arg(short, long, value_name = "PACKAGE")]
    out: PathBuf,
    /// One precision for all weights.
    #[arg(long, required_unless_present = "rules", conflicts_with = "rules", value_parser = inputs::precision)]
    precision: Option<Precision>,
    /// Precision rules by weight name: a YAML file with `precision:`, which is one precision, or `default` and `rules`.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Replace an existing package.
    #[arg(long)]
    overwrite: bool,
    /// List every weight, not only those with the largest error.
    #[arg(long)]
    tensors: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// The content of a file of rules.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    precision: Plan,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    package: &'a Path,
    bytes: u64,
    ratio: f64,
    /// The opset before and after, if it had to be raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    raised: Option<[&'static str; 2]>,
    log: &'a Log,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let plan = plan(args)?;
    check_apart(("package", &args.package), &args.out)?;
    let package = Package::open(&args.package)?;
    let (model, compression) = compress::apply(package.model().clone(), &plan)
        .map_err(|error| Failure::from(error).about(&args.package.display().to_string()))?;
    if let Some(pattern) = compression.unmatched_rules().first() {
        return Err(Failure::at(&args.package, format_args!("the rule `{pattern}` matches no weight"))
            .with_help("`anemeter inspect --mil` shows the names of weights"));
    }
    let options = WriteOptions { overwrite: args.overwrite, ..WriteOptions::default() };
    let model = verify_rewritten(package.model(), model).map_err(|faults| {
        Failure::at(&args.package, format_args!("compressed, {faults}; nothing was written"))
    })?;
    let summary = package::write(&model, &args.out, options)?;
    let log = compression.log().map_err(|e| Failure::at(&args.package, e))?;
    if args.json {
        let ratio = log.totals.ratio();
        let raised = compression.raised().map(|raised| [raised.from.name(), raised.to.name()]);
        output.json(&Document { package: &args.out, bytes: summary.bytes, ratio, raised, log: &log })?;
    } else {
        if let Some(Raised { from, to }) = compression.raised() {
            let version = to.spec_version();
            output.line(format_args!(
                "raised from {from} to {to} (specification version {version}): {from} has no compressed weights"
            ))?;
        }
        show(args, &log, &summary, output)?;
    }
    Ok(Status::Good)
}

fn plan(args: &Args) -> Result<Plan> {
    match (args.precision, &args.rules) {
        (Some(precision), _) => Ok(precision.into()),
        (None, Some(path)) => Ok(config::load::<Rules>(path)?.precision),
        (None, None) => Err(Failure::bad_input("neither --precision nor --rules is given")),
    }
}

fn show(args: &Args, log: &Log, summary: &Summary, output: &mut Output) -> Result<()> {
    let totals = &log.totals;
    output.line(format_args!(
        "{}: {} weights compressed, {} kept, {} of weights became {} ({:.2} times smaller), package {}",
        args.out.display(),
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
    }?;
    match expected_loss(log, false) {
        Some(line) => output.line(line),
        None => Ok(()),
    }
}

/// What the signal-to-noise ratio of weights that were rounded without data means for the model, and what loses less: other
/// precisions, and data, if the command `calibrates`.
pub(super) fn expected_loss(log: &Log, calibrates: bool) -> Option<String> {
    let db = log.mean_snr_db()?;
    let found = format!("{db:.1} dB of signal to noise on average");
    let [better, other] = match calibrates {
        true => ["int8, lut6 and --calibration TEXT", ", or --calibration TEXT"],
        false => ["int8 and lut6", ""],
    };
    Some(match ExpectedLoss::at(db) {
        ExpectedLoss::Small => format!("{found}: little loss is expected"),
        ExpectedLoss::Noticeable => format!(
            "warning: {found}: expect tens of percent of a language model's perplexity; {better} lose less, and \
             `anemeter eval --text` measures it"
        ),
        ExpectedLoss::Severe => format!(
            "warning: {found}: such a model is rarely of use; use --precision int4, lut6 or int8{other}, and \
             `anemeter eval --text` to measure it"
        ),
    })
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
