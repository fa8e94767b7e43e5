//! Tensor lists as transformers writes them, and configurations of the same sizes.

mod decoders;
mod hybrids;
mod refusals;
mod wiring;

use super::build;
use crate::model::graph::Decoder;
use crate::model::testing::checkpoint;

const LLAMA: &str = "
    model.embed_tokens.weight [11, 8]
    model.layers.0.self_attn.q_proj.weight [8, 8]
    model.layers.0.self_attn.k_proj.weight [4, 8]
    model.layers.0.self_attn.v_proj.weight [4, 8]
    model.layers.0.self_attn.o_proj.weight [8, 8]
    model.layers.0.mlp.gate_proj.weight [12, 8]
    model.layers.0.mlp.up_proj.weight [12, 8]
    model.layers.0.mlp.down_proj.weight [8, 12]
    model.layers.0.input_layernorm.weight [8]
    model.layers.0.post_attention_layernorm.weight [8]
    model.norm.weight [8]
    lm_head.weight [11, 8]";

const QKV_BIASES: &str = "
    model.layers.0.self_attn.q_proj.bias [8]
    model.layers.0.self_attn.k_proj.bias [4]
    model.layers.0.self_attn.v_proj.bias [4]";

const OTHER_BIASES: &str = "
    model.layers.0.self_attn.o_proj.bias [8]
    model.layers.0.mlp.gate_proj.bias [12]
    model.layers.0.mlp.up_proj.bias [12]
    model.layers.0.mlp.down_proj.bias [8]";

const WIDE_HEADS: &str = "
    model.embed_tokens.weight [11, 8]
    model.layers.0.self_attn.q_proj.weight [24, 8]
    model.layers.0.self_attn.k_proj.weight [12, 8]
    model.layers.0.self_attn.v_proj.weight [12, 8]
    model.layers.0.self_attn.o_proj.weight [8, 24]
    model.layers.0.self_attn.q_norm.weight [6]
    model.layers.0.self_attn.k_norm.weight [6]
    model.layers.0.mlp.gate_proj.weight [12, 8]
    model.layers.0.mlp.up_proj.weight [12, 8]
    model.layers.0.mlp.down_proj.weight [8, 12]
    model.layers.0.input_layernorm.weight [8]
    model.layers.0.post_attention_layernorm.weight [8]
    model.norm.weight [8]";

const FEEDFORWARD_NORMS: &str = "
    model.layers.0.pre_feedforward_layernorm.weight [8]
    model.layers.0.post_feedforward_layernorm.weight [8]";

const PHI3: &str = "
    model.embed_tokens.weight [11, 8]
    model.layers.0.self_attn.o_proj.weight [8, 8]
    model.layers.0.self_attn.qkv_proj.weight [16, 8]
    model.layers.0.mlp.gate_up_proj.weight [24, 8]
    model.layers.0.mlp.down_proj.weight [8, 12]
    model.layers.0.input_layernorm.weight [8]
    model.layers.0.post_attention_layernorm.weight [8]
    model.norm.weight [8]
    lm_head.weight [11, 8]";

const GPT2_TRUNK: &str = "
    transformer.wte.weight [11, 8]
    transformer.wpe.weight [16, 8]
    transformer.h.0.ln_1.weight [8]
    transformer.h.0.ln_1.bias [8]
    transformer.h.0.attn.c_attn.weight [8, 24]
    transformer.h.0.attn.c_attn.bias [24]
    transformer.h.0.attn.c_proj.weight [8, 8]
    transformer.h.0.attn.c_proj.bias [8]
    transformer.h.0.ln_2.weight [8]
    transformer.h.0.ln_2.bias [8]
    transformer.ln_f.weight [8]
    transformer.ln_f.bias [8]";

const GPT2_MLP: &str = "
    transformer.h.0.mlp.c_fc.weight [8, 32]
    transformer.h.0.mlp.c_fc.bias [32]
    transformer.h.0.mlp.c_proj.weight [32, 8]
    transformer.h.0.mlp.c_proj.bias [8]";

const PAGATING_MLP: &str = "
    transformer.h.0.mlp.fc_in.weight [32, 8]
    transformer.h.0.mlp.fc_in.bias [32]
    transformer.h.0.mlp.act.value_proj.weight [32, 32]
    transformer.h.0.mlp.act.value_proj.bias [32]
    transformer.h.0.mlp.act.gate_proj.weight [32, 32]
    transformer.h.0.mlp.act.gate_proj.bias [32]
    transformer.h.0.mlp.fc_out.weight [8, 32]
    transformer.h.0.mlp.fc_out.bias [8]";

const GATE_NORM: &str = "
    transformer.h.0.mlp.act.gate_norm.weight [32]
    transformer.h.0.mlp.act.gate_norm.bias [32]";

/// The sizes of the lists above for the Llama family, with further keys.
fn family(class: &str, more: &str) -> String {
    format!(
        r#"{{"architectures": ["{class}"], "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
            "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 64 {more}}}"#
    )
}

fn gpt2(more: &str) -> String {
    format!(
        r#"{{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 11, "n_embd": 8,
            "n_layer": 1, "n_head": 2, "n_positions": 16, "n_inner": null {more}}}"#
    )
}

fn built(config: &str, tensors: &[&str]) -> Decoder {
    build(&checkpoint(config, &tensors.concat())).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(config: &str, tensors: &[&str]) -> String {
    build(&checkpoint(config, &tensors.concat())).unwrap_err().to_string()
}
