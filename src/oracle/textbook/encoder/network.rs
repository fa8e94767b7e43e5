//! An encoder in its textbook form, put together from the parts that an architecture gives it.

use std::rc::Rc;

use candle_core::{D, Device, Module, Result, Tensor};
use candle_nn::{LayerNorm, Linear, ops};

use super::EncoderNetwork;
use crate::network::Watch;
use crate::textbook::rotary::Rotary;
use anemeter_harness::encode::EncoderTokens;
use anemeter_harness::verify::Point;

/// An encoder.
pub(super) struct Encoder {
    /// `[vocabulary, hidden]`.
    pub(super) words: Tensor,
    pub(super) scale: f64,
    /// Learned positions, and the row of the first token's.
    pub(super) positions: Option<(Tensor, usize)>,
    /// `[kinds, hidden]`.
    pub(super) types: Option<Tensor>,
    pub(super) norm: Option<LayerNorm>,
    pub(super) layers: Vec<Layer>,
    pub(super) last_norm: Option<LayerNorm>,
}

/// Attention and an MLP.
pub(super) struct Layer {
    pub(super) attention: Attention,
    pub(super) mlp: Box<dyn Module>,
    pub(super) norms: Norms,
}

/// Where a layer has its norms.
pub(super) enum Norms {
    /// Of sums, as in "Attention Is All You Need".
    Post { attention: LayerNorm, mlp: LayerNorm },
    /// Before each part; the first layer of some has none before its attention.
    Pre { attention: Option<LayerNorm>, mlp: LayerNorm },
    /// Before and after each part.
    Around { attention: [LayerNorm; 2], mlp: [LayerNorm; 2] },
}

/// Attention over a whole text.
pub(super) struct Attention {
    /// Query, key and value, of `[tokens, hidden]`.
    pub(super) projections: [Linear; 3],
    pub(super) output: Linear,
    /// Norms of query and key heads.
    pub(super) head_norms: Option<[LayerNorm; 2]>,
    pub(super) rotary: Option<Rc<Rotary>>,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) scale: f64,
    /// The largest distance at which a token is seen.
    pub(super) farthest: Option<usize>,
}

impl EncoderNetwork for Encoder {
    fn hidden_states(&self, tokens: &EncoderTokens, watch: Watch<'_>) -> Result<Tensor> {
        let count = tokens.ids.len();
        let rows = |table: &Tensor, ids: &[u32]| table.index_select(&Tensor::new(ids, &Device::Cpu)?, 0);
        let mut x = (rows(&self.words, &tokens.ids)? * self.scale)?;
        if let Some((table, first)) = &self.positions {
            x = (x + table.narrow(0, *first, count)?)?;
        }
        if let Some(table) = &self.types {
            // A model with one kind of segment has no others, whatever the tokenizer says.
            let kinds = table.dim(0)? as u32;
            let types: Vec<u32> = tokens.types.iter().map(|&kind| if kinds > 1 { kind } else { 0 }).collect();
            x = (x + rows(table, &types)?)?;
        }
        x = optional(self.norm.as_ref(), &x)?;
        watch(Point::Embedding, &x)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.attend(&x)?;
            watch(Point::Attention(index), &x)?;
            x = layer.transform(&x)?;
            watch(Point::Layer(index), &x)?;
        }
        optional(self.last_norm.as_ref(), &x)
    }
}

fn optional(norm: Option<&LayerNorm>, x: &Tensor) -> Result<Tensor> {
    norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))
}

impl Layer {
    fn attend(&self, x: &Tensor) -> Result<Tensor> {
        match &self.norms {
            Norms::Post { attention, .. } => attention.forward(&(x + self.attention.forward(x)?)?),
            Norms::Pre { attention, .. } => x + self.attention.forward(&optional(attention.as_ref(), x)?)?,
            Norms::Around { attention: [before, after], .. } => {
                x + after.forward(&self.attention.forward(&before.forward(x)?)?)?
            }
        }
    }

    fn transform(&self, x: &Tensor) -> Result<Tensor> {
        match &self.norms {
            Norms::Post { mlp, .. } => mlp.forward(&(x + self.mlp.forward(x)?)?),
            Norms::Pre { mlp, .. } => x + self.mlp.forward(&mlp.forward(x)?)?,
            Norms::Around { mlp: [before, after], .. } => {
                x + after.forward(&self.mlp.forward(&before.forward(x)?)?)?
            }
        }
    }
}

impl Attention {
    /// `[tokens, hidden]` to the same.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let counts = [self.heads, self.kv_heads, self.kv_heads];
        let mut split = Vec::with_capacity(3);
        for (part, (projection, count)) in self.projections.iter().zip(counts).enumerate() {
            let whole = projection.forward(x)?.reshape((tokens, count, self.head_dim))?;
            let mut heads = whole.transpose(0, 1)?.contiguous()?;
            if let (Some(norms), 0 | 1) = (&self.head_norms, part) {
                heads = norms[part].forward(&heads)?;
            }
            if let (Some(rotary), 0 | 1) = (&self.rotary, part) {
                heads = rotary.apply(&heads, 0)?;
            }
            split.push(heads);
        }
        let mut mixed = Vec::with_capacity(self.heads);
        for head in 0..self.heads {
            let shared = head / (self.heads / self.kv_heads);
            let (query, key, value) = (split[0].get(head)?, split[1].get(shared)?, split[2].get(shared)?);
            let scores = (query.matmul(&key.t()?)? * self.scale)?.add(&self.hidden(tokens)?)?;
            mixed.push(ops::softmax(&scores, D::Minus1)?.matmul(&value)?);
        }
        self.output.forward(&Tensor::cat(&mixed, 1)?)
    }

    /// Minus infinity where a token is too far away.
    fn hidden(&self, tokens: usize) -> Result<Tensor> {
        let value = |at: usize| {
            let is_far = self.farthest.is_some_and(|most| (at / tokens).abs_diff(at % tokens) > most);
            if is_far { f32::NEG_INFINITY } else { 0.0 }
        };
        Tensor::from_vec((0..tokens * tokens).map(value).collect(), (tokens, tokens), &Device::Cpu)
    }
}
