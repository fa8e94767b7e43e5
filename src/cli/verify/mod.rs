//! `anemeter verify`: a bundle's logits against those of its checkpoint.

mod against;
mod layers;
mod prompts;
mod record;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::output::warn;
use super::voice::Steps;
use super::{Failure, Output, Status};
use crate::bundle::{Bundle, KvForm};
use crate::checkpoint::{self, Checkpoint};
use crate::export::describe_checkpoint;
use crate::generate::{Driver, SystemClock, Text, sessions};
use crate::mil::op::Numerics;
use crate::runtime::{self, LoadOptions};
use crate::verify::{self, Candidate, Driven, File, Options, Report, Thresholds};
use crate::{config, model, oracle};
use prompts::prompts;
use record::Sources;

/// Compare a bundle with the checkpoint it was made from.
#[derive(clap::Args)]
#[command(
    after_help = "The checkpoint is computed at f32 by candle, independently of the export; it continues each prompt greedily,\n\
and the bundle is given the same tokens. Exit code 1 if anything is beyond its threshold; then the\n\
first layer whose hidden state drifts is named.\n\n\
Examples:\n  anemeter verify smollm2 --checkpoint SmolLM2-135M\n  \
anemeter verify smollm2 --checkpoint model.gguf --kv io --shapes 512 --tokens 16\n  \
anemeter verify smollm2 --checkpoint SmolLM2-135M --config configs/verify.yaml --json\n  \
anemeter verify smollm2 --checkpoint SmolLM2-135M --calibration wiki.txt --layers --plot maps\n  \
anemeter verify smollm2-int8 --against smollm2"
)]
pub(super) struct Args {
    /// The bundle; with --against a package too.
    bundle: PathBuf,
    /// The checkpoint it was made from.
    #[arg(long, value_name = "CHECKPOINT", required_unless_present = "against", conflicts_with = "against")]
    checkpoint: Option<PathBuf>,
    /// Another bundle or package to compare with, in place of a checkpoint.
    #[arg(long, value_name = "BUNDLE", conflicts_with_all = ["layers", "plot"])]
    against: Option<PathBuf>,
    /// Prompts, one per line [default: eight texts, or ids if the bundle has no tokenizer].
    #[arg(long, value_name = "FILE", conflicts_with = "calibration")]
    prompts: Option<PathBuf>,
    /// Running text, or JSON lines with `text`, `prompt`, `messages` or `token_ids` (FILE.jsonl), to compare on.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Samples to take from the calibration file, evenly spread.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Compare the hidden state after every layer, and show the range of activations [default: if anything is
    /// beyond its threshold].
    #[arg(long)]
    layers: bool,
    /// Write a heat map of layers and positions per cache form into this folder.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Tokens to add to each prompt.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Forms of the key-value cache [default: all of the bundle's].
    #[arg(long, value_delimiter = ',', value_name = "FORM,…")]
    kv: Option<Vec<KvForm>>,
    /// Lengths; the first is the one that others are compared with [default: all of each form].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    shapes: Option<Vec<usize>>,
    /// Thresholds, such as configs/verify.yaml [default: by the bundle's precision].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How fp16 is computed: `fast` rounds where a tensor is stored, `fp16-exact` after every step.
    #[arg(long, default_value = "fast", value_parser = ["fast", "fp16-exact"])]
    numerics: String,
    /// Threads to use; the number of physical cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    match (&args.checkpoint, &args.against) {
        (_, Some(other)) => against::run(args, other, output),
        (Some(path), None) => with_checkpoint(args, path, output),
        // clap asks for one of them.
        (None, None) => Err(Failure::bad_input("neither --checkpoint nor --against is given")),
    }
}

fn with_checkpoint(args: &Args, path: &Path, output: &mut Output) -> Result<Status, Failure> {
    let bundle = Bundle::open(&args.bundle)?;
    let options = Options { tokens: args.tokens as usize, thresholds: thresholds(args, &bundle)? };
    let checkpoint = checkpoint::open(path)?;
    check_same_model(&bundle, &checkpoint)?;
    let sources = Sources::new(&bundle, describe_checkpoint(&checkpoint))?;
    let remarks = sources.remarks(&bundle);
    remarks.iter().for_each(|remark| warn(format_args!("note: {remark}")));
    let text = Text::open(&bundle, None)?;
    let mut candidates = candidates(args, &bundle)?;
    let prompts = prompts(args, &bundle, text.as_ref(), longest(&candidates))?;
    let mut report = compare(&checkpoint, &mut candidates, &prompts, &options)?;
    report.remarks = remarks;
    if let Err(problem) = sources.write(&bundle, &report, &args.numerics) {
        warn(format_args!("note: {problem}; `bench` and `bless` will not know of this verification"));
    }
    if !report.passed || args.layers || args.plot.is_some() {
        let forms: Vec<_> = candidates.iter().map(|of| (of.kv(), of.shapes()[0])).collect();
        drop(candidates);
        let limit = options.thresholds.layer_error;
        report.layers = layers::trace(args, &bundle, &checkpoint, &forms, (&prompts, limit))?;
    }
    if let Some(folder) = &args.plot {
        layers::plot(&report.layers, folder)?;
    }
    if args.json {
        output.json(&report)?;
    } else {
        text::print(bundle.manifest(), &report, text.as_ref(), output)?;
    }
    Ok(if report.passed { Status::Good } else { Status::Failed })
}

