//! `anemeter embed`: vectors or scores of texts.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::choice::{AUTO, OrAuto, bundle_runtime, choice};
use super::inputs::open_bundle;
use super::output::note;
use super::{Failure, Output, Result, Status};
use crate::bundle::{Bundle, EncoderOutput};
use crate::encode::{Encoded, EncoderDriver, EncoderText, EncoderTokens};
use crate::files;
use crate::generate::sessions;
use crate::render::Table;
use crate::runtime::{self, LoadOptions};
use crate::vocabulary::{ComputeUnits, RuntimeName};

/// Make vectors of texts with an encoder, or score pairs of texts with a reranker.
#[derive(clap::Args)]
#[command(
    after_help = "A text is cut to the longest that the checkpoint or the bundle takes. The prompt that the checkpoint puts before\n\
texts is used if it names one; --prompt chooses another. Without --json the first numbers of each vector are shown,\n\
and the cosines between the texts.\n\n\
Examples:\n  anemeter embed minilm --text 'A cat sits.' --text 'A dog runs.'\n  \
anemeter embed minilm --file sentences.txt --json\n  \
anemeter embed embeddinggemma --text 'capital of France' --prompt query --json\n  \
anemeter embed reranker --text 'capital of France' --pair 'Paris is the capital of France.'"
)]
pub(super) struct Args {
    /// The bundle that `anemeter export` wrote of an encoder; encoders of others are measured, not driven.
    bundle: PathBuf,
    /// A text; again for further texts.
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["file", "token_ids"])]
    text: Vec<String>,
    /// Texts, one per line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A text as tokens, with those around it.
    #[arg(long, value_name = "ID,…", value_delimiter = ',', conflicts_with_all = ["text", "file", "pair"])]
    token_ids: Option<Vec<u32>>,
    /// The second text of each pair, for models that score pairs.
    #[arg(long, value_name = "TEXT")]
    pair: Option<String>,
    /// Name of the prompt to put before texts [default: the checkpoint's, if it names one].
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// Sequence length [default: the shortest that a text fits].
    #[arg(long, value_name = "N")]
    seq_len: Option<usize>,
    /// Runtime that executes the bundle; `auto` takes the first that is available and prints its name.
    #[arg(long, default_value = AUTO, value_parser = bundle_runtime())]
    runtime: OrAuto<RuntimeName>,
    /// Compute units that Core ML may use [default: those of the bundle].
    #[arg(long, value_name = "UNITS", value_parser = choice::<ComputeUnits>())]
    compute_units: Option<ComputeUnits>,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_parser = crate::cli::threads::count)]
    threads: Option<u16>,
    /// Print one JSON document with every number.
    #[arg(long)]
    json: bool,
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    model: &'a str,
    runtime: String,
    output: EncoderOutput,
    width: usize,
    texts: Vec<TextResult<'a>>,
}

/// What came of a text.
#[derive(Serialize)]
struct TextResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    tokens: usize,
    seq_len: usize,
    /// The vector or the scores; of hidden states one vector per token.
    vectors: Vec<&'a [f32]>,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let bundle = open_bundle(&args.bundle)?;
    let encoder = bundle.encoder()?;
    let texts = texts(args)?;
    let tokens = tokens(args, &bundle, &texts)?;
    let runtime = runtime::choose(args.runtime.given().or(bundle.manifest().only_runtime()))?;
    let options = LoadOptions {
        threads: args.threads.map(usize::from),
        units: args.compute_units.unwrap_or(bundle.manifest().compute_units()),
        ..LoadOptions::default()
    };
    let mut driver = EncoderDriver::new(&bundle, sessions(&bundle, runtime, &options)?)?;
    let encoded = driver.encode(&tokens, args.seq_len)?;
    if let Some(lost) = encoded.iter().position(|of| of.values.iter().any(|value| !value.is_finite())) {
        return Err(Failure::bad_input(format!("the vector of text {} is not finite", lost + 1))
            .with_help("`anemeter verify BUNDLE --checkpoint CHECKPOINT --layers` names the tensor"));
    }
    if args.runtime == OrAuto::Auto {
        note(format_args!("runtime: {}", runtime.name()));
    }
    let document = Document {
        schema: "anemeter.embed/1",
        model: &bundle.manifest().name,
        runtime: runtime.name().to_string(),
        output: encoder.output,
        width: encoder.width,
        texts: (0..encoded.len()).map(|at| text_result(&texts, &tokens, &encoded, at)).collect(),
    };
    match args.json {
        true => output.json(&document)?,
        false => print(&document, output)?,
    }
    Ok(Status::Good)
}

