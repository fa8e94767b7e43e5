//! `anemeter verify A --reference FILE`: packages against outputs that any framework computed.

use std::path::Path;
use std::sync::Arc;

use super::Args;
use super::record::package_record;
use crate::bundle::{Bundle, Chunk};
use crate::cli::inputs::open_bundle;
use crate::cli::output::{Output, warn};
use crate::cli::record;
use crate::cli::{Failure, Result, Status};
use crate::render::Table;
use crate::report::Verification;
use crate::runtime::{self, LoadOptions, LoadedModel};
use crate::tensor_files;
use crate::verify::{ReferenceOptions, ReferenceOutput, ReferenceReport, compare_with_reference};

pub(super) fn run(args: &Args, path: &Path, output: &mut Output) -> Result<Status> {
    if !(args.tolerance >= 0.0 && args.tolerance.is_finite()) {
        let problem = format!("--tolerance is {}, expected 0 or more", args.tolerance);
        return Err(Failure::bad_input(problem));
    }
    let bundle = open_bundle(&args.bundle)?;
    let file = tensor_files::read_named(path)?;
    let packages = packages(args, &bundle)?;
    let options = ReferenceOptions { tolerance: args.tolerance, states: args.states };
    let report = compare_with_reference(&packages, &file, &options).map_err(|problem| {
        Failure::at(path, problem)
            .with_help("name tensors as inputs and outputs; `anemeter inspect` lists them")
    })?;
    report.notes.iter().for_each(|note| warn(format_args!("note: {note}")));
    match args.json {
        true => output.json(&report)?,
        false => print(args, path, &report, output)?,
    }
    if args.is_recorded(&bundle) {
        record::write(&bundle, &recorded(args, path, &bundle, &report)?)?;
    }
    Ok(if report.passed { Status::Good } else { Status::Failed })
}

fn packages(args: &Args, bundle: &Bundle) -> Result<Vec<(String, Arc<dyn LoadedModel>)>> {
    let threads = args.threads.map(usize::from);
    let options = LoadOptions { numerics: args.numerics_of(&[bundle]), threads, ..LoadOptions::default() };
    let runtime = runtime::choose(Some(args.runtime_of(bundle)))?;
    let load = |chunk: &Chunk| {
        let package = bundle.open_for(chunk, runtime.name())?;
        let file = chunk.file_of(runtime.name()).unwrap_or(&chunk.file);
        Ok((file.name.clone(), runtime.load(&package, &options)?))
    };
    bundle.manifest().chunks.iter().map(load).collect()
}

fn print(args: &Args, path: &Path, report: &ReferenceReport, out: &mut Output) -> Result<()> {
    let samples = report.samples;
    let of = (args.bundle.display(), path.display());
    out.line(format_args!("{} against {}, {samples} samples", of.0, of.1))?;
    let mut table =
        Table::new(&["function", ">sample", "output", ">largest error", ">cosine", ">not finite", ""]);
    for found in &report.outputs {
        let off = found.max_rel.map_or_else(|| "-".to_owned(), |off| format!("{:.4} %", 100.0 * off));
        let cosine = found.divergence.cosine.map_or_else(|| "-".to_owned(), |cosine| format!("{cosine:.8}"));
        table.row([
            found.function.clone(),
            found.sample.to_string(),
            found.divergence.tensor.clone(),
            off,
            cosine,
            found.divergence.not_finite.to_string(),
            if found.passed { String::new() } else { "beyond the tolerance".to_owned() },
        ]);
    }
    out.text(table.indented(2))?;
    let tolerance = 100.0 * report.tolerance;
    let passed = if report.passed { "passed" } else { "failed" };
    out.line(format_args!("{passed}: {tolerance} % of the largest expected magnitude is allowed"))
}

/// What is kept for `bless`.
fn recorded(args: &Args, path: &Path, bundle: &Bundle, report: &ReferenceReport) -> Result<Verification> {
    let cosines = report.outputs.iter().filter_map(|output| output.divergence.cosine);
    let failed = report.outputs.iter().filter(|output| !output.passed);
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok(Verification {
        checkpoint_digest: report.digest.clone(),
        passed: report.passed,
        cosine_min: cosines.reduce(f64::min),
        nan: report.outputs.iter().map(|output| output.divergence.not_finite).sum(),
        reference: format!("the outputs in {name}"),
        numerics: args.recorded_numerics(bundle).to_owned(),
        prompts: report.samples,
        positions: report.outputs.len(),
        failures: failed.map(in_words).collect(),
        ..package_record(bundle, args.runtime_of(bundle))?
    })
}

fn in_words(output: &ReferenceOutput) -> String {
    let ReferenceOutput { function, sample, divergence, max_rel, .. } = output;
    let off = max_rel.map_or_else(|| "not computable".to_owned(), |off| format!("{off}"));
    format!("`{}` of `{function}`, sample {sample}: the largest error is {off}", divergence.tensor)
}
