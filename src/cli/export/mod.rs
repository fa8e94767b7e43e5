//! `anemeter export`: a checkpoint becomes a bundle.

mod apple_llm;
mod progress;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::choice::choice;
use super::compress::{self, WORST};
use super::inputs;
use super::units::{Bytes, Count};
use super::{Output, Result, Status};
use crate::bundle::{Bundle, Exported, Phase, RangeRepair, Rotated, Sensitivity, Settings};
use crate::checkpoint;
use crate::compress::{Log, Precision, Totals};
use crate::config;
use crate::export::{self, Automatic, Budget, Chunking, ConfigFile, ExportOptions, PrecisionPlan, Request};
use crate::lint::Target;
use crate::render::Table;
use crate::vocabulary::{
    Activations, ComputeUnits, Embeddings, KvForm, Layout, ModelFormat, Rotate, ShapesAs,
};
use progress::Bar;

/// Export the checkpoint of a language model or an encoder to a bundle of Core ML packages or Core AI assets.
#[derive(clap::Args)]
#[command(
    after_help = "A checkpoint is a Hugging Face folder, a GGUF file, or a file of weights beside its config.json.\n\
Flags override the configuration file. A bundle is a folder with the packages, tokenizer.json and export.json.\n\n\
Examples:\n  anemeter export SmolLM2-135M -o smollm2\n  \
anemeter export model.gguf -o model --shapes 512,1024 --kv io,state\n  \
anemeter export Qwen2.5-7B-Instruct -o qwen --config configs/convert_coreml.yaml --chunks auto --target ios18"
)]
pub(super) struct Args {
    /// The checkpoint: a Hugging Face folder, a GGUF file, a file of weights beside its config.json, or the name of a
    /// model in the Hugging Face cache (ORG/NAME, ORG/NAME@REVISION, ORG/NAME:Q4_K_M).
    checkpoint: PathBuf,
    /// Folder for the bundle.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Export configuration, such as configs/convert_coreml.yaml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sequence lengths, the default one first [default: 512,1024,2048,4096, of encoders 128,256,512, up to the model's
    /// longest].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    shapes: Option<Vec<usize>>,
    /// How functions take the sequence lengths: shapes that their inputs enumerate, or a function for each length, such as
    /// `prefill_512` [default: enumerated; functions where the model needs it].
    #[arg(long, value_name = "HOW", value_parser = choice::<ShapesAs>())]
    shapes_as: Option<ShapesAs>,
    /// Precision of the weights: fp16, int8, int4, lut1, lut2, lut3, lut4, lut6, lut8, sparse:SHARE or stored (the integers of
    /// a quantised checkpoint), with options such as int4:block=64 or lut4:group=8; lut1 to lut4 without options need
    /// --calibration; `auto` chooses one per layer by its sensitivity [default: fp16].
    #[arg(long)]
    precision: Option<PrecisionArg>,
    /// Mean bits per weight to reach with `--precision auto`.
    #[arg(long, value_name = "BITS", conflicts_with = "target_mb")]
    target_bits: Option<f64>,
    /// Megabytes that all weights may take with `--precision auto`, in place of bits.
    #[arg(long, value_name = "MB")]
    target_mb: Option<f64>,
    /// Calibration text: codes of int4, int8 and lut1 to lut8 are chosen by what each layer's output loses on it (GPTQ), and
    /// `--precision auto` measures sensitivity on it [default of `auto`: a built-in text].
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Keep activations within fp16: factors, powers of two, are folded into weights and norms so that no activation of a
    /// calibration is larger than half of what fp16 holds [text: that of --calibration, or a built-in one].
    #[arg(long)]
    range_repair: bool,
    /// Fold rotations into the weights, so that no channel stands out: the model computes the same, and loses less by few
    /// bits; `auto` does if the loss on a part of the calibration text that no code was chosen by is smaller then
    /// [default: off].
    #[arg(long, value_name = "WHEN", value_parser = choice::<Rotate>())]
    rotate: Option<Rotate>,
    /// KV cache forms [default: io].
    #[arg(long, value_delimiter = ',', value_name = "FORM,…", value_parser = choice::<KvForm>())]
    kv: Option<Vec<KvForm>>,
    /// KV cache lengths of the form `state` [default: those of --shapes].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    context: Option<Vec<usize>>,
    /// Prompt tokens per prefill call of the form `state` [default: 64].
    #[arg(long, value_name = "N")]
    query: Option<usize>,
    /// Batch size: 1, or 2 to 4 for offline use [default: 1].
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Where embeddings are looked up: by the host, by the function `embed`, or in every function [default: function].
    #[arg(long, value_name = "WHERE", value_parser = choice::<Embeddings>())]
    embeddings: Option<Embeddings>,
    /// Number of outputs that the logits are split into [default: 1].
    #[arg(long, value_name = "N")]
    head_split: Option<usize>,
    /// Number of packages that the layers are split into, or `auto` [default: auto].
    #[arg(long, value_name = "N")]
    chunks: Option<Chunking>,
    /// System that the export is for; it limits the size of a package [default: macos15].
    #[arg(long, value_parser = choice::<Target>())]
    target: Option<Target>,
    /// Model formats: Core ML packages, Core AI assets (`.aimodel`, for macOS 27 and iOS 27), or both [default: coreml].
    #[arg(long, value_delimiter = ',', value_name = "FORMAT,…", value_parser = choice::<ModelFormat>())]
    format: Option<Vec<ModelFormat>>,
    /// Type of activations, inputs, outputs and states: fp16, or fp32 for a twin to check against, which the Neural
    /// Engine does not run [default: fp16].
    #[arg(long, value_name = "TYPE", value_parser = choice::<Activations>())]
    activations: Option<Activations>,
    /// Whose programs the output is for: anemeter, or Apple's for language models on Core AI (llm-runner, llm-benchmark) with
    /// functions of fixed sizes for the Neural Engine (apple-llm) or one of open sizes for the GPU (apple-llm-dynamic)
    /// [default: anemeter].
    #[arg(long, value_name = "LAYOUT", value_parser = choice::<Layout>())]
    layout: Option<Layout>,
    /// Author that the models name [default: what the checkpoint says].
    #[arg(long, value_name = "TEXT")]
    author: Option<String>,
    /// Licence that the models name [default: what the checkpoint says].
    #[arg(long, value_name = "TEXT")]
    license: Option<String>,
    /// Description that the models have [default: what the checkpoint says].
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Compute units that Core ML may use [default: all].
    #[arg(long, value_name = "UNITS", value_parser = choice::<ComputeUnits>())]
    compute_units: Option<ComputeUnits>,
    /// Training configuration; sequence lengths that are not in its `train.seq_lengths` are refused.
    #[arg(long, value_name = "FILE")]
    training_config: Option<PathBuf>,
    /// Name of the model in export.json [default: that of the checkpoint].
    #[arg(long)]
    name: Option<String>,
    /// Replace an existing bundle.
    #[arg(long)]
    overwrite: bool,
    /// Print time and memory per phase and file.
    #[arg(long)]
    profile: bool,
    /// Print export.json, the description of the bundle.
    #[arg(long)]
    json: bool,
}

