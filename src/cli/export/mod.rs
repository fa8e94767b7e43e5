//! `anemeter export`: a checkpoint becomes a bundle.

mod progress;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::compress::{self, WORST};
use super::table::Table;
use super::units::{Bytes, Count};
use super::{Failure, Output, Status};
use crate::bundle::{Bundle, ComputeUnits, Embeddings, KvForm, Phase, Sensitivity};
use crate::compress::{CompressError, Log, Precision, Totals};
use crate::config;
use crate::export::{self, Automatic, Chunking, ConfigFile, Request, Target, Wishes};
use progress::Bar;

/// Export a checkpoint to Core ML packages.
#[derive(clap::Args)]
#[command(
    after_help = "A checkpoint is a Hugging Face folder, a GGUF file, or a file of weights beside its config.json.\n\
Flags win over the configuration file. A bundle holds the packages, tokenizer.json and export.json.\n\n\
Examples:\n  anemeter export SmolLM2-135M -o smollm2\n  \
anemeter export model.gguf -o model --shapes 512,1024 --kv io,state\n  \
anemeter export Qwen2.5-7B-Instruct -o qwen --config configs/convert_coreml.yaml --chunks auto --target ios18"
)]
pub(super) struct Args {
    /// The checkpoint.
    checkpoint: PathBuf,
    /// The folder to write the bundle to.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// A configuration such as configs/convert_coreml.yaml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sequence lengths, the default first [default: 512,1024,2048,4096 as far as the model goes].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    shapes: Option<Vec<usize>>,
    /// Precision of the weights, or `auto`: each layer's by what the model loses with it [default: fp16].
    #[arg(long)]
    precision: Option<Wanted>,
    /// Bits per element of all weights together, for `--precision auto`.
    #[arg(long, value_name = "BITS", required_if_eq("precision", "auto"))]
    target_bits: Option<f64>,
    /// Text that `--precision auto` compares on [default: one that comes with the program], or that tells how much
    /// each input matters to the palettes of `lut1` to `lut8`.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Forms of the key-value cache [default: io].
    #[arg(long, value_delimiter = ',', value_name = "FORM,…")]
    kv: Option<Vec<KvForm>>,
    /// Cache lengths of the form `state` [default: the shapes].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    context: Option<Vec<usize>>,
    /// Prompt tokens per prediction of the form `state` [default: 64].
    #[arg(long, value_name = "N")]
    query: Option<usize>,
    /// Sequences at once: 1, or 2 to 4 for offline work [default: 1].
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Where token ids become vectors [default: function].
    #[arg(long, value_name = "WHERE")]
    embeddings: Option<Embeddings>,
    /// Outputs to divide the logits among [default: 1].
    #[arg(long, value_name = "N")]
    head_split: Option<usize>,
    /// Packages to divide the layers among: `auto` or a number [default: auto].
    #[arg(long, value_name = "N")]
    chunks: Option<Chunking>,
    /// What the export is for; decides how large a package may be [default: macos15].
    #[arg(long)]
    target: Option<Target>,
    /// Where Core ML is to place operations [default: all].
    #[arg(long, value_name = "UNITS")]
    compute_units: Option<ComputeUnits>,
    /// A training configuration; only lengths in its `train.seq_lengths` are exported.
    #[arg(long, value_name = "FILE")]
    training_config: Option<PathBuf>,
    /// The model's name in export.json [default: the checkpoint's].
    #[arg(long)]
    name: Option<String>,
    /// Replace a bundle that is there already.
    #[arg(long)]
    overwrite: bool,
    /// Print time and memory per phase and file.
    #[arg(long)]
    profile: bool,
    /// Print export.json.
    #[arg(long)]
    json: bool,
}

/// What `--precision` says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wanted {
    Auto,
    All(Precision),
}

impl FromStr for Wanted {
    type Err = CompressError;

    fn from_str(text: &str) -> Result<Wanted, CompressError> {
        match text {
            "auto" => Ok(Wanted::Auto),
            precision => precision.parse().map(Wanted::All),
        }
    }
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let bar = Bar::new();
    let result = request(args).and_then(|request| export::export(&request, &bar));
    bar.finish();
    let bundle = result?;
    if args.json {
        output.json(bundle.manifest())?;
    } else {
        print(&bundle, args.profile, output)?;
    }
    Ok(Status::Good)
}

