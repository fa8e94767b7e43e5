//! Tiny random checkpoints of Gemma 4.

use serde_json::{Value, json};

use super::architectures::{HEADS, HIDDEN, LAYERS, Tiny, WIDE};

const VOCABULARY: usize = 37;

/// A configuration over common ones: the first layer has a window, the last sees keys and values of the second.
pub(crate) fn gemma4(name: &'static str, config: &Value) -> Tiny {
    let mut common = json!({"head_dim": 8, "global_head_dim": 16, "sliding_window": 3, "layer_types":
        ["sliding_attention", "full_attention", "full_attention"], "num_kv_shared_layers": 1,
        "use_double_wide_mlp": true, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": VOCABULARY,
        "tie_word_embeddings": true});
    for (key, value) in config.as_object().unwrap() {
        common[key] = value.clone();
    }
    let mut tiny = Tiny::family(name, "Gemma4ForCausalLM", &common);
    let size = |tiny: &Tiny, key: &str| usize::try_from(tiny.config[key].as_u64().unwrap()).unwrap();
    let (width, shared) = (size(&tiny, "hidden_size_per_layer_input"), size(&tiny, "num_kv_shared_layers"));
    tiny.ends(true, 1.0);
    if width > 0 {
        tiny.tensor("model.embed_tokens_per_layer.weight", &[VOCABULARY, LAYERS * width], (0.0, 0.3));
        tiny.matrix("model.per_layer_model_projection", LAYERS * width, HIDDEN);
        tiny.norm("model.per_layer_projection_norm", width, 1.0);
    }
    for i in 0..LAYERS {
        let at = format!("model.layers.{i}");
        attention(&mut tiny, i, i + shared >= LAYERS);
        let wide = if i + shared >= LAYERS && tiny.flag("use_double_wide_mlp") { 2 * WIDE } else { WIDE };
        for (part, out, input) in [("gate", wide, HIDDEN), ("up", wide, HIDDEN), ("down", HIDDEN, wide)] {
            tiny.matrix(&format!("{at}.mlp.{part}_proj"), out, input);
        }
        tiny.norms(&at, &["input", "post_attention", "pre_feedforward", "post_feedforward"], 1.0);
        tiny.tensor(&format!("{at}.layer_scalar"), &[1], (0.8, 0.2));
        if width > 0 {
            tiny.matrix(&format!("{at}.per_layer_input_gate"), width, HIDDEN);
            tiny.matrix(&format!("{at}.per_layer_projection"), HIDDEN, width);
            tiny.norm(&format!("{at}.post_per_layer_input_norm"), HIDDEN, 1.0);
        }
    }
    tiny
}

fn attention(tiny: &mut Tiny, layer: usize, is_shared: bool) {
    let at = format!("model.layers.{layer}.self_attn");
    let is_global = tiny.config["layer_types"][layer] == "full_attention";
    let number = |key: &str| tiny.config[key].as_u64().map(|n| usize::try_from(n).unwrap());
    let head_dim = number(if is_global { "global_head_dim" } else { "head_dim" }).unwrap();
    let keys_are_values = is_global && tiny.flag("attention_k_eq_v");
    let of_global = number("num_global_key_value_heads").filter(|_| keys_are_values);
    let kv_heads = of_global.unwrap_or(tiny.kv_heads());
    tiny.matrix(&format!("{at}.q_proj"), HEADS * head_dim, HIDDEN);
    tiny.norm(&format!("{at}.q_norm"), head_dim, 0.6);
    if !is_shared {
        tiny.matrix(&format!("{at}.k_proj"), kv_heads * head_dim, HIDDEN);
        tiny.norm(&format!("{at}.k_norm"), head_dim, 0.6);
        if !keys_are_values {
            tiny.matrix(&format!("{at}.v_proj"), kv_heads * head_dim, HIDDEN);
        }
    }
    tiny.matrix(&format!("{at}.o_proj"), HIDDEN, HEADS * head_dim);
}

/// Configurations that differ in every part.
pub(crate) fn all() -> Vec<Tiny> {
    let rope = json!({"full_attention": {"rope_type": "proportional", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10.0}});
    let bare = json!({"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "attention_k_eq_v": true,
        "num_global_key_value_heads": 1, "use_double_wide_mlp": false, "rope_parameters": rope});
    let capped = json!({"num_key_value_heads": 1, "global_head_dim": 12, "final_logit_softcapping": 5.0,
        "hidden_size_per_layer_input": 6});
    vec![gemma4("gemma4", &json!({})), gemma4("gemma4-dense", &bare), gemma4("gemma4-capped", &capped)]
}
