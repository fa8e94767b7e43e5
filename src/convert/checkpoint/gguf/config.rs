//! GGUF metadata as the keys of `config.json`.

use serde_json::{Map, Value, json};

use super::super::error::{CheckpointError, Result};
use super::Tensors;
use super::architecture::{Architecture, Kind, ROPE_FREQS, ROPE_LONG, ROPE_SHORT};
use super::reader::{Metadata, decimal, key_error, opt_bool, opt_float, opt_text, opt_u64};
use anemeter_kernels::tensor::shape;

/// Settings every Llama 3 has; only its factor differs, and files keep the resulting frequencies alone.
const LLAMA3_LOW: f64 = 1.0;
const LLAMA3_HIGH: f64 = 4.0;
const LLAMA3_ORIGINAL: f64 = 8192.0;

/// Layers of Gemma 3's largest model, whose scores are scaled by the width per head.
const GEMMA3_27B_LAYERS: usize = 62;
/// Layers of Gemma 2's largest model, of which the same is true.
const GEMMA2_27B_LAYERS: usize = 46;
/// Every sixth layer of Gemma 3 sees the whole context.
const GEMMA3_PATTERN: usize = 6;

/// Writes the configuration of a file.
pub(super) struct Writer<'a> {
    pub(super) metadata: &'a Metadata<'a>,
    pub(super) architecture: &'static Architecture,
    pub(super) tensors: &'a Tensors<'a>,
}

