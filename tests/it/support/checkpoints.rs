//! Tiny checkpoints on disk, as transformers lays them out.

use std::fs;
use std::path::Path;

use anemeter::atomic;
use safetensors::tensor::{Dtype, TensorView};

/// A Llama of two layers.
pub(crate) const CONFIG: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "vocab_size": 40, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"
}"#;

/// A tensor to write.
pub(crate) type Named = (String, Vec<usize>, Vec<f32>);

/// The tensors that [`CONFIG`] asks for, filled from a seed.
pub(crate) fn tensors(seed: u64) -> Vec<Named> {
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![40, 32]),
        ("model.norm.weight".to_owned(), vec![32]),
    ];
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm", vec![32]),
            ("post_attention_layernorm", vec![32]),
            ("self_attn.q_proj", vec![32, 32]),
            ("self_attn.k_proj", vec![16, 32]),
            ("self_attn.v_proj", vec![16, 32]),
            ("self_attn.o_proj", vec![32, 32]),
            ("mlp.gate_proj", vec![48, 32]),
            ("mlp.up_proj", vec![48, 32]),
            ("mlp.down_proj", vec![32, 48]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    let mut state = seed | 1;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 0.6
    };
    let filled = |(name, shape): (String, Vec<usize>)| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| if name.contains("norm") { 1.0 + next() / 4.0 } else { next() });
        let values = values.collect();
        (name, shape, values)
    };
    shapes.into_iter().map(filled).collect()
}

/// Writes a folder with a configuration and one file of weights.
pub(crate) fn write(folder: &Path, tensors: &[Named]) {
    fs::create_dir_all(folder).unwrap();
    write_text(&folder.join("config.json"), CONFIG);
    write_shard(&folder.join("model.safetensors"), tensors);
}

/// Writes a folder whose weights are in two shards.
pub(crate) fn write_sharded(folder: &Path, tensors: &[Named]) {
    fs::create_dir_all(folder).unwrap();
    write_text(&folder.join("config.json"), CONFIG);
    let (first, second) = tensors.split_at(tensors.len() / 2);
    let mut homes = serde_json::Map::new();
    for (index, part) in [first, second].into_iter().enumerate() {
        let file = format!("model-{:05}-of-00002.safetensors", index + 1);
        write_shard(&folder.join(&file), part);
        homes.extend(part.iter().map(|(name, ..)| (name.clone(), file.clone().into())));
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": homes });
    write_text(&folder.join("model.safetensors.index.json"), &index.to_string());
}

/// Writes a small file.
pub(crate) fn write_text(path: &Path, text: &str) {
    atomic::write_file(path, text.as_bytes()).unwrap();
}

/// Writes a file of weights in fp32.
pub(crate) fn write_shard(path: &Path, tensors: &[Named]) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(.., values)| values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}