/// Compares logits; the reference is gone afterwards.
fn compare(
    checkpoint: &Checkpoint,
    candidates: &mut [Box<dyn Candidate>],
    prompts: &[Vec<u32>],
    options: &Options,
) -> Result<Report, Failure> {
    let mut reference = oracle::open(checkpoint, positions(candidates, prompts, options.tokens))
        .map_err(Failure::bad_input)?;
    let mut bar = Steps::new("compared", "runs");
    let report = verify::compare(reference.as_mut(), candidates, prompts, options, &mut |done, total| {
        bar.show(done, total);
    });
    bar.finish();
    report.map_err(Failure::bad_input)
}

fn thresholds(args: &Args, bundle: &Bundle) -> Result<Thresholds, Failure> {
    let usual = Thresholds::of_precision(&bundle.manifest().settings.precision);
    match &args.config {
        Some(path) => configured(path, usual),
        None => Ok(usual),
    }
}

fn configured(path: &Path, usual: Thresholds) -> Result<Thresholds, Failure> {
    let file: File = config::load(path)?;
    usual.with(&file.verify).map_err(|problem| Failure::at(path, problem))
}

/// Refuses a checkpoint that cannot be the one the bundle was made from.
fn check_same_model(bundle: &Bundle, checkpoint: &Checkpoint) -> Result<(), Failure> {
    let decoder = model::build(checkpoint).map_err(Failure::bad_input)?;
    let expected = &bundle.manifest().architecture;
    let differences = [
        ("vocabulary", decoder.vocabulary, expected.vocabulary),
        ("hidden size", decoder.hidden, expected.hidden),
        ("number of layers", decoder.layers.len(), expected.layers),
    ];
    let path = checkpoint.path.display();
    if decoder.architecture != expected.name {
        let (found, expected) = (decoder.architecture, &expected.name);
        return Err(Failure::bad_input(format!("{path}: is a {found} model, the bundle's is {expected}"))
            .with_help("give the checkpoint that the bundle was exported from"));
    }
    match differences.into_iter().find(|(_, found, expected)| found != expected) {
        Some((what, found, expected)) => {
            let message = format!("{path}: has the {what} {found}, the bundle's is {expected}");
            Err(Failure::bad_input(message)
                .with_help("give the checkpoint that the bundle was exported from"))
        }
        None => Ok(()),
    }
}

/// A driver per form, each with sessions of its own.
fn candidates(args: &Args, bundle: &Bundle) -> Result<Vec<Box<dyn Candidate>>, Failure> {
    let forms = args.kv.as_ref().unwrap_or(&bundle.manifest().settings.kv);
    let candidate = |&form: &KvForm| {
        let driver = driver(args, bundle, Some(form), numerics(args))?;
        let driven = Driven::new(driver, args.shapes.as_deref()).map_err(Failure::bad_input)?;
        Ok(Box::new(driven) as Box<dyn Candidate>)
    };
    forms.iter().map(candidate).collect()
}

fn numerics(args: &Args) -> Numerics {
    if args.numerics == "fp16-exact" { Numerics::Fp16Exact } else { Numerics::Fast }
}

fn driver(args: &Args, bundle: &Bundle, form: Option<KvForm>, numerics: Numerics) -> Result<Driver, Failure> {
    let load = LoadOptions { numerics, threads: args.threads.map(usize::from), ..LoadOptions::default() };
    let sessions = sessions(bundle, &runtime::cpu(), &load)?;
    Ok(Driver::new(bundle, sessions, form, Arc::new(SystemClock::default()))?)
}

/// The longest length of all candidates.
fn longest(candidates: &[Box<dyn Candidate>]) -> usize {
    candidates.iter().flat_map(|candidate| candidate.shapes()).max().copied().unwrap_or(1)
}

/// The longest sequence that will be computed.
fn positions(candidates: &[Box<dyn Candidate>], prompts: &[Vec<u32>], tokens: usize) -> usize {
    let needed = prompts.iter().map(Vec::len).max().unwrap_or(0) + tokens;
    needed.min(longest(candidates))
}
