//! The architectures a GGUF file may name: what their tensors and settings are called elsewhere.

/// How one architecture's GGUF files map to Hugging Face's form.
#[derive(Debug)]
pub(super) struct Architecture {
    /// `general.architecture`.
    pub(super) name: &'static str,
    /// `model_type` of `config.json`.
    pub(super) model_type: &'static str,
    /// `architectures` of `config.json`.
    pub(super) class: &'static str,
    /// Key and name of the activation function.
    pub(super) activation: (&'static str, &'static str),
    /// Whether the rows of queries and keys are interleaved for another form of rotation.
    pub(super) interleaves: bool,
    /// Whether norms are stored plus one.
    pub(super) norms_plus_one: bool,
    /// Whether linear maps are transposed to what Hugging Face has.
    pub(super) transposes: bool,
    /// What blocks begin with.
    pub(super) block: &'static str,
    /// Names of tensors outside blocks.
    pub(super) outer: &'static [(&'static str, &'static str)],
    /// Names of tensors inside blocks; of two for the same, the first counts.
    pub(super) inner: &'static [&'static [(&'static str, &'static str)]],
    /// Settings: what follows the architecture's name, key in `config.json`, and whether it must be there.
    pub(super) settings: &'static [&'static [Setting]],
}

/// One setting: metadata key without the architecture, key in `config.json`, kind.
pub(super) type Setting = (&'static str, &'static str, Kind);

/// What a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A size that must be there.
    Size,
    /// A size that may be left out.
    OptSize,
    /// A number that may be left out.
    OptFloat,
    /// A boolean that may be left out.
    OptBool,
}

use Kind::{OptBool, OptFloat, OptSize, Size};

/// Tensors that hold rotation factors, which become part of the configuration.
pub(super) const ROPE_FREQS: &str = "rope_freqs.weight";
pub(super) const ROPE_SHORT: &str = "rope_factors_short.weight";
pub(super) const ROPE_LONG: &str = "rope_factors_long.weight";

const OUTER: &[(&str, &str)] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

const INNER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Of Gemma, which has two norms more: these names come before the others.
const GEMMA_NORMS: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Of OLMo 2 and 3, which have norms after attention and MLP alone.
const OLMO_NORMS: &[(&str, &str)] =
    &[("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")];

/// Of GLM 4: norms after attention and MLP, and a gate that is stored above what it multiplies.
const GLM_INNER: &[(&str, &str)] = &[
    ("post_attention_norm", "post_self_attn_layernorm"),
    ("post_ffw_norm", "post_mlp_layernorm"),
    ("ffn_up", "mlp.gate_up_proj"),
];

const STARCODER_INNER: &[(&str, &str)] = &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")];

/// Of LFM2: other names for nearly everything, and convolutions in place of most attention.
const LFM2_OUTER: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("token_embd_norm", "model.embedding_norm"),
    ("output_norm", "model.embedding_norm"),
    ("output", "lm_head"),
];

const LFM2_INNER: &[(&str, &str)] = &[
    ("attn_norm", "operator_norm"),
    ("attn_output", "self_attn.out_proj"),
    ("attn_q_norm", "self_attn.q_layernorm"),
    ("attn_k_norm", "self_attn.k_layernorm"),
    ("shortconv.conv", "conv.conv"),
    ("shortconv.in_proj", "conv.in_proj"),
    ("shortconv.out_proj", "conv.out_proj"),
    ("ffn_norm", "ffn_norm"),
    ("ffn_gate", "feed_forward.w1"),
    ("ffn_up", "feed_forward.w3"),
    ("ffn_down", "feed_forward.w2"),
];

const PHI_INNER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_up", "mlp.gate_up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

const GPT2_OUTER: &[(&str, &str)] = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
    ("output", "lm_head"),
];

