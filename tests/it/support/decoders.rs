//! Tiny random checkpoints of the decoders that differ from Llama by norms, positions and multipliers.

use serde_json::{Value, json};

use super::architectures::{HEADS, HIDDEN, LAYERS, Tiny, WIDE, llama_like};

const LAYER_NORMS: [&str; 2] = ["input", "post_attention"];

fn layers() -> impl Iterator<Item = String> {
    (0..LAYERS).map(|i| format!("model.layers.{i}"))
}

pub(crate) fn smollm3(name: &'static str, config: &Value) -> Tiny {
    llama_like(name, "SmolLM3ForCausalLM", config, false)
}

pub(crate) fn granite(name: &'static str, config: &Value) -> Tiny {
    llama_like(name, "GraniteForCausalLM", config, false)
}

/// Granite 4 without experts or Mamba: gate and value of the MLP in one matrix.
pub(crate) fn granite4(name: &'static str, config: &Value) -> Tiny {
    let common = json!({"shared_intermediate_size": WIDE, "num_local_experts": 0, "layer_types":
        ["attention", "attention", "attention"]});
    let mut tiny = Tiny::family(name, "GraniteMoeHybridForCausalLM", &and(&common, config));
    tiny.ends(tiny.flag("tie_word_embeddings"), 1.0);
    for at in layers() {
        tiny.projections(&at, false, false);
        tiny.matrix(&format!("{at}.shared_mlp.input_linear"), 2 * WIDE, HIDDEN);
        tiny.matrix(&format!("{at}.shared_mlp.output_linear"), HIDDEN, WIDE);
        tiny.norms(&at, &LAYER_NORMS, 1.0);
    }
    tiny
}

pub(crate) fn minicpm(name: &'static str, config: &Value) -> Tiny {
    llama_like(name, "MiniCPMForCausalLM", config, false)
}

/// OLMo 2 and 3: norms after attention and MLP, and of all heads together.
pub(crate) fn olmo(name: &'static str, class: &str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, class, config);
    tiny.ends(tiny.flag("tie_word_embeddings"), 1.0);
    let (query, key) = (HEADS * tiny.head_dim(), tiny.kv_heads() * tiny.head_dim());
    for at in layers() {
        tiny.projections(&at, false, false);
        tiny.norm(&format!("{at}.self_attn.q_norm"), query, 1.0);
        tiny.norm(&format!("{at}.self_attn.k_norm"), key, 1.0);
        tiny.gated_mlp(&at, false);
        tiny.norms(&at, &["post_attention", "post_feedforward"], 1.0);
    }
    tiny
}

pub(crate) fn gemma2(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, "Gemma2ForCausalLM", config);
    tiny.ends(true, 0.0);
    for at in layers() {
        tiny.projections(&at, false, false);
        tiny.gated_mlp(&at, false);
        tiny.norms(&at, &["input", "post_attention", "pre_feedforward", "post_feedforward"], 0.0);
    }
    tiny
}

fn norm_biases(tiny: &mut Tiny, names: &[&str]) {
    for at in layers() {
        names.iter().for_each(|name| tiny.bias(&format!("{at}.{name}_layernorm"), HIDDEN));
    }
    tiny.bias("model.norm", HIDDEN);
}

pub(crate) fn starcoder2(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, "Starcoder2ForCausalLM", config);
    tiny.ends(tiny.flag("tie_word_embeddings"), 1.0);
    for at in layers() {
        tiny.projections(&at, true, true);
        for (part, out, input) in [("c_fc", WIDE, HIDDEN), ("c_proj", HIDDEN, WIDE)] {
            tiny.matrix(&format!("{at}.mlp.{part}"), out, input);
            tiny.bias(&format!("{at}.mlp.{part}"), out);
        }
        tiny.norms(&at, &LAYER_NORMS, 1.0);
    }
    norm_biases(&mut tiny, &LAYER_NORMS);
    tiny
}

pub(crate) fn stablelm(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, "StableLmForCausalLM", config);
    let (bias, is_parallel) = (tiny.flag("use_qkv_bias"), tiny.flag("use_parallel_residual"));
    tiny.ends(false, 1.0);
    let norms = if is_parallel { &LAYER_NORMS[..1] } else { &LAYER_NORMS };
    for at in layers() {
        tiny.projections(&at, bias, false);
        tiny.gated_mlp(&at, false);
        tiny.norms(&at, norms, 1.0);
    }
    norm_biases(&mut tiny, norms);
    tiny
}

pub(crate) fn cohere2(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, "Cohere2ForCausalLM", config);
    let bias = tiny.flag("attention_bias");
    tiny.ends(tiny.flag("tie_word_embeddings"), 1.0);
    for at in layers() {
        tiny.projections(&at, bias, bias);
        tiny.gated_mlp(&at, false);
        tiny.norms(&at, &LAYER_NORMS[..1], 1.0);
    }
    tiny
}

/// GLM 4; the class of 2025 has norms after attention and MLP.
pub(crate) fn glm(name: &'static str, class: &str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, class, config);
    tiny.ends(false, 1.0);
    for at in layers() {
        tiny.projections(&at, true, false);
        tiny.matrix(&format!("{at}.mlp.gate_up_proj"), 2 * WIDE, HIDDEN);
        tiny.matrix(&format!("{at}.mlp.down_proj"), HIDDEN, WIDE);
        tiny.norms(&at, &LAYER_NORMS, 1.0);
        if class == "Glm4ForCausalLM" {
            tiny.norms(&at, &["post_self_attn", "post_mlp"], 1.0);
        }
    }
    tiny
}

