//! Gemma 4's text model: per-layer embeddings, layers that see keys and values of earlier ones, wider heads without a window,
//! normed values and a factor on each layer.

use std::collections::BTreeMap;

use candle_core::{D, Device, Module, Result as CandleResult, Tensor};
use candle_nn::{Activation, LayerNorm, Linear, VarBuilder, linear_b, ops};

use super::decoder::{GatedMlp, mask, repeat, rms, split};
use crate::error::Result;
use crate::network::{Network, Watch};
use crate::reader::{self, TIED_VALUES};
use crate::settings::{Keys, wrong};
use anemeter_convert::checkpoint::{Config, ConfigError};
use anemeter_harness::verify::Point;

/// What configurations leave out.
const DEFAULTS: &[(&str, f64)] = &[
    ("num_attention_heads", 8.0),
    ("num_key_value_heads", 4.0),
    ("head_dim", 256.0),
    ("global_head_dim", 512.0),
    ("sliding_window", 512.0),
    ("rms_norm_eps", 1e-6),
    ("num_kv_shared_layers", 0.0),
    ("hidden_size_per_layer_input", 256.0),
    ("vocab_size", 262_144.0),
    ("vocab_size_per_layer_input", 262_144.0),
    ("tie_word_embeddings", 1.0),
];

struct Gemma4 {
    embedding: Tensor,
    per_layer: Option<PerLayer>,
    layers: Vec<Layer>,
    norm: LayerNorm,
    head: Linear,
    softcap: Option<f64>,
    /// Keys and values so far of layers that have their own.
    cache: BTreeMap<usize, (Tensor, Tensor)>,
}

/// The inputs of all layers.
struct PerLayer {
    /// `[tokens, layers * width]`.
    table: Tensor,
    width: usize,
    projection: Linear,
    norm: LayerNorm,
}

struct Layer {
    /// Before and after attention, before and after the MLP.
    norms: [LayerNorm; 4],
    attention: Attention,
    mlp: GatedMlp,
    mix: Option<Mix>,
    scalar: f64,
}

struct Attention {
    query: Linear,
    query_norm: LayerNorm,
    /// Where the layer has keys and values of its own.
    own: Option<Own>,
    /// The layer whose keys and values are seen.
    source: usize,
    output: Linear,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    window: Option<usize>,
    /// The angle per position of each pair of dimensions.
    frequencies: Vec<f64>,
}

struct Own {
    key: Linear,
    value: Option<Linear>,
    key_norm: LayerNorm,
    epsilon: f64,
}

struct Mix {
    gate: Linear,
    activation: Activation,
    projection: Linear,
    norm: LayerNorm,
}

pub(crate) fn open(config: &Config, _: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let text = config.opt_section("text_config")?.unwrap_or_else(|| config.clone());
    let sizes = Sizes::read(Keys::new(&text, DEFAULTS))?;
    let body = tensors.pp("model");
    let embedding = body.get((sizes.vocabulary, sizes.hidden), "embed_tokens.weight")?;
    let head = reader::head(tensors, &embedding, sizes.keys.flag("tie_word_embeddings")?)?;
    let per_layer = (sizes.per_layer > 0).then(|| PerLayer::open(&sizes, &body)).transpose()?;
    let layers = (0..sizes.kinds.len()).map(|index| Layer::open(&sizes, index, &body.pp("layers").pp(index)));
    Ok(Box::new(Gemma4 {
        embedding,
        per_layer,
        layers: layers.collect::<Result<_>>()?,
        norm: rms(sizes.hidden, sizes.epsilon, &body.pp("norm"))?,
        head,
        softcap: sizes.keys.opt_number("final_logit_softcapping")?,
        cache: BTreeMap::new(),
    }))
}

/// What a configuration says.
struct Sizes {
    keys: Keys,
    hidden: usize,
    vocabulary: usize,
    epsilon: f64,
    per_layer: usize,
    activation: Activation,
    /// Whether each layer has a window.
    kinds: Vec<bool>,
    /// Layers before this one have keys and values of their own.
    first_shared: usize,
}

