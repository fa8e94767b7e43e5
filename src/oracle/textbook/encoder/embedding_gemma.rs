//! EmbeddingGemma: Gemma 3's layers over the whole text, local ones up to half their window to each side.

use std::rc::Rc;

use candle_core::Result as CandleResult;
use candle_nn::{LayerNorm, VarBuilder};

use super::EncoderNetwork;
use super::network::{Attention, Encoder, Layer, Norms};
use crate::error::Result;
use crate::settings::Settings;
use crate::textbook::family;
use crate::textbook::rotary::Rotary;
use anemeter_convert::checkpoint::Config;

pub(super) fn open(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn EncoderNetwork>> {
    let settings = Settings::gemma3(config, positions)?;
    let [local, global] = settings.local_and_global_rope()?;
    let local = Rc::new(Rotary::new(&local, positions)?);
    let global = Rc::new(Rotary::new(&global, positions)?);
    let farthest = settings.keys.size("sliding_window")? / 2;
    let is_local = settings.local_layers()?;
    let scale = settings.keys.number("query_pre_attn_scalar")?.powf(-0.5);
    let bias = settings.attention_bias;
    let layer = |i: usize, at: VarBuilder<'_>| -> CandleResult<Layer> {
        let norm = |width: usize, name: &str| plus_one(width, settings.epsilon, &at.pp(name));
        let [query, key, value, output] = family::projections(&settings, &at, (bias, bias))?;
        let hidden = settings.hidden;
        Ok(Layer {
            attention: Attention {
                projections: [query, key, value],
                output,
                head_norms: Some([
                    norm(settings.head_dim, "self_attn.q_norm")?,
                    norm(settings.head_dim, "self_attn.k_norm")?,
                ]),
                rotary: Some(if is_local[i] { local.clone() } else { global.clone() }),
                heads: settings.heads,
                kv_heads: settings.kv_heads,
                head_dim: settings.head_dim,
                scale,
                farthest: is_local[i].then_some(farthest),
            },
            mlp: family::gated_mlp(&settings, &at, false)?,
            norms: Norms::Around {
                attention: [norm(hidden, "input_layernorm")?, norm(hidden, "post_attention_layernorm")?],
                mlp: [
                    norm(hidden, "pre_feedforward_layernorm")?,
                    norm(hidden, "post_feedforward_layernorm")?,
                ],
            },
        })
    };
    let body = tensors.pp("model");
    let layers = body.pp("layers");
    Ok(Box::new(Encoder {
        words: body.get((settings.vocabulary, settings.hidden), "embed_tokens.weight")?,
        scale: (settings.hidden as f64).sqrt(),
        positions: None,
        types: None,
        norm: None,
        layers: (0..settings.layers).map(|i| layer(i, layers.pp(i))).collect::<CandleResult<_>>()?,
        last_norm: Some(plus_one(settings.hidden, settings.epsilon, &body.pp("norm"))?),
    }))
}

fn plus_one(width: usize, epsilon: f64, at: &VarBuilder<'_>) -> CandleResult<LayerNorm> {
    Ok(LayerNorm::rms_norm((at.get(width, "weight")? + 1.0)?, epsilon))
}
