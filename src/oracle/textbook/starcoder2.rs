//! StarCoder 2: layer norms, plain MLPs with the approximate GELU, biases everywhere, an optional window.

use std::rc::Rc;

use candle_nn::{Activation, VarBuilder};

use super::decoder::{Layer, PlainMlp, centred_and_shifted};
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::reader;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("max_position_embeddings", 4096.0),
    ("norm_epsilon", 1e-5),
    ("use_bias", 1.0),
    ("tie_word_embeddings", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let keys = &settings.keys;
    let activation = keys.activation("hidden_act", Activation::GeluPytorchTanh)?;
    let (epsilon, bias) = (keys.number("norm_epsilon")?, keys.flag("use_bias")?);
    let window = keys.opt_size("sliding_window")?;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let (narrow, wide) = (settings.hidden, settings.intermediate);
    let mut decoder = family::decoder(&settings, tensors, |_, at| {
        let norm = |name: &str| centred_and_shifted(narrow, epsilon, &at.pp(name)).map(Some);
        let projections = family::projections(&settings, at, (bias, bias))?;
        let mlp = at.pp("mlp");
        Ok(Layer {
            attention_norm: norm("input_layernorm")?,
            mixer: Box::new(family::attention(&settings, projections, &rotary, window)),
            post_attention_norm: None,
            mlp_norm: norm("post_attention_layernorm")?,
            mlp: Box::new(PlainMlp {
                up: reader::linear(narrow, wide, bias, &mlp.pp("c_fc"))?,
                down: reader::linear(wide, narrow, bias, &mlp.pp("c_proj"))?,
                activation,
            }),
            post_mlp_norm: None,
            is_parallel: false,
            added: 1.0,
        })
    })?;
    decoder.norm = centred_and_shifted(narrow, epsilon, &tensors.pp("model.norm"))?;
    Ok(Box::new(decoder))
}
