//! `anemeter verify A --against B`: two bundles or two packages, without a checkpoint.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::prompts;
use super::{Args, candidates, driver, executor, longest, text, thresholds};
use crate::bundle::Bundle;
use crate::cli::inputs::open_bundle;
use crate::cli::output::Output;
use crate::cli::verbosity::Steps;
use crate::cli::{Failure, Result, Status};
use crate::generate::Text;
use crate::mil::Model;
use crate::package::Package;
use crate::render::Table;
use crate::runtime::{self, LoadOptions, Runtime};
use crate::verify::trace::{LONGEST, PackageComparison, TensorDivergence, compare_bundles, compare_packages};
use crate::verify::{self, BundleOracle, Options};

/// Tensors that are listed.
const LISTED: usize = 20;
/// Tokens at the end of the sequence that are taken one by one.
const STEPS: usize = 4;

pub(super) fn run(args: &Args, other: &Path, output: &mut Output) -> Result<Status> {
    if Package::is_at(&args.bundle) && Package::is_at(other) {
        return packages(args, other, &[(args.bundle.clone(), other.to_owned())], output);
    }
    let (a, b) = (open_bundle(&args.bundle)?, open_bundle(other)?);
    match [&a, &b].map(|bundle| bundle.manifest().forms().is_empty()) {
        [true, true] => packages(args, other, &pairs(&a, &b)?, output),
        _ => bundles(args, &a, &b, output),
    }
}

/// Packages of two bundles that are no language models, by name; where there is one of each, names do not matter.
fn pairs(a: &Bundle, b: &Bundle) -> Result<Vec<(PathBuf, PathBuf)>> {
    let names = |bundle: &Bundle| -> Vec<String> {
        let mut names: Vec<String> =
            bundle.manifest().chunks.iter().map(|chunk| chunk.file.name.clone()).collect();
        names.sort();
        names
    };
    let (ours, others) = (names(a), names(b));
    if ours != others && (ours.len(), others.len()) != (1, 1) {
        let problem = format!("has the packages {}, the other has {}", others.join(", "), ours.join(", "));
        return Err(Failure::at(b.source(), problem).with_help("give packages of the same names"));
    }
    Ok(ours.iter().zip(&others).map(|(ours, other)| (a.path(ours), b.path(other))).collect())
}

fn bundles(args: &Args, a: &Bundle, b: &Bundle, output: &mut Output) -> Result<Status> {
    check_vocabulary(a, b)?;
    let (thresholds, limits) = thresholds(args)?;
    // Other weights cannot be the same: all that can be asked is how much one loses against the other.
    let is_same = a.manifest().precision() == b.manifest().precision();
    let thresholds = args.rounded(&[a, b], thresholds);
    let thresholds = if is_same { thresholds } else { thresholds.of_other_weights() };
    let options = Options { tokens: args.tokens as usize, thresholds };
    let tokenizer = Text::open(a, None)?;
    let numerics = args.numerics_of(&[a, b]);
    let mut candidates = candidates(args, a, numerics)?;
    let prompts = prompts::of(args, a, tokenizer.as_ref(), longest(&candidates))?;
    let manifest = b.manifest();
    let name = format!(
        "the bundle {} ({}) on {}",
        manifest.name,
        manifest.precision(),
        executor(args.runtime_of(b))
    );
    let mut reference = BundleOracle::new(driver(args, b, None, numerics)?, name);
    let mut bar = Steps::new("compared", "runs");
    let report = verify::compare(&mut reference, &mut candidates, &prompts, &options, &mut |done, total| {
        bar.show(done, total);
    });
    bar.finish();
    let mut report = report.map_err(Failure::bad_input)?;
    if !is_same {
        let place = (candidates[0].kv(), candidates[0].seq_lens());
        let seq_len = verify::quality_length(place.1, &prompts, options.tokens);
        let loss =
            seq_len.and_then(|seq_len| verify::quality_loss(&report.cells, (place.0, seq_len), limits));
        report.not_judged = Some("the bundles have weights of different precisions".to_owned());
        report = report.with_quality(loss);
    }
    report.tensors = tensors(args, a, b, &prompts)?;
    if args.json {
        output.json(&report)?;
    } else {
        let executor = executor(args.runtime_of(a));
        text::print((a.manifest(), &executor), &report, (tokenizer.as_ref(), "the other bundle"), output)?;
    }
    Ok(if report.passed { Status::Good } else { Status::Failed })
}

fn check_vocabulary(a: &Bundle, b: &Bundle) -> Result<()> {
    let (ours, other) = (a.language_model()?.vocabulary(), b.language_model()?.vocabulary());
    let (Some(ours), Some(other)) = (ours, other) else { return Ok(()) };
    if ours == other {
        return Ok(());
    }
    let problem = format!("has a vocabulary of {other}, {} has {ours}", a.folder().display());
    Err(Failure::at(b.folder(), problem).with_help("give two bundles of one model"))
}

