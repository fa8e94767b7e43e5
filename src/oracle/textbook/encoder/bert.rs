//! BERT, as Devlin et al. 2018 describe it.

use candle_core::{Module, Result as CandleResult, Tensor};
use candle_nn::{Activation, LayerNorm, VarBuilder, linear};

use super::EncoderNetwork;
use super::network::{Attention, Encoder, Layer, Norms};
use crate::error::Result;
use crate::reader::Names;
use crate::settings::{Defaults, Keys};
use crate::textbook::decoder::PlainMlp;
use anemeter_convert::checkpoint::Config;

pub(super) const NAMES: Names = Names { body: "bert.", embedding: "embeddings.word_embeddings.weight" };

const DEFAULTS: Defaults =
    &[("type_vocab_size", 2.0), ("max_position_embeddings", 512.0), ("layer_norm_eps", 1e-12)];

pub(super) fn open(config: &Config, _: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn EncoderNetwork>> {
    Ok(Box::new(encoder(config, &tensors.pp("bert"), 0)?))
}

/// The network whose first position is a row of its table.
pub(super) fn encoder(config: &Config, tensors: &VarBuilder<'_>, first: usize) -> Result<Encoder> {
    let keys = Keys::new(config, DEFAULTS);
    let (hidden, wide) = (keys.size("hidden_size")?, keys.size("intermediate_size")?);
    let epsilon = keys.number("layer_norm_eps")?;
    let heads = keys.size("num_attention_heads")?;
    let activation = keys.activation("hidden_act", Activation::Gelu)?;
    let norm = |at: VarBuilder<'_>| layer_norm(hidden, epsilon, &at.pp("LayerNorm"));
    let layer = |at: VarBuilder<'_>| -> CandleResult<Layer> {
        let inner = at.pp("attention.self");
        let map = |name: &str| linear(hidden, hidden, inner.pp(name));
        let mlp: Box<dyn Module> = Box::new(PlainMlp {
            up: linear(hidden, wide, at.pp("intermediate.dense"))?,
            down: linear(wide, hidden, at.pp("output.dense"))?,
            activation,
        });
        Ok(Layer {
            attention: Attention {
                projections: [map("query")?, map("key")?, map("value")?],
                output: linear(hidden, hidden, at.pp("attention.output.dense"))?,
                head_norms: None,
                rotary: None,
                heads,
                kv_heads: heads,
                head_dim: hidden / heads.max(1),
                scale: 1.0 / ((hidden / heads.max(1)) as f64).sqrt(),
                farthest: None,
            },
            mlp,
            norms: Norms::Post { attention: norm(at.pp("attention.output"))?, mlp: norm(at.pp("output"))? },
        })
    };
    let embeddings = tensors.pp("embeddings");
    let table = |name: &str, rows: usize| -> CandleResult<Tensor> {
        embeddings.get((rows, hidden), &format!("{name}_embeddings.weight"))
    };
    let layers = tensors.pp("encoder.layer");
    Ok(Encoder {
        words: table("word", keys.size("vocab_size")?)?,
        scale: 1.0,
        positions: Some((table("position", keys.size("max_position_embeddings")?)?, first)),
        types: Some(table("token_type", keys.size("type_vocab_size")?)?),
        norm: Some(norm(embeddings.clone())?),
        layers: (0..keys.size("num_hidden_layers")?)
            .map(|i| layer(layers.pp(i)))
            .collect::<CandleResult<_>>()?,
        last_norm: None,
    })
}

/// A layer norm with scale and shift.
pub(super) fn layer_norm(width: usize, epsilon: f64, at: &VarBuilder<'_>) -> CandleResult<LayerNorm> {
    Ok(LayerNorm::new(at.get(width, "weight")?, at.get(width, "bias")?, epsilon))
}
