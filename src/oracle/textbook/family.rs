//! The parts of Llama and its descendants by their names.

use std::rc::Rc;

use candle_core::{Module, Result, Tensor};
use candle_nn::{LayerNorm, Linear, VarBuilder};

use super::decoder::{Attention, Decoder, GatedMlp, Heads, Layer, Mixer, rms};
use super::rotary::Rotary;
use crate::error;
use crate::network::Network;
use crate::reader;
use crate::settings::Settings;

/// Query, key, value and output.
pub(super) type Projections = [Linear; 4];

/// Four projections, with biases on the first three and on the last as told.
pub(super) fn projections(
    settings: &Settings,
    layer: &VarBuilder<'_>,
    (inner_bias, output_bias): (bool, bool),
) -> Result<Projections> {
    let at = layer.pp("self_attn");
    let Settings { hidden, heads, kv_heads, head_dim, .. } = *settings;
    let inner = |name: &str, count: usize| {
        reader::linear(hidden, count * head_dim, inner_bias, &at.pp(format!("{name}_proj")))
    };
    Ok([
        inner("q", heads)?,
        inner("k", kv_heads)?,
        inner("v", kv_heads)?,
        reader::linear(heads * head_dim, hidden, output_bias, &at.pp("o_proj"))?,
    ])
}

/// Attention without norms of heads.
pub(super) fn attention(
    settings: &Settings,
    projections: Projections,
    rotary: &Rc<Rotary>,
    window: Option<usize>,
) -> Attention {
    let [query, key, value, output] = projections;
    Attention {
        query,
        key,
        value,
        output,
        query_norm: None,
        key_norm: None,
        rotary: Some(rotary.clone()),
        shape: Heads {
            heads: settings.heads,
            kv_heads: settings.kv_heads,
            head_dim: settings.head_dim,
            scale: 1.0 / (settings.head_dim as f64).sqrt(),
            window,
        },
        softcap: None,
        output_gate: None,
        query_growth: None,
        cache: None,
    }
}

pub(super) fn gated_mlp(settings: &Settings, layer: &VarBuilder<'_>, bias: bool) -> Result<Box<dyn Module>> {
    let at = layer.pp("mlp");
    let (narrow, wide) = (settings.hidden, settings.intermediate);
    Ok(Box::new(GatedMlp {
        gate: reader::linear(narrow, wide, bias, &at.pp("gate_proj"))?,
        up: reader::linear(narrow, wide, bias, &at.pp("up_proj"))?,
        down: reader::linear(wide, narrow, bias, &at.pp("down_proj"))?,
        activation: settings.activation,
    }))
}

/// A layer with two norms.
pub(super) fn layer(
    settings: &Settings,
    at: &VarBuilder<'_>,
    mixer: impl Mixer + 'static,
    mlp: Box<dyn Module>,
) -> Result<Layer> {
    let norm = |name: &str| rms(settings.hidden, settings.epsilon, &at.pp(name));
    Ok(Layer {
        attention_norm: Some(norm("input_layernorm")?),
        mixer: Box::new(mixer),
        post_attention_norm: None,
        mlp_norm: Some(norm("post_attention_layernorm")?),
        mlp,
        post_mlp_norm: None,
        is_parallel: false,
        added: 1.0,
    })
}

/// A model of Llama's layers: biases on the first three projections, on the last and in MLPs as told, and the window
/// of each layer.
pub(super) fn open(
    settings: &Settings,
    tensors: &VarBuilder<'_>,
    [inner_bias, output_bias, mlp_bias]: [bool; 3],
    window: impl Fn(usize) -> Option<usize>,
) -> error::Result<Box<dyn Network>> {
    let rotary = Rc::new(Rotary::new(&settings.rope()?, settings.positions)?);
    let decoder = decoder(settings, tensors, |i, at| {
        let projections = projections(settings, at, (inner_bias, output_bias))?;
        let attention = attention(settings, projections, &rotary, window(i));
        layer(settings, at, attention, gated_mlp(settings, at, mlp_bias)?)
    })?;
    Ok(Box::new(decoder))
}

/// The model around its layers, each built from its index and the place of its tensors.
pub(super) fn decoder(
    settings: &Settings,
    tensors: &VarBuilder<'_>,
    layer: impl FnMut(usize, &VarBuilder<'_>) -> Result<Layer>,
) -> Result<Decoder> {
    let norm = rms(settings.hidden, settings.epsilon, &tensors.pp("model.norm"))?;
    decoder_with(settings, tensors, norm, layer)
}

/// The same with a norm before the head that is not Llama's.
pub(super) fn decoder_with(
    settings: &Settings,
    tensors: &VarBuilder<'_>,
    norm: LayerNorm,
    mut layer: impl FnMut(usize, &VarBuilder<'_>) -> Result<Layer>,
) -> Result<Decoder> {
    let body = tensors.pp("model");
    let shape = (settings.vocabulary, settings.hidden);
    let embedding: Tensor = body.get(shape, "embed_tokens.weight")?;
    let head = reader::head(tensors, &embedding, settings.tied)?;
    let at = body.pp("layers");
    Ok(Decoder {
        embedding,
        embedding_scale: 1.0,
        positions: None,
        layers: (0..settings.layers).map(|i| layer(i, &at.pp(i))).collect::<Result<_>>()?,
        norm,
        head,
        logit_scale: 1.0,
        softcap: None,
    })
}
