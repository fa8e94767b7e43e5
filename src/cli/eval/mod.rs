//! `anemeter eval`: does a bundle call tools as it should?

mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use super::output::warn;
use super::voice::Steps;
use super::{Failure, Output, Status, record};
use crate::bundle::{Bundle, KvForm, Quality, Record, digest_text};
use crate::eval::{self, Case, Evaluation, Options, parse_cases};
use crate::generate::{Driver, Generator, SystemClock, Text, sessions};
use crate::runtime::{self, LoadOptions};

/// Run tool-call cases through a bundle: F1 and tokens to the first action.
#[derive(clap::Args)]
#[command(
    after_help = "Each case goes through the chat template with its tools and is answered greedily at every length that it fits.\n\
A case is one line of JSON: {\"id\": …, \"messages\": […], \"tools\": […], \"expected\": {\"name\": …, \"arguments\": {…}}};\n\
`expected` may be a list, or null if no call should come. What is found is kept in eval.json beside the bundle.\n\n\
Examples:\n  anemeter eval smollm2 --cases configs/eval_cases.jsonl\n  \
anemeter eval smollm2 --cases cases.jsonl --shapes 512,1024 --max-tokens 64 --json"
)]
pub(super) struct Args {
    /// The bundle.
    bundle: PathBuf,
    /// The cases, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    cases: PathBuf,
    /// Form of the key-value cache [default: the bundle's first].
    #[arg(long, value_name = "FORM")]
    kv: Option<KvForm>,
    /// Lengths to run at [default: all of the form].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    shapes: Option<Vec<usize>>,
    /// Most tokens to generate per case.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// What executes the bundle; `auto` takes the best there is and says which.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cpu"])]
    runtime: String,
    /// Threads to use; the number of physical cores if not given.
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
    let (cases, cases_digest) = cases(&args.cases)?;
    let runtime = runtime::choose(&args.runtime)?;
    let mut generator = generator(args, &bundle, runtime)?;
    let options = Options { shapes: shapes(args, &generator)?, max_tokens: args.max_tokens as usize };
    let chat = generator.text().and_then(|text| text.chat.as_ref());
    if chat.is_some_and(|chat| !chat.takes_tools()) {
        warn("note: the chat template knows of no tools; a system message describes them");
    }
    let evaluation = evaluate(&mut generator, &cases, &options)?;
    let quality = Quality {
        schema: Quality::SCHEMA.to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        package_digests: record::package_digests(&bundle)?,
        cases_digest,
        cases: cases.len(),
        runtime: runtime.name().to_owned(),
        max_tokens: options.max_tokens,
        kv: evaluation.kv,
        shapes: evaluation.shapes.clone(),
        f1_drift: evaluation.f1_drift,
        ttfa_p50: evaluation.ttfa_p50,
        ttfa_p95: evaluation.ttfa_p95,
    };
    if let Err(problem) = record::write(&bundle, &quality) {
        warn(format_args!("note: {problem}; `bench` and `gate` will not know of this evaluation"));
    }
    match args.json {
        true => {
            let results = &evaluation.results;
            output.json(&Document { schema: "anemeter.eval/1", quality: &quality, results })?;
        }
        false => text::print(&bundle.manifest().name, &quality, &evaluation, output)?,
    }
    Ok(Status::Good)
}

/// The cases and the digest of their file.
fn cases(path: &Path) -> Result<(Vec<Case>, String), Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|e| Failure::bad_input(format!("{}: {e}", path.display())))?;
    let cases = parse_cases(&text).map_err(|e| {
        Failure::bad_input(format!("{}: {e}", path.display()))
            .with_help("docs/eval.md describes the format; configs/eval_cases.jsonl is an example")
    })?;
    Ok((cases, digest_text(xxh3_128(text.as_bytes()))))
}

fn generator(args: &Args, bundle: &Bundle, runtime: &dyn runtime::Runtime) -> Result<Generator, Failure> {
    let options = LoadOptions { threads: args.threads.map(usize::from), ..LoadOptions::default() };
    let clock = Arc::new(SystemClock::default());
    // Templates that ask for the date get the same one every time, so that answers are the same every time.
    let text = Text::open(bundle, None)?.map(Arc::new);
    let driver = Driver::new(bundle, sessions(bundle, runtime, &options)?, args.kv, clock.clone())?;
    if driver.batch() != 1 {
        let message = format!("{}: is made for batches of {}", bundle.folder().display(), driver.batch());
        return Err(Failure::bad_input(message).with_help("export with --batch 1 to evaluate"));
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

fn evaluate(generator: &mut Generator, cases: &[Case], options: &Options) -> Result<Evaluation, Failure> {
    let mut progress = Steps::new("answered", "cases");
    let evaluation = eval::run(generator, cases, options, &mut |done, total| progress.show(done, total));
    progress.finish();
    Ok(evaluation?)
}
