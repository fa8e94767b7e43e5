//! LFM2: short convolutions between gates, and attention with norms of heads in some layers.

use std::rc::Rc;

use candle_nn::{VarBuilder, linear_b, linear_no_bias};

use super::decoder::{Attention, GatedMlp, Layer, Mixer, rms};
use super::family;
use super::rotary::Rotary;
use super::short_conv::ShortConv;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{Defaults, Settings};
use anemeter_convert::checkpoint::Config;

const DEFAULTS: Defaults = &[
    ("vocab_size", 65_536.0),
    ("intermediate_size", 12_288.0),
    ("max_position_embeddings", 128_000.0),
    ("norm_eps", 1e-5),
    ("rope_theta", 1e6),
    ("conv_L_cache", 3.0),
    ("block_multiple_of", 256.0),
    ("block_auto_adjust_ff_dim", 1.0),
    ("tie_word_embeddings", 1.0),
];

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, DEFAULTS, positions)?;
    let keys = &settings.keys;
    let mut wide = keys.opt_size("block_ff_dim")?.unwrap_or(settings.intermediate);
    if keys.flag("block_auto_adjust_ff_dim")? {
        wide = 2 * wide / 3;
        if let Some(factor) = keys.number_unless_null("block_ffn_dim_multiplier", 1.0)? {
            let multiple = keys.size("block_multiple_of")?.max(1);
            let product = (factor * wide as f64) as usize;
            wide = product + (multiple - product % multiple) % multiple;
        }
    }
    let tied = config.opt_bool("tie_embedding")?.unwrap_or(settings.tied);
    let settings = Settings { epsilon: keys.number("norm_eps")?, tied, ..settings };
    let keys = &settings.keys;
    let attends: Vec<bool> = match (keys.texts("layer_types")?, config.get("full_attn_idxs")) {
        (Some(types), _) => types.iter().map(|&kind| kind == "full_attention").collect(),
        (None, Some(_)) => {
            let indices = keys.numbers("full_attn_idxs")?;
            (0..settings.layers).map(|layer| indices.contains(&(layer as f64))).collect()
        }
        (None, None) => vec![true; settings.layers],
    };
    let (kernel, bias) = (keys.size("conv_L_cache")?, keys.flag("conv_bias")?);
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let (hidden, epsilon) = (settings.hidden, settings.epsilon);
    let last = rms(hidden, epsilon, &tensors.pp("model.embedding_norm"))?;
    let decoder = family::decoder_with(&settings, tensors, last, |i, at| {
        let feed = at.pp("feed_forward");
        let mixer: Box<dyn Mixer> = match attends[i] {
            true => Box::new(attention(&settings, &rotary, &at.pp("self_attn"))?),
            false => Box::new(ShortConv::new(hidden, kernel, bias, &at.pp("conv"))?),
        };
        Ok(Layer {
            attention_norm: Some(rms(hidden, epsilon, &at.pp("operator_norm"))?),
            mixer,
            post_attention_norm: None,
            mlp_norm: Some(rms(hidden, epsilon, &at.pp("ffn_norm"))?),
            mlp: Box::new(GatedMlp {
                gate: linear_no_bias(hidden, wide, feed.pp("w1"))?,
                up: linear_no_bias(hidden, wide, feed.pp("w3"))?,
                down: linear_no_bias(wide, hidden, feed.pp("w2"))?,
                activation: settings.activation,
            }),
            post_mlp_norm: None,
            is_parallel: false,
            added: 1.0,
        })
    })?;
    Ok(Box::new(decoder))
}

fn attention(
    settings: &Settings,
    rotary: &Rc<Rotary>,
    at: &VarBuilder<'_>,
) -> candle_core::Result<Attention> {
    let Settings { hidden, heads, kv_heads, head_dim, epsilon, .. } = *settings;
    let projection = |name: &str, count: usize| linear_b(hidden, count * head_dim, false, at.pp(name));
    let projections = [
        projection("q_proj", heads)?,
        projection("k_proj", kv_heads)?,
        projection("v_proj", kv_heads)?,
        linear_b(heads * head_dim, hidden, false, at.pp("out_proj"))?,
    ];
    Ok(Attention {
        query_norm: Some(rms(head_dim, epsilon, &at.pp("q_layernorm"))?),
        key_norm: Some(rms(head_dim, epsilon, &at.pp("k_layernorm"))?),
        ..family::attention(settings, projections, rotary, None)
    })
}
