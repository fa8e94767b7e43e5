//! Qwen 3.5, dense: gated delta rules, and in some layers attention whose outcome passes a gate.

use std::rc::Rc;

use candle_nn::{Linear, VarBuilder, linear_b};

use super::decoder::{Attention, Layer, Mixer};
use super::delta_net::{DeltaNet, Sizes};
use super::family;
use super::gemma3::plus_one;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("vocab_size", 248_320.0),
    ("num_attention_heads", 16.0),
    ("num_key_value_heads", 4.0),
    ("head_dim", 256.0),
    ("max_position_embeddings", 32_768.0),
    ("partial_rotary_factor", 0.25),
    ("full_attention_interval", 4.0),
    ("linear_conv_kernel_dim", 4.0),
    ("linear_key_head_dim", 128.0),
    ("linear_value_head_dim", 128.0),
    ("linear_num_key_heads", 16.0),
    ("linear_num_value_heads", 32.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let text = config.opt_section("text_config")?.unwrap_or_else(|| config.clone());
    let settings = Settings::read(&text, DEFAULTS, positions)?;
    let tied = text.opt_bool("tie_word_embeddings")?.or(config.opt_bool("tie_word_embeddings")?);
    let settings = Settings { tied: tied.unwrap_or(false), ..settings };
    let keys = &settings.keys;
    let (hidden, epsilon) = (settings.hidden, settings.epsilon);
    let interval = keys.size("full_attention_interval")?.max(1);
    let attends: Vec<bool> = match keys.texts("layer_types")? {
        Some(types) => types.iter().map(|&kind| kind == "full_attention").collect(),
        None => (0..settings.layers).map(|layer| layer % interval == interval - 1).collect(),
    };
    let sizes = Sizes {
        hidden,
        epsilon,
        key_heads: keys.size("linear_num_key_heads")?.max(1),
        value_heads: keys.size("linear_num_value_heads")?,
        key_dim: keys.size("linear_key_head_dim")?,
        value_dim: keys.size("linear_value_head_dim")?,
        kernel: keys.size("linear_conv_kernel_dim")?,
        activation: settings.activation,
    };
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let last = plus_one(hidden, epsilon, &tensors.pp("model.norm"))?;
    let decoder = family::decoder_with(&settings, tensors, last, |i, at| {
        let mixer: Box<dyn Mixer> = match attends[i] {
            true => Box::new(attention(&settings, &rotary, &at.pp("self_attn"))?),
            false => Box::new(DeltaNet::new(sizes, &at.pp("linear_attn"))?),
        };
        let norm = |name: &str| plus_one(hidden, epsilon, &at.pp(name));
        Ok(Layer {
            attention_norm: Some(norm("input_layernorm")?),
            mixer,
            post_attention_norm: None,
            mlp_norm: Some(norm("post_attention_layernorm")?),
            mlp: family::gated_mlp(&settings, at, false)?,
            post_mlp_norm: None,
            is_parallel: false,
            added: 1.0,
        })
    })?;
    Ok(Box::new(decoder))
}

/// Attention; below the query rows of each head are those of its gate.
fn attention(
    settings: &Settings,
    rotary: &Rc<Rotary>,
    at: &VarBuilder<'_>,
) -> candle_core::Result<Attention> {
    let Settings { hidden, heads, kv_heads, head_dim, epsilon, attention_bias, .. } = *settings;
    let both = linear_b(hidden, 2 * heads * head_dim, attention_bias, at.pp("q_proj"))?;
    let part = |index: usize| {
        let weight = both.weight().reshape((heads, 2, head_dim, hidden))?;
        let weight = weight.narrow(1, index, 1)?.reshape((heads * head_dim, hidden))?;
        let bias = match both.bias() {
            Some(bias) => {
                let bias = bias.reshape((heads, 2, head_dim))?.narrow(1, index, 1)?;
                Some(bias.reshape(heads * head_dim)?)
            }
            None => None,
        };
        candle_core::Result::Ok(Linear::new(weight, bias))
    };
    let projection = |name: &str| linear_b(hidden, kv_heads * head_dim, attention_bias, at.pp(name));
    let output = linear_b(heads * head_dim, hidden, attention_bias, at.pp("o_proj"))?;
    let projections = [part(0)?, projection("k_proj")?, projection("v_proj")?, output];
    Ok(Attention {
        query_norm: Some(plus_one(head_dim, epsilon, &at.pp("q_norm"))?),
        key_norm: Some(plus_one(head_dim, epsilon, &at.pp("k_norm"))?),
        output_gate: Some(part(1)?),
        ..family::attention(settings, projections, rotary, None)
    })
}
