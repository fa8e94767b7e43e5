//! `anemeter verify`: a bundle's logits against those of its checkpoint.

mod against;
mod layers;
mod oracle;
mod prompts;
mod record;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::choice::choice;
use super::output::warn;
use super::verbosity::Steps;
use super::{Failure, Output, Result, Status};
use crate::bundle::Bundle;
use crate::checkpoint::{self, Checkpoint};
use crate::generate::{Driver, SystemClock, Text, sessions};
use crate::mil::op::Numerics;
use crate::runtime::{self, LoadOptions};
use crate::verify::{self, Candidate, File, Options, Report, TeacherForced, Thresholds};
use crate::vocabulary::{Choice, KvForm};
use crate::{config, model};
use record::Sources;

/// Verify the numerics of a bundle: compare its logits with those of the checkpoint it was exported from.
#[derive(clap::Args)]
#[command(
    after_help = "candle computes the checkpoint in f32, independently of the export. It continues each prompt greedily, and the\n\
bundle gets the same tokens (teacher forcing). Exit code 1 if a threshold is exceeded; the output then names the\n\
first layer whose hidden state diverges.\n\n\
Examples:\n  anemeter verify smollm2 --checkpoint SmolLM2-135M\n  \
anemeter verify smollm2 --checkpoint model.gguf --kv io --shapes 512 --tokens 16\n  \
anemeter verify smollm2 --checkpoint SmolLM2-135M --thresholds configs/verify.yaml --json\n  \
anemeter verify smollm2 --checkpoint SmolLM2-135M --calibration wiki.txt --layers --plot maps\n  \
anemeter verify smollm2-int8 --against smollm2"
)]
pub(super) struct Args {
    /// The bundle; with --against also a package.
    bundle: PathBuf,
    /// The checkpoint that the bundle was exported from.
    #[arg(long, value_name = "CHECKPOINT", required_unless_present = "against", conflicts_with = "against")]
    checkpoint: Option<PathBuf>,
    /// Compare with another bundle or package instead of a checkpoint.
    #[arg(long, value_name = "BUNDLE", conflicts_with_all = ["layers", "plot"])]
    against: Option<PathBuf>,
    /// Prompts, one per line [default: eight built-in texts, or token ids if the bundle has no tokenizer].
    #[arg(long, value_name = "FILE", conflicts_with = "calibration")]
    prompts: Option<PathBuf>,
    /// Take prompts from a text, or from JSON lines with `text`, `prompt`, `messages` or `token_ids` (FILE.jsonl).
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Prompts to take from the calibration file, evenly spaced.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Compare the hidden state after every layer, and show activation ranges [default: only if a threshold is exceeded].
    #[arg(long)]
    layers: bool,
    /// Folder for heat maps of the error by layer and position, one per KV cache form.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Tokens to decode after each prompt.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// KV cache forms [default: all of the bundle].
    #[arg(long, value_delimiter = ',', value_name = "FORM,…", value_parser = choice::<KvForm>())]
    kv: Option<Vec<KvForm>>,
    /// Sequence lengths; drift is measured against the first [default: all of each form].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    shapes: Option<Vec<usize>>,
    /// Thresholds, such as configs/verify.yaml [default: by the precision of the bundle].
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    /// fp16 arithmetic of the `cpu` runtime: `fast` rounds where a tensor is stored, `fp16-exact` after every operation.
    #[arg(long, default_value = "fast", value_parser = choice::<Numerics>())]
    numerics: Numerics,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Do not write verify.json beside the packages.
    #[arg(long)]
    no_record: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    match (&args.checkpoint, &args.against) {
        (_, Some(other)) => against::run(args, other, output),
        (Some(path), None) => with_checkpoint(args, path, output),
        // clap asks for one of them.
        (None, None) => Err(Failure::bad_input("neither --checkpoint nor --against is given")),
    }
}