impl Sizes {
    fn read(keys: Keys) -> std::result::Result<Sizes, ConfigError> {
        let layers = keys.size("num_hidden_layers")?;
        let mut kinds: Vec<bool> = match keys.texts("layer_types")? {
            Some(types) => types.into_iter().map(|kind| kind == "sliding_attention").collect(),
            None => (1..=layers).map(|number| number % 6 != 0).collect(),
        };
        if let Some(last) = kinds.last_mut() {
            *last = false;
        }
        Ok(Sizes {
            hidden: keys.size("hidden_size")?,
            vocabulary: keys.size("vocab_size")?,
            epsilon: keys.number("rms_norm_eps")?,
            per_layer: keys.size("hidden_size_per_layer_input")?,
            activation: keys.activation("hidden_activation", Activation::GeluPytorchTanh)?,
            first_shared: layers.saturating_sub(keys.size("num_kv_shared_layers")?),
            kinds,
            keys,
        })
    }

    /// Key and value heads of a layer, and their width.
    fn heads(&self, index: usize) -> std::result::Result<(usize, usize), ConfigError> {
        let (kv_heads, head_dim) = (self.keys.size("num_key_value_heads")?, self.keys.size("head_dim")?);
        if let Some(layers) = self.keys.section("per_layer_config")? {
            let Some(own) = layers.section(&index.to_string())? else { return Ok((kv_heads, head_dim)) };
            let kv_heads = own.opt_size("num_key_value_heads")?.unwrap_or(kv_heads);
            return Ok((kv_heads, own.opt_size("head_dim")?.unwrap_or(head_dim)));
        }
        if self.kinds[index] {
            return Ok((kv_heads, head_dim));
        }
        let of_global = self.keys.opt_size("num_global_key_value_heads")?;
        let of_global = of_global.filter(|_| self.keys.flag("attention_k_eq_v").unwrap_or(false));
        Ok((of_global.unwrap_or(kv_heads), self.keys.size("global_head_dim")?))
    }

    /// Angles of a layer whose heads are so wide.
    fn frequencies(&self, index: usize, head_dim: usize) -> std::result::Result<Vec<f64>, ConfigError> {
        let (name, base, share) = match self.kinds[index] {
            true => ("sliding_attention", 1e4, 1.0),
            false => ("full_attention", 1e6, 0.25),
        };
        let section = self.keys.section("rope_parameters")?;
        let section = section.map(|all| all.section(name)).transpose()?.flatten();
        let (base, share) = match &section {
            Some(section) => (
                section.opt_number("rope_theta")?.unwrap_or(base),
                section.opt_number("partial_rotary_factor")?.unwrap_or(1.0),
            ),
            None => (base, share),
        };
        let kind = section.as_ref().map(|section| section.text("rope_type")).transpose()?.flatten();
        if let Some(other) = kind.filter(|kind| !["default", "proportional"].contains(kind)) {
            return Err(wrong("rope_type", &format!("is `{other}`, for which there is no reference")));
        }
        let turning = (share * head_dim as f64 / 2.0).floor() as usize;
        let angle = |pair: usize| match pair < turning {
            true => base.powf(-2.0 * pair as f64 / head_dim as f64),
            false => 0.0,
        };
        Ok((0..head_dim / 2).map(angle).collect())
    }

    /// The layer whose keys and values a layer sees.
    fn source(&self, index: usize) -> usize {
        let before = &self.kinds[..self.first_shared.min(index)];
        match index < self.first_shared {
            true => index,
            false => before.iter().rposition(|kind| *kind == self.kinds[index]).unwrap_or(0),
        }
    }
}

impl PerLayer {
    fn open(sizes: &Sizes, body: &VarBuilder<'_>) -> Result<PerLayer> {
        let all = sizes.kinds.len() * sizes.per_layer;
        let rows = sizes.keys.size("vocab_size_per_layer_input")?;
        Ok(PerLayer {
            table: body.get((rows, all), "embed_tokens_per_layer.weight")?,
            width: sizes.per_layer,
            projection: linear_b(sizes.hidden, all, false, body.pp("per_layer_model_projection"))?,
            norm: rms(sizes.per_layer, sizes.epsilon, &body.pp("per_layer_projection_norm"))?,
        })
    }

    /// `[tokens, layers, width]`, given ids and the tokens' vectors.
    fn inputs(&self, ids: &Tensor, x: &Tensor) -> CandleResult<Tensor> {
        let (tokens, hidden) = x.dims2()?;
        let layers = self.table.dim(1)? / self.width;
        let looked_up = (self.table.index_select(ids, 0)? * (self.width as f64).sqrt())?;
        let projected = (self.projection.forward(x)? * (hidden as f64).powf(-0.5))?;
        let projected = self.norm.forward(&projected.reshape((tokens, layers, self.width))?)?;
        (projected + looked_up.reshape((tokens, layers, self.width))?)? * 0.5f64.sqrt()
    }
}

