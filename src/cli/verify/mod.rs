//! `anemeter verify`: whether a bundle computes what its weights say, and what it loses against its checkpoint.

mod against;
mod encoder;
mod layers;
mod oracle;
mod prompts;
mod quality;
mod record;
mod reference;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::choice::choice;
use super::inputs::open_bundle;
use super::output::{note, warn};
use super::python::PythonArg;
use super::{Failure, Output, Result, Status};
use crate::bundle::Bundle;
use crate::checkpoint::{self, Checkpoint};
use crate::generate::{Driver, SystemClock, Text, sessions};
use crate::mil::op::Numerics;
use crate::report::QualityLimits;
use crate::runtime::{self, LoadOptions};
use crate::verify::{Candidate, File, Options, StoredWeights, TeacherForced, Thresholds};
use crate::vocabulary::{Choice, KvForm, RuntimeName, StateUse};
use crate::{config, model};
use quality::Comparison;
use record::Sources;

/// Verify a bundle against its checkpoint: whether it computes what its weights say, and what compression cost.
#[derive(clap::Args)]
#[command(
    after_help = "candle computes the checkpoint in f32, independently of the export. It continues each prompt greedily, and the\n\
bundle gets the same tokens (teacher forcing).\n\
Right: against the checkpoint with compressed weights as the bundle stores them, with the same thresholds for every\n\
precision. Good: against the checkpoint as it is, with limits for KL, top-1, top-5 and perplexity (--text).\n\
Exit code 1 if either is exceeded. The first layer whose hidden state diverges is named if the bundle is not right.\n\n\
Examples:\n  anemeter verify smollm2 --checkpoint SmolLM2-135M\n  \
anemeter verify smollm2 --checkpoint model.gguf --kv io --shapes 512 --tokens 16\n  \
anemeter verify smollm2 --checkpoint SmolLM2-135M --thresholds configs/verify.yaml --json\n  \
anemeter verify smollm2 --checkpoint SmolLM2-135M --calibration wiki.txt --layers --plot maps\n  \
anemeter verify smollm2-int8 --checkpoint SmolLM2-135M --text wiki.txt\n  \
anemeter verify smollm2-int8 --against smollm2\n  \
anemeter verify resnet18.mlpackage --reference resnet18.safetensors"
)]
pub(super) struct Args {
    /// The bundle; with --against also a package.
    bundle: PathBuf,
    /// The checkpoint that the bundle was exported from.
    #[arg(long, value_name = "CHECKPOINT", required_unless_present_any = ["against", "reference"], conflicts_with = "against")]
    checkpoint: Option<PathBuf>,
    /// Inputs and the outputs that are expected, by name, as any framework can save them; samples are numbered: NAME.0,
    /// NAME.1.
    #[arg(long, value_name = "FILE.safetensors", conflicts_with_all = ["checkpoint", "against", "text", "layers", "plot"])]
    reference: Option<PathBuf>,
    /// With --reference: the most that an output may be off, as a share of the largest magnitude that is expected.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, requires = "reference")]
    tolerance: f64,
    /// With --reference: whether each sample begins with states of zeros, or with what the one before left.
    #[arg(long, value_name = "USE", default_value = "fresh", value_parser = choice::<StateUse>(), requires = "reference")]
    states: StateUse,
    /// Compare with another bundle or package instead of a checkpoint.
    #[arg(long, value_name = "BUNDLE", conflicts_with_all = ["layers", "plot"])]
    against: Option<PathBuf>,
    /// Prompts or texts, one per line [default: eight built-in texts, or token ids if the bundle has no tokenizer].
    #[arg(long, value_name = "FILE", conflicts_with = "calibration")]
    prompts: Option<PathBuf>,
    /// Take prompts from a text, or from JSON lines with `text`, `prompt`, `messages` or `token_ids` (FILE.jsonl).
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Prompts to take from the calibration file, evenly spaced.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Compare perplexity on this text with the checkpoint's.
    #[arg(long, value_name = "FILE", conflicts_with = "against")]
    text: Option<PathBuf>,
    /// Tokens of the text to score, from its beginning.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    text_tokens: u32,
    /// Compare the hidden state after every layer, and show activation ranges [default: only if the bundle is not right].
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
    /// Thresholds and limits of quality [default: those of configs/verify.yaml].
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,
    /// fp16 arithmetic of the `cpu` runtime: `fast` rounds where a tensor is stored, `fp16-exact` after every operation.
    #[arg(long, default_value = "fast", value_parser = choice::<Numerics>())]
    numerics: Numerics,
    /// Runtime that executes the bundle; only `cpu` shows layers. What another than the default gives is shown and not recorded
    /// [default: `cpu`, or `coreai` where there are Core AI assets alone].
    #[arg(long, value_name = "RUNTIME", value_parser = choice::<RuntimeName>(), conflicts_with_all = ["against", "layers", "plot"])]
    runtime: Option<RuntimeName>,
    #[command(flatten)]
    python: PythonArg,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_parser = crate::cli::threads::count)]
    threads: Option<u16>,
    /// Do not write verify.json beside the packages.
    #[arg(long)]
    no_record: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// What a record says of the arithmetic of Core AI.
