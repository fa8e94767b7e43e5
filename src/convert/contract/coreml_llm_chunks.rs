//! The contract of CoreML-LLM's Gemma 4: chunks of layers whose token vectors and rotations the host looks up in files
//! beside them. The last chunks have no keys and values of their own and take those of a chunk before. Keys and values are in
//! states that are written round and round (`infer`, `prefill_b16`), or in caches that go in and come out (`decode_q1`).
//! What verifies drafts, and what takes a prompt in at once without caches, is not run.

use serde::Deserialize;

use super::coreml_llm::{CONFIG, TOKENIZER, config};
use super::features::{ModelFunction, sizes};
use super::{Packages, check};
use crate::bundle::BundleError;
use crate::bundle::contract::{
    ArgMax, CachePair, Contract, ContractFunction, ContractInputs, ContractMask, ContractName,
    ContractOutputs, ContractPackage, ContractRole, MaskKeys, MaskKind, PassedInput, RingPosition, RowsBy,
    TableRows,
};
use anemeter_mil::Model;

const HIDDEN: &str = "hidden_states";
const HIDDEN_OUT: &str = "hidden_states_out";
const FULL_MASK: &str = "causal_mask_full";
const WINDOW_MASK: &str = "causal_mask_sliding";
const PER_LAYER: &str = "per_layer_raw";
const TOKEN: &str = "token_id";
/// Caches that go in and come out, as `…_in` and `…_out`.
const CACHES: [&str; 4] = ["K_sliding", "V_sliding", "K_full", "V_full"];
/// Inputs that are outputs of a chunk before, and what they are called there.
const PASSED: [(&str, &str); 5] = [
    ("per_layer_combined", "per_layer_combined_out"),
    ("kv13_k", "kv13_k"),
    ("kv13_v", "kv13_v"),
    ("kv14_k", "kv14_k"),
    ("kv14_v", "kv14_v"),
];
/// Rotations of positions, and the files that they are rows of.
const ROTATIONS: [(&str, &str); 4] = [
    ("cos_s", "cos_sliding.npy"),
    ("sin_s", "sin_sliding.npy"),
    ("cos_f", "cos_full.npy"),
    ("sin_f", "sin_full.npy"),
];
/// Token vectors: int8 codes, and a scale for each token.
const EMBEDDINGS: [&str; 2] = ["embed_tokens_q8.bin", "embed_tokens_scales.bin"];
const PER_LAYER_EMBEDDINGS: [&str; 2] =
    ["embed_tokens_per_layer_q8.bin", "embed_tokens_per_layer_scales.bin"];

/// What is read of the file beside the chunks.
#[derive(Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: u32,
    #[serde(default = "per_layer_dim")]
    per_layer_dim: u32,
    embed_scale: Option<f64>,
    per_layer_embed_scale: Option<f64>,
}

/// That of Gemma 4, which older files do not state.
fn per_layer_dim() -> u32 {
    256
}

/// What holds for all chunks.
struct Described {
    config: Config,
    /// Whether keys and values of a window are written round and round.
    is_ring: bool,
}

impl Config {
    /// Token vectors are scaled by the root of their width.
    fn embed_scale(&self) -> f64 {
        self.embed_scale.unwrap_or_else(|| f64::from(self.hidden_size).sqrt())
    }

    fn per_layer_embed_scale(&self) -> f64 {
        self.per_layer_embed_scale.unwrap_or_else(|| f64::from(self.per_layer_dim).sqrt())
    }
}

pub(super) fn recognise(packages: &Packages<'_>) -> Result<Option<Contract>, BundleError> {
    let mut chunks: Vec<Chunk<'_>> =
        packages.packages.iter().filter_map(|(name, model)| Chunk::of(name, model)).collect();
    // `chunk1` and so on, `chunk_1` and so on, or one `model`.
    chunks.sort_by(|a, b| a.package.cmp(b.package));
    // What comes after the token is left from another division into chunks.
    if let Some(last) = chunks.iter().position(|chunk| chunk.decode.output(TOKEN).is_some()) {
        chunks.truncate(last + 1);
    }
    let is_it = chunks.first().is_some_and(|first| first.decode.input(PER_LAYER).is_some())
        && chunks.last().is_some_and(|last| last.decode.output(TOKEN).is_some());
    if !is_it {
        return Ok(None);
    }
    let config: Config = config(packages)?;
    let is_ring = chunks.iter().any(|chunk| chunk.decode.input("ring_pos").is_some());
    let Some(contract) = contract(&chunks, &Described { config, is_ring }, packages) else { return Ok(None) };
    match check::problem(&contract, packages) {
        Some(problem) => Err(BundleError::new(&packages.folder.join(CONFIG), problem)
            .with_help("copy the folder of the model as a whole; or give a contract file")),
        None => Ok(Some(contract)),
    }
}

/// A package with some of the layers.
struct Chunk<'a> {
    package: &'a str,
    /// Takes one token in.
    decode: ModelFunction<'a>,
    /// Takes several in, without padding.
    prefill: Option<ModelFunction<'a>>,
}

impl<'a> Chunk<'a> {
    fn of(package: &'a str, model: &'a Model) -> Option<Chunk<'a>> {
        let is_chunk = ["chunk", "model"].iter().any(|word| package.starts_with(word));
        let named = ["infer", "decode_q1"].iter().find_map(|name| ModelFunction::of(model, name));
        let decode = named.or_else(|| ModelFunction::of(model, model.default_function()))?;
        let is_it = is_chunk
            && tokens(decode) == Some(1)
            && [FULL_MASK, WINDOW_MASK].iter().all(|mask| decode.input(mask).is_some())
            && (decode.output(TOKEN).is_some() || decode.output(HIDDEN_OUT).is_some());
        let prefills = model.interfaces().iter().filter(|of| of.function.starts_with("prefill_b"));
        let prefill =
            prefills.filter_map(|of| ModelFunction::of(model, &of.function)).max_by_key(|&of| tokens(of));
        is_it.then_some(Chunk { package, decode, prefill })
    }
}