fn with_checkpoint(args: &Args, path: &Path, output: &mut Output) -> Result<Status> {
    oracle::require(cfg!(feature = "oracle"))?;
    let bundle = Bundle::open(&args.bundle)?;
    let options = Options { tokens: args.tokens as usize, thresholds: thresholds(args, &bundle)? };
    let checkpoint = checkpoint::open(path)?;
    check_same_model(&bundle, &checkpoint)?;
    let sources = Sources::new(&bundle, checkpoint.describe())?;
    let remarks = sources.remarks(&bundle);
    remarks.iter().for_each(|remark| warn(format_args!("note: {remark}")));
    let text = Text::open(&bundle, None)?;
    let mut candidates = candidates(args, &bundle)?;
    let prompts = prompts::of(args, &bundle, text.as_ref(), longest(&candidates))?;
    let mut report = compare(&checkpoint, &mut candidates, &prompts, &options)?;
    report.remarks = remarks;
    let recorded = match args.no_record {
        true => Ok(()),
        false => sources.write(&bundle, &report, args.numerics.name()),
    };
    if !report.passed || args.layers || args.plot.is_some() {
        let forms: Vec<_> = candidates.iter().map(|of| (of.kv(), of.seq_lens()[0])).collect();
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
    recorded?;
    Ok(if report.passed { Status::Good } else { Status::Failed })
}

/// Compares logits; the reference is gone afterwards.
fn compare(
    checkpoint: &Checkpoint,
    candidates: &mut [Box<dyn Candidate>],
    prompts: &[Vec<u32>],
    options: &Options,
) -> Result<Report> {
    let mut reference = oracle::open(checkpoint, positions(candidates, prompts, options.tokens))
        .map_err(Failure::bad_input)?;
    let mut bar = Steps::new("compared", "runs");
    let report = verify::compare(reference.as_mut(), candidates, prompts, options, &mut |done, total| {
        bar.show(done, total);
    });
    bar.finish();
    report.map_err(Failure::bad_input)
}

fn thresholds(args: &Args, bundle: &Bundle) -> Result<Thresholds> {
    let usual = Thresholds::of_precision(&bundle.manifest().settings.precision);
    match &args.thresholds {
        Some(path) => configured(path, usual),
        None => Ok(usual),
    }
}

fn configured(path: &Path, usual: Thresholds) -> Result<Thresholds> {
    let file: File = config::load(path)?;
    usual.with(&file.verify).map_err(|problem| Failure::at(path, problem))
}

/// Refuses a checkpoint that cannot be the one the bundle was made from.
fn check_same_model(bundle: &Bundle, checkpoint: &Checkpoint) -> Result<()> {
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
fn candidates(args: &Args, bundle: &Bundle) -> Result<Vec<Box<dyn Candidate>>> {
    let forms = args.kv.as_ref().unwrap_or(&bundle.manifest().settings.kv);
    let candidate = |&form: &KvForm| {
        let driver = driver(args, bundle, Some(form), args.numerics)?;
        let candidate = TeacherForced::new(driver, args.shapes.as_deref()).map_err(Failure::bad_input)?;
        Ok(Box::new(candidate) as Box<dyn Candidate>)
    };
    forms.iter().map(candidate).collect()
}

fn driver(args: &Args, bundle: &Bundle, form: Option<KvForm>, numerics: Numerics) -> Result<Driver> {
    let load = LoadOptions { numerics, threads: args.threads.map(usize::from), ..LoadOptions::default() };
    let sessions = sessions(bundle, &runtime::cpu(), &load)?;
    Ok(Driver::new(bundle, sessions, form, Arc::new(SystemClock::default()))?)
}

/// The longest length of all candidates.
fn longest(candidates: &[Box<dyn Candidate>]) -> usize {
    candidates.iter().flat_map(|candidate| candidate.seq_lens()).max().copied().unwrap_or(1)
}

/// The longest sequence that will be computed.
fn positions(candidates: &[Box<dyn Candidate>], prompts: &[Vec<u32>], tokens: usize) -> usize {
    let needed = prompts.iter().map(Vec::len).max().unwrap_or(0) + tokens;
    needed.min(longest(candidates))
}
