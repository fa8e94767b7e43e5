//! A decoder in its textbook form, put together from the parts that an architecture gives it.

use std::ops::Range;
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
    /// Factor on the logits.
    pub(super) logit_scale: f64,
    pub(super) softcap: Option<f64>,
}

/// What mixes tokens, with what it keeps of earlier ones.
pub(super) trait Mixer {
    /// `[tokens, hidden]` to the same; the first is at `offset`.
    fn forward(&mut self, x: &Tensor, offset: usize) -> Result<Tensor>;

    /// Forgets all tokens.
    fn clear(&mut self);

    /// Sequences of more tokens than this are computed otherwise.
    fn boundary(&self) -> Option<usize> {
        None
    }
}

/// Attention or another mixer, and an MLP, each between norms.
pub(super) struct Layer {
    pub(super) attention_norm: Option<LayerNorm>,
    pub(super) mixer: Box<dyn Mixer>,
    pub(super) post_attention_norm: Option<LayerNorm>,
    pub(super) mlp_norm: Option<LayerNorm>,
    pub(super) mlp: Box<dyn Module>,
    pub(super) post_mlp_norm: Option<LayerNorm>,
    /// Whether attention and MLP see the same normed input.
    pub(super) is_parallel: bool,
    /// Factor on what attention and MLP add.
    pub(super) added: f64,
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
    /// Cap of the scores.
    pub(super) softcap: Option<f64>,
    /// A gate on what each head gives, before its sigmoid.
    pub(super) output_gate: Option<Linear>,
    /// `1 + beta * ln(1 + floor(position / length))` times each query.
    pub(super) query_growth: Option<(f64, usize)>,
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

impl Decoder {
    /// What leaves the last layer, `[tokens, hidden]`.
    fn residual_stream(&mut self, ids: &Tensor, offset: usize, watch: Watch<'_>) -> Result<Tensor> {
        let ids = ids.flatten_all()?;
        let tokens = ids.elem_count();
        let mut x = (self.embedding.index_select(&ids, 0)? * self.embedding_scale)?;
        if let Some(positions) = &self.positions {
            x = (x + positions.narrow(0, offset, tokens)?)?;
        }
        watch(Point::Embedding, &x)?;
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let (attended, seen) = layer.attend(&x, offset)?;
            watch(Point::Attention(index), &attended)?;
            x = layer.transform(&attended, &seen)?;
            watch(Point::Layer(index), &x)?;
        }
        Ok(x)
    }
}

impl Network for Decoder {
    fn hidden_states(&mut self, ids: &Tensor, watch: Watch<'_>) -> Result<Tensor> {
        let x = self.residual_stream(ids, 0, watch)?;
        self.norm.forward(&x)
    }

    fn forward_watched(&mut self, ids: &Tensor, offset: usize, watch: Watch<'_>) -> Result<Tensor> {
        let x = self.residual_stream(ids, offset, watch)?;
        let last = self.norm.forward(&x.narrow(0, x.dim(0)? - 1, 1)?)?;
        let logits = (self.head.forward(&last)? * self.logit_scale)?;
        match self.softcap {
            Some(cap) => (logits / cap)?.tanh()? * cap,
            None => Ok(logits),
        }
    }

    fn vocabulary(&self) -> usize {
        self.embedding.dims()[0]
    }

    fn boundary(&self) -> Option<usize> {
        self.layers.iter().find_map(|layer| layer.mixer.boundary())
    }

    fn clear(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.mixer.clear());
    }
}

impl Layer {
    /// Adds what attention makes of the hidden states, and gives what it saw.
    fn attend(&mut self, x: &Tensor, offset: usize) -> Result<(Tensor, Tensor)> {
        let seen = normed(self.attention_norm.as_ref(), x)?;
        let mixed = self.mixer.forward(&seen, offset)?;
        let mixed = normed(self.post_attention_norm.as_ref(), &mixed)?;
        Ok(((x + (mixed * self.added)?)?, seen))
    }

    /// Adds what the MLP makes of them, or of what attention saw.
    fn transform(&self, x: &Tensor, seen: &Tensor) -> Result<Tensor> {
        let into = if self.is_parallel { seen.clone() } else { normed(self.mlp_norm.as_ref(), x)? };
        let wide = normed(self.post_mlp_norm.as_ref(), &self.mlp.forward(&into)?)?;
        x + (wide * self.added)?
    }
}

fn normed(norm: Option<&LayerNorm>, x: &Tensor) -> Result<Tensor> {
    norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))
}

