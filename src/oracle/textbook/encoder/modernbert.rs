//! ModernBERT, as Warner et al. 2024 describe it.

use std::rc::Rc;

use candle_core::{Module, Result as CandleResult};
use candle_nn::{Activation, LayerNorm, Linear, VarBuilder, linear_b};

use super::EncoderNetwork;
use super::network::{Attention, Encoder, Layer, Norms};
use crate::error::Result;
use crate::reader::Names;
use crate::settings::{Defaults, Keys, Rope, Scaling, wrong};
use crate::textbook::decoder::GatedMlp;
use crate::textbook::rotary::Rotary;
use anemeter_convert::checkpoint::Config;

pub(super) const NAMES: Names = Names { body: "model.", embedding: "embeddings.tok_embeddings.weight" };

const DEFAULTS: Defaults = &[
    ("norm_eps", 1e-5),
    ("local_attention", 128.0),
    ("global_attn_every_n_layers", 3.0),
    ("global_rope_theta", 160_000.0),
    ("local_rope_theta", 10_000.0),
];

pub(super) fn open(
    config: &Config,
    positions: usize,
    tensors: &VarBuilder<'_>,
) -> Result<Box<dyn EncoderNetwork>> {
    let keys = Keys::new(config, DEFAULTS);
    let (hidden, wide) = (keys.size("hidden_size")?, keys.size("intermediate_size")?);
    let heads = keys.size("num_attention_heads")?;
    let head_dim = hidden / heads.max(1);
    let activation = keys.activation("hidden_activation", Activation::Gelu)?;
    let every = keys.size("global_attn_every_n_layers")?.max(1);
    let count = keys.size("num_hidden_layers")?;
    let is_local: Vec<bool> = match keys.texts("layer_types")? {
        Some(types) => types.iter().map(|&kind| kind == "sliding_attention").collect(),
        None => (0..count).map(|layer| layer % every != 0).collect(),
    };
    let rotary = |section: &str, key: &str| -> Result<Rc<Rotary>> {
        Ok(Rc::new(Rotary::new(&rope(&keys, (section, key), head_dim)?, positions)?))
    };
    let local = rotary("sliding_attention", "local_rope_theta")?;
    let global = rotary("full_attention", "global_rope_theta")?;
    let farthest = keys.size("local_attention")? / 2;
    let (attention_bias, mlp_bias) = (keys.flag("attention_bias")?, keys.flag("mlp_bias")?);
    let (norm_bias, epsilon) = (keys.flag("norm_bias")?, keys.number("norm_eps")?);
    let norm = |at: VarBuilder<'_>| norm(hidden, (norm_bias, epsilon), &at);
    let layer = |index: usize, at: VarBuilder<'_>| -> CandleResult<Layer> {
        let mlp: Box<dyn Module> = Box::new(mlp(&at, (hidden, wide), mlp_bias, activation)?);
        Ok(Layer {
            attention: Attention {
                projections: thirds(&at.pp("attn.Wqkv"), hidden, attention_bias)?,
                output: linear_b(hidden, hidden, attention_bias, at.pp("attn.Wo"))?,
                head_norms: None,
                rotary: Some(if is_local[index] { local.clone() } else { global.clone() }),
                heads,
                kv_heads: heads,
                head_dim,
                scale: 1.0 / (head_dim as f64).sqrt(),
                farthest: is_local[index].then_some(farthest),
            },
            mlp,
            norms: Norms::Pre {
                attention: if index == 0 { None } else { Some(norm(at.pp("attn_norm"))?) },
                mlp: norm(at.pp("mlp_norm"))?,
            },
        })
    };
    let body = tensors.pp("model");
    let layers = body.pp("layers");
    Ok(Box::new(Encoder {
        words: body.get((keys.size("vocab_size")?, hidden), "embeddings.tok_embeddings.weight")?,
        scale: 1.0,
        positions: None,
        types: None,
        norm: Some(norm(body.pp("embeddings.norm"))?),
        layers: (0..count).map(|i| layer(i, layers.pp(i))).collect::<CandleResult<_>>()?,
        last_norm: Some(norm(body.pp("final_norm"))?),
    }))
}

/// Plain frequencies of a base, wherever the configuration has it.
fn rope(keys: &Keys, (section, key): (&str, &str), dims: usize) -> Result<Rope> {
    let mut base = keys.number(key)?;
    if let Some(parameters) = keys.section("rope_parameters")?
        && let Some(own) = parameters.section(section)?
    {
        base = own.opt_number("rope_theta")?.unwrap_or(base);
        if let Some(kind) = own.text("rope_type")?.filter(|&kind| kind != "default") {
            let problem = format!("is `{kind}`, for which there is no reference");
            return Err(wrong("rope_type", &problem).into());
        }
    }
    Ok(Rope { base, dims, scaling: Scaling::None })
}

/// A layer norm that may have no shift.
fn norm(width: usize, (bias, epsilon): (bool, f64), at: &VarBuilder<'_>) -> CandleResult<LayerNorm> {
    let weight = at.get(width, "weight")?;
    Ok(match bias {
        true => LayerNorm::new(weight, at.get(width, "bias")?, epsilon),
        false => LayerNorm::new_no_bias(weight, epsilon),
    })
}

/// Query, key and value of one matrix.
fn thirds(at: &VarBuilder<'_>, hidden: usize, bias: bool) -> CandleResult<[Linear; 3]> {
    let weight = at.get((3 * hidden, hidden), "weight")?;
    let shift = if bias { Some(at.get(3 * hidden, "bias")?) } else { None };
    let third = |part: usize| -> CandleResult<Linear> {
        let shift = shift.as_ref().map(|shift| shift.narrow(0, part * hidden, hidden)).transpose()?;
        Ok(Linear::new(weight.narrow(0, part * hidden, hidden)?.contiguous()?, shift))
    };
    Ok([third(0)?, third(1)?, third(2)?])
}

/// GeGLU (Shazeer 2020): the first half of what is projected is activated and multiplies the second.
fn mlp(
    at: &VarBuilder<'_>,
    (hidden, wide): (usize, usize),
    bias: bool,
    activation: Activation,
) -> CandleResult<GatedMlp> {
    let both = at.pp("mlp.Wi");
    let weight = both.get((2 * wide, hidden), "weight")?;
    let shift = if bias { Some(both.get(2 * wide, "bias")?) } else { None };
    let half = |part: usize| -> CandleResult<Linear> {
        let shift = shift.as_ref().map(|shift| shift.narrow(0, part * wide, wide)).transpose()?;
        Ok(Linear::new(weight.narrow(0, part * wide, wide)?.contiguous()?, shift))
    };
    let down = linear_b(wide, hidden, bias, at.pp("mlp.Wo"))?;
    Ok(GatedMlp { gate: half(0)?, up: half(1)?, down, activation })
}
