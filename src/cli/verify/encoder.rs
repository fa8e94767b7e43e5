//! `anemeter verify` of an encoder: its vectors against those of the checkpoint, text by text.

use std::path::Path;

use super::record::{Sources, package_record};
use super::{Args, executed_by, executor, layers, oracle, prompts, thresholds};
use crate::bundle::{Bundle, EncoderOutput};
use crate::checkpoint::{self, Checkpoint};
use crate::cli::output::{Output, warn};
use crate::cli::{Failure, Result, Status, record};
use crate::encode::{EncoderDriver, EncoderText, EncoderTokens};
use crate::generate::sessions;
use crate::mil::op::Numerics;
use crate::model::{self, ModelGraph};
use crate::render::Table;
use crate::report::{Verification, VerifiedLengths};
use crate::runtime::{self, LoadOptions};
use crate::verify::trace::{LONGEST, Layers, encoder_layers};
use crate::verify::{self, EncoderOracle, EncoderReport, PROMPTS, Thresholds, compare_encoder};
use crate::vocabulary::{KvForm, RuntimeName};

pub(super) fn run(args: &Args, bundle: &Bundle, path: &Path, output: &mut Output) -> Result<Status> {
    refuse_flags(args)?;
    let (thresholds, _) = thresholds(args)?;
    let checkpoint = checkpoint::open(checkpoint::locate(path)?)?;
    check_same_model(bundle, &checkpoint)?;
    let sources = Sources::new(bundle, args.runtime_of(bundle), checkpoint.describe())?;
    let mut driver = driver(args, bundle, args.numerics_of(&[bundle]))?;
    let texts = texts(args, bundle, &driver)?;
    let seq_lens = args.shapes.clone().unwrap_or_else(|| driver.lengths().to_vec());
    let longest = seq_lens.iter().max().copied().unwrap_or(1);
    let reference = oracle::open_encoder(&checkpoint, longest).map_err(Failure::bad_input)?;
    let compared = compare_encoder(&mut driver, &*reference, &texts, (&seq_lens, &thresholds));
    let mut report = compared.map_err(Failure::bad_input)?;
    report.remarks = remarks(bundle, &sources);
    report.remarks.extend(executed_by(args, bundle)?);
    report.remarks.iter().for_each(|remark| warn(format_args!("note: {remark}")));
    // Only the `cpu` runtime shows hidden states.
    let is_ours = args.runtime_of(bundle) == RuntimeName::Cpu;
    if is_ours && (!report.passed || args.layers || args.plot.is_some()) {
        let first = seq_lens.first().copied().unwrap_or(longest);
        report.layers = vec![trace(args, bundle, &*reference, (&texts, first), &thresholds)?];
    }
    if let Some(folder) = &args.plot {
        layers::plot(&report.layers, folder)?;
    }
    match args.json {
        true => output.json(&report)?,
        false => print((bundle, args.runtime_of(bundle)), &report, thresholds.layer_error, output)?,
    }
    if args.is_recorded(bundle) {
        record::write(bundle, &recorded(args, bundle, sources, &report, &thresholds)?)?;
    }
    Ok(if report.passed { Status::Good } else { Status::Failed })
}

/// What is about generated tokens has no meaning here.
fn refuse_flags(args: &Args) -> Result<()> {
    let given = [
        ("--text", args.text.is_some()),
        ("--kv", args.kv.is_some()),
        ("--calibration", args.calibration.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Failure::bad_input(format!("{flag} is for models that generate text"))
            .with_help("leave it out; --prompts has the texts to compare, one per line")),
        None => Ok(()),
    }
}

fn remarks(bundle: &Bundle, sources: &Sources) -> Vec<String> {
    let mut remarks = sources.remarks(bundle);
    if bundle.manifest().compression.is_some() {
        remarks.push(
            "weights are compressed, and vectors are compared with those of the checkpoint as it is: what differs is what \
             compression costs and any fault; `verify.cosine` of --thresholds is what may be lost"
                .to_owned(),
        );
    }
    remarks
}

/// Refuses a checkpoint that cannot be the one the bundle was made from.
fn check_same_model(bundle: &Bundle, checkpoint: &Checkpoint) -> Result<()> {
    let path = checkpoint.path.display();
    let help = "give the checkpoint that the bundle was exported from";
    let encoder = match model::build_any(checkpoint).map_err(Failure::bad_input)? {
        ModelGraph::Encoder(encoder) => encoder,
        ModelGraph::Decoder(_) => {
            return Err(Failure::bad_input(format!("{path}: is no encoder, the bundle is")).with_help(help));
        }
    };
    let expected = bundle.exported()?.architecture;
    if encoder.architecture != expected.name {
        let (found, expected) = (encoder.architecture, &expected.name);
        return Err(Failure::bad_input(format!("{path}: is a {found} model, the bundle's is {expected}"))
            .with_help(help));
    }
    let sizes = [
        ("vocabulary", encoder.vocabulary, expected.vocabulary),
        ("hidden size", encoder.hidden, expected.hidden),
        ("number of layers", encoder.layers.len(), expected.layers),
        ("width of its output", encoder.width(), bundle.encoder()?.width),
    ];
    match sizes.into_iter().find(|(_, found, expected)| found != expected) {
        Some((what, found, expected)) => {
            let message = format!("{path}: has the {what} {found}, the bundle's is {expected}");
            Err(Failure::bad_input(message).with_help(help))
        }
        None => Ok(()),
    }
}

