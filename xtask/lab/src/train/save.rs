//! The trained model as a Hugging Face folder.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};
use candle_core::DType;
use serde_json::json;
use tokenizers::Tokenizer;

use super::CONTEXT;
use super::network::{EPSILON, Network};
use super::vocabulary::END;

pub(super) fn checkpoint(folder: &Path, network: &Network, tokenizer: &Tokenizer) -> Result<()> {
    fs::create_dir_all(folder)?;
    let half = network
        .weights()
        .map(|(name, value)| Ok((name.clone(), value.to_dtype(DType::BF16)?)))
        .collect::<Result<HashMap<_, _>>>()?;
    candle_core::safetensors::save(&half, folder.join("model.safetensors"))?;
    fs::write(folder.join("config.json"), pretty(&config(network))?)?;
    fs::write(
        folder.join("tokenizer_config.json"),
        pretty(&json!({ "eos_token": END, "add_bos_token": false }))?,
    )?;
    tokenizer.save(folder.join("tokenizer.json"), true).map_err(|error| anyhow!("{error}"))
}

fn config(network: &Network) -> serde_json::Value {
    let sizes = network.sizes;
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON,
        "rope_theta": sizes.theta,
        "hidden_act": "silu",
        "tie_word_embeddings": true,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    })
}

fn pretty(value: &serde_json::Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