impl Mixer for Attention {
    fn clear(&mut self) {
        self.cache = None;
    }

    fn boundary(&self) -> Option<usize> {
        self.rotary.as_ref()?.boundary()
    }

    fn forward(&mut self, x: &Tensor, offset: usize) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let Heads { heads, kv_heads, head_dim, scale, window } = self.shape;
        let place = |projection: &Linear, count: usize, norm: Option<&LayerNorm>| {
            let mut all = projection.forward(x)?;
            // A norm that is wider than a head is one of all heads.
            let is_each = norm.is_some_and(|norm| norm.weight().elem_count() == head_dim);
            if !is_each {
                all = normed(norm, &all)?;
            }
            let split = split(&all, count, head_dim)?;
            let normal = normed(norm.filter(|_| is_each), &split)?;
            self.rotary.as_ref().map_or(Ok(normal.clone()), |rotary| rotary.apply(&normal, offset))
        };
        let mut query = place(&self.query, heads, self.query_norm.as_ref())?;
        if let Some((beta, length)) = self.query_growth {
            query = query.broadcast_mul(&growth(beta, length, offset..offset + tokens)?)?;
        }
        let mut key = place(&self.key, kv_heads, self.key_norm.as_ref())?;
        let mut value = split(&self.value.forward(x)?, kv_heads, head_dim)?;
        if let Some((keys, values)) = &self.cache {
            key = Tensor::cat(&[keys, &key], 1)?;
            value = Tensor::cat(&[values, &value], 1)?;
        }
        self.cache = Some((key.clone(), value.clone()));
        let key = repeat(&key, heads / kv_heads)?;
        let scores = (query.contiguous()?.matmul(&key.transpose(1, 2)?.contiguous()?)? * scale)?;
        let scores = match self.softcap {
            Some(cap) => ((scores / cap)?.tanh()? * cap)?,
            None => scores,
        };
        let scores = scores.broadcast_add(&mask(tokens, offset, window)?)?;
        let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&repeat(&value, heads / kv_heads)?)?;
        let mut mixed = mixed.transpose(0, 1)?.reshape((tokens, heads * head_dim))?;
        if let Some(gate) = &self.output_gate {
            mixed = (mixed * ops::sigmoid(&gate.forward(x)?)?)?;
        }
        self.output.forward(&mixed)
    }
}

/// Factors of queries by position, `[tokens, 1]`.
fn growth(beta: f64, length: usize, positions: Range<usize>) -> Result<Tensor> {
    let factor = |position: usize| (1.0 + beta * ((1 + position / length.max(1)) as f64).ln()) as f32;
    let factors: Vec<f32> = positions.map(factor).collect();
    let count = factors.len();
    Tensor::from_vec(factors, (count, 1), &Device::Cpu)
}

/// `[tokens, count * head_dim]` to `[count, tokens, head_dim]`.
pub(super) fn split(x: &Tensor, count: usize, head_dim: usize) -> Result<Tensor> {
    x.reshape((x.dim(0)?, count, head_dim))?.transpose(0, 1)?.contiguous()
}

/// Each head so many times in a row.
pub(super) fn repeat(x: &Tensor, times: usize) -> Result<Tensor> {
    let (heads, tokens, width) = x.dims3()?;
    let repeated = x.unsqueeze(1)?.expand((heads, times, tokens, width))?;
    repeated.reshape((heads * times, tokens, width))?.contiguous()
}

/// Minus infinity where a query does not see a key, `[tokens, offset + tokens]`.
pub(super) fn mask(tokens: usize, offset: usize, window: Option<usize>) -> Result<Tensor> {
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

/// A layer norm without bias.
pub(super) fn centred(width: usize, epsilon: f64, at: &VarBuilder<'_>) -> Result<LayerNorm> {
    Ok(LayerNorm::new_no_bias(at.get(width, "weight")?, epsilon))
}

/// A layer norm with bias.
pub(super) fn centred_and_shifted(width: usize, epsilon: f64, at: &VarBuilder<'_>) -> Result<LayerNorm> {
    Ok(LayerNorm::new(at.get(width, "weight")?, at.get(width, "bias")?, epsilon))
}

/// An RMS norm.
pub(super) fn rms(width: usize, epsilon: f64, at: &VarBuilder<'_>) -> Result<LayerNorm> {
    Ok(LayerNorm::rms_norm(at.get(width, "weight")?, epsilon))
}