const GPT2_INNER: &[(&str, &str)] = &[
    ("attn_norm", "ln_1"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_norm", "ln_2"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
];

const SETTINGS: &[Setting] = &[
    ("block_count", "num_hidden_layers", Size),
    ("context_length", "max_position_embeddings", Size),
    ("embedding_length", "hidden_size", Size),
    ("feed_forward_length", "intermediate_size", Size),
    ("attention.head_count", "num_attention_heads", Size),
    ("attention.head_count_kv", "num_key_value_heads", OptSize),
    ("attention.key_length", "head_dim", OptSize),
    ("attention.sliding_window", "sliding_window", OptSize),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps", OptFloat),
    ("rope.freq_base", "rope_theta", OptFloat),
];

const LFM2_SETTINGS: &[Setting] = &[
    ("block_count", "num_hidden_layers", Size),
    ("context_length", "max_position_embeddings", Size),
    ("embedding_length", "hidden_size", Size),
    ("feed_forward_length", "intermediate_size", Size),
    ("attention.head_count", "num_attention_heads", Size),
    ("attention.layer_norm_rms_epsilon", "norm_eps", OptFloat),
    ("rope.freq_base", "rope_theta", OptFloat),
    ("shortconv.l_cache", "conv_L_cache", OptSize),
];

const GRANITE_SETTINGS: &[Setting] = &[
    ("embedding_scale", "embedding_multiplier", OptFloat),
    ("attention.scale", "attention_multiplier", OptFloat),
    ("residual_scale", "residual_multiplier", OptFloat),
    ("logit_scale", "logits_scaling", OptFloat),
];

const GEMMA2_SETTINGS: &[Setting] = &[
    ("attn_logit_softcapping", "attn_logit_softcapping", OptFloat),
    ("final_logit_softcapping", "final_logit_softcapping", OptFloat),
];

const STARCODER_SETTINGS: &[Setting] = &[("attention.layer_norm_epsilon", "norm_epsilon", OptFloat)];

const STABLELM_SETTINGS: &[Setting] = &[
    ("attention.layer_norm_epsilon", "layer_norm_eps", OptFloat),
    ("use_parallel_residual", "use_parallel_residual", OptBool),
];

const COHERE_SETTINGS: &[Setting] =
    &[("attention.layer_norm_epsilon", "layer_norm_eps", OptFloat), ("logit_scale", "logit_scale", OptFloat)];

const GPT2_SETTINGS: &[Setting] = &[
    ("block_count", "n_layer", Size),
    ("context_length", "n_positions", Size),
    ("embedding_length", "n_embd", Size),
    ("feed_forward_length", "n_inner", OptSize),
    ("attention.head_count", "n_head", Size),
    ("attention.layer_norm_epsilon", "layer_norm_epsilon", OptFloat),
];

const LLAMA: Architecture = Architecture {
    name: "llama",
    model_type: "llama",
    class: "LlamaForCausalLM",
    activation: ("hidden_act", "silu"),
    interleaves: true,
    norms_plus_one: false,
    transposes: false,
    block: "model.layers",
    outer: OUTER,
    inner: &[INNER],
    settings: &[SETTINGS],
};

const NOT_INTERLEAVED: Architecture = Architecture { interleaves: false, ..LLAMA };

/// Every architecture that is read.
pub(super) const ALL: &[Architecture] = &[
    LLAMA,
    Architecture { name: "mistral", model_type: "mistral", class: "MistralForCausalLM", ..LLAMA },
    Architecture { name: "mistral3", model_type: "ministral3", class: "Ministral3ForCausalLM", ..LLAMA },
    Architecture { name: "qwen2", model_type: "qwen2", class: "Qwen2ForCausalLM", ..NOT_INTERLEAVED },
    Architecture { name: "qwen3", model_type: "qwen3", class: "Qwen3ForCausalLM", ..NOT_INTERLEAVED },
    Architecture {
        name: "gemma3",
        model_type: "gemma3_text",
        class: "Gemma3ForCausalLM",
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        norms_plus_one: true,
        inner: &[GEMMA_NORMS, INNER],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "phi3",
        model_type: "phi3",
        class: "Phi3ForCausalLM",
        inner: &[PHI_INNER],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "gpt2",
        model_type: "gpt2",
        class: "GPT2LMHeadModel",
        activation: ("activation_function", "gelu_new"),
        interleaves: false,
        transposes: true,
        block: "transformer.h",
        outer: GPT2_OUTER,
        inner: &[GPT2_INNER],
        settings: &[GPT2_SETTINGS],
        ..LLAMA
    },
    Architecture { name: "smollm3", model_type: "smollm3", class: "SmolLM3ForCausalLM", ..LLAMA },
    Architecture {
        name: "granite",
        model_type: "granite",
        class: "GraniteForCausalLM",
        settings: &[SETTINGS, GRANITE_SETTINGS],
        ..LLAMA
    },
    Architecture { name: "minicpm", model_type: "minicpm", class: "MiniCPMForCausalLM", ..LLAMA },
    Architecture {
        name: "olmo2",
        model_type: "olmo2",
        class: "Olmo2ForCausalLM",
        inner: &[OLMO_NORMS, INNER],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "gemma2",
        model_type: "gemma2",
        class: "Gemma2ForCausalLM",
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        norms_plus_one: true,
        inner: &[GEMMA_NORMS, INNER],
        settings: &[SETTINGS, GEMMA2_SETTINGS],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "starcoder2",
        model_type: "starcoder2",
        class: "Starcoder2ForCausalLM",
        activation: ("hidden_act", "gelu_pytorch_tanh"),
        inner: &[STARCODER_INNER, INNER],
        settings: &[SETTINGS, STARCODER_SETTINGS],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "stablelm",
        model_type: "stablelm",
        class: "StableLmForCausalLM",
        settings: &[SETTINGS, STABLELM_SETTINGS],
        ..NOT_INTERLEAVED
    },
    // Cohere, GLM and Ernie rotate neighbours in Hugging Face's form as well: rows stay where they are.
    Architecture {
        name: "cohere2",
        model_type: "cohere2",
        class: "Cohere2ForCausalLM",
        settings: &[SETTINGS, COHERE_SETTINGS],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "glm4",
        model_type: "glm4",
        class: "Glm4ForCausalLM",
        inner: &[GLM_INNER, INNER],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "lfm2",
        model_type: "lfm2",
        class: "Lfm2ForCausalLM",
        outer: LFM2_OUTER,
        inner: &[LFM2_INNER, INNER],
        settings: &[LFM2_SETTINGS],
        ..NOT_INTERLEAVED
    },
    Architecture {
        name: "ernie4_5",
        model_type: "ernie4_5",
        class: "Ernie4_5ForCausalLM",
        ..NOT_INTERLEAVED
    },
];

/// A tensor's place in the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TensorName<'a> {
    /// Its name without block and ending, as the file has it.
    pub(super) stem: &'a str,
    /// Its Hugging Face name.
    pub(super) name: String,
}

impl Architecture {
    /// The place of a tensor by its GGUF name.
    pub(super) fn place<'a>(&self, gguf: &'a str) -> Option<TensorName<'a>> {
        let (path, ending) = gguf.rsplit_once('.')?;
        if !matches!(ending, "weight" | "bias") {
            return None;
        }
        let find = |table: &[(&str, &'static str)], stem: &str| {
            table.iter().find(|entry| entry.0 == stem).map(|entry| entry.1)
        };
        match path.strip_prefix("blk.") {
            Some(rest) => {
                let (number, stem) = rest.split_once('.')?;
                let number: u32 = number.parse().ok()?;
                let inner = self.inner.iter().find_map(|table| find(table, stem))?;
                Some(TensorName { stem, name: format!("{}.{number}.{inner}.{ending}", self.block) })
            }
            None => find(self.outer, path)
                .map(|outer| TensorName { stem: path, name: format!("{outer}.{ending}") }),
        }
    }
}
