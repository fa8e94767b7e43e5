//! `anemeter verify`: a bundle's logits against those of its checkpoint.

mod progress;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Failure, Output, Status};
use crate::bundle::{Bundle, KvForm};
use crate::checkpoint::{self, Checkpoint};
use crate::generate::{Driver, Input, SystemClock, Text, sessions};
use crate::mil::op::Numerics;
use crate::runtime::{self, LoadOptions};
use crate::verify::{self, Candidate, Driven, File, Options, PROMPTS, Thresholds, VerifyError};
use crate::{config, model, oracle};
use progress::Bar;

/// Compare a bundle with the checkpoint it was made from.
#[derive(clap::Args)]
#[command(
    after_help = "The checkpoint is computed at f32 by candle, independently of the export; it continues each prompt greedily,\n\
and the bundle is given the same tokens. Exit code 1 if anything is beyond its threshold.\n\n\
Examples:\n  anemeter verify smollm2 --checkpoint SmolLM2-135M\n  \
anemeter verify smollm2 --checkpoint model.gguf --kv io --shapes 512 --tokens 16\n  \
anemeter verify smollm2 --checkpoint SmolLM2-135M --config configs/verify.yaml --json"
)]
pub(super) struct Args {
    /// The bundle.
    bundle: PathBuf,
    /// The checkpoint it was made from.
    #[arg(long, value_name = "CHECKPOINT")]
    checkpoint: PathBuf,
    /// Prompts, one per line [default: eight texts, or ids if the bundle has no tokenizer].
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
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
    let bundle = Bundle::open(&args.bundle)?;
    let options = Options { tokens: args.tokens as usize, thresholds: thresholds(args, &bundle)? };
    let checkpoint = checkpoint::open(&args.checkpoint).map_err(|e| with_help(&e, e.help()))?;
    check_same_model(&bundle, &checkpoint)?;
    let text = Text::open(&bundle, None)?;
    let prompts = prompts(args, &bundle, text.as_ref())?;
    let mut candidates = candidates(args, &bundle)?;
    let mut reference = oracle::open(&checkpoint, positions(&candidates, &prompts, options.tokens))
        .map_err(|e| failure(&e.into()))?;

    let mut bar = Bar::new();
    let report =
        verify::compare(reference.as_mut(), &mut candidates, &prompts, &options, &mut |done, total| {
            bar.show(done, total);
        });
    bar.finish();
    let report = report.map_err(|e| failure(&e))?;
    if args.json {
        output.json(&report)?;
    } else {
        text::print(bundle.manifest(), &report, text.as_ref(), output)?;
    }
    Ok(if report.passed { Status::Good } else { Status::Failed })
}

fn thresholds(args: &Args, bundle: &Bundle) -> Result<Thresholds, Failure> {
    let usual = Thresholds::of_precision(&bundle.manifest().settings.precision);
    let Some(path) = &args.config else { return Ok(usual) };
    let file: File = config::load(path)?;
    let wrong = |problem: String| Failure::bad_input(format!("{}: {problem}", path.display()));
    usual.with(&file.verify).map_err(wrong)
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

fn prompts(args: &Args, bundle: &Bundle, text: Option<&Text>) -> Result<Vec<Vec<u32>>, Failure> {
    let longest = bundle.manifest().architecture.max_positions;
    let Some(text) = text else {
        if args.prompts.is_some() {
            return Err(Failure::bad_input("--prompts needs a tokenizer, and the bundle has none")
                .with_help("leave --prompts out: pseudo-random ids are compared instead"));
        }
        return Ok(verify::pseudo_random(bundle.manifest().architecture.vocabulary));
    };
    let lines = match &args.prompts {
        Some(path) => read_prompts(path)?,
        None => PROMPTS.to_owned(),
    };
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    let encoded = lines.map(|line| text.tokens(Input::Raw(line), longest)).collect::<Result<Vec<_>, _>>();
    Ok(encoded?)
}

fn read_prompts(path: &Path) -> Result<String, Failure> {
    let unreadable = |e: std::io::Error| Failure::bad_input(format!("{}: {e}", path.display()));
    let text = fs::read_to_string(path).map_err(unreadable)?;
    if text.trim().is_empty() {
        return Err(Failure::bad_input(format!("{}: has no prompt", path.display()))
            .with_help("write one prompt per line"));
    }
    Ok(text)
}

/// A driver per form, each with sessions of its own.
fn candidates(args: &Args, bundle: &Bundle) -> Result<Vec<Box<dyn Candidate>>, Failure> {
    let numerics = if args.numerics == "fp16-exact" { Numerics::Fp16Exact } else { Numerics::Fast };
    let load = LoadOptions { numerics, threads: args.threads.map(usize::from), ..LoadOptions::default() };
    let forms = args.kv.as_ref().unwrap_or(&bundle.manifest().settings.kv);
    let candidate = |&form: &KvForm| {
        let sessions = sessions(bundle, &runtime::cpu(), &load)?;
        let driver = Driver::new(bundle, sessions, Some(form), Arc::new(SystemClock::default()));
        let driver = driver?;
        let driven = Driven::new(driver, args.shapes.as_deref()).map_err(Failure::bad_input)?;
        Ok(Box::new(driven) as Box<dyn Candidate>)
    };
    forms.iter().map(candidate).collect()
}

/// The longest sequence that will be computed.
fn positions(candidates: &[Box<dyn Candidate>], prompts: &[Vec<u32>], tokens: usize) -> usize {
    let longest = candidates.iter().flat_map(|candidate| candidate.shapes()).max().copied().unwrap_or(1);
    let needed = prompts.iter().map(Vec::len).max().unwrap_or(0) + tokens;
    needed.min(longest)
}

fn failure(error: &VerifyError) -> Failure {
    Failure::bad_input(error)
}

fn with_help(error: &impl std::fmt::Display, help: Option<&str>) -> Failure {
    let failure = Failure::bad_input(error);
    match help {
        Some(help) => failure.with_help(help),
        None => failure,
    }
}