impl Writer<'_> {
    /// The configuration.
    pub(super) fn write(&self) -> Result<Map<String, Value>> {
        let architecture = self.architecture;
        let mut config = Map::new();
        config.insert("architectures".into(), json!([architecture.class]));
        config.insert("model_type".into(), json!(architecture.model_type));
        config.insert(architecture.activation.0.into(), json!(architecture.activation.1));
        for &(suffix, key, kind) in architecture.settings.iter().copied().flatten() {
            let value = match kind {
                Kind::Size => Some(json!(self.size(suffix)?)),
                Kind::OptSize => self.opt_size(suffix)?.map(|size| json!(size)),
                Kind::OptFloat => self.opt_float(suffix)?.map(|number| json!(number)),
                Kind::OptBool => opt_bool(self.metadata, &self.key(suffix))?.map(|value| json!(value)),
            };
            config.extend(value.map(|value| (key.to_owned(), value)));
        }
        let embedding = self.tensors.plain("token_embd.weight")?;
        config.insert("vocab_size".into(), json!(embedding.shape.first()));
        let tied = !self.tensors.has("output.weight");
        config.insert("tie_word_embeddings".into(), json!(tied));
        if architecture.name != "gpt2" {
            self.attention(&mut config)?;
            self.rope(&mut config)?;
        }
        match architecture.name {
            "gemma3" => self.gemma(&mut config)?,
            "gemma2" => self.gemma2(&mut config)?,
            "mistral3" => self.mistral3(&mut config)?,
            "minicpm" => self.minicpm(&mut config)?,
            "lfm2" => self.lfm2(&mut config)?,
            // Files of OLMo 3 say that they are OLMo 2 with a window.
            "olmo2" if config.contains_key("sliding_window") => {
                config.insert("architectures".into(), json!(["Olmo3ForCausalLM"]));
                config.insert("model_type".into(), json!("olmo3"));
            }
            _ => {}
        }
        Ok(config)
    }

    fn attention(&self, config: &mut Map<String, Value>) -> Result<()> {
        let heads = self.size("attention.head_count")?;
        config.entry("num_key_value_heads").or_insert(json!(heads));
        let key_length = self.opt_size("attention.key_length")?;
        let value_length = self.opt_size("attention.value_length")?;
        if let (Some(key), Some(value)) = (key_length, value_length)
            && key != value
        {
            let problem = format!("is {value}, but keys are {key} wide; they must be equal");
            return Err(key_error(&self.key("attention.value_length"), &problem));
        }
        for (key, tensor) in [
            ("attention_bias", "blk.0.attn_q.bias"),
            ("use_qkv_bias", "blk.0.attn_q.bias"),
            ("use_bias", "blk.0.attn_q.bias"),
            ("mlp_bias", "blk.0.ffn_up.bias"),
        ] {
            config.insert(key.into(), json!(self.tensors.has(tensor)));
        }
        if matches!(self.architecture.name, "qwen2" | "qwen3") {
            config.insert("use_sliding_window".into(), json!(config.contains_key("sliding_window")));
        }
        let head_dim = self.head_dim()?;
        if let Some(rotated) = self.opt_size("rope.dimension_count")?
            && (rotated < head_dim || matches!(self.architecture.name, "stablelm" | "glm4"))
        {
            config.insert("partial_rotary_factor".into(), json!(rotated as f64 / head_dim as f64));
        }
        Ok(())
    }

    /// Width of a head.
    pub(super) fn head_dim(&self) -> Result<usize> {
        if let Some(width) = self.opt_size("attention.key_length")? {
            return Ok(width);
        }
        let (hidden, heads) = (self.size("embedding_length")?, self.size("attention.head_count")?);
        match hidden.checked_div(heads) {
            Some(width) if hidden.is_multiple_of(heads) => Ok(width),
            _ => {
                let problem = format!("is {heads}, which does not divide an embedding of {hidden}");
                Err(key_error(&self.key("attention.head_count"), &problem))
            }
        }
    }

    fn rope(&self, config: &mut Map<String, Value>) -> Result<()> {
        let original = self.opt_size("rope.scaling.original_context_length")?;
        let scaling = if self.tensors.has(ROPE_LONG) || self.tensors.has(ROPE_SHORT) {
            if let Some(original) = original {
                config.insert("original_max_position_embeddings".into(), json!(original));
            }
            let (short, long) = (self.factors(ROPE_SHORT)?, self.factors(ROPE_LONG)?);
            json!({"rope_type": "longrope", "type": "longrope", "short_factor": short, "long_factor": long})
        } else if self.tensors.has(ROPE_FREQS) {
            self.llama3()?
        } else {
            match opt_text(self.metadata, &self.key("rope.scaling.type"))? {
                None | Some("none") => return Ok(()),
                Some(kind) => {
                    let key = self.key("rope.scaling.factor");
                    let factor = self
                        .opt_float("rope.scaling.factor")?
                        .ok_or_else(|| key_error(&key, "is missing"))?;
                    let mut scaling = json!({"rope_type": kind, "type": kind, "factor": factor});
                    if let Some(original) = original {
                        scaling["original_max_position_embeddings"] = json!(original);
                    }
                    scaling
                }
            }
        };
        config.insert("rope_scaling".into(), scaling);
        Ok(())
    }

    fn factors(&self, name: &str) -> Result<Vec<f64>> {
        const MOST: usize = 1 << 16;
        let stored = self.tensors.plain(name)?;
        let count = shape::element_count(&stored.shape).unwrap_or(usize::MAX);
        if count > MOST {
            let message = format!("has {count} rotation factors, at most {MOST} make sense");
            return Err(CheckpointError::new(message).at_tensor(name));
        }
        let mut values = vec![0.0; count];
        stored.read(0..count, &mut values);
        match values.iter().all(|x| x.is_finite() && *x > 0.0) {
            true => Ok(values.into_iter().map(decimal).collect()),
            false => {
                Err(CheckpointError::new("has a rotation factor that is not a positive number")
                    .at_tensor(name))
            }
        }
    }

    /// Llama 3's scaling if its rule gives the stored factors, otherwise the factors themselves.
    fn llama3(&self) -> Result<Value> {
        let factors = self.factors(ROPE_FREQS)?;
        let base = self.opt_float("rope.freq_base")?.unwrap_or(10_000.0);
        // By the total order: `f64::max` would pass over a NaN.
        let factor = factors.iter().copied().chain([1.0]).max_by(f64::total_cmp).unwrap_or(1.0);
        let count = factors.len() as f64;
        let agrees = factors.iter().enumerate().all(|(i, &found)| {
            let wavelength = 2.0 * std::f64::consts::PI * base.powf(i as f64 / count);
            let smooth = (LLAMA3_ORIGINAL / wavelength - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);
            let smooth = smooth.clamp(0.0, 1.0);
            let expected = 1.0 / ((1.0 - smooth) / factor + smooth);
            (found / expected - 1.0).abs() < 1e-3
        });
        Ok(match agrees {
            true => json!({
                "rope_type": "llama3", "factor": factor,
                "low_freq_factor": LLAMA3_LOW, "high_freq_factor": LLAMA3_HIGH,
                "original_max_position_embeddings": LLAMA3_ORIGINAL as u64,
            }),
            false => json!({
                "rope_type": "longrope", "type": "longrope", "attention_factor": 1.0,
                "short_factor": factors, "long_factor": factors,
            }),
        })
    }

    fn gemma(&self, config: &mut Map<String, Value>) -> Result<()> {
        let layers = self.size("block_count")?;
        let scalar = match layers {
            GEMMA3_27B_LAYERS => self.size("embedding_length")? / self.size("attention.head_count")?.max(1),
            _ => self.head_dim()?,
        };
        config.insert("query_pre_attn_scalar".into(), json!(scalar));
        let local = self.opt_float("rope.freq_base_swa")?.unwrap_or(10_000.0);
        config.insert("rope_local_base_freq".into(), json!(local));
        config.insert("sliding_window_pattern".into(), json!(GEMMA3_PATTERN));
        Ok(())
    }

    fn gemma2(&self, config: &mut Map<String, Value>) -> Result<()> {
        let scalar = match self.size("block_count")? {
            GEMMA2_27B_LAYERS => self.size("embedding_length")? / self.size("attention.head_count")?.max(1),
            _ => self.head_dim()?,
        };
        config.insert("query_pre_attn_scalar".into(), json!(scalar));
        Ok(())
    }

    /// YaRN's settings and the growth of queries, which the section of RoPE has elsewhere.
    fn mistral3(&self, config: &mut Map<String, Value>) -> Result<()> {
        const GROWTH: &str = "attention.temperature_scale";
        config.entry("head_dim").or_insert(json!(self.head_dim()?));
        let Some(section) = config.get_mut("rope_scaling") else {
            return match self.opt_float(GROWTH)?.filter(|&growth| growth != 0.0) {
                Some(growth) => {
                    let problem = format!("is {growth}, but `rope.scaling.type` is not yarn");
                    Err(key_error(&self.key(GROWTH), &problem))
                }
                None => Ok(()),
            };
        };
        for (suffix, key) in [
            ("rope.scaling.yarn_beta_fast", "beta_fast"),
            ("rope.scaling.yarn_beta_slow", "beta_slow"),
            ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
            (GROWTH, "llama_4_scaling_beta"),
        ] {
            if let Some(value) = self.opt_float(suffix)?.filter(|&value| value != 0.0) {
                section[key] = json!(value);
            }
        }
        // llama.cpp takes the other factor of the magnitude for 1.
        if section.get("mscale_all_dim").is_some() {
            section["mscale"] = json!(1.0);
        }
        Ok(())
    }

    /// MiniCPM's scales, of which a file has the products.
    fn minicpm(&self, config: &mut Map<String, Value>) -> Result<()> {
        if let Some(scale) = self.opt_float("embedding_scale")? {
            config.insert("scale_emb".into(), json!(scale));
        }
        if let Some(scale) = self.opt_float("residual_scale")? {
            let depth = (self.size("block_count")? as f64).sqrt();
            config.insert("scale_depth".into(), json!(scale * depth));
        }
        if let Some(scale) = self.opt_float("logit_scale")?.filter(|&scale| scale > 0.0) {
            config.insert("dim_model_base".into(), json!(self.size("embedding_length")? as f64 / scale));
        }
        Ok(())
    }

    /// A key of the architecture.
    pub(super) fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.architecture.name)
    }

    fn size(&self, suffix: &str) -> Result<usize> {
        self.opt_size(suffix)?.ok_or_else(|| key_error(&self.key(suffix), "is missing"))
    }

    /// A size that may be left out.
    pub(super) fn opt_size(&self, suffix: &str) -> Result<Option<usize>> {
        let key = self.key(suffix);
        let value = opt_u64(self.metadata, &key)?;
        value.map(usize::try_from).transpose().map_err(|_| key_error(&key, "is too large"))
    }

    fn opt_float(&self, suffix: &str) -> Result<Option<f64>> {
        opt_float(self.metadata, &self.key(suffix))
    }
}
