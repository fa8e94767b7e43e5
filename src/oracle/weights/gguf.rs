//! GGUF files through candle's reader and block types, brought to Hugging Face's names, layout and configuration keys.

use std::io::Cursor;

use candle_core::quantized::gguf_file::{Content, Value as Meta};
use candle_core::{Device, Error, Result, Tensor};
use serde_json::{Map, Value, json};

/// Tensors outside blocks: Hugging Face's name, GGUF's name.
const OUTER: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("model.embedding_norm", "token_embd_norm"),
    ("lm_head", "output"),
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
];

/// Tensors of blocks.
const INNER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("post_self_attn_layernorm", "post_attention_norm"),
    ("post_mlp_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("operator_norm", "attn_norm"),
    ("self_attn.out_proj", "attn_output"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
    ("conv.in_proj", "shortconv.in_proj"),
    ("conv.conv", "shortconv.conv"),
    ("conv.out_proj", "shortconv.out_proj"),
    ("ffn_norm", "ffn_norm"),
    ("feed_forward.w1", "ffn_gate"),
    ("feed_forward.w3", "ffn_up"),
    ("feed_forward.w2", "ffn_down"),
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// Settings of `config.json` by GGUF key.
const SETTINGS: &[(&str, &str)] = &[
    ("num_hidden_layers", "block_count"),
    ("max_position_embeddings", "context_length"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("sliding_window", "attention.sliding_window"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("norm_eps", "attention.layer_norm_rms_epsilon"),
    ("conv_L_cache", "shortconv.l_cache"),
    ("norm_epsilon", "attention.layer_norm_epsilon"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("embedding_multiplier", "embedding_scale"),
    ("attention_multiplier", "attention.scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
    ("logit_scale", "logit_scale"),
    ("scale_emb", "embedding_scale"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("rope_theta", "rope.freq_base"),
    ("original_max_position_embeddings", "rope.scaling.original_context_length"),
    ("n_layer", "block_count"),
    ("n_positions", "context_length"),
    ("n_embd", "embedding_length"),
    ("n_inner", "feed_forward_length"),
    ("n_head", "attention.head_count"),
    ("layer_norm_epsilon", "attention.layer_norm_epsilon"),
];

pub(crate) struct Gguf<'a> {
    content: Content,
    bytes: &'a [u8],
    architecture: String,
}

impl<'a> Gguf<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<Gguf<'a>> {
        let content = Content::read(&mut Cursor::new(bytes))?;
        let architecture = match content.metadata.get("general.architecture") {
            Some(Meta::String(name)) => name.clone(),
            _ => candle_core::bail!("GGUF key `general.architecture` is missing"),
        };
        Ok(Gguf { content, bytes, architecture })
    }

    /// A tensor by Hugging Face's name and in its layout.
    pub(super) fn tensor(&self, name: &str) -> Result<Tensor> {
        let own = self.own_name(name).ok_or_else(|| super::missing(name))?;
        let tensor = self.stored(&own)?;
        let is_norm = own.ends_with("norm.weight");
        match self.architecture.as_str() {
            // llama.cpp rotates neighbours where transformers rotates halves of a head.
            "llama" | "mistral" | "mistral3" | "smollm3" | "granite" | "minicpm"
                if own.contains(".attn_q.") || own.contains(".attn_k.") =>
            {
                let half = self.head_dim()? / 2;
                let (shape, rows) = (tensor.dims().to_vec(), tensor.dim(0)?);
                let pairs = tensor.reshape((rows / (2 * half), half, 2, tensor.elem_count() / rows))?;
                pairs.transpose(1, 2)?.contiguous()?.reshape(shape)
            }
            "gemma2" | "gemma3" if is_norm => tensor - 1.0,
            // One input to each channel.
            "lfm2" if own.ends_with("shortconv.conv.weight") && tensor.rank() == 2 => tensor.unsqueeze(1),
            "gpt2" if own.starts_with("blk.") && tensor.rank() == 2 => tensor.t()?.contiguous(),
            _ => Ok(tensor),
        }
    }

    fn stored(&self, own: &str) -> Result<Tensor> {
        let tensor = self.content.tensor(&mut Cursor::new(self.bytes), own, &Device::Cpu)?;
        tensor.dequantize(&Device::Cpu)
    }

    fn own_name(&self, name: &str) -> Option<String> {
        let (path, ending) = name.rsplit_once('.')?;
        let find = |table: &[(&str, &'static str)], wanted: &str| {
            table.iter().find(|(theirs, _)| *theirs == wanted).map(|&(_, own)| own)
        };
        if let Some(own) = find(OUTER, path) {
            return Some(format!("{own}.{ending}"));
        }
        let rest = path.strip_prefix("model.layers.").or_else(|| path.strip_prefix("transformer.h."))?;
        let (layer, part) = rest.split_once('.')?;
        let own = match (part, self.architecture.as_str()) {
            ("post_attention_layernorm", "gemma2" | "gemma3" | "olmo2") => "post_attention_norm",
            ("post_attention_layernorm", _) => "ffn_norm",
            _ => find(INNER, part)?,
        };
        Some(format!("blk.{layer}.{own}.{ending}"))
    }

    /// The configuration that the metadata and the tensors tell, in the keys of `config.json`.
    pub(super) fn config(&self) -> Result<Map<String, Value>> {
        let mut config = Map::new();
        for (key, own) in SETTINGS {
            config.extend(self.number(own).map(|number| ((*key).to_owned(), json!(number))));
        }
        let has = |name: &str| self.content.tensor_infos.contains_key(name);
        let embedding = self.content.tensor_infos.get("token_embd.weight");
        let embedding = embedding.ok_or_else(|| super::missing("token_embd.weight"))?;
        let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
        set("vocab_size", json!(embedding.shape.dims()[0]));
        set("tie_word_embeddings", json!(!has("output.weight")));
        for key in ["attention_bias", "use_bias", "use_qkv_bias"] {
            set(key, json!(has("blk.0.attn_q.bias")));
        }
        set("mlp_bias", json!(has("blk.0.ffn_up.bias")));
        set("use_sliding_window", json!(self.number("attention.sliding_window").is_some()));
        if let Some(rotated) = self.number("rope.dimension_count") {
            set("partial_rotary_factor", json!(rotated / self.head_dim()? as f64));
        }
        if let Some(scaling) = self.rope_scaling(has)? {
            set("rope_scaling", scaling);
        }
        if let Some(Meta::Bool(parallel)) = self.content.metadata.get(&self.key("use_parallel_residual")) {
            set("use_parallel_residual", json!(parallel));
        }
        if let (true, Some(scale)) = (self.architecture == "minicpm", self.number("residual_scale")) {
            set("scale_depth", json!(scale * self.require("block_count")?.sqrt()));
        }
        if let (true, Some(scale)) = (self.architecture == "minicpm", self.number("logit_scale")) {
            set("dim_model_base", json!(self.require("embedding_length")? / scale));
        }
        if self.architecture == "lfm2" {
            let layers = self.require("block_count")? as usize;
            let kind = |layer| match has(&format!("blk.{layer}.shortconv.conv.weight")) {
                true => "conv",
                false => "full_attention",
            };
            set("layer_types", json!((0..layers).map(kind).collect::<Vec<_>>()));
            set("block_auto_adjust_ff_dim", json!(false));
            set("conv_bias", json!(has("blk.0.shortconv.in_proj.bias")));
            if let Some(heads) = self.most("attention.head_count_kv") {
                set("num_key_value_heads", json!(heads));
            }
        }
        if self.architecture == "gemma2" {
            let width = self.require("embedding_length")? / self.require("attention.head_count")?;
            let is_27b = self.number("block_count") == Some(46.0);
            set("query_pre_attn_scalar", if is_27b { json!(width) } else { json!(self.head_dim()?) });
        }
        if self.architecture == "gemma3" {
            set("sliding_window_pattern", json!(6));
            set("rope_local_base_freq", json!(self.number("rope.freq_base_swa").unwrap_or(1e4)));
            // Only the model of 27 billion parameters scales scores by something else than the heads' width.
            let is_27b = self.number("block_count") == Some(62.0);
            let width = self.require("embedding_length")? / self.require("attention.head_count")?;
            set("query_pre_attn_scalar", if is_27b { json!(width) } else { json!(self.head_dim()?) });
        }
        Ok(config)
    }

    fn rope_scaling(&self, has: impl Fn(&str) -> bool) -> Result<Option<Value>> {
        let factors = |name: &str| self.stored(name)?.flatten_all()?.to_vec1::<f32>();
        if has("rope_factors_short.weight") {
            let (short, long) = (factors("rope_factors_short.weight")?, factors("rope_factors_long.weight")?);
            let mut scaling = json!({"type": "longrope", "short_factor": short, "long_factor": long});
            if let Some(factor) = self.number("rope.scaling.attn_factor") {
                scaling["attention_factor"] = json!(factor);
            }
            return Ok(Some(scaling));
        }
        if has("rope_freqs.weight") {
            let factors = factors("rope_freqs.weight")?;
            return Ok(Some(json!({
                "type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0,
            })));
        }
        match self.content.metadata.get(&self.key("rope.scaling.type")) {
            Some(Meta::String(kind)) if kind != "none" => {
                let mut scaling = json!({"type": kind, "factor": self.require("rope.scaling.factor")?});
                if self.architecture == "mistral3" {
                    self.ministral_rope(&mut scaling)?;
                }
                Ok(Some(scaling))
            }
            _ => Ok(None),
        }
    }

    /// What Ministral 3 has in its section of RoPE besides.
    fn ministral_rope(&self, section: &mut Value) -> Result<()> {
        section["original_max_position_embeddings"] =
            json!(self.require("rope.scaling.original_context_length")? as usize);
        let others = [
            ("beta_fast", "rope.scaling.yarn_beta_fast"),
            ("beta_slow", "rope.scaling.yarn_beta_slow"),
            ("mscale_all_dim", "rope.scaling.yarn_log_multiplier"),
            ("llama_4_scaling_beta", "attention.temperature_scale"),
        ];
        for (key, own) in others {
            if let Some(number) = self.number(own).filter(|&number| number != 0.0) {
                section[key] = json!(number);
            }
        }
        section["mscale"] = json!(1.0);
        Ok(())
    }

    /// The largest number of a list.
    fn most(&self, suffix: &str) -> Option<u64> {
        let Meta::Array(values) = self.content.metadata.get(&self.key(suffix))? else { return None };
        let number = |value: &Meta| match value {
            Meta::I32(number) => u64::try_from(*number).ok(),
            Meta::U32(number) => Some(u64::from(*number)),
            _ => None,
        };
        values.iter().filter_map(number).max()
    }

    fn head_dim(&self) -> Result<usize> {
        Ok(match self.number("attention.key_length") {
            Some(width) => width as usize,
            None => {
                self.require("embedding_length")? as usize / self.require("attention.head_count")? as usize
            }
        })
    }

    fn key(&self, own: &str) -> String {
        format!("{}.{own}", self.architecture)
    }

    fn require(&self, own: &str) -> Result<f64> {
        let missing = || Error::msg(format!("GGUF key `{}` is missing or not a number", self.key(own)));
        self.number(own).filter(|&number| number > 0.0).ok_or_else(missing)
    }

    fn number(&self, own: &str) -> Option<f64> {
        match *self.content.metadata.get(&self.key(own))? {
            Meta::U8(value) => Some(f64::from(value)),
            Meta::U16(value) => Some(f64::from(value)),
            Meta::U32(value) => Some(f64::from(value)),
            Meta::I32(value) => Some(f64::from(value)),
            Meta::U64(value) => Some(value as f64),
            Meta::I64(value) => Some(value as f64),
            Meta::F32(value) => Some(f64::from(value)),
            Meta::F64(value) => Some(value),
            _ => None,
        }
    }
}
