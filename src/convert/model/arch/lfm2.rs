//! LFM2 and LFM2.5: gated short convolutions in most layers, attention with norms of query and key heads in the others.

use super::family::{Family, Projections};
use super::{Architecture, llama, rotary};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder, Layer, Mlp, Residual};
use crate::model::keys::{Keys, Result, Size};
use crate::model::mixer::{CausalConv, Mixer, ShortConv};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture =
    Architecture { name: "lfm2", classes: &["Lfm2ForCausalLM"], model_types: &["lfm2"], build, ..llama::DEF };

const DEFAULTS: &[(&str, usize)] = &[
    ("vocab_size", 65_536),
    ("hidden_size", 2560),
    ("intermediate_size", 12_288),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
    ("num_key_value_heads", 8),
    ("max_position_embeddings", 128_000),
    ("conv_L_cache", 3),
    ("block_multiple_of", 256),
];

const ROTARY: rotary::Defaults = rotary::Defaults { base: 1e6, ..rotary::USUAL };

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, DEFAULTS);
    let family = Family {
        intermediate: intermediate(&keys)?,
        epsilon: keys.positive_or("norm_eps", 1e-5)? as f32,
        final_norm: "embedding_norm",
        tied: Some(keys.bool_or("tie_embedding", keys.bool_or("tie_word_embeddings", true)?)?),
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let rotary = family.rotary_or(&keys, ROTARY)?;
    let attends = attending(&keys, family.layers)?;
    let bias = keys.bool_or("conv_bias", false)?;
    let kernel = keys.size("conv_L_cache")?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let mixer = match attends[i] {
            true => attention(&family, &rotary, tensors, at).into(),
            false => Mixer::ShortConv(short_conv(&family, tensors, at, (&kernel, bias))),
        };
        Layer {
            attention_norm: Some(family.norm(tensors, &format!("{at}.operator_norm"), &family.hidden)),
            mixer,
            post_attention_norm: None,
            mlp_norm: Some(family.norm(tensors, &format!("{at}.ffn_norm"), &family.hidden)),
            mlp: mlp(&family, tensors, at),
            post_mlp_norm: None,
            residual: Residual::Sequential,
            per_layer: None,
            scale: 1.0,
        }
    })
}

/// The width of the MLPs: as configured, or two thirds of it, rounded up.
fn intermediate(keys: &Keys) -> Result<Size> {
    let size = match keys.opt_size("block_ff_dim")? {
        Some(size) => size,
        None => keys.size("intermediate_size")?,
    };
    if !keys.bool_or("block_auto_adjust_ff_dim", true)? {
        return Ok(size);
    }
    let mut value = 2 * size.value / 3;
    if let Some(factor) = keys.positive_unless_null("block_ffn_dim_multiplier", 1.0)? {
        let multiple = keys.size("block_multiple_of")?.value;
        value = ((factor * value as f64) as usize).div_ceil(multiple).saturating_mul(multiple);
    }
    Ok(Size { value, from: format!("{} by block_auto_adjust_ff_dim", size.from) })
}

/// Which layers attend.
fn attending(keys: &Keys, layers: usize) -> Result<Vec<bool>> {
    if let Some(types) = keys.opt_texts("layer_types")? {
        if types.len() != layers {
            return Err(
                keys.wrong("layer_types", &format!("has {} entries for {layers} layers", types.len()))
            );
        }
        let attends = types.into_iter().map(|kind| match kind {
            "full_attention" => Ok(true),
            "conv" => Ok(false),
            other => {
                Err(keys.wrong("layer_types", &format!("has `{other}`, expected conv or full_attention")))
            }
        });
        return attends.collect();
    }
    if !keys.has("full_attn_idxs") {
        return Ok(vec![true; layers]);
    }
    let indices = keys.floats("full_attn_idxs")?;
    Ok((0..layers).map(|layer| indices.contains(&(layer as f64))).collect())
}

fn attention(family: &Family, rotary: &rotary::Rotary, tensors: &mut Tensors<'_>, at: &str) -> Attention {
    let (query, key, hidden) = (family.query_width(), family.key_width(), &family.hidden);
    let mut into =
        |name: &str, width: &Size| tensors.linear(&format!("{at}.self_attn.{name}"), width, hidden, false);
    let projections = Projections {
        query: into("q_proj", &query),
        key: into("k_proj", &key),
        value: into("v_proj", &key),
        output: tensors.linear(&format!("{at}.self_attn.out_proj"), hidden, &query, false),
    };
    Attention {
        query_norm: Some(family.norm(tensors, &format!("{at}.self_attn.q_layernorm"), &family.head_dim)),
        key_norm: Some(family.norm(tensors, &format!("{at}.self_attn.k_layernorm"), &family.head_dim)),
        ..family.attention(projections, &rotary.rope, None)
    }
}

fn short_conv(
    family: &Family,
    tensors: &mut Tensors<'_>,
    at: &str,
    (kernel, bias): (&Size, bool),
) -> ShortConv {
    let hidden = &family.hidden;
    let one = Size { value: 1, from: "1".to_owned() };
    let parts = [("before", hidden), ("after", hidden), ("value", hidden)];
    let [before, after, value] = tensors.fused_biased(&format!("{at}.conv.in_proj"), parts, hidden, bias);
    ShortConv {
        before,
        after,
        value,
        conv: CausalConv {
            weight: tensors.weight(&format!("{at}.conv.conv.weight"), &[hidden, &one, kernel]),
            bias: bias.then(|| tensors.weight(&format!("{at}.conv.conv.bias"), &[hidden])),
        },
        output: tensors.linear(&format!("{at}.conv.out_proj"), hidden, hidden, bias),
    }
}

fn mlp(family: &Family, tensors: &mut Tensors<'_>, at: &str) -> Mlp {
    let (hidden, wide) = (&family.hidden, &family.intermediate);
    let mut linear = |name: &str, out: &Size, input: &Size| {
        tensors.linear(&format!("{at}.feed_forward.{name}"), out, input, false)
    };
    Mlp::Gated {
        gate: linear("w1", wide, hidden),
        up: linear("w3", wide, hidden),
        activation: family.activation,
        down: linear("w2", hidden, wide),
    }
}