fn text_result<'a>(
    texts: &'a [String],
    tokens: &[EncoderTokens],
    encoded: &'a [Encoded],
    at: usize,
) -> TextResult<'a> {
    let Encoded { values, width, seq_len } = &encoded[at];
    TextResult {
        text: texts.get(at).map(String::as_str),
        tokens: tokens[at].ids.len(),
        seq_len: *seq_len,
        vectors: values.chunks((*width).max(1)).collect(),
    }
}

/// The texts that were given, those of the file last.
fn texts(args: &Args) -> Result<Vec<String>> {
    let mut texts = args.text.clone();
    if let Some(path) = &args.file {
        let content = read(path)?;
        let lines: Vec<String> =
            content.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        if lines.is_empty() {
            return Err(Failure::at(path, "has no text").with_help("write one text per line"));
        }
        texts.extend(lines);
    }
    Ok(texts)
}

fn read(path: &Path) -> Result<String> {
    match path.as_os_str() == "-" {
        true => files::read_stream(std::io::stdin(), files::TEXTS),
        false => files::read_text(path, files::TEXTS),
    }
    .map_err(|e| Failure::at(path, e))
}

fn tokens(args: &Args, bundle: &Bundle, texts: &[String]) -> Result<Vec<EncoderTokens>> {
    if let Some(ids) = &args.token_ids {
        return Ok(vec![EncoderTokens::of(ids.clone())]);
    }
    let Some(tokenizer) = EncoderText::open(bundle)? else {
        return Err(
            Failure::bad_input("the bundle has no tokenizer").with_help("give tokens: --token-ids 1,2,3")
        );
    };
    let tokens =
        texts.iter().map(|text| tokenizer.tokens(text, args.pair.as_deref(), args.prompt.as_deref()));
    Ok(tokens.collect::<Result<_, _>>()?)
}

/// Numbers of a vector that are shown.
const SHOWN: usize = 4;
/// Characters of a text that are shown.
const TEXT: usize = 40;
/// More texts than this get no table of cosines.
const MOST_COSINES: usize = 12;

fn print(document: &Document<'_>, out: &mut Output) -> Result<()> {
    let what = match document.output {
        EncoderOutput::Embedding => "embedding",
        EncoderOutput::Scores => "scores",
        EncoderOutput::HiddenStates => "hidden state of the first token",
    };
    let mut table = Table::new(&[">text", "", ">tokens", ">length", what]);
    for (index, of) in document.texts.iter().enumerate() {
        let first = of.vectors.first().copied().unwrap_or_default();
        let numbers: Vec<String> = first.iter().take(SHOWN).map(|value| format!("{value:+.4}")).collect();
        let more =
            if first.len() > SHOWN { format!(" … ({} numbers)", first.len()) } else { String::new() };
        let text: String = of.text.unwrap_or_default().chars().take(TEXT).collect();
        table.row([
            (index + 1).to_string(),
            text,
            of.tokens.to_string(),
            of.seq_len.to_string(),
            format!("{}{more}", numbers.join(" ")),
        ]);
    }
    out.text(table)?;
    if document.output == EncoderOutput::Embedding && (2..=MOST_COSINES).contains(&document.texts.len()) {
        out.line("\ncosines")?;
        out.text(cosines(document))?;
    }
    Ok(())
}

fn cosines(document: &Document<'_>) -> Table {
    let count = document.texts.len();
    let names: Vec<String> = (1..=count).map(|number| format!(">{number}")).collect();
    let head: Vec<&str> = std::iter::once("").chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&head);
    for (index, a) in document.texts.iter().enumerate() {
        let cosine = |b: &TextResult<'_>| format!("{:.4}", crate::stats::cosine(a.vectors[0], b.vectors[0]));
        let row = std::iter::once((index + 1).to_string()).chain(document.texts.iter().map(cosine));
        table.row(row.collect::<Vec<_>>());
    }
    table
}
