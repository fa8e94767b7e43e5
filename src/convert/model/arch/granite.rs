//! Granite 3: Llama's layers with multipliers of embeddings, scores, residual additions and logits. The last two are
//! folded into weights: output projections of attention and MLP, and the norm before the head.

use super::family::Family;
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder, Layer, Mlp};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "granite",
    classes: &["GraniteForCausalLM"],
    model_types: &["granite"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 2048)]);
    let family = Family::read(DEF.name, &keys, tensors)?;
    let mlp_bias = keys.bool_or("mlp_bias", false)?;
    decoder(&family, &keys, tensors, true, |tensors, at| family.gated_mlp(tensors, at, mlp_bias))
}

/// The model, given whether heads are rotated and how an MLP is built from the start of a layer's names.
pub(super) fn decoder(
    family: &Family,
    keys: &Keys,
    tensors: &mut Tensors<'_>,
    is_rotated: bool,
    mlp: impl Fn(&mut Tensors<'_>, &str) -> Mlp,
) -> Result<Decoder> {
    let rotary = family.rotary(keys)?;
    let bias = keys.bool_or("attention_bias", false)?;
    let multiplier = |key: &str| keys.positive_or(key, 1.0);
    let scale = multiplier("attention_multiplier")? as f32;
    let mut decoder = family.decoder(keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (bias, bias));
        let rope = is_rotated.then(|| rotary.rope.clone());
        let attention = Attention { scale, rope, ..family.attention(projections, &rotary.rope, None) };
        let mlp = mlp(tensors, at);
        family.layer(tensors, at, attention, mlp)
    })?;
    decoder.embedding_scale = multiplier("embedding_multiplier")? as f32;
    let residual = multiplier("residual_multiplier")? as f32;
    decoder.layers = decoder.layers.into_iter().map(|layer| added_times(layer, residual)).collect();
    decoder.final_norm = decoder.final_norm.scaled((1.0 / multiplier("logits_scaling")?) as f32);
    Ok(decoder)
}

/// The layer with what it adds to the residual stream times a number.
pub(super) fn added_times(layer: Layer, factor: f32) -> Layer {
    let mut mixer = layer.mixer;
    if let Some(attention) = mixer.attention_mut() {
        attention.output = attention.output.clone().scaled(factor);
    }
    let mlp = match layer.mlp {
        Mlp::Plain { up, activation, down } => Mlp::Plain { up, activation, down: down.scaled(factor) },
        Mlp::Gated { gate, up, activation, down } => {
            Mlp::Gated { gate, up, activation, down: down.scaled(factor) }
        }
        Mlp::Inner { into, value, gate, how, gate_norm, out } => {
            Mlp::Inner { into, value, gate, how, gate_norm, out: out.scaled(factor) }
        }
    };
    Layer { mixer, mlp, ..layer }
}