const CORE_AI_NUMERICS: &str = "coreai";

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    match (&args.checkpoint, &args.against, &args.reference) {
        (_, Some(other), _) => against::run(args, other, output),
        (_, _, Some(file)) => reference::run(args, file, output),
        (Some(path), None, None) => with_checkpoint(args, path, output),
        // clap asks for one of them.
        (None, None, None) => {
            Err(Failure::bad_input("neither --checkpoint nor --against nor --reference is given"))
        }
    }
}

fn with_checkpoint(args: &Args, path: &Path, output: &mut Output) -> Result<Status> {
    oracle::require(cfg!(feature = "oracle"))?;
    let bundle = open_bundle(&args.bundle)?;
    if bundle.manifest().encoder.is_some() {
        return encoder::run(args, &bundle, path, output);
    }
    let (thresholds, limits) = thresholds(args)?;
    let options = Options { tokens: args.tokens as usize, thresholds };
    let checkpoint = checkpoint::open(checkpoint::locate(path)?)?;
    check_same_model(&bundle, &checkpoint)?;
    let runtime = args.runtime_of(&bundle);
    let sources = Sources::new(&bundle, runtime, checkpoint.describe())?;
    let remarks = sources.remarks(&bundle);
    remarks.iter().for_each(|remark| warn(format_args!("note: {remark}")));
    let text = Text::open(&bundle, None)?;
    let engine = executed_by(args, &bundle)?;
    engine.iter().for_each(|said| note(format_args!("note: {said}")));
    let mut candidates = candidates(args, &bundle)?;
    let prompts = prompts::of(args, &bundle, text.as_ref(), longest(&candidates))?;
    let stored = StoredWeights::read(&bundle)?;
    let comparison = Comparison {
        args,
        bundle: &bundle,
        checkpoint: &checkpoint,
        stored: &stored,
        prompts: &prompts,
        options: &options,
    };
    let right = comparison.right(&mut candidates)?;
    let forms: Vec<_> = candidates.iter().map(|of| (of.kv(), of.seq_lens().to_vec())).collect();
    drop(candidates);
    let quality = match forms.first() {
        Some((kv, seq_lens)) => comparison.lost(&right, (*kv, seq_lens), (limits, text.as_ref()))?,
        None => None,
    };
    let mut report = right.with_quality(quality);
    report.remarks = remarks.into_iter().chain(engine).collect();
    let is_ours = runtime == RuntimeName::Cpu;
    let recorded = match args.is_recorded(&bundle) {
        true => sources.write(&bundle, &report, args.numerics_of(&bundle)),
        false => Ok(()),
    };
    // Only the `cpu` runtime shows hidden states, and only an export says which layers they follow.
    let is_asked = args.layers || args.plot.is_some();
    if is_ours && (is_asked || (!report.is_right() && bundle.exported().is_ok())) {
        let stored = report.not_judged.is_none().then_some(&stored);
        let limit = options.thresholds.layer_error;
        report.layers =
            layers::trace(args, &bundle, (&checkpoint, stored), &first_lengths(&forms), (&prompts, limit))?;
    }
    if let Some(folder) = &args.plot {
        layers::plot(&report.layers, folder)?;
    }
    if args.json {
        output.json(&report)?;
    } else {
        let executor = executor(runtime);
        text::print((bundle.manifest(), &executor), &report, (text.as_ref(), "the checkpoint"), output)?;
    }
    recorded?;
    Ok(if report.passed { Status::Good } else { Status::Failed })
}

impl Args {
    /// What executes a bundle: what was asked for, or what it needs.
    fn runtime_of(&self, bundle: &Bundle) -> RuntimeName {
        self.runtime.or(bundle.manifest().only_runtime()).unwrap_or(RuntimeName::Cpu)
    }

