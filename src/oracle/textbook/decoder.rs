//! A decoder in its textbook form, put together from the parts that an architecture gives it.

use std::rc::Rc;

use candle_core::{D, Device, Module, Result, Tensor};
use candle_nn::{Activation, LayerNorm, Linear, VarBuilder, ops};

use super::rotary::Rotary;
use crate::network::{Network, Watch};
use anemeter_harness::verify::Point;

/// A decoder.
pub(super) struct Decoder {
    /// `[vocabulary, hidden]`.
    pub(super) embedding: Tensor,
    pub(super) embedding_scale: f64,
    /// Learned positions, `[positions, hidden]`.
    pub(super) positions: Option<Tensor>,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: LayerNorm,
    /// `[vocabulary, hidden]`.
    pub(super) head: Linear,
    pub(super) softcap: Option<f64>,
}

/// Attention and an MLP, each behind a norm.
pub(super) struct Layer {
    pub(super) attention_norm: LayerNorm,
    pub(super) attention: Attention,
    pub(super) post_attention_norm: Option<LayerNorm>,
    pub(super) mlp_norm: LayerNorm,
    pub(super) mlp: Box<dyn Module>,
    pub(super) post_mlp_norm: Option<LayerNorm>,
}

/// Attention with its cache.
pub(super) struct Attention {
    pub(super) query: Linear,
    pub(super) key: Linear,
    pub(super) value: Linear,
    pub(super) output: Linear,
    pub(super) query_norm: Option<LayerNorm>,
    pub(super) key_norm: Option<LayerNorm>,
    pub(super) rotary: Option<Rc<Rotary>>,
    pub(super) shape: Heads,
    pub(super) cache: Option<(Tensor, Tensor)>,
}

/// How attention is divided and what it sees.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f64,
    /// How many latest positions are seen, the query's own among them.
    pub(super) window: Option<usize>,
}

impl Network for Decoder {
    fn forward_watched(&mut self, ids: &Tensor, offset: usize, watch: Watch<'_>) -> Result<Tensor> {
        let ids = ids.flatten_all()?;
        let tokens = ids.elem_count();
        let mut x = (self.embedding.index_select(&ids, 0)? * self.embedding_scale)?;
        if let Some(positions) = &self.positions {
            x = (x + positions.narrow(0, offset, tokens)?)?;
        }
        watch(Point::Embedding, &x)?;
        for (index, layer) in self.layers.iter_mut().enumerate() {
            x = layer.attend(&x, offset)?;
            watch(Point::Attention(index), &x)?;
            x = layer.transform(&x)?;
            watch(Point::Layer(index), &x)?;
        }
        let last = self.norm.forward(&x.narrow(0, tokens - 1, 1)?)?;
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
        self.layers.iter().find_map(|layer| layer.attention.rotary.as_ref()?.boundary())
    }

    fn clear(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.attention.cache = None);
    }
}

impl Layer {
    /// Adds what attention makes of the hidden states.
    fn attend(&mut self, x: &Tensor, offset: usize) -> Result<Tensor> {
        let mut mixed = self.attention.forward(&self.attention_norm.forward(x)?, offset)?;
        if let Some(norm) = &self.post_attention_norm {
            mixed = norm.forward(&mixed)?;
        }
        x + mixed
    }

    /// Adds what the MLP makes of them.
    fn transform(&self, x: &Tensor) -> Result<Tensor> {
        let mut wide = self.mlp.forward(&self.mlp_norm.forward(x)?)?;
        if let Some(norm) = &self.post_mlp_norm {
            wide = norm.forward(&wide)?;
        }
        x + wide
    }
}

impl Attention {
    /// `[tokens, hidden]` to the same.
    fn forward(&mut self, x: &Tensor, offset: usize) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let Heads { heads, kv_heads, head_dim, scale, window } = self.shape;
        let place = |projection: &Linear, count: usize, norm: Option<&LayerNorm>| {
            let split = split(&projection.forward(x)?, count, head_dim)?;
            let normal = norm.map_or(Ok(split.clone()), |norm| norm.forward(&split))?;
            self.rotary.as_ref().map_or(Ok(normal.clone()), |rotary| rotary.apply(&normal, offset))
        };
        let query = place(&self.query, heads, self.query_norm.as_ref())?;
        let mut key = place(&self.key, kv_heads, self.key_norm.as_ref())?;
        let mut value = split(&self.value.forward(x)?, kv_heads, head_dim)?;
        if let Some((keys, values)) = &self.cache {
            key = Tensor::cat(&[keys, &key], 1)?;
            value = Tensor::cat(&[values, &value], 1)?;
        }
        self.cache = Some((key.clone(), value.clone()));
        let key = repeat(&key, heads / kv_heads)?;
        let scores = (query.contiguous()?.matmul(&key.transpose(1, 2)?.contiguous()?)? * scale)?;
        let scores = scores.broadcast_add(&mask(tokens, offset, window)?)?;
        let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&repeat(&value, heads / kv_heads)?)?;
        self.output.forward(&mixed.transpose(0, 1)?.reshape((tokens, heads * head_dim))?)
    }
}

/// `[tokens, count * head_dim]` to `[count, tokens, head_dim]`.
fn split(x: &Tensor, count: usize, head_dim: usize) -> Result<Tensor> {
    x.reshape((x.dim(0)?, count, head_dim))?.transpose(0, 1)?.contiguous()
}

/// Each head so many times in a row.
fn repeat(x: &Tensor, times: usize) -> Result<Tensor> {
    let (heads, tokens, width) = x.dims3()?;
    let repeated = x.unsqueeze(1)?.expand((heads, times, tokens, width))?;
    repeated.reshape((heads * times, tokens, width))?.contiguous()
}

/// Minus infinity where a query does not see a key, `[tokens, offset + tokens]`.
fn mask(tokens: usize, offset: usize, window: Option<usize>) -> Result<Tensor> {
    let sees = |query: usize, key: usize| key <= query && window.is_none_or(|window| query - key < window);
    let row = |query: usize| {
        (0..offset + tokens).map(move |key| if sees(query, key) { 0f32 } else { f32::NEG_INFINITY })
    };
    let values: Vec<f32> = (offset..offset + tokens).flat_map(row).collect();
    Tensor::from_vec(values, (tokens, offset + tokens), &Device::Cpu)
}

/// `down(activation(gate(x)) * up(x))`.
pub(super) struct GatedMlp {
    pub(super) gate: Linear,
    pub(super) up: Linear,
    pub(super) down: Linear,
    pub(super) activation: Activation,
}

impl Module for GatedMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gate = self.activation.forward(&self.gate.forward(x)?)?;
        self.down.forward(&(gate * self.up.forward(x)?)?)
    }
}

/// `down(activation(up(x)))`.
pub(super) struct PlainMlp {
    pub(super) up: Linear,
    pub(super) down: Linear,
    pub(super) activation: Activation,
}

impl Module for PlainMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.activation.forward(&self.up.forward(x)?)?)
    }
}

/// An RMS norm.
pub(super) fn rms(width: usize, epsilon: f64, at: &VarBuilder<'_>) -> Result<LayerNorm> {
    Ok(LayerNorm::rms_norm(at.get(width, "weight")?, epsilon))
}