pub(crate) fn ernie4_5(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, "Ernie4_5ForCausalLM", config);
    let bias = tiny.flag("use_bias");
    tiny.ends(tiny.flag("tie_word_embeddings"), 1.0);
    for at in layers() {
        tiny.projections(&at, bias, bias);
        tiny.gated_mlp(&at, bias);
        tiny.norms(&at, &LAYER_NORMS, 1.0);
    }
    tiny
}

/// Ministral 3, whose queries grow by `beta` with every so many positions.
pub(crate) fn ministral3(name: &'static str, length: usize, beta: f64) -> Tiny {
    let yarn = json!({"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": length, "llama_4_scaling_beta": beta});
    let config = json!({"head_dim": 8, "rope_parameters": yarn});
    llama_like(name, "Ministral3ForCausalLM", &config, false)
}

/// Of a checkpoint with a model of images beside the text model, which is exported.
pub(crate) fn mistral3(name: &'static str, text: &Tiny) -> Tiny {
    let config = json!({"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
        "text_config": text.config, "vision_config": {"hidden_size": 8}});
    let own = |name: &String| match name.strip_prefix("model.") {
        Some(rest) => format!("model.language_model.{rest}"),
        None => name.clone(),
    };
    let tensors = text.tensors.iter().map(|(name, tensor)| (own(name), tensor.clone())).collect();
    Tiny { name, config, tensors }
}

const GRANITE: &str = r#"{"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.37,
    "logits_scaling": 0.6}"#;

/// Values of two objects.
fn and(first: &Value, second: &Value) -> Value {
    let mut all = first.clone();
    for (key, value) in second.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

/// Each with at least two configurations.
pub(crate) fn all() -> Vec<Tiny> {
    let granite_keys: Value = serde_json::from_str(GRANITE).unwrap();
    let biased = json!({"attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true});
    let types = json!({"sliding_window": 3, "layer_types":
        ["sliding_attention", "full_attention", "sliding_attention"]});
    let nope = json!({"no_rope_layers": [0, 1, 1], "use_sliding_window": true, "sliding_window": 3,
        "tie_word_embeddings": false});
    let ministral3 = ministral3("ministral3", 7, 0.5);
    let caps = json!({"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3, "attn_logit_softcapping": 0.7,
        "final_logit_softcapping": 5.0});
    let uncapped = json!({"head_dim": 6, "num_key_value_heads": 1, "query_pre_attn_scalar": 20,
        "attn_logit_softcapping": null, "final_logit_softcapping": null, "sliding_window": 4,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"]});
    let by_kind = json!({"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}});
    let long = json!({"num_key_value_heads": 1, "rope_theta": 100.0, "rope_scaling":
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}});
    let half = json!({"head_dim": 8, "partial_rotary_factor": 0.5});
    let partly = json!({"head_dim": 10, "num_key_value_heads": 1, "rope_parameters":
        {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.6}});
    let third = json!({"use_qkv_bias": true, "partial_rotary_factor": 0.34});
    let parallel =
        json!({"use_parallel_residual": true, "partial_rotary_factor": 0.7, "num_key_value_heads": 4});
    let cohere = json!({"sliding_window": 3, "sliding_window_pattern": 2, "logit_scale": 0.4,
        "tie_word_embeddings": true});
    let starcoder = json!({"hidden_act": "gelu", "tie_word_embeddings": true});
    let code_window = json!({"sliding_window": 3, "num_key_value_heads": 1, "tie_word_embeddings": false});
    let cpm = json!({"scale_emb": 3, "scale_depth": 0.9, "dim_model_base": 16, "tie_word_embeddings": true});
    let plain_cpm =
        json!({"scale_emb": 2.5, "scale_depth": null, "dim_model_base": null, "tie_word_embeddings": false});
    let ernie = json!({"head_dim": 8, "use_bias": true, "tie_word_embeddings": false});
    vec![
        smollm3("smollm3", &json!({"no_rope_layer_interval": 2, "tie_word_embeddings": true})),
        smollm3("smollm3-listed", &nope),
        granite("granite", &granite_keys),
        granite("granite-biased", &and(&granite_keys, &biased)),
        granite4("granite4", &and(&granite_keys, &json!({"position_embedding_type": "rope"}))),
        granite4("granite4-nope", &json!({"position_embedding_type": "nope", "tie_word_embeddings": true})),
        minicpm("minicpm", &cpm),
        minicpm("minicpm-plain", &plain_cpm),
        olmo("olmo2", "Olmo2ForCausalLM", &json!({"num_key_value_heads": 4})),
        olmo("olmo2-tied", "Olmo2ForCausalLM", &json!({"tie_word_embeddings": true})),
        olmo("olmo3", "Olmo3ForCausalLM", &and(&types, &json!({"rope_parameters": by_kind}))),
        olmo("olmo3-older", "Olmo3ForCausalLM", &and(&types, &long)),
        gemma2("gemma2", &caps),
        gemma2("gemma2-uncapped", &uncapped),
        llama_like("ministral", "MinistralForCausalLM", &types, false),
        mistral3("mistral3", &ministral3),
        ministral3,
        starcoder2("starcoder2", &starcoder),
        starcoder2("starcoder2-window", &code_window),
        stablelm("stablelm", &third),
        stablelm("stablelm-parallel", &parallel),
        cohere2("cohere2", &cohere),
        cohere2(
            "cohere2-biased",
            &and(&types, &json!({"attention_bias": true, "logit_scale": 2.0, "tie_word_embeddings": false})),
        ),
        glm("glm", "GlmForCausalLM", &half),
        glm("glm4", "Glm4ForCausalLM", &half),
        glm("glm4-partly", "Glm4ForCausalLM", &partly),
        ernie4_5("ernie4_5", &json!({"head_dim": 8, "tie_word_embeddings": true})),
        ernie4_5("ernie4_5-biased", &ernie),
    ]
}
