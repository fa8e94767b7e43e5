//! Gemma 2: scaled embeddings, norms that add one to their weight around everything, capped scores and logits.

use std::rc::Rc;

use candle_nn::{Activation, VarBuilder};

use super::decoder::{Attention, Heads, Layer};
use super::family;
use super::gemma3::plus_one;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("num_key_value_heads", 4.0),
    ("head_dim", 256.0),
    ("max_position_embeddings", 8192.0),
    ("query_pre_attn_scalar", 256.0),
    ("tie_word_embeddings", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let activation = settings.keys.activation("hidden_activation", Activation::GeluPytorchTanh)?;
    let settings = Settings { activation, ..settings };
    let keys = &settings.keys;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    // The first layer has a window, the second has none, and so on.
    let (window, is_local) = (settings.window_or_4096()?, settings.windowed(|layer| layer % 2 == 0)?);
    let scale = 1.0 / keys.number("query_pre_attn_scalar")?.sqrt();
    let softcap = keys.number_unless_null("attn_logit_softcapping", 50.0)?;
    let bias = settings.attention_bias;
    let mut decoder = family::decoder(&settings, tensors, |i, at| {
        let norm = |name: &str| plus_one(settings.hidden, settings.epsilon, &at.pp(name)).map(Some);
        let projections = family::projections(&settings, at, (bias, bias))?;
        let window = if is_local[i] { window } else { None };
        let plain = family::attention(&settings, projections, &rotary, window);
        Ok(Layer {
            attention_norm: norm("input_layernorm")?,
            mixer: Box::new(Attention { shape: Heads { scale, ..plain.shape }, softcap, ..plain }),
            post_attention_norm: norm("post_attention_layernorm")?,
            mlp_norm: norm("pre_feedforward_layernorm")?,
            mlp: family::gated_mlp(&settings, at, false)?,
            post_mlp_norm: norm("post_feedforward_layernorm")?,
            is_parallel: false,
            added: 1.0,
        })
    })?;
    decoder.norm = plus_one(settings.hidden, settings.epsilon, &tensors.pp("model.norm"))?;
    decoder.embedding_scale = (settings.hidden as f64).sqrt();
    decoder.softcap = keys.number_unless_null("final_logit_softcapping", 30.0)?;
    Ok(Box::new(decoder))
}
