//! `--layout apple-llm`: a folder that Apple's programs for language models take (`llm-runner`, `llm-benchmark`).
//!
//! ```text
//! NAME/metadata.json   version 0.2, kind `llm`
//! NAME/NAME.aimodel
//! NAME/tokenizer/      tokenizer.json, tokenizer_config.json and what else the checkpoint has of it
//! ```

mod options;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::about::ModelCard;
use super::compressed::Compressed;
use super::destination::{check_apart, write_file};
use super::error::{ExportError, Occupant};
use super::phases::Phases;
use super::{Measured, Progress, Request, Source, automatic, describe, remarks};
use crate::atomic::Staging;
use crate::bundle::Phase;
use crate::compress::{self, Log, Precision, Rule};
use crate::coreai::HwConstraints;
use crate::coreai::asset::write_watched;
use crate::coreai::convert::{Conversion, from_mil_as};
use crate::lower::{AppleLlm, ROTARY_TABLES, ReadStats, lower_apple_llm};
use crate::mil::verify::verify;
use crate::mil::widen::widened;
use crate::package::WriteOptions;
use crate::vocabulary::Activations;

pub(super) use options::AppleLlmOptions;

/// The version of `metadata.json`.
const METADATA_VERSION: &str = "0.2";
const METADATA: &str = "metadata.json";
const TOKENIZER: &str = "tokenizer";

/// Files of a checkpoint that a tokenizer is read from.
const TOKENIZER_FILES: &[&str] = &[
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
];

/// `metadata.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    metadata_version: String,
    kind: String,
    name: String,
    assets: Assets,
    language: Language,
    source: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compression: Option<String>,
    compilation: Value,
}

