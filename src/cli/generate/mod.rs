//! `anemeter generate`: text from a bundle.

mod document;
mod stream;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::choice::{AUTO, OrAuto, bundle_runtime, choice};
use super::inputs::open_bundle;
use super::output::note;
use super::python::{PythonArg, say_engine};
use super::{Failure, Output, Result, Status};
use crate::files;
use crate::generate::{
    Answer, Driver, Generator, Input, Message, Prompt, Request, Sampling, SystemClock, Text, sessions,
};
use crate::runtime::{self, LoadOptions};
use crate::vocabulary::{ComputeUnits, KvForm, RuntimeName};
use document::Document;
use stream::Printer;

/// Generate text with a bundle, greedily or by sampling.
#[derive(clap::Args)]
#[command(
    after_help = "A prompt is rendered by the bundle's chat template if there is one. --chat requires a template, --raw uses none. \
Decoding is greedy unless --temperature is given. Text is streamed; with --json there is one document at the end.\n\n\
Examples:\n  anemeter generate smollm2 --prompt 'Why is the sky blue?'\n  \
anemeter generate smollm2 --prompt 'Once upon a time' --raw --temperature 0.8 --top-p 0.95 --seed 7\n  \
anemeter generate smollm2 --token-ids 1,2,3 --max-tokens 8 --top-logits 5 --json"
)]
pub(super) struct Args {
    /// The bundle, package or folder of packages; of packages a contract says how they are driven.
    bundle: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// A system message before the prompt.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["raw", "token_ids"])]
    system: Option<String>,
    /// Require the bundle's chat template.
    #[arg(long, conflicts_with_all = ["raw", "token_ids"])]
    chat: bool,
    /// Use no chat template.
    #[arg(long, conflicts_with = "token_ids")]
    raw: bool,
    /// Maximum number of tokens to generate.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// KV cache form [default: the bundle's first].
    #[arg(long, value_name = "FORM", value_parser = choice::<KvForm>())]
    kv: Option<KvForm>,
    /// Sequence length to start with [default: the shortest that the prompt fits].
    #[arg(long, value_name = "N")]
    seq_len: Option<usize>,
    /// Sampling temperature; 0 is greedy decoding.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f32,
    /// Sample from the K most likely tokens.
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Nucleus sampling: sample from the most likely tokens with this total probability.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Seed of the sampler.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Show the K most likely tokens of each step with their logits.
    #[arg(long, value_name = "K", default_value_t = 0, requires = "json")]
    top_logits: usize,
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
    /// Print one JSON document: tokens, text, finish reason, timings, sequence lengths.
    #[arg(long)]
    json: bool,
}

/// The prompt, in one of its forms.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct PromptArgs {
    /// The prompt.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// A file with the prompt; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// The prompt as tokens.
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    token_ids: Option<Vec<u32>>,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    let bundle = open_bundle(&args.bundle)?;
    bundle.check_generates()?;
    let runtime = runtime::choose(args.runtime.given().or(bundle.manifest().only_runtime()))?;
    say_engine(runtime);
    let options = LoadOptions {
        threads: args.threads.map(usize::from),
        units: args.compute_units.unwrap_or(bundle.manifest().compute_units()),
        ..LoadOptions::default()
    };
    let clock = Arc::new(SystemClock::default());
    let text = Text::open(&bundle, Some(SystemTime::now()))?;
    let driver = Driver::new(&bundle, sessions(&bundle, runtime, &options)?, args.kv, clock.clone())?;
    let mut generator = Generator::new(driver, text.map(Arc::new), clock);
    let request = request(args, &generator)?;
    let answer = match args.json {
        true => generator.generate(&request, &mut |_| Ok(ControlFlow::Continue(())))?,
        false => print(&mut generator, &request, output)?,
    };
    let document = Document::new(&bundle, runtime.name(), &generator, &request, &answer)?;
    match args.json {
        true => output.json(&document)?,
        false => {
            output.flush()?;
            note(document.summary());
        }
    }
    Ok(Status::Good)
}

fn request(args: &Args, generator: &Generator) -> Result<Request> {
    let prompt = match &args.prompt {
        PromptArgs { token_ids: Some(ids), .. } => Prompt { ids: ids.clone(), ..Prompt::default() },
        PromptArgs { prompt: Some(text), .. } => tokens(args, generator, text)?,
        PromptArgs { prompt_file, .. } => tokens(args, generator, &read(prompt_file.as_deref())?)?,
    };
    let sampling =
        Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p, seed: args.seed };
    Ok(Request {
        prompts: vec![prompt],
        max_tokens: args.max_tokens as usize,
        sampling,
        ends: generator.text().map(|text| text.ends.clone()).unwrap_or_default(),
        length: args.seq_len,
        continues: false,
        top_logits: args.top_logits,
    })
}

fn tokens(args: &Args, generator: &Generator, text: &str) -> Result<Prompt> {
    let has_template = generator.text().is_some_and(|text| text.chat.is_some());
    if args.raw || (!args.chat && args.system.is_none() && !has_template) {
        return Ok(generator.prompt(Input::Raw(text))?);
    }
    let system = args.system.iter().map(|system| Message::new("system", system.as_str()));
    let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
    Ok(generator.prompt(Input::Chat(&messages))?)
}

fn read(path: Option<&std::path::Path>) -> Result<String> {
    let path = path.unwrap_or(std::path::Path::new("-"));
    match path.as_os_str() == "-" {
        true => files::read_stream(io::stdin(), files::TEXTS),
        false => files::read_text(path, files::TEXTS),
    }
    .map_err(|e| Failure::at(path, e))
}

/// Prints text as it comes; sequences of a batch one after the other when they have ended.
fn print(generator: &mut Generator, request: &Request, output: &mut Output) -> Result<Answer> {
    let is_terminal = io::stdout().is_terminal();
    let text = generator.text().cloned().filter(|_| generator.driver().batch() == 1);
    let Some(text) = text else {
        let answer = generator.generate(request, &mut |_| Ok(ControlFlow::Continue(())))?;
        let many = answer.sequences.len() > 1;
        for (number, sequence) in answer.sequences.iter().enumerate() {
            if many {
                output.line(format_args!("[{}]", number + 1))?;
            }
            let text = generator.text().map(AsRef::as_ref);
            output.document(stream::whole(text, &sequence.ids, is_terminal)? + "\n")?;
        }
        return Ok(answer);
    };
    let mut printer = Printer::new(&text, is_terminal);
    let mut failure = None;
    let answer = generator.generate(request, &mut |picked| {
        let printed = printer.push(picked.id, output)?;
        failure = printed.err();
        Ok(if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    if answer.is_ok() || printer.has_begun() {
        printer.finish(output)?;
    }
    Ok(answer?)
}