    /// Whether the result is kept beside the bundle. There is one record: of the packages, by the runtime that is the same
    /// everywhere, or of the assets where there are no packages.
    fn is_recorded(&self, bundle: &Bundle) -> bool {
        let usual = bundle.manifest().only_runtime().unwrap_or(RuntimeName::Cpu);
        !self.no_record && self.runtime_of(bundle) == usual
    }

    /// What a record says of the arithmetic.
    fn numerics_of(&self, bundle: &Bundle) -> &'static str {
        match self.runtime_of(bundle) {
            RuntimeName::CoreAi => CORE_AI_NUMERICS,
            _ => self.numerics.name(),
        }
    }
}

/// What executes a bundle, in words.
fn executor(runtime: RuntimeName) -> String {
    match runtime {
        RuntimeName::Cpu => "the CPU runtime".to_owned(),
        other => format!("the runtime {other}"),
    }
}

/// Who computes, and in what, where that is not the `cpu` runtime: which of two twins was used decides what can be expected.
fn executed_by(args: &Args, bundle: &Bundle) -> Result<Option<String>> {
    let runtime = args.runtime_of(bundle);
    if runtime != RuntimeName::CoreAi {
        return Ok(None);
    }
    let about = runtime::choose(Some(runtime))?.about().unwrap_or_default();
    let mut ports =
        bundle.manifest().chunks.iter().flat_map(|chunk| &chunk.functions).flat_map(|of| &of.inputs);
    let twin = match ports.any(|port| port.dtype == "fp32") {
        true => "with fp32 activations",
        false if is_system_framework() => "with fp16 activations",
        false => "with fp16 activations, whose sums the interpreter rounds after every addition",
    };
    Ok(Some(format!("Core AI executes the asset {twin}: {about}")))
}

/// Whether Core AI is the system's own, and not the interpreter that Apple's wheel has elsewhere.
fn is_system_framework() -> bool {
    let versions = runtime::CoreAiRuntime::new().interpreter().ask();
    versions.is_ok_and(|versions| versions.has_system_framework())
}

/// The first length of every form.
fn first_lengths(forms: &[(KvForm, Vec<usize>)]) -> Vec<(KvForm, usize)> {
    forms.iter().filter_map(|(kv, seq_lens)| Some((*kv, *seq_lens.first()?))).collect()
}

/// What counts as right, and what may be lost.
fn thresholds(args: &Args) -> Result<(Thresholds, QualityLimits)> {
    let Some(path) = &args.thresholds else { return Ok(Default::default()) };
    let file: File = config::load(path)?;
    let wrong = |problem| Failure::at(path, problem);
    let thresholds = Thresholds::default().with(&file.verify).map_err(wrong)?;
    Ok((thresholds, file.quality.limits().map_err(wrong)?))
}

/// Refuses a checkpoint that cannot be the one the bundle was made from.
fn check_same_model(bundle: &Bundle, checkpoint: &Checkpoint) -> Result<()> {
    let decoder = model::build(checkpoint).map_err(Failure::bad_input)?;
    let path = checkpoint.path.display();
    let Some(expected) = &bundle.manifest().architecture else {
        let ours = bundle.language_model()?.vocabulary().unwrap_or(0);
        return match decoder.vocabulary == ours {
            true => Ok(()),
            false => Err(Failure::bad_input(format!(
                "{path}: has the vocabulary {}, the packages' is {ours}",
                decoder.vocabulary
            ))
            .with_help("give the checkpoint that the packages were made from")),
        };
    };
    let differences = [
        ("vocabulary", decoder.vocabulary, expected.vocabulary),
        ("hidden size", decoder.hidden, expected.hidden),
        ("number of layers", decoder.layers.len(), expected.layers),
    ];
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
    let forms = args.kv.clone().unwrap_or(bundle.language_model()?.forms());
    let candidate = |form: KvForm| {
        let driver = driver(args, bundle, Some(form), args.numerics)?;
        let candidate = TeacherForced::new(driver, args.shapes.as_deref()).map_err(Failure::bad_input)?;
        Ok(Box::new(candidate) as Box<dyn Candidate>)
    };
    forms.into_iter().map(candidate).collect()
}

fn driver(args: &Args, bundle: &Bundle, form: Option<KvForm>, numerics: Numerics) -> Result<Driver> {
    let load = LoadOptions { numerics, threads: args.threads.map(usize::from), ..LoadOptions::default() };
    let sessions = sessions(bundle, runtime::choose(Some(args.runtime_of(bundle)))?, &load)?;
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