#[derive(Debug, Serialize, Deserialize)]
struct Assets {
    main: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Language {
    tokenizer: String,
    vocab_size: usize,
    max_context_length: usize,
    embedded_tokenizer: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function_map: Option<Value>,
}

/// A folder for Apple's programs that was written.
#[derive(Debug, Clone, Serialize)]
pub struct AppleLlmBundle {
    /// The folder.
    pub folder: PathBuf,
    /// The model's name, which the asset has too.
    pub name: String,
    /// The functions of the asset, in order.
    pub functions: Vec<String>,
    /// The bytes of the asset.
    pub bytes: u64,
    /// The SHA-256 of its program and weights.
    pub sha256: String,
    /// The longest context.
    pub max_context_length: usize,
    /// What was compressed, if anything was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Log>,
    /// What its user should know.
    pub warnings: Vec<String>,
    /// Time and memory of each step.
    pub profile: Vec<Phase>,
}

/// Writes the folder. It appears whole or not at all.
pub(super) fn export(
    request: &Request,
    Source { checkpoint, decoder }: &Source,
    (wanted, measured): (&AppleLlmOptions, Measured),
    mut phases: Phases,
    progress: &dyn Progress,
) -> Result<AppleLlmBundle, ExportError> {
    let name = request.name.clone().unwrap_or_else(|| checkpoint.name());
    let file = asset_name(&name)?;
    let stats = Arc::new(ReadStats::new(checkpoint.shards.iter().map(|shard| &shard.bytes[..])));
    let lowered = phases.time("lower", || lower_apple_llm(decoder, &wanted.form, &stats))?;
    let bytes = describe::weight_bytes(&lowered.model);
    let mut plan = wanted.precision.clone();
    // Looked up like embeddings, and as small as norms.
    let is_rotary =
        decoder.layers.iter().any(|layer| layer.attention().is_some_and(|own| own.rope.is_some()));
    if is_rotary {
        plan.rules.insert(0, Rule { pattern: ROTARY_TABLES.to_owned(), precision: Precision::Keep });
    }
    let (model, compression) = compress::apply_solved(lowered.model, &plan, &measured.solutions)?;
    let model = match wanted.activations {
        Activations::Fp16 => model,
        Activations::Fp32 => widened(model),
    };
    let model = phases.time("check", || verify(model))?;
    let conversion = conversion(&wanted.form, lowered.is_open, wanted.activations);
    let program = phases.time("convert to aicode", || from_mil_as(&model, &conversion))?;

    let about =
        format!("{name}: a {} language model of {} layers", decoder.architecture, decoder.layers.len());
    let card = ModelCard::new(&request.options, checkpoint, about);
    let staging = stage(&request.output)?;
    progress.began(&file, Some(bytes));
    let staged = WriteOptions { staged: true, ..WriteOptions::default() };
    let summary = write_watched(&program, &card.of_asset(), &staging.path().join(&file), staged, progress)?;
    phases.wrote(&file, (summary.writing, summary.syncing), summary.bytes);
    phases.read(&checkpoint.shards, &stats);
    let mut warnings = wanted.warnings.clone();
    warnings.extend(remarks(checkpoint));
    let chosen = measured.sensitivity.iter().map(|sensitivity| automatic::remarks(decoder, sensitivity));
    warnings.extend(chosen.flatten());
    let has_tokenizer = write_tokenizer(request, checkpoint, staging.path())?;
    let mut compressed = Compressed::default();
    compressed.add(&compression).map_err(|e| ExportError::io(&request.output, &e))?;
    let plain = wanted.precision == Precision::Keep.into();
    let document = Document {
        metadata_version: METADATA_VERSION.to_owned(),
        kind: "llm".to_owned(),
        name: name.clone(),
        assets: Assets { main: file },
        language: Language {
            tokenizer: card.source().to_owned(),
            vocab_size: decoder.vocabulary,
            max_context_length: wanted.form.max_context(),
            embedded_tokenizer: has_tokenizer,
            function_map: lowered.is_open.then(|| json!({"main": ["main"]})),
        },
        source: json!({"model_definition": "anemeter", "hf_model_id": card.source()}),
        compression: (!plain).then(|| wanted.precision.to_string()),
        compilation: json!({"targets": []}),
    };
    let json =
        serde_json::to_string_pretty(&document).map_err(|e| ExportError::io(&request.output, &e.into()))?;
    write_file(&staging.path().join(METADATA), format!("{json}\n").as_bytes())?;
    // Much may have come to be there since the work began.
    check(request)?;
    staging.commit().map_err(|e| ExportError::io(&request.output, &e))?;
    Ok(AppleLlmBundle {
        folder: request.output.clone(),
        name,
        functions: program.graphs.iter().map(|graph| graph.name.clone()).collect(),
        bytes: summary.bytes,
        sha256: summary.sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
        max_context_length: wanted.form.max_context(),
        compression: compressed.finish(&plan, measured.calibration)?.filter(|_| !plain),
        warnings,
        profile: phases.finish(),
    })
}

/// The name of the asset, which has to be one of a file.
fn asset_name(name: &str) -> Result<String, ExportError> {
    match name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
        true => Err(ExportError::option("name", format!("is `{name}`, which no file can be called"))),
        false => Ok(format!("{name}.aimodel")),
    }
}

/// Where Apple's engine keeps what functions share: the table of embeddings and the caches in surfaces of a fixed layout.
/// A twin in fp32 is for other engines, which do not have such surfaces.
fn conversion(form: &AppleLlm, is_open: bool, activations: Activations) -> Conversion {
    const SURFACE: u64 = 1;
    /// Channels of a cache that lie together.
    const CHANNELS: i64 = 8;
    let mut conversion = Conversion::default();
    if is_open {
        conversion.open.insert("main".to_owned());
        return conversion;
    }
    if activations == Activations::Fp32 {
        return conversion;
    }
    let longest = i64::try_from(form.max_context()).unwrap_or(i64::MAX);
    let table = HwConstraints { alignments: vec![1; 4], interleave: vec![8, 1, 1], allocation: SURFACE };
    let cache = HwConstraints {
        alignments: vec![1, 1, 1, 1, CHANNELS * longest, 1],
        interleave: vec![1, 1, CHANNELS, 1, 1],
        allocation: SURFACE,
    };
    conversion.constraints.insert("embedding_table".to_owned(), table);
    conversion.constraints.insert("key_cache".to_owned(), cache.clone());
    conversion.constraints.insert("value_cache".to_owned(), cache);
    conversion
}

