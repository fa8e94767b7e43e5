//! Tiny random checkpoints of every architecture, as transformers names and lays out their tensors.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anemeter::atomic;
use half::f16;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

use super::decoders;
use super::gemma4;
use super::numbers::numbers;

/// A checkpoint before it is written.
#[derive(Clone)]
pub(crate) struct Tiny {
    /// What is special about it.
    pub(crate) name: &'static str,
    pub(crate) config: Value,
    /// Values by name, with their shapes.
    pub(crate) tensors: BTreeMap<String, (Vec<usize>, Vec<f16>)>,
}

pub(super) const LAYERS: usize = 3;
const VOCABULARY: usize = 37;
pub(super) const HIDDEN: usize = 24;
pub(super) const HEADS: usize = 4;
const KV_HEADS: usize = 2;
pub(super) const WIDE: usize = 40;

impl Tiny {
    /// A configuration over a common one, and no tensors yet.
    pub(super) fn new(name: &'static str, mut common: Value, config: &Value) -> Tiny {
        for (key, value) in config.as_object().unwrap() {
            common[key] = value.clone();
        }
        Tiny { name, config: common, tensors: BTreeMap::new() }
    }

    /// A checkpoint of a configuration over common sizes of Llama's family.
    pub(super) fn family(name: &'static str, class: &str, config: &Value) -> Tiny {
        let common = json!({
            "architectures": [class], "hidden_size": HIDDEN, "intermediate_size": WIDE, "vocab_size": VOCABULARY,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        });
        Tiny::new(name, common, config)
    }

    /// Adds a tensor of numbers up to `scale` around `middle`.
    pub(super) fn tensor(&mut self, name: &str, shape: &[usize], (middle, scale): (f32, f32)) {
        let seed = u32::try_from(self.tensors.len()).unwrap() + 1;
        let values = numbers(shape.iter().product(), seed).into_iter();
        let values = values.map(|v| f16::from_f32(middle + scale * v.to_f32())).collect();
        self.tensors.insert(name.to_owned(), (shape.to_vec(), values));
    }

    pub(super) fn matrix(&mut self, name: &str, out: usize, input: usize) {
        self.tensor(&format!("{name}.weight"), &[out, input], (0.0, 1.5 / (input as f32).sqrt()));
    }

    pub(super) fn bias(&mut self, name: &str, width: usize) {
        self.tensor(&format!("{name}.bias"), &[width], (0.0, 0.3));
    }

    pub(super) fn norm(&mut self, name: &str, width: usize, middle: f32) {
        self.tensor(&format!("{name}.weight"), &[width], (middle, 0.3));
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.config[key].as_bool().unwrap_or(false)
    }

    pub(super) fn kv_heads(&self) -> usize {
        usize::try_from(self.config["num_key_value_heads"].as_u64().unwrap()).unwrap()
    }

    pub(super) fn head_dim(&self) -> usize {
        self.config["head_dim"].as_u64().map_or(HIDDEN / HEADS, |dim| usize::try_from(dim).unwrap())
    }

    pub(super) fn vocabulary(&self) -> usize {
        usize::try_from(self.config["vocab_size"].as_u64().unwrap()).unwrap()
    }

    /// Embedding and final norm.
    pub(super) fn embedding_alone(&mut self, norm: &str, norm_middle: f32) {
        self.tensor("model.embed_tokens.weight", &[VOCABULARY, HIDDEN], (0.0, 1.0));
        self.norm(norm, HIDDEN, norm_middle);
    }

    /// Embedding, final norm, and a head unless it is tied.
    pub(super) fn ends(&mut self, tied: bool, norm_middle: f32) {
        self.embedding_alone("model.norm", norm_middle);
        if !tied {
            self.tensor("lm_head.weight", &[VOCABULARY, HIDDEN], (0.0, 0.5));
        }
    }

    pub(super) fn projections(&mut self, at: &str, inner_bias: bool, output_bias: bool) {
        let (kv_heads, head_dim) = (self.kv_heads(), self.head_dim());
        for (part, heads) in [("q", HEADS), ("k", kv_heads), ("v", kv_heads)] {
            let name = format!("{at}.self_attn.{part}_proj");
            self.matrix(&name, heads * head_dim, HIDDEN);
            if inner_bias {
                self.bias(&name, heads * head_dim);
            }
        }
        self.matrix(&format!("{at}.self_attn.o_proj"), HIDDEN, HEADS * head_dim);
        if output_bias {
            self.bias(&format!("{at}.self_attn.o_proj"), HIDDEN);
        }
    }

    pub(super) fn gated_mlp(&mut self, at: &str, bias: bool) {
        for (part, out, input) in [("gate", WIDE, HIDDEN), ("up", WIDE, HIDDEN), ("down", HIDDEN, WIDE)] {
            self.matrix(&format!("{at}.mlp.{part}_proj"), out, input);
            if bias {
                self.bias(&format!("{at}.mlp.{part}_proj"), out);
            }
        }
    }