impl Layer {
    fn open(sizes: &Sizes, index: usize, at: &VarBuilder<'_>) -> Result<Layer> {
        let Sizes { hidden, epsilon, activation, per_layer, .. } = *sizes;
        let norm = |name: &str| rms(hidden, epsilon, &at.pp(name));
        let is_wide = sizes.keys.flag("use_double_wide_mlp")? && index >= sizes.first_shared;
        let wide = sizes.keys.size("intermediate_size")? * if is_wide { 2 } else { 1 };
        let map = |name: &str, from: usize, to: usize| linear_b(from, to, false, at.pp(name));
        let mix = match per_layer {
            0 => None,
            width => Some(Mix {
                gate: map("per_layer_input_gate", hidden, width)?,
                activation,
                projection: map("per_layer_projection", width, hidden)?,
                norm: norm("post_per_layer_input_norm")?,
            }),
        };
        let scalar = match at.contains_tensor("layer_scalar") {
            true => f64::from(at.get(1, "layer_scalar")?.to_vec1::<f32>()?[0]),
            false => 1.0,
        };
        Ok(Layer {
            norms: [
                norm("input_layernorm")?,
                norm("post_attention_layernorm")?,
                norm("pre_feedforward_layernorm")?,
                norm("post_feedforward_layernorm")?,
            ],
            attention: Attention::open(sizes, index, &at.pp("self_attn"))?,
            mlp: GatedMlp {
                gate: map("mlp.gate_proj", hidden, wide)?,
                up: map("mlp.up_proj", hidden, wide)?,
                down: map("mlp.down_proj", wide, hidden)?,
                activation,
            },
            mix,
            scalar,
        })
    }
}

impl Attention {
    fn open(sizes: &Sizes, index: usize, at: &VarBuilder<'_>) -> Result<Attention> {
        let Sizes { hidden, epsilon, .. } = *sizes;
        let heads = sizes.keys.size("num_attention_heads")?;
        let (kv_heads, head_dim) = sizes.heads(index)?;
        let bias = sizes.keys.flag("attention_bias")?;
        let map = |name: &str, count: usize| linear_b(hidden, count * head_dim, bias, at.pp(name));
        let keys_are_values = sizes.keys.flag("attention_k_eq_v")? && !sizes.kinds[index];
        let value = match keys_are_values {
            false => Some("v_proj"),
            true => Some(TIED_VALUES).filter(|name| at.pp(name).contains_tensor("weight")),
        };
        let own = match index < sizes.first_shared {
            false => None,
            true => Some(Own {
                key: map("k_proj", kv_heads)?,
                value: value.map(|name| map(name, kv_heads)).transpose()?,
                key_norm: rms(head_dim, epsilon, &at.pp("k_norm"))?,
                epsilon,
            }),
        };
        Ok(Attention {
            query: map("q_proj", heads)?,
            query_norm: rms(head_dim, epsilon, &at.pp("q_norm"))?,
            own,
            source: sizes.source(index),
            output: linear_b(heads * head_dim, hidden, bias, at.pp("o_proj"))?,
            heads,
            kv_heads,
            head_dim,
            window: sizes.kinds[index].then(|| sizes.keys.size("sliding_window")).transpose()?,
            frequencies: sizes.frequencies(index, head_dim)?,
        })
    }