/// Refuses a destination whose content would be lost.
pub(super) fn check(request: &Request) -> Result<(), ExportError> {
    let output = &request.output;
    check_apart(("checkpoint", &request.checkpoint), output)?;
    let Ok(metadata) = fs::metadata(output) else { return Ok(()) };
    let exists = |path: PathBuf, what| Err(ExportError::Exists { path, what });
    if !metadata.is_dir() {
        return exists(output.clone(), Occupant::Other);
    }
    let unreadable = |e: std::io::Error| ExportError::unreadable(output, &e);
    let names = fs::read_dir(output)
        .and_then(|entries| {
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        })
        .map_err(unreadable)?;
    let names: Vec<String> = names;
    if names.is_empty() {
        return Ok(());
    }
    let Some(asset) = asset_of(output) else { return exists(output.clone(), Occupant::Other) };
    if !request.overwrite {
        return exists(output.clone(), Occupant::Bundle);
    }
    let own = [METADATA, TOKENIZER, asset.as_str(), ".DS_Store"];
    match names.iter().find(|name| !own.contains(&name.as_str())) {
        Some(foreign) => exists(output.join(foreign), Occupant::Foreign),
        None => Ok(()),
    }
}

/// The asset of such a folder, if it is one.
fn asset_of(folder: &Path) -> Option<String> {
    const LARGEST: u64 = 1 << 20;
    let path = folder.join(METADATA);
    if fs::metadata(&path).ok()?.len() > LARGEST {
        return None;
    }
    let document: Document =
        serde_json::from_slice(&crate::files::read(&path, crate::files::TEXTS).ok()?).ok()?;
    (document.kind == "llm").then_some(document.assets.main)
}

fn stage(output: &Path) -> Result<Staging, ExportError> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = parent.map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| Staging::exclusive(output)).map_err(|e| ExportError::io(output, &e))
}

/// Writes the folder of the tokenizer, if the checkpoint has one.
fn write_tokenizer(
    request: &Request,
    checkpoint: &crate::checkpoint::Checkpoint,
    folder: &Path,
) -> Result<bool, ExportError> {
    let Some(json) = &checkpoint.tokenizer else { return Ok(false) };
    let to = folder.join(TOKENIZER);
    fs::create_dir(&to).map_err(|e| ExportError::io(&to, &e))?;
    write_file(&to.join("tokenizer.json"), json)?;
    let from = match request.checkpoint.is_dir() {
        true => Some(request.checkpoint.as_path()),
        false => request.checkpoint.parent().filter(|_| !checkpoint.is_gguf()),
    };
    let mut has_config = false;
    for name in TOKENIZER_FILES {
        let Some(bytes) =
            from.and_then(|from| crate::files::read(&from.join(name), crate::files::TEXTS).ok())
        else {
            continue;
        };
        write_file(&to.join(name), &bytes)?;
        has_config |= *name == "tokenizer_config.json";
    }
    if !has_config {
        let config = tokenizer_config(json, checkpoint);
        let text = serde_json::to_string_pretty(&config).map_err(|e| ExportError::io(&to, &e.into()))?;
        write_file(&to.join("tokenizer_config.json"), text.as_bytes())?;
    }
    Ok(true)
}

/// What a `tokenizer_config.json` has to say, from what the checkpoint knows of its tokens.
fn tokenizer_config(tokenizer: &[u8], checkpoint: &crate::checkpoint::Checkpoint) -> Value {
    let tokenizer: Value = serde_json::from_slice(tokenizer).unwrap_or_default();
    let text = |id: u32| {
        let added = tokenizer.get("added_tokens")?.as_array()?;
        let token = added.iter().find(|token| token.get("id").and_then(Value::as_u64) == Some(id.into()))?;
        token.get("content").cloned()
    };
    let mut config = serde_json::Map::new();
    config.insert("tokenizer_class".to_owned(), "PreTrainedTokenizerFast".into());
    if let Some(bos) = checkpoint.bos.and_then(text) {
        config.insert("bos_token".to_owned(), bos);
    }
    if let Some(eos) = checkpoint.eos.first().copied().and_then(text) {
        config.insert("eos_token".to_owned(), eos);
    }
    if let Some(template) = &checkpoint.chat_template {
        config.insert("chat_template".to_owned(), template.as_str().into());
    }
    config.into()
}
