//! `anemeter eval`: tool-call F1 and perplexity of a bundle.

mod scored;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use super::choice::{AUTO, OrAuto, bundle_runtime, choice};
use super::inputs::open_bundle;
use super::output::warn;
use super::python::{PythonArg, say_engine};
use super::verbosity::Steps;
use super::{Failure, Output, Result, Status, record};
use crate::bundle::{Bundle, digest_text};
use crate::eval::{self, Case, Evaluation, Options, parse_cases};
use crate::generate::{Driver, Generator, SystemClock, Text, sessions};
use crate::report::Quality;
use crate::runtime::{self, LoadOptions};
use crate::vocabulary::{ComputeUnits, KvForm, RuntimeName};

/// Evaluate the quality of a bundle: tool-call F1 and time to first action on cases, perplexity on a text.
#[derive(clap::Args)]
#[command(
    after_help = "Each case is rendered by the chat template with its tools and answered greedily at every sequence length it fits.\n\
A case is one line of JSON: {\"id\": …, \"messages\": […], \"tools\": […], \"expected\": {\"name\": …, \"arguments\": {…}}};\n\
`expected` may be a list, or null if no call is expected. A text is scored in windows of the longest sequence length\n\
that overlap by half. Results are kept in eval.json in the bundle.\n\n\
Examples:\n  anemeter eval smollm2 --cases configs/eval_cases.jsonl\n  \
anemeter eval smollm2 --cases cases.jsonl --shapes 512,1024 --max-tokens 64 --json\n  \
anemeter eval smollm2 --text story.txt"
)]
pub(super) struct Args {
    /// The bundle.
    bundle: PathBuf,
    /// The cases, one JSON object per line.
    #[arg(long, value_name = "FILE", required_unless_present = "text")]
    cases: Option<PathBuf>,
    /// Measure perplexity on this text.
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// KV cache form [default: the bundle's first].
    #[arg(long, value_name = "FORM", value_parser = choice::<KvForm>())]
    kv: Option<KvForm>,
    /// Sequence lengths for cases; perplexity is measured at the longest [default: all of the form].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    shapes: Option<Vec<usize>>,
    /// Maximum number of tokens to generate per case.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Runtime that executes the bundle; `auto` takes the first that is available and prints its name.
    #[arg(long, default_value = AUTO, value_parser = bundle_runtime())]
    runtime: OrAuto<RuntimeName>,
    #[command(flatten)]
    python: PythonArg,
    /// Compute units that Core ML may use [default: those of the bundle].
    #[arg(long, value_name = "UNITS", value_parser = choice::<ComputeUnits>())]
    compute_units: Option<ComputeUnits>,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_parser = crate::cli::threads::count)]
    threads: Option<u16>,
    /// Do not write eval.json beside the packages.
    #[arg(long)]
    no_record: bool,
    /// Print one JSON document with every answer.
    #[arg(long)]
    json: bool,
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    quality: &'a Quality,
    results: &'a [eval::SeqLenResult],
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    let bundle = open_bundle(&args.bundle)?;
    bundle.check_generates()?;
    let cases = args.cases.as_deref().map(cases).transpose()?;
    let text = args.text.as_deref().map(file_text).transpose()?;
    let runtime = runtime::choose(args.runtime.given().or(bundle.manifest().only_runtime()))?;
    say_engine(runtime);
    let mut generator = generator(args, &bundle, runtime)?;
    let options = Options { seq_lens: seq_lens(args, &generator)?, max_tokens: args.max_tokens as usize };
    let digests = bundle.digests_on_disk(runtime.name())?;
    let mut quality = scored::before(&bundle, &generator, digests, (runtime.name(), options.max_tokens));
    let evaluation = match &cases {
        Some((cases, digest)) => {
            let evaluation = called(&mut generator, cases, &options)?;
            quality = Quality {
                cases_digest: digest.clone(),
                cases: cases.len(),
                runtime: runtime.name().to_string(),
                max_tokens: options.max_tokens,
                kv: evaluation.kv,
                per_seq_len: evaluation.per_seq_len.clone(),
                f1_drift: evaluation.f1_drift,
                ttfa_p50: evaluation.ttfa_p50,
                ttfa_p95: evaluation.ttfa_p95,
                ..quality
            };
            Some(evaluation)
        }
        None => None,
    };
    if let Some(text) = &text {
        quality.perplexity = Some(scored::text(&mut generator, text, &options.seq_lens, runtime.name())?);
    }
    let recorded = if args.no_record { Ok(()) } else { record::write(&bundle, &quality) };
    match args.json {
        true => {
            let results = evaluation.as_ref().map_or(&[][..], |evaluation| &evaluation.results);
            output.json(&Document { schema: "anemeter.eval/1", quality: &quality, results })?;
        }
        false => {
            let perplexity = quality.perplexity.as_ref().filter(|_| text.is_some());
            text::print(&bundle.manifest().name, &quality, (evaluation.as_ref(), perplexity), output)?;
        }
    }
    recorded?;
    Ok(Status::Good)
}

/// Runs the cases and shows how far that is.
fn called(generator: &mut Generator, cases: &[Case], options: &Options) -> Result<Evaluation> {
    let chat = generator.text().and_then(|text| text.chat.as_ref());
    if chat.is_some_and(|chat| !chat.takes_tools()) {
        warn("note: the chat template knows of no tools; a system message describes them");
    }
    let mut progress = Steps::new("answered", "cases");
    let evaluation = eval::run(generator, cases, options, &mut |done, total| progress.show(done, total));
    progress.finish();
    Ok(evaluation?)
}

fn file_text(path: &Path) -> Result<String> {
    crate::files::read_text(path, crate::files::TEXTS).map_err(|e| Failure::at(path, e))
}

/// The cases and the digest of their file.
fn cases(path: &Path) -> Result<(Vec<Case>, String)> {
    let text = file_text(path)?;
    let cases = parse_cases(&text).map_err(|e| {
        Failure::at(path, e)
            .with_help("docs/eval.md describes the format; configs/eval_cases.jsonl is an example")
    })?;
    Ok((cases, digest_text(xxh3_128(text.as_bytes()))))
}

fn generator(args: &Args, bundle: &Bundle, runtime: &dyn runtime::Runtime) -> Result<Generator> {
    let options = LoadOptions {
        threads: args.threads.map(usize::from),
        units: args.compute_units.unwrap_or(bundle.manifest().compute_units()),
        ..LoadOptions::default()
    };
    let clock = Arc::new(SystemClock::default());
    // Templates that ask for the date get the same one every time, so that answers are the same every time.
    let text = Text::open(bundle, None)?.map(Arc::new);
    let driver = Driver::new(bundle, sessions(bundle, runtime, &options)?, args.kv, clock.clone())?;
    if driver.batch() != 1 {
        let problem = format!("is made for batches of {}", driver.batch());
        return Err(Failure::at(bundle.folder(), problem).with_help("export with --batch 1 to evaluate"));
    }
    Ok(Generator::new(driver, text, clock))
}

fn seq_lens(args: &Args, generator: &Generator) -> Result<Vec<usize>> {
    let known = generator.driver().lengths();
    let wanted = args.shapes.clone().unwrap_or_else(|| known.to_vec());
    match wanted.iter().find(|seq_len| !known.contains(seq_len)) {
        Some(seq_len) => {
            let form = generator.driver().form();
            let known: Vec<String> = known.iter().map(usize::to_string).collect();
            Err(Failure::bad_input(format!(
                "the form `{form}` has no length {seq_len}, but {}",
                known.join(", ")
            )))
        }
        None => Ok(wanted),
    }
}