fn driver(args: &Args, bundle: &Bundle, numerics: Numerics) -> Result<EncoderDriver> {
    let load = LoadOptions { numerics, threads: args.threads.map(usize::from), ..LoadOptions::default() };
    Ok(EncoderDriver::new(bundle, sessions(bundle, runtime::choose(Some(args.runtime_of(bundle)))?, &load)?)?)
}

/// The texts to compare on; a model that scores gets each with the next as its pair.
fn texts(args: &Args, bundle: &Bundle, driver: &EncoderDriver) -> Result<Vec<EncoderTokens>> {
    let Some(text) = EncoderText::open(bundle)? else {
        if args.prompts.is_some() {
            return Err(Failure::bad_input("--prompts needs a tokenizer, and the bundle has none")
                .with_help("leave --prompts out: pseudo-random ids are compared instead"));
        }
        return ids(bundle, driver);
    };
    let lines = match &args.prompts {
        Some(path) => prompts::read(path, "has no text", "write one text per line")?,
        None => PROMPTS.to_owned(),
    };
    let lines: Vec<&str> = lines.lines().filter(|line| !line.trim().is_empty()).collect();
    let scores = driver.output() == EncoderOutput::Scores;
    let pair = |index: usize| scores.then(|| lines[(index + 1) % lines.len()]);
    let tokens = lines.iter().enumerate().map(|(index, line)| text.tokens(line, pair(index), None));
    Ok(tokens.collect::<Result<_, _>>()?)
}

/// Ids where there is no tokenizer; the second half of each text is another segment if the model tells them apart.
fn ids(bundle: &Bundle, driver: &EncoderDriver) -> Result<Vec<EncoderTokens>> {
    let kinds = bundle.encoder()?.segment_kinds;
    let text = |ids: Vec<u32>| {
        let types = (0..ids.len()).map(|at| u32::from(kinds > 1 && 2 * at >= ids.len())).collect();
        EncoderTokens { ids, types }
    };
    Ok(verify::pseudo_random(driver.vocabulary()).into_iter().map(text).collect())
}

/// Traces the longest text. fp16 is rounded after every step, so that every tensor is seen and overflows as it would on a
/// device.
fn trace(
    args: &Args,
    bundle: &Bundle,
    reference: &dyn EncoderOracle,
    (texts, seq_len): (&[EncoderTokens], usize),
    thresholds: &Thresholds,
) -> Result<Layers> {
    let longest = texts.iter().max_by_key(|text| text.ids.len()).cloned().unwrap_or_default();
    let count = longest.ids.len().min(seq_len).min(LONGEST);
    let text = EncoderTokens { ids: longest.ids[..count].to_vec(), types: longest.types[..count].to_vec() };
    let expected = reference.trace(&text).map_err(Failure::bad_input)?;
    let mut driver = driver(args, bundle, Numerics::Fp16Exact)?;
    let places = layers::all_places(bundle)?;
    let found = encoder_layers(&mut driver, &places, (&text, seq_len), &expected, thresholds.layer_error);
    found.map_err(|problem| Failure::bad_input(format!("at length {seq_len}: {problem}")))
}

fn print(
    (bundle, runtime): (&Bundle, RuntimeName),
    report: &EncoderReport,
    limit: f64,
    out: &mut Output,
) -> Result<()> {
    let manifest = bundle.manifest();
    let architecture = manifest.architecture.as_ref().map_or("", |architecture| &architecture.name);
    out.line(format_args!(
        "{} ({architecture}, {}) on {}",
        manifest.name,
        manifest.precision(),
        executor(runtime)
    ))?;
    out.line(format_args!("against {}", report.reference))?;
    out.line(format_args!("{} of {} texts\n", report.output.name(), report.texts))?;
    let mut table = Table::new(&[">length", ">texts", ">cosine min", ">error max", ">not finite"]);
    for of in &report.lengths {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "not finite".to_owned(), |value| format!("{value:.digits$}"))
        };
        table.row([
            of.seq_len.to_string(),
            of.texts.len().to_string(),
            number(of.cosine_min, 7),
            number(of.error_max, 5),
            (of.nan + of.inf).to_string(),
        ]);
    }
    out.text(table)?;
    layers::print(&report.layers, report.passed, out)?;
    for failure in report.failures(limit) {
        out.line(format_args!("beyond its threshold: {failure}"))?;
    }
    out.line(if report.passed { "\npassed" } else { "\nfailed" })
}

fn recorded(
    args: &Args,
    bundle: &Bundle,
    sources: Sources,
    report: &EncoderReport,
    thresholds: &Thresholds,
) -> Result<Verification> {
    let digest = sources.checkpoint.digest;
    let is_exported = bundle.manifest().checkpoint.as_ref().is_some_and(|of| of.digest == digest);
    Ok(Verification {
        checkpoint_digest: digest,
        checkpoint_is_the_exported_one: is_exported,
        passed: report.passed,
        cosine_min: report.cosine_min(),
        cosine_limit: Some(thresholds.cosine),
        nan: report.lengths.iter().map(|of| of.nan).sum(),
        inf: report.lengths.iter().map(|of| of.inf).sum(),
        reference: report.reference.clone(),
        numerics: args.recorded_numerics(bundle).to_owned(),
        compared: vec![VerifiedLengths {
            kv: KvForm::None,
            seq_lens: report.lengths.iter().map(|of| of.seq_len).collect(),
        }],
        prompts: report.texts,
        positions: report.lengths.iter().map(|of| of.texts.len()).sum(),
        failures: report.failures(thresholds.layer_error),
        ..package_record(bundle, args.runtime_of(bundle))?
    })
}
