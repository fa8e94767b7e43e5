//! GPT-2: learned positions, layer norms, fused projections stored as `[in, out]`.

use candle_core::{Module, Result as CandleResult, Tensor};
use candle_nn::{Activation, Linear, VarBuilder};

use super::decoder::{Attention, Decoder, Heads, Layer, PlainMlp, centred_and_shifted};
use crate::error::Result;
use crate::network::Network;
use crate::reader;
use crate::settings::Keys;
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, _positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let trunk = Trunk::read(config)?;
    let activation = trunk.keys.activation("activation_function", Activation::GeluPytorchTanh)?;
    let decoder = trunk.decoder(tensors, |at| {
        Ok(Box::new(PlainMlp {
            up: conv1d(trunk.hidden, trunk.inner, &at.pp("c_fc"))?,
            down: conv1d(trunk.inner, trunk.hidden, &at.pp("c_proj"))?,
            activation,
        }))
    })?;
    Ok(Box::new(decoder))
}

/// Everything but the MLPs.
pub(super) struct Trunk {
    pub(super) keys: Keys,
    pub(super) hidden: usize,
    pub(super) inner: usize,
    heads: usize,
    layers: usize,
    epsilon: f64,
    scores_scaled: bool,
    scores_scaled_by_layer: bool,
    tied: bool,
}

impl Trunk {
    pub(super) fn read(config: &Config) -> Result<Trunk> {
        let keys = Keys::new(config, &[("scale_attn_weights", 1.0), ("tie_word_embeddings", 1.0)]);
        let hidden = keys.size("n_embd")?;
        Ok(Trunk {
            hidden,
            inner: keys.opt_size("n_inner")?.unwrap_or(4 * hidden),
            heads: keys.size("n_head")?,
            layers: keys.size("n_layer")?,
            epsilon: keys.opt_number("layer_norm_epsilon")?.unwrap_or(1e-5),
            scores_scaled: keys.flag("scale_attn_weights")?,
            scores_scaled_by_layer: keys.flag("scale_attn_by_inverse_layer_idx")?,
            tied: keys.flag("tie_word_embeddings")?,
            keys,
        })
    }

    /// The model, given how an MLP is built from the place of its tensors.
    pub(super) fn decoder(
        &self,
        tensors: &VarBuilder<'_>,
        mlp: impl Fn(&VarBuilder<'_>) -> CandleResult<Box<dyn Module>>,
    ) -> Result<Decoder> {
        let body = tensors.pp("transformer");
        let shape = (self.keys.size("vocab_size")?, self.hidden);
        let embedding = body.get(shape, "wte.weight")?;
        let head = reader::head(tensors, &embedding, self.tied)?;
        let layer = |i: usize| {
            let at = body.pp("h").pp(i);
            Ok(Layer {
                attention_norm: Some(centred_and_shifted(self.hidden, self.epsilon, &at.pp("ln_1"))?),
                mixer: Box::new(self.attention(i, &at.pp("attn"))?),
                post_attention_norm: None,
                mlp_norm: Some(centred_and_shifted(self.hidden, self.epsilon, &at.pp("ln_2"))?),
                mlp: mlp(&at.pp("mlp"))?,
                post_mlp_norm: None,
                is_parallel: false,
                added: 1.0,
            })
        };
        Ok(Decoder {
            embedding,
            embedding_scale: 1.0,
            positions: Some(body.get((self.keys.size("n_positions")?, self.hidden), "wpe.weight")?),
            layers: (0..self.layers).map(layer).collect::<CandleResult<_>>()?,
            norm: centred_and_shifted(self.hidden, self.epsilon, &body.pp("ln_f"))?,
            head,
            logit_scale: 1.0,
            softcap: None,
        })
    }

    fn attention(&self, layer: usize, at: &VarBuilder<'_>) -> CandleResult<Attention> {
        let hidden = self.hidden;
        let head_dim = hidden / self.heads.max(1);
        let weight = at.get((hidden, 3 * hidden), "c_attn.weight")?;
        let bias = reader::with_added(at, "c_attn.weight", Some(at.get(3 * hidden, "c_attn.bias")?))?;
        let part = |i: usize| {
            let columns = weight.narrow(1, i * hidden, hidden)?;
            let bias = bias.as_ref().map(|bias| bias.narrow(0, i * hidden, hidden)).transpose()?;
            CandleResult::Ok(Linear::new(columns.t()?.contiguous()?, bias))
        };
        let by_width = if self.scores_scaled { (head_dim as f64).sqrt() } else { 1.0 };
        let by_layer = if self.scores_scaled_by_layer { (layer + 1) as f64 } else { 1.0 };
        let scale = 1.0 / (by_width * by_layer);
        Ok(Attention {
            query: part(0)?,
            key: part(1)?,
            value: part(2)?,
            output: conv1d(hidden, hidden, &at.pp("c_proj"))?,
            query_norm: None,
            key_norm: None,
            rotary: None,
            shape: Heads { heads: self.heads, kv_heads: self.heads, head_dim, scale, window: None },
            softcap: None,
            output_gate: None,
            query_growth: None,
            cache: None,
        })
    }
}

/// A linear map whose matrix is stored as `[in, out]`.
fn conv1d(from: usize, to: usize, at: &VarBuilder<'_>) -> CandleResult<Linear> {
    let weight: Tensor = at.get((from, to), "weight")?;
    let bias = reader::with_added(at, "weight", Some(at.get(to, "bias")?))?;
    Ok(Linear::new(weight.t()?.contiguous()?, bias))
}
