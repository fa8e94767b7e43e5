//! Tiny random checkpoints of decoders whose layers keep states of fixed size: short convolutions and delta rules beside
//! attention.

use serde_json::{Value, json};

use super::architectures::{HEADS, HIDDEN, LAYERS, Tiny, WIDE};

/// LFM2: convolutions between gates, attention in the middle layer unless told otherwise.
pub(crate) fn lfm2(name: &'static str, config: &Value) -> Tiny {
    let mut common = json!({"norm_eps": 1e-5, "conv_L_cache": 3, "block_auto_adjust_ff_dim": false,
        "layer_types": ["conv", "full_attention", "conv"]});
    common.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let mut tiny = Tiny::family(name, "Lfm2ForCausalLM", &common);
    let (kernel, bias) = (size(&tiny, "conv_L_cache"), tiny.flag("conv_bias"));
    tiny.embedding_alone("model.embedding_norm", 1.0);
    if tiny.config["tie_word_embeddings"] == json!(false) {
        tiny.matrix("lm_head", tiny.vocabulary(), HIDDEN);
    }
    for i in 0..LAYERS {
        let at = format!("model.layers.{i}");
        if tiny.config["layer_types"][i] == "conv" {
            tiny.matrix(&format!("{at}.conv.in_proj"), 3 * HIDDEN, HIDDEN);
            tiny.tensor(&format!("{at}.conv.conv.weight"), &[HIDDEN, 1, kernel], (0.2, 0.8));
            tiny.matrix(&format!("{at}.conv.out_proj"), HIDDEN, HIDDEN);
            if bias {
                tiny.bias(&format!("{at}.conv.in_proj"), 3 * HIDDEN);
                tiny.bias(&format!("{at}.conv.conv"), HIDDEN);
                tiny.bias(&format!("{at}.conv.out_proj"), HIDDEN);
            }
        } else {
            let (kv_width, width) = (tiny.kv_heads() * tiny.head_dim(), HEADS * tiny.head_dim());
            for (part, out) in [("q", width), ("k", kv_width), ("v", kv_width)] {
                tiny.matrix(&format!("{at}.self_attn.{part}_proj"), out, HIDDEN);
            }
            tiny.matrix(&format!("{at}.self_attn.out_proj"), HIDDEN, width);
            let head_dim = tiny.head_dim();
            tiny.norm(&format!("{at}.self_attn.q_layernorm"), head_dim, 1.0);
            tiny.norm(&format!("{at}.self_attn.k_layernorm"), head_dim, 1.0);
        }
        for (part, out, input) in [("w1", WIDE, HIDDEN), ("w3", WIDE, HIDDEN), ("w2", HIDDEN, WIDE)] {
            tiny.matrix(&format!("{at}.feed_forward.{part}"), out, input);
        }
        tiny.norm(&format!("{at}.operator_norm"), HIDDEN, 1.0);
        tiny.norm(&format!("{at}.ffn_norm"), HIDDEN, 1.0);
    }
    tiny
}

/// Qwen 3.5: delta rules, attention with an output gate in the middle layer unless told otherwise.
pub(crate) fn qwen3_5(name: &'static str, config: &Value) -> Tiny {
    let mut common = json!({"head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 6, "linear_value_head_dim": 5, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6,
        "partial_rotary_factor": 0.25, "layer_types": ["linear_attention", "full_attention", "linear_attention"]});
    common.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
    let mut tiny = Tiny::family(name, "Qwen3_5ForCausalLM", &common);
    tiny.ends(tiny.flag("tie_word_embeddings"), 0.0);
    for i in 0..LAYERS {
        let at = format!("model.layers.{i}");
        if tiny.config["layer_types"][i] == "linear_attention" {
            delta_net(&mut tiny, &format!("{at}.linear_attn"));
        } else {
            let (kv_width, width) = (tiny.kv_heads() * tiny.head_dim(), HEADS * tiny.head_dim());
            for (part, out) in [("q", 2 * width), ("k", kv_width), ("v", kv_width)] {
                tiny.matrix(&format!("{at}.self_attn.{part}_proj"), out, HIDDEN);
            }
            tiny.matrix(&format!("{at}.self_attn.o_proj"), HIDDEN, width);
            let head_dim = tiny.head_dim();
            tiny.norm(&format!("{at}.self_attn.q_norm"), head_dim, 0.0);
            tiny.norm(&format!("{at}.self_attn.k_norm"), head_dim, 0.0);
        }
        tiny.gated_mlp(&at, false);
        tiny.norms(&at, &["input", "post_attention"], 0.0);
    }
    tiny
}

fn delta_net(tiny: &mut Tiny, at: &str) {
    let heads = size(tiny, "linear_num_value_heads");
    let keys = size(tiny, "linear_num_key_heads") * size(tiny, "linear_key_head_dim");
    let values = heads * size(tiny, "linear_value_head_dim");
    let all = 2 * keys + values;
    for (part, out) in [("qkv", all), ("z", values), ("b", heads), ("a", heads)] {
        tiny.matrix(&format!("{at}.in_proj_{part}"), out, HIDDEN);
    }
    let kernel = size(tiny, "linear_conv_kernel_dim");
    tiny.tensor(&format!("{at}.conv1d.weight"), &[all, 1, kernel], (0.2, 0.8));
    tiny.tensor(&format!("{at}.dt_bias"), &[heads], (0.0, 1.0));
    tiny.tensor(&format!("{at}.A_log"), &[heads], (-1.0, 1.0));
    let width = size(tiny, "linear_value_head_dim");
    tiny.norm(&format!("{at}.norm"), width, 1.0);
    tiny.matrix(&format!("{at}.out_proj"), HIDDEN, values);
}

fn size(tiny: &Tiny, key: &str) -> usize {
    usize::try_from(tiny.config[key].as_u64().unwrap()).unwrap()
}

/// Both, in configurations that change what is computed.
pub(crate) fn all() -> Vec<Tiny> {
    let biased = json!({"conv_bias": true, "conv_L_cache": 4, "tie_word_embeddings": false,
        "layer_types": ["conv", "conv", "full_attention"]});
    let alone = json!({"linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_conv_kernel_dim": 2,
        "tie_word_embeddings": true, "layer_types": ["linear_attention", "linear_attention", "full_attention"]});
    vec![
        lfm2("lfm2", &json!({})),
        lfm2("lfm2-biased", &biased),
        qwen3_5("qwen3_5", &json!({})),
        qwen3_5("qwen3_5-alone", &alone),
    ]
}