    pub(super) fn norms(&mut self, at: &str, names: &[&str], middle: f32) {
        for name in names {
            self.norm(&format!("{at}.{name}_layernorm"), HIDDEN, middle);
        }
    }

    fn head_norms(&mut self, at: &str, middle: f32) {
        let head_dim = self.head_dim();
        for part in ["q", "k"] {
            self.norm(&format!("{at}.self_attn.{part}_norm"), head_dim, middle);
        }
    }

    /// Writes the folder of the checkpoint.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join(self.name);
        fs::create_dir_all(&path).unwrap();
        atomic::write_file(&path.join("config.json"), self.config.to_string().as_bytes()).unwrap();
        let views = self.tensors.iter().map(|(name, (shape, values))| {
            (name, TensorView::new(Dtype::F16, shape.clone(), bytemuck::cast_slice(values)).unwrap())
        });
        safetensors::serialize_to_file(views, None, &path.join("model.safetensors")).unwrap();
        path
    }
}

pub(super) fn llama_like(name: &'static str, class: &str, config: &Value, inner_bias: bool) -> Tiny {
    let mut tiny = Tiny::family(name, class, config);
    let bias = tiny.flag("attention_bias");
    let mlp_bias = tiny.flag("mlp_bias");
    tiny.ends(tiny.flag("tie_word_embeddings"), 1.0);
    for at in (0..LAYERS).map(|i| format!("model.layers.{i}")) {
        tiny.projections(&at, inner_bias || bias, bias);
        tiny.gated_mlp(&at, mlp_bias);
        tiny.norms(&at, &["input", "post_attention"], 1.0);
    }
    tiny
}

pub(crate) fn llama(name: &'static str, config: &Value) -> Tiny {
    llama_like(name, "LlamaForCausalLM", config, false)
}

pub(crate) fn qwen3(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = llama_like(name, "Qwen3ForCausalLM", config, false);
    (0..LAYERS).for_each(|i| tiny.head_norms(&format!("model.layers.{i}"), 1.0));
    tiny
}

pub(crate) fn gemma3(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, "Gemma3ForCausalLM", config);
    let bias = tiny.flag("attention_bias");
    tiny.ends(true, 0.0);
    for at in (0..LAYERS).map(|i| format!("model.layers.{i}")) {
        tiny.projections(&at, bias, bias);
        tiny.head_norms(&at, 0.0);
        tiny.gated_mlp(&at, false);
        tiny.norms(&at, &["input", "post_attention", "pre_feedforward", "post_feedforward"], 0.0);
    }
    tiny
}

pub(crate) fn phi3(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = Tiny::family(name, "Phi3ForCausalLM", config);
    let head_dim = tiny.head_dim();
    tiny.ends(tiny.flag("tie_word_embeddings"), 1.0);
    for at in (0..LAYERS).map(|i| format!("model.layers.{i}")) {
        tiny.matrix(&format!("{at}.self_attn.qkv_proj"), (HEADS + 2 * KV_HEADS) * head_dim, HIDDEN);
        tiny.matrix(&format!("{at}.self_attn.o_proj"), HIDDEN, HEADS * head_dim);
        tiny.matrix(&format!("{at}.mlp.gate_up_proj"), 2 * WIDE, HIDDEN);
        tiny.matrix(&format!("{at}.mlp.down_proj"), HIDDEN, WIDE);
        tiny.norms(&at, &["input", "post_attention"], 1.0);
    }
    tiny
}

/// GPT-2 without MLPs.
fn gpt2_trunk(name: &'static str, config: &Value) -> Tiny {
    let common = json!({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": HIDDEN, "n_head": HEADS,
        "n_layer": LAYERS, "n_positions": 64, "n_inner": WIDE, "vocab_size": VOCABULARY,
    });
    let mut tiny = Tiny::new(name, common, config);
    tiny.tensor("transformer.wte.weight", &[VOCABULARY, HIDDEN], (0.0, 1.0));
    tiny.tensor("transformer.wpe.weight", &[64, HIDDEN], (0.0, 0.5));
    let norms = (0..LAYERS).flat_map(|i| [format!("h.{i}.ln_1"), format!("h.{i}.ln_2")]);
    for norm in norms.chain(["ln_f".to_owned()]) {
        tiny.norm(&format!("transformer.{norm}"), HIDDEN, 1.0);
        tiny.bias(&format!("transformer.{norm}"), HIDDEN);
    }
    for at in (0..LAYERS).map(|i| format!("transformer.h.{i}.attn")) {
        for (part, out) in [("c_attn", 3 * HIDDEN), ("c_proj", HIDDEN)] {
            tiny.matrix(&format!("{at}.{part}"), HIDDEN, out);
            tiny.bias(&format!("{at}.{part}"), out);
        }
    }
    tiny
}

