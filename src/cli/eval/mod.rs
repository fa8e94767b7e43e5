//! `anemeter eval`: does a bundle call tools as it should, and how well does it foretell a text?

mod scored;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use super::output::warn;
use super::voice::Steps;
use super::{Failure, Output, Status, record};
use crate::bundle::{Bundle, KvForm, Quality, digest_text};
use crate::eval::{self, Case, Evaluation, Options, parse_cases};
use crate::generate::{Driver, Generator, SystemClock, Text, sessions};
use crate::runtime::{self, LoadOptions};

/// Run tool-call cases or a text through a bundle: F1, first action, perplexity.
#[derive(clap::Args)]
#[command(
    after_help = "Each case goes through the chat template with its tools and is answered greedily at every length that it fits.\n\
A case is one line of JSON: {\"id\": …, \"messages\": […], \"tools\": […], \"expected\": {\"name\": …, \"arguments\": {…}}};\n\
`expected` may be a list, or null if no call should come. A text is scored token by token, in windows of the longest\n\
length that overlap by half. What is found is kept in eval.json beside the bundle.\n\n\
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
    /// A text to foretell; its perplexity says what a smaller form of the model loses.
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Form of the key-value cache [default: the bundle's first].
    #[arg(long, value_name = "FORM")]
    kv: Option<KvForm>,
    /// Lengths to run cases at; a text is scored at the longest of them [default: all of the form].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    shapes: Option<Vec<usize>>,
    /// Most tokens to generate per case.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// What executes the bundle; `auto` takes the best there is and says which.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cpu", "coreml"])]
    runtime: String,
    /// Threads of the `cpu` runtime; the number of physical cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON document with every answer.
    #[arg(long)]
    json: bool,
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    quality: &'a Quality,
    results: &'a [eval::ShapeResult],
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let bundle = Bundle::open(&args.bundle)?;
    let cases = args.cases.as_deref().map(cases).transpose()?;
    let text = args.text.as_deref().map(file_text).transpose()?;
    let runtime = runtime::choose(&args.runtime)?;
    let mut generator = generator(args, &bundle, runtime)?;
    let options = Options { shapes: shapes(args, &generator)?, max_tokens: args.max_tokens as usize };
    let digests = record::package_digests(&bundle)?;
    let mut quality = scored::before(&bundle, &generator, digests, (runtime.name(), options.max_tokens));
    let evaluation = match &cases {
        Some((cases, digest)) => {
            let evaluation = called(&mut generator, cases, &options)?;
            quality = Quality {
                cases_digest: digest.clone(),
                cases: cases.len(),
                runtime: runtime.name().to_owned(),
                max_tokens: options.max_tokens,
                kv: evaluation.kv,
                shapes: evaluation.shapes.clone(),
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
        quality.perplexity = Some(scored::text(&mut generator, text, &options.shapes, runtime.name())?);
    }
    if let Err(problem) = record::write(&bundle, &quality) {
        warn(format_args!("note: {problem}; `bench` and `gate` will not know of this evaluation"));
    }
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
    Ok(Status::Good)
}

/// Runs the cases and shows how far that is.
fn called(generator: &mut Generator, cases: &[Case], options: &Options) -> Result<Evaluation, Failure> {
    let chat = generator.text().and_then(|text| text.chat.as_ref());
    if chat.is_some_and(|chat| !chat.takes_tools()) {
        warn("note: the chat template knows of no tools; a system message describes them");
    }
    let mut progress = Steps::new("answered", "cases");
    let evaluation = eval::run(generator, cases, options, &mut |done, total| progress.show(done, total));
    progress.finish();
    Ok(evaluation?)
}

fn file_text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| Failure::at(path, e))
}

/// The cases and the digest of their file.
fn cases(path: &Path) -> Result<(Vec<Case>, String), Failure> {
    let text = file_text(path)?;
    let cases = parse_cases(&text).map_err(|e| {
        Failure::at(path, e)
            .with_help("docs/eval.md describes the format; configs/eval_cases.jsonl is an example")
    })?;
    Ok((cases, digest_text(xxh3_128(text.as_bytes()))))
}

fn generator(args: &Args, bundle: &Bundle, runtime: &dyn runtime::Runtime) -> Result<Generator, Failure> {
    let options = LoadOptions {
        threads: args.threads.map(usize::from),
        units: bundle.manifest().settings.compute_units,
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

fn shapes(args: &Args, generator: &Generator) -> Result<Vec<usize>, Failure> {
    let known = generator.driver().lengths();
    let wanted = args.shapes.clone().unwrap_or_else(|| known.to_vec());
    match wanted.iter().find(|shape| !known.contains(shape)) {
        Some(shape) => {
            let form = generator.driver().form();
            let known: Vec<String> = known.iter().map(usize::to_string).collect();
            Err(Failure::bad_input(format!(
                "the form `{form}` has no length {shape}, but {}",
                known.join(", ")
            )))
        }
        None => Ok(wanted),
    }
}