/// Tokens of one prediction.
fn tokens(function: ModelFunction<'_>) -> Option<usize> {
    sizes(function.input(HIDDEN)?, 1)?.most()
}

/// Columns of a mask.
fn columns(function: ModelFunction<'_>, mask: &str) -> Option<usize> {
    sizes(function.input(mask)?, -1)?.most()
}

fn contract(chunks: &[Chunk<'_>], model: &Described, packages: &Packages<'_>) -> Option<Contract> {
    // All chunks have a prefill of one size, or none is run.
    let sizes: Vec<Option<usize>> = chunks.iter().map(|chunk| chunk.prefill.and_then(tokens)).collect();
    let prefills = sizes.iter().all(|&size| size.is_some() && size == sizes[0]);
    let described = chunks.iter().enumerate().map(|(at, chunk)| {
        let prefill = chunk.prefill.filter(|_| prefills);
        let prefill = prefill.map(|of| function(of, ContractRole::Prefill, model, at == 0));
        let decode = function(chunk.decode, ContractRole::Decode, model, at == 0)?;
        let functions = prefill.map_or(Some(None), |prefill| prefill.map(Some))?;
        let functions = functions.into_iter().chain([decode]).collect();
        Some(ContractPackage { package: chunk.package.to_owned(), functions })
    });
    Some(Contract {
        name: ContractName::CoremlLlm,
        context_length: columns(chunks.first()?.decode, FULL_MASK)?,
        vocabulary: model.config.vocab_size,
        lengths: Vec::new(),
        packages: described.collect::<Option<_>>()?,
        tokenizer: packages.folder.join(TOKENIZER).is_file().then(|| TOKENIZER.to_owned()),
    })
}

/// What a function's inputs and outputs mean. Only the first chunk looks token vectors up.
fn function(
    seen: ModelFunction<'_>,
    role: ContractRole,
    model: &Described,
    is_first: bool,
) -> Option<ContractFunction> {
    let named = |name: &str| seen.input(name).map(|_| name.to_owned());
    let window = columns(seen, WINDOW_MASK)?;
    let mask = |input: &str, kind| ContractMask { input: input.to_owned(), kind, keys: MaskKeys::Context };
    let caches = CACHES.iter().map(|cache| (format!("{cache}_in"), format!("{cache}_out")));
    let caches =
        caches.filter(|(input, output)| seen.input(input).is_some() && seen.output(output).is_some());
    let passed = PASSED.iter().filter(|(input, _)| seen.input(input).is_some());
    let passed =
        passed.map(|&(input, output)| PassedInput { input: input.to_owned(), output: output.to_owned() });
    let picked = seen.output(TOKEN).map(|_| ArgMax {
        index: TOKEN.to_owned(),
        value: seen.output("token_logit").map(|_| "token_logit".to_owned()),
        offsets: Vec::new(),
    });
    Some(ContractFunction {
        function: seen.interface.function.clone(),
        role,
        tokens: Some(tokens(seen)?),
        // A piece that goes beyond the window would see tokens that come after it.
        whole_pieces_to: (role == ContractRole::Prefill).then_some(window),
        inputs: ContractInputs {
            hidden: named(HIDDEN).filter(|_| !is_first),
            masks: vec![
                mask(FULL_MASK, MaskKind::CausalAdditive),
                mask(WINDOW_MASK, if model.is_ring { MaskKind::Ring } else { MaskKind::Window }),
            ],
            current_position: named("current_pos"),
            update_mask: named("update_mask"),
            ring_position: named("ring_pos").map(|input| RingPosition { input, window }),
            passed: passed.collect(),
            rows: rows(seen, &model.config, is_first),
            ..ContractInputs::default()
        },
        caches: caches.map(|(input, output)| CachePair { input, output }).collect(),
        states: seen.interface.states.iter().map(|state| state.name.clone()).collect(),
        states_are_shared: false,
        outputs: ContractOutputs {
            hidden: seen.output(HIDDEN_OUT).map(|_| HIDDEN_OUT.to_owned()),
            argmax: picked.into_iter().collect(),
            ..ContractOutputs::default()
        },
    })
}

/// Rows of tables: token vectors of the first chunk, rotations of all.
fn rows(seen: ModelFunction<'_>, config: &Config, is_first: bool) -> Vec<TableRows> {
    let embedded = |input: &str, [file, scales]: [&str; 2], factor| TableRows {
        input: input.to_owned(),
        by: RowsBy::Token,
        file: file.to_owned(),
        scales: Some(scales.to_owned()),
        factor: Some(factor),
    };
    let vectors = [
        embedded(HIDDEN, EMBEDDINGS, config.embed_scale()),
        embedded(PER_LAYER, PER_LAYER_EMBEDDINGS, config.per_layer_embed_scale()),
    ];
    let rotations = ROTATIONS.map(|(input, file)| TableRows {
        input: input.to_owned(),
        by: RowsBy::Position,
        file: file.to_owned(),
        scales: None,
        factor: None,
    });
    let vectors = vectors.into_iter().filter(|_| is_first);
    vectors.chain(rotations).filter(|rows| seen.input(&rows.input).is_some()).collect()
}
