//! The tiny checkpoint as a GGUF file whose matrices are Q8_0.

use std::fs;
use std::path::Path;

use half::f16;

use super::checkpoints::Named;

/// Elements of a block of Q8_0.
const BLOCK: usize = 32;
/// Numbers of GGML's types.
const F32: u32 = 0;
const Q8_0: u32 = 8;

/// What a file calls the tensors of a layer that have other names elsewhere.
const INNER: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// A metadata value.
enum Value {
    Text(&'static str),
    Size(u32),
    Float(f32),
}

/// The settings of [`CONFIG`](super::checkpoints::CONFIG).
const METADATA: [(&str, Value); 12] = [
    ("general.architecture", Value::Text("llama")),
    ("llama.block_count", Value::Size(2)),
    ("llama.context_length", Value::Size(64)),
    ("llama.embedding_length", Value::Size(32)),
    ("llama.feed_forward_length", Value::Size(48)),
    ("llama.attention.head_count", Value::Size(4)),
    ("llama.attention.head_count_kv", Value::Size(2)),
    ("llama.attention.key_length", Value::Size(8)),
    ("llama.attention.value_length", Value::Size(8)),
    ("llama.rope.dimension_count", Value::Size(8)),
    ("llama.rope.freq_base", Value::Float(10_000.0)),
    ("llama.attention.layer_norm_rms_epsilon", Value::Float(1e-5)),
];

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_metadata(out: &mut Vec<u8>, (key, value): &(&str, Value)) {
    put_text(out, key);
    match value {
        Value::Size(size) => out.extend([4u32.to_le_bytes(), size.to_le_bytes()].concat()),
        Value::Float(float) => out.extend([6u32.to_le_bytes(), float.to_le_bytes()].concat()),
        Value::Text(text) => {
            out.extend(8u32.to_le_bytes());
            put_text(out, text);
        }
    }
}

/// The name that a file has for a tensor of Hugging Face.
fn name_of(name: &str) -> String {
    let outer = [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm")];
    let mut name = name.replace("model.layers.", "blk.");
    for (from, to) in outer.into_iter().chain(INNER) {
        name = name.replace(from, to);
    }
    name
}

/// A scale and 32 bytes for each block.
fn in_eight_bits(values: &[f32]) -> Vec<u8> {
    let block = |block: &[f32]| {
        let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = f16::from_f32(largest / 127.0);
        let codes = block.iter().map(move |x| (x / scale.to_f32()).round().clamp(-127.0, 127.0) as i8 as u8);
        scale.to_le_bytes().into_iter().chain(codes).collect::<Vec<u8>>()
    };
    values.chunks(BLOCK).flat_map(block).collect()
}

/// Writes a file. A matrix whose rows are whole blocks is Q8_0, anything else f32.
pub(crate) fn write(path: &Path, tensors: &[Named]) {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((METADATA.len() as u64).to_le_bytes());
    METADATA.iter().for_each(|entry| put_metadata(&mut out, entry));
    let mut data = Vec::new();
    for (name, shape, values) in tensors {
        let (kind, bytes) = match shape[..] {
            [_, columns] if columns % BLOCK == 0 => (Q8_0, in_eight_bits(values)),
            _ => (F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        };
        put_text(&mut out, &name_of(name));
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&size| out.extend((size as u64).to_le_bytes()));
        out.extend(kind.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(bytes);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(data);
    fs::write(path, out).unwrap();
}