/// Tensors of both bundles in the first form and at the first length that both have; none if they share none.
fn tensors(args: &Args, a: &Bundle, b: &Bundle, prompts: &[Vec<u32>]) -> Result<Vec<TensorDivergence>> {
    // The values inside of an asset are not to be seen.
    let has_packages = |bundle: &Bundle| bundle.manifest().only_runtime().is_none();
    if !has_packages(a) || !has_packages(b) {
        return Ok(Vec::new());
    }
    let forms = args.kv.clone().unwrap_or_else(|| a.manifest().forms());
    let others = b.manifest().forms();
    let form = forms.into_iter().find(|form| others.contains(form));
    let (Some(form), Some(prompt)) = (form, prompts.iter().max_by_key(|prompt| prompt.len())) else {
        return Ok(Vec::new());
    };
    let numerics = args.numerics_of(&[a, b]);
    let mut ours = driver(args, a, Some(form), numerics)?;
    let mut others = driver(args, b, Some(form), numerics)?;
    let Some(&seq_len) = ours.lengths().iter().find(|length| others.lengths().contains(length)) else {
        return Ok(Vec::new());
    };
    let packages = [models(a)?, models(b)?];
    let [models_a, models_b] =
        packages.each_ref().map(|of| of.iter().map(Package::model).collect::<Vec<&Model>>());
    let ids = &prompt[..prompt.len().min(seq_len).min(LONGEST)];
    let run = (ids, ids.len() - STEPS.min(ids.len() / 2), seq_len);
    compare_bundles((&mut ours, &models_a), (&mut others, &models_b), run).map_err(Failure::bad_input)
}

fn models(bundle: &Bundle) -> Result<Vec<Package>> {
    let chunks = bundle.manifest().chunks.iter();
    Ok(chunks.map(|chunk| Package::open(bundle.path(&chunk.file.name))).collect::<Result<_, _>>()?)
}

/// What is printed about two packages.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    passed: bool,
    /// Smallest cosine of an output that passes.
    cosine: f64,
    functions: Vec<PackageComparison>,
}

/// Compares the outputs of packages in pairs.
fn packages(args: &Args, other: &Path, pairs: &[(PathBuf, PathBuf)], output: &mut Output) -> Result<Status> {
    let (limits, _) = thresholds(args)?;
    let threads = args.threads.map(usize::from);
    let options = LoadOptions { numerics: args.numerics_of(&[]), threads, ..LoadOptions::default() };
    let load = |path: &Path| -> Result<_> { Ok(runtime::cpu().load(&Package::open(path)?, &options)?) };
    let mut functions = Vec::new();
    for (ours, other) in pairs {
        let mut compared = compare_packages(&load(ours)?, &load(other)?).map_err(Failure::bad_input)?;
        if let Some(name) = ours.file_name().filter(|_| pairs.len() > 1) {
            let name = name.to_string_lossy();
            compared.iter_mut().for_each(|of| of.function = format!("{name} {}", of.function));
        }
        functions.extend(compared);
    }
    let outputs = || functions.iter().flat_map(|function| &function.outputs);
    let passed = outputs().next().is_some()
        && outputs().all(|found| found.cosine.is_some_and(|cosine| cosine >= limits.cosine));
    let document =
        Document { schema: "anemeter.verify-packages/1", passed, cosine: limits.cosine, functions };
    match args.json {
        true => output.json(&document)?,
        false => print_packages(args, other, &document, output)?,
    }
    Ok(if passed { Status::Good } else { Status::Failed })
}

fn print_packages(args: &Args, other: &Path, document: &Document, out: &mut Output) -> Result<()> {
    out.line(format_args!("{} against {}, on made-up inputs", args.bundle.display(), other.display()))?;
    for function in &document.functions {
        out.line(format_args!("\nfunction {}: outputs", function.function))?;
        out.text(table(function.outputs.iter()))?;
        print_tensors(&function.tensors, out)?;
    }
    out.line(if document.passed { "passed" } else { "failed" })
}

/// The tensors that differ most, in the order in which they are computed.
pub(super) fn print_tensors(tensors: &[TensorDivergence], out: &mut Output) -> Result<()> {
    let different = tensors.iter().filter(|tensor| tensor.error != Some(0.0));
    let count = different.clone().count();
    if count == 0 {
        return out.line(format_args!("\n{} tensors share names, none differs", tensors.len()));
    }
    out.line(format_args!("\n{} tensors share names, {count} differ; the first of those:", tensors.len()))?;
    out.text(table(different.take(LISTED)))
}

fn table<'a>(tensors: impl Iterator<Item = &'a TensorDivergence>) -> Table {
    let mut table = Table::new(&["tensor", ">error", ">cosine", ">max abs", ">not finite"]);
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    for found in tensors {
        table.row([
            found.tensor.clone(),
            number(found.error, 6),
            number(found.cosine, 8),
            number(found.max_abs, 4),
            found.not_finite.to_string(),
        ]);
    }
    table.indented(2)
}