    /// Turns `[heads, tokens, head_dim]` from a position on.
    fn turned(&self, x: &Tensor, offset: usize) -> CandleResult<Tensor> {
        let (tokens, half) = (x.dim(1)?, self.frequencies.len());
        let table = |function: fn(f64) -> f64| {
            let angle = |position: usize| self.frequencies.iter().map(move |f| f * position as f64);
            let values: Vec<f32> =
                (offset..offset + tokens).flat_map(angle).map(|angle| function(angle) as f32).collect();
            Tensor::from_vec(values, (tokens, half), &Device::Cpu)
        };
        let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
        let (first, second) = (x.narrow(2, 0, half)?, x.narrow(2, half, half)?);
        let turned_first = (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?;
        let turned_second = (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?;
        Tensor::cat(&[turned_first, turned_second], 2)
    }

    fn forward(
        &self,
        (index, x): (usize, &Tensor),
        offset: usize,
        cache: &mut BTreeMap<usize, (Tensor, Tensor)>,
    ) -> CandleResult<Tensor> {
        let Attention { heads, kv_heads, head_dim, window, .. } = *self;
        let tokens = x.dim(0)?;
        let query = self.query_norm.forward(&split(&self.query.forward(x)?, heads, head_dim)?)?;
        let query = self.turned(&query, offset)?;
        if let Some(own) = &self.own {
            let (mut key, mut value) = own.of(x, (kv_heads, head_dim))?;
            key = self.turned(&key, offset)?;
            if let Some((keys, values)) = cache.get(&index) {
                key = Tensor::cat(&[keys, &key], 1)?;
                value = Tensor::cat(&[values, &value], 1)?;
            }
            cache.insert(index, (key, value));
        }
        let Some((key, value)) = cache.get(&self.source) else {
            candle_core::bail!("no keys of {}", self.source)
        };
        let (key, value) = (repeat(key, heads / kv_heads)?, repeat(value, heads / kv_heads)?);
        let scores = query.contiguous()?.matmul(&key.transpose(1, 2)?.contiguous()?)?;
        let scores = scores.broadcast_add(&mask(tokens, offset, window)?)?;
        let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&value)?;
        self.output.forward(&mixed.transpose(0, 1)?.reshape((tokens, heads * head_dim))?)
    }
}

impl Own {
    /// Keys before they are turned, and values, `[kv_heads, tokens, head_dim]`.
    fn of(&self, x: &Tensor, (kv_heads, head_dim): (usize, usize)) -> CandleResult<(Tensor, Tensor)> {
        let key = split(&self.key.forward(x)?, kv_heads, head_dim)?;
        let value = match &self.value {
            Some(value) => split(&value.forward(x)?, kv_heads, head_dim)?,
            None => key.clone(),
        };
        let square = value.sqr()?.mean_keepdim(D::Minus1)?;
        let value = value.broadcast_div(&(square + self.epsilon)?.sqrt()?)?;
        Ok((self.key_norm.forward(&key)?, value.contiguous()?))
    }
}

impl Gemma4 {
    fn residual_stream(&mut self, ids: &Tensor, offset: usize, watch: Watch<'_>) -> CandleResult<Tensor> {
        let ids = ids.flatten_all()?;
        let width = self.embedding.dim(1)?;
        let mut x = (self.embedding.index_select(&ids, 0)? * (width as f64).sqrt())?;
        watch(Point::Embedding, &x)?;
        let inputs = self.per_layer.as_ref().map(|per_layer| per_layer.inputs(&ids, &x)).transpose()?;
        for (index, layer) in self.layers.iter().enumerate() {
            let [before, after, before_mlp, after_mlp] = &layer.norms;
            let seen = before.forward(&x)?;
            let mixed = layer.attention.forward((index, &seen), offset, &mut self.cache)?;
            x = (x + after.forward(&mixed)?)?;
            watch(Point::Attention(index), &x)?;
            let wide = layer.mlp.forward(&before_mlp.forward(&x)?)?;
            x = (x + after_mlp.forward(&wide)?)?;
            if let (Some(mix), Some(inputs)) = (&layer.mix, &inputs) {
                let gate = mix.activation.forward(&mix.gate.forward(&x)?)?;
                let own = inputs.narrow(1, index, 1)?.squeeze(1)?;
                let made = mix.projection.forward(&(gate * own)?)?;
                x = (x + mix.norm.forward(&made)?)?;
            }
            x = (x * layer.scalar)?;
            watch(Point::Layer(index), &x)?;
        }
        Ok(x)
    }
}

impl Network for Gemma4 {
    fn hidden_states(&mut self, ids: &Tensor, watch: Watch<'_>) -> CandleResult<Tensor> {
        let x = self.residual_stream(ids, 0, watch)?;
        self.norm.forward(&x)
    }

    fn forward_watched(&mut self, ids: &Tensor, offset: usize, watch: Watch<'_>) -> CandleResult<Tensor> {
        let x = self.residual_stream(ids, offset, watch)?;
        let last = self.norm.forward(&x.narrow(0, x.dim(0)? - 1, 1)?)?;
        let logits = self.head.forward(&last)?;
        match self.softcap {
            Some(cap) => (logits / cap)?.tanh()? * cap,
            None => Ok(logits),
        }
    }

    fn vocabulary(&self) -> usize {
        self.embedding.dims()[0]
    }

    fn boundary(&self) -> Option<usize> {
        None
    }

    fn clear(&mut self) {
        self.cache.clear();
    }
}