/// What `--precision` says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PrecisionArg {
    Auto,
    All(Precision),
}

impl FromStr for PrecisionArg {
    type Err = String;

    fn from_str(text: &str) -> Result<PrecisionArg, String> {
        match text {
            "auto" => Ok(PrecisionArg::Auto),
            precision => inputs::precision(precision).map(PrecisionArg::All),
        }
    }
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let request = request(args)?;
    if request.options.layout() != Layout::Anemeter {
        return apple_llm::run(&request, args, output);
    }
    let bar = Bar::new();
    let result = export::export(&request, &bar);
    bar.finish();
    let bundle = result?;
    if args.json {
        output.json(bundle.manifest())?;
    } else {
        print(&bundle, (&request.checkpoint, args), output)?;
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
    let flags = ExportOptions {
        enumerate_shapes: args.shapes.clone(),
        shapes_as: args.shapes_as,
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
        format: args.format.clone(),
        layout: args.layout,
        author: args.author.clone(),
        license: args.license.clone(),
        description: args.description.clone(),
        activations: args.activations,
        range_repair: args.range_repair.then_some(true),
        precision: match args.precision {
            Some(PrecisionArg::All(precision)) => Some(precision.into()),
            Some(PrecisionArg::Auto) | None => None,
        },
        rotate: args.rotate,
    };
    Ok(Request {
        checkpoint: checkpoint::locate(&args.checkpoint)?,
        output: args.out.clone(),
        overwrite: args.overwrite,
        name: args.name.clone(),
        options: flags.or(config.coreml),
        training_lengths,
        config: args.config.clone(),
        precision: precision(args)?,
    })
}

/// The text to measure on, if one was given.
fn calibration(args: &Args) -> Result<Option<String>, export::ExportError> {
    let read = |path: &PathBuf| {
        crate::files::read_text(path, crate::files::TEXTS)
            .map_err(|e| export::ExportError::unreadable(path, &e))
    };
    args.calibration.as_ref().map(read).transpose()
}

fn precision(args: &Args) -> Result<PrecisionPlan, export::ExportError> {
    let budget = match (args.target_bits, args.target_mb) {
        (Some(bits), _) => Some(Budget::Bits(bits)),
        (None, megabytes) => megabytes.map(Budget::Megabytes),
    };
    match (args.precision, budget, calibration(args)?) {
        (Some(PrecisionArg::Auto), Some(budget), text) => {
            Ok(PrecisionPlan::Auto(Automatic::new(budget, text)?))
        }
        (Some(PrecisionArg::Auto), None, _) => Err(export::ExportError::option(
            "precision",
            "is `auto`, which needs --target-bits or --target-mb",
        )),
        (_, Some(Budget::Bits(_)), _) => {
            Err(export::ExportError::option("target-bits", "is for `--precision auto` only"))
        }
        (_, Some(Budget::Megabytes(_)), _) => {
            Err(export::ExportError::option("target-mb", "is for `--precision auto` only"))
        }
        (_, None, Some(text)) => Ok(PrecisionPlan::Calibrated { text }),
        (_, None, None) => Ok(PrecisionPlan::Fixed),
    }
}

/// Whether the integers of a GGUF file were decoded, and not kept.
fn is_decoded_gguf(checkpoint: &Path, settings: &Settings) -> bool {
    let is_gguf = checkpoint.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    is_gguf && settings.precision != Precision::Stored.to_string()
}

fn print(bundle: &Bundle, (checkpoint, args): (&Path, &Args), output: &mut Output) -> Result<()> {
    let manifest = bundle.manifest();
    let Exported { architecture: model, settings, .. } = bundle.exported()?;
    let (name, parameters, count) = (&model.name, Count(model.parameters), model.layers);
    output.line(format_args!("{}: {name}, {parameters} parameters, {count} layers", manifest.name))?;
    let mut table = Table::new(&["package", "layers", ">size", "functions"]);
    for chunk in &manifest.chunks {
        let functions: Vec<&str> = chunk.functions.iter().map(|function| function.name.as_str()).collect();
        let last = chunk.first_layer + chunk.layers - 1;
        let layers = format!("{} to {last}", chunk.first_layer);
        let size = Bytes(chunk.file.bytes).to_string();
        let is_asset = chunk.asset.as_ref().is_some_and(|asset| asset.file == chunk.file);
        if !is_asset {
            table.row([chunk.file.name.clone(), layers.clone(), size, functions.join(" ")]);
        }
        if let Some(asset) = &chunk.asset {
            let functions: Vec<&str> =
                asset.functions.iter().map(|function| function.name.as_str()).collect();
            let size = Bytes(asset.file.bytes).to_string();
            table.row([asset.file.name.clone(), layers, size, functions.join(" ")]);
        }
    }
    output.text(table.indented(2))?;
    if let Some(rotated) = &manifest.rotated {
        output.line(rotation(rotated))?;
    }
    if let Some(sensitivity) = &manifest.sensitivity {
        output.text(layers(sensitivity))?;
    }
    if let Some(log) = &manifest.compression {
        output.text(compression(log))?;
        // Elements that were chosen by data are further from the original, and the model nearer.
        if log.calibration.is_none()
            && let Some(line) = compress::expected_loss(log, true)
        {
            output.line(line)?;
        }
    }
    if let Some(repair) = &manifest.range_repair {
        output.line(range(repair))?;
    }
    for warning in &manifest.warnings {
        output.line(format_args!("warning: {warning}"))?;
    }
    if is_decoded_gguf(checkpoint, settings) {
        output.line("note: weights were decoded; --precision stored keeps the integers of a GGUF file")?;
    }
    if args.profile {
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

/// Whether weights are rotated, and what that gained.
fn rotation(rotated: &Rotated) -> String {
    let map = |map: &Option<String>| map.as_deref().unwrap_or("as it is").to_owned();
    let mut line = match rotated.is_used {
        true => format!(
            "rotated: residual stream {}, values of heads {}",
            map(&rotated.stream),
            map(&rotated.values)
        ),
        false => "not rotated".to_owned(),
    };
    if let Some([plain, turned]) = rotated.divergence {
        line += &format!("; {turned:.4} nats lost with rotations on the text held out, {plain:.4} without");
    }
    if let Some(reason) = &rotated.reason {
        line += &format!("; {reason}");
    }
    line
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

/// What range repair found and changed.
fn range(repair: &RangeRepair) -> String {
    let RangeRepair { stream, tokens, largest_tensor, largest, repaired, .. } = repair;
    let found = format!("largest activation of {tokens} tokens: {largest} in {largest_tensor}");
    match repaired.len() {
        0 => format!("{found}; nothing had to be repaired"),
        count => format!("{found}; {count} tensors repaired, the residual stream times {stream}"),
    }
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