pub(crate) fn gpt2(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = gpt2_trunk(name, config);
    for at in (0..LAYERS).map(|i| format!("transformer.h.{i}.mlp")) {
        for (part, input, out) in [("c_fc", HIDDEN, WIDE), ("c_proj", WIDE, HIDDEN)] {
            tiny.matrix(&format!("{at}.{part}"), input, out);
            tiny.bias(&format!("{at}.{part}"), out);
        }
    }
    tiny
}

/// GPT-2 with gates in its MLPs: fixed shares, learned ones, and a norm of the gate in the last layer.
pub(crate) fn pagating(name: &'static str, config: &Value) -> Tiny {
    let mut tiny = gpt2_trunk(name, config);
    for i in 0..LAYERS {
        let at = format!("transformer.h.{i}.mlp");
        let parts = [("fc_in", WIDE, HIDDEN), ("act.value_proj", WIDE, WIDE), ("act.gate_proj", WIDE, WIDE)];
        for (part, out, input) in parts.into_iter().chain([("fc_out", HIDDEN, WIDE)]) {
            tiny.matrix(&format!("{at}.{part}"), out, input);
            tiny.bias(&format!("{at}.{part}"), out);
        }
        let share = if i == 0 { ("alpha_fixed", (0.7, 0.0)) } else { ("alpha_param", (0.4, 0.2)) };
        tiny.tensor(&format!("{at}.act.{}", share.0), &[], share.1);
        if i + 1 == LAYERS {
            tiny.norm(&format!("{at}.act.gate_norm"), WIDE, 1.0);
            tiny.bias(&format!("{at}.act.gate_norm"), WIDE);
        }
    }
    tiny
}

/// Every architecture and every feature that changes what is computed.
pub(crate) fn all() -> Vec<Tiny> {
    let llama3 = json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32}});
    // The tests generate beyond it.
    let long = json!({"original_max_position_embeddings": 8, "rope_scaling": {"type": "longrope",
        "short_factor": [1.0, 1.3, 2.5], "long_factor": [1.0, 2.0, 4.0]}});
    let wide_heads = json!({"head_dim": 8});
    let tied = json!({"head_dim": 8, "tie_word_embeddings": true});
    let local = json!({"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3,
        "sliding_window_pattern": 2, "final_logit_softcapping": 5.0});
    let scaled = json!({"head_dim": 8, "query_pre_attn_scalar": 16, "sliding_window": 3, "rope_scaling":
        {"rope_type": "linear", "factor": 8.0}, "layer_types":
        ["full_attention", "sliding_attention", "full_attention"]});
    let unlimited = json!({"num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 64,
        "sliding_window_pattern": 2});
    let yarn = json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0,
        "original_max_position_embeddings": 32}});
    let windows = json!({"use_sliding_window": true, "sliding_window": 3, "max_window_layers": 1});
    let student = json!({"model_type": "student_gqa"});
    let mut tinies = vec![
        llama("llama", &json!({})),
        llama("llama3", &llama3),
        llama("llama-biased", &json!({"attention_bias": true, "mlp_bias": true})),
        llama("llama-tied", &tied),
        llama_like("student", "StudentForCausalLM", &student, false),
        llama_like("mistral", "MistralForCausalLM", &wide_heads, false),
        llama_like("mistral-window", "MistralForCausalLM", &json!({"sliding_window": 3}), false),
        llama_like("mistral-tied", "MistralForCausalLM", &tied, false),
        llama_like("qwen2", "Qwen2ForCausalLM", &json!({}), true),
        llama_like("qwen2-yarn", "Qwen2ForCausalLM", &yarn, true),
        llama_like("qwen2-windows", "Qwen2ForCausalLM", &windows, true),
        qwen3("qwen3", &tied),
        qwen3("qwen3-biased", &json!({"head_dim": 8, "attention_bias": true})),
        gemma3("gemma3", &unlimited),
        gemma3("gemma3-local", &local),
        gemma3("gemma3-scaled", &scaled),
        phi3("phi3", &json!({"rope_scaling": null})),
        phi3("phi3-window", &json!({"sliding_window": 3, "tie_word_embeddings": true})),
        phi3("phi3-long", &long),
        gpt2("gpt2", &json!({})),
        gpt2("gpt2-relu", &json!({"activation_function": "relu", "scale_attn_by_inverse_layer_idx": true})),
        pagating("pagating", &json!({})),
        pagating("pagating-silu", &json!({"pagating_unit": "paSiLU"})),
    ];
    tinies.extend(decoders::all());
    tinies.extend(gemma4::all());
    tinies
}

/// The largest difference of two lists of logits; infinite if any is not a finite number.
pub(crate) fn max_abs_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let distance = |(a, b): (&f32, &f32)| match (a - b).abs() {
        distance if distance.is_finite() => distance,
        _ => f32::INFINITY,
    };
    a.iter().flatten().zip(b.iter().flatten()).map(distance).fold(0.0, f32::max)
}
