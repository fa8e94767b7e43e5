//! `--oracle`: the oracle's textbook networks against candle-transformers, which reads `config.json` and the weights
//! by itself.
//!
//! candle-transformers 0.9 does not compute everything that configurations ask for. Its windows are one position too
//! wide and end with the first call, its Phi-3 multiplies frequencies by the factors that should divide them, its
//! Gemma 3 ignores `query_pre_attn_scalar` and takes prompts for one KV head only, and its Llama has no biases
//! and no `head_dim`. So the checkpoints it is right for are listed here.

use anemeter::{checkpoint, oracle};
use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor, safetensors};
use candle_nn::VarBuilder;
use candle_transformers::models::{gemma3, llama, mistral, phi3, qwen2, qwen3};
use serde_json::{Value, from_value, json};

use architectures::{Tiny, max_abs_difference};
use xtask::outcome::Outcome;

#[path = "../../../../../tests/it/support/architectures.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "a part of the integration tests")]
mod architectures;
#[path = "../../../../../tests/it/support/decoders.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "a part of the integration tests")]
mod decoders;
#[path = "../../../../../tests/it/support/gemma4.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "a part of the integration tests")]
mod gemma4;
#[path = "../../../../../tests/it/support/numbers.rs"]
mod numbers;

const IDS: &[u32] = &[5, 9, 2, 30, 11, 7, 36, 1, 0, 22];
/// Tokens that are fed at once.
const PROMPT: usize = 6;
const LARGEST_DIFFERENCE: f32 = 2e-4;

/// Logits after tokens `[1, n]` whose first is at an offset.
type Forward = Box<dyn FnMut(&Tensor, usize) -> candle_core::Result<Tensor>>;
type Open = fn(Value, VarBuilder<'_>) -> Result<Forward>;

const NETWORKS: &[(&str, Open)] = &[
    ("llama", open_llama),
    ("llama3", open_llama),
    ("student", open_llama),
    ("mistral", open_mistral),
    ("mistral-tied", open_mistral),
    ("qwen2", open_qwen2),
    ("qwen3", open_qwen3),
    ("qwen3-biased", open_qwen3),
    ("gemma3", open_gemma3),
    ("phi3", open_phi3),
];

/// Compares the logits of every checkpoint that candle-transformers is right for.
pub(super) fn check() -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let checkpoints = architectures::all();
    let mut worst = 0f32;
    for &(name, open) in NETWORKS {
        let tiny = checkpoints.iter().find(|tiny| tiny.name == name);
        let tiny = tiny.with_context(|| format!("there is no checkpoint `{name}`"))?;
        let path = tiny.write(folder.path());
        let mut reference = oracle::open(&checkpoint::open(&path)?, IDS.len())?;
        let ours = logits(|ids, _| Ok(reference.feed(ids)?))?;
        let mut forward = open(configuration(tiny), weights(&path.join("model.safetensors"))?)?;
        let theirs = logits(|ids, offset| {
            let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
            Ok(forward(&ids, offset)?.flatten_all()?.to_vec1()?)
        })?;
        let difference = max_abs_difference(&ours, &theirs);
        ensure!(difference < LARGEST_DIFFERENCE, "{name}: logits differ by {difference}");
        worst = worst.max(difference);
    }
    Ok(Outcome::Checked(format!("{} checkpoints, largest difference of a logit {worst:.1e}", NETWORKS.len())))
}

fn logits(mut feed: impl FnMut(&[u32], usize) -> Result<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
    let mut logits = vec![feed(&IDS[..PROMPT], 0)?];
    for (offset, &id) in IDS.iter().enumerate().skip(PROMPT) {
        logits.push(feed(&[id], offset)?);
    }
    Ok(logits)
}

/// The configuration with transformers' defaults, which candle-transformers does not know.
fn configuration(tiny: &Tiny) -> Value {
    let gemma = tiny.name.starts_with("gemma");
    let mut config = json!({
        "rope_theta": if gemma { 1e6 } else { 1e4 }, "rope_local_base_freq": 1e4, "hidden_act": "silu",
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": false, "attention_bias": false,
        "use_sliding_window": false, "sliding_window": 64, "max_window_layers": 28,
    });
    for (key, value) in tiny.config.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

/// All tensors as f32; a head that is not stored is the embedding.
fn weights(path: &std::path::Path) -> Result<VarBuilder<'static>> {
    let mut tensors = safetensors::load(path, &Device::Cpu)?;
    if let Some(embedding) = tensors.get("model.embed_tokens.weight").cloned() {
        tensors.entry("lm_head.weight".to_owned()).or_insert(embedding);
    }
    Ok(VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu))
}

fn open_llama(config: Value, weights: VarBuilder<'_>) -> Result<Forward> {
    let config = from_value::<llama::LlamaConfig>(config)?.into_config(false);
    let network = llama::Llama::load(weights, &config)?;
    let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu)?;
    Ok(Box::new(move |ids, offset| network.forward(ids, offset, &mut cache)))
}

fn open_mistral(config: Value, weights: VarBuilder<'_>) -> Result<Forward> {
    let mut network = mistral::Model::new(&from_value(config)?, weights)?;
    Ok(Box::new(move |ids, offset| network.forward(ids, offset)))
}

fn open_qwen2(config: Value, weights: VarBuilder<'_>) -> Result<Forward> {
    let mut network = qwen2::ModelForCausalLM::new(&from_value(config)?, weights)?;
    Ok(Box::new(move |ids, offset| network.forward(ids, offset)))
}

fn open_qwen3(config: Value, weights: VarBuilder<'_>) -> Result<Forward> {
    let mut network = qwen3::ModelForCausalLM::new(&from_value(config)?, weights)?;
    Ok(Box::new(move |ids, offset| network.forward(ids, offset)))
}

fn open_gemma3(config: Value, weights: VarBuilder<'_>) -> Result<Forward> {
    let mut network = gemma3::Model::new(false, &from_value(config)?, weights)?;
    Ok(Box::new(move |ids, offset| network.forward(ids, offset)))
}

fn open_phi3(config: Value, weights: VarBuilder<'_>) -> Result<Forward> {
    let mut network = phi3::Model::new(&from_value(config)?, weights)?;
    Ok(Box::new(move |ids, offset| network.forward(ids, offset)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn textbook_networks_agree_with_candle_transformers() {
        super::check().unwrap();
    }
}