fn request(args: &Args) -> Result<Request, export::ExportError> {
    let config: ConfigFile = match &args.config {
        Some(path) => config::load(path)?,
        None => ConfigFile::default(),
    };
    let training_lengths = match (&args.training_config, config.training_config, config.train) {
        (Some(path), _, _) => Some(export::read_training_lengths(path)?),
        (None, Some(path), _) => {
            let folder = args.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
            Some(export::read_training_lengths(&folder.join(path))?)
        }
        (None, None, train) => train.map(|train| train.seq_lengths),
    };
    let flags = Wishes {
        enumerate_shapes: args.shapes.clone(),
        mlprogram: None,
        compute_units: args.compute_units,
        kv: args.kv.clone(),
        contexts: args.context.clone(),
        query: args.query,
        batch: args.batch,
        embeddings: args.embeddings,
        head_split: args.head_split,
        chunks: args.chunks,
        target: args.target,
        precision: match args.precision {
            Some(Wanted::All(precision)) => Some(precision.into()),
            Some(Wanted::Auto) | None => None,
        },
    };
    Ok(Request {
        checkpoint: args.checkpoint.clone(),
        output: args.output.clone(),
        overwrite: args.overwrite,
        name: args.name.clone(),
        wishes: flags.or(config.coreml),
        training_lengths,
        automatic: automatic(args)?,
        calibration: if args.precision == Some(Wanted::Auto) { None } else { calibration(args)? },
    })
}

/// The text to measure on, if one was given.
fn calibration(args: &Args) -> Result<Option<String>, export::ExportError> {
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).map_err(|e| export::ExportError::unreadable(path, &e));
    args.calibration.as_ref().map(read).transpose()
}

fn automatic(args: &Args) -> Result<Option<Automatic>, export::ExportError> {
    let (Some(Wanted::Auto), Some(bits)) = (args.precision, args.target_bits) else {
        return match args.target_bits {
            Some(_) => Err(export::ExportError::option("target-bits", "is for `--precision auto` only")),
            None => Ok(None),
        };
    };
    Ok(Some(Automatic::new(bits, calibration(args)?)?))
}

fn print(bundle: &Bundle, profile: bool, output: &mut Output) -> Result<(), Failure> {
    let manifest = bundle.manifest();
    let model = &manifest.architecture;
    output.line(format_args!(
        "{}: {}, {} parameters, {} layers",
        manifest.name,
        model.name,
        Count(model.parameters),
        model.layers
    ))?;
    let mut table = Table::new(&["package", "layers", ">size", "functions"]);
    for chunk in &manifest.chunks {
        let functions: Vec<&str> = chunk.functions.iter().map(|function| function.name.as_str()).collect();
        let last = chunk.first_layer + chunk.layers - 1;
        let layers = format!("{} to {last}", chunk.first_layer);
        table.row([
            chunk.file.name.clone(),
            layers,
            Bytes(chunk.file.bytes).to_string(),
            functions.join(" "),
        ]);
    }
    output.text(table.indented(2))?;
    if let Some(sensitivity) = &manifest.sensitivity {
        output.text(layers(sensitivity))?;
    }
    if let Some(log) = &manifest.compression {
        output.text(compression(log))?;
    }
    for warning in &manifest.warnings {
        output.line(format_args!("warning: {warning}"))?;
    }
    if profile {
        output.text(phases(&manifest.profile))?;
    }
    output.line(format_args!("wrote {}", bundle.folder().display()))
}

fn phases(phases: &[Phase]) -> Table {
    let mut table = Table::new(&["phase", "file", ">seconds", ">bytes", ">per second", ">resident"]);
    for phase in phases {
        let speed = phase.bytes as f64 / phase.seconds.max(1e-9);
        let has_bytes = phase.bytes > 0;
        table.row([
            phase.name.clone(),
            phase.file.clone().unwrap_or_default(),
            format!("{:.3}", phase.seconds),
            if has_bytes { Bytes(phase.bytes).to_string() } else { String::new() },
            if has_bytes && phase.name != "map" { Bytes(speed as u64).to_string() } else { String::new() },
            phase.resident_bytes.map(|bytes| Bytes(bytes).to_string()).unwrap_or_default(),
        ]);
    }
    table.indented(2)
}

/// What each layer loses at each precision, and which one it got.
fn layers(sensitivity: &Sensitivity) -> Table {
    let candidates: Vec<String> = sensitivity.layers.first().map_or_else(Vec::new, |layer| {
        layer.divergence.iter().map(|(precision, _)| format!(">KL {precision}")).collect()
    });
    let mut head = vec!["part", "chosen", ">bits"];
    head.extend(candidates.iter().map(String::as_str));
    let mut table = Table::new(&head);
    for layer in &sensitivity.layers {
        let divergence = layer.divergence.iter().map(|(_, nats)| format!("{nats:.2e}"));
        let row = [layer.name.clone(), layer.chosen.clone(), format!("{:.2}", layer.bits)];
        table.row(row.into_iter().chain(divergence).collect::<Vec<_>>());
    }
    table.indented(2)
}

/// What compression came to, and the weights that lose most.
fn compression(log: &Log) -> String {
    let Totals { compressed, kept, bytes_before, bytes_after } = &log.totals;
    format!(
        "{compressed} weights compressed, {kept} kept: {} became {} ({:.2} times smaller); those that lose most:\n{}",
        Bytes(*bytes_before),
        Bytes(*bytes_after),
        log.totals.ratio(),
        compress::table(log.worst(WORST).into_iter()),
    )
}
