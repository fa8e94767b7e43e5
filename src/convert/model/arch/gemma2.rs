//! Gemma 2: four norms per layer that scale by `1 + weight`, capped scores and logits, every other layer behind a window.

use super::family::Family;
use super::{Architecture, activation, gemma3, llama, windowed};
use crate::checkpoint::Config;
use crate::model::graph::{Activation, Attention, Decoder, Layer, Residual};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "gemma2",
    classes: &["Gemma2ForCausalLM"],
    model_types: &["gemma2"],
    build,
    ..llama::DEF
};

/// Where transformers has a default that the configurations of the first releases leave out.
const DEFAULTS: &[(&str, usize)] =
    &[("num_key_value_heads", 4), ("head_dim", 256), ("max_position_embeddings", 8192)];

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, DEFAULTS);
    gemma3::refuse_bidirectional(&keys)?;
    let family = Family {
        activation: activation(&keys, "hidden_activation", Activation::GeluTanh)?,
        adds_one: true,
        tied_by_default: true,
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let rotary = family.rotary(&keys)?;
    let window = keys.size_unless_null("sliding_window", 4096)?.map(|size| size.value);
    let windowed = windowed(&keys, family.layers, |layer| layer.is_multiple_of(2))?;
    let bias = keys.bool_or("attention_bias", false)?;
    let scale = keys.positive_or("query_pre_attn_scalar", 256.0)?.powf(-0.5) as f32;
    let softcap = keys.positive_unless_null("attn_logit_softcapping", 50.0)?.map(|cap| cap as f32);
    let mut decoder = family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let projections = family.projections(tensors, at, (bias, bias));
        let window = window.filter(|_| windowed[i]);
        let attention = Attention { scale, softcap, ..family.attention(projections, &rotary.rope, window) };
        let mlp = family.gated_mlp(tensors, at, false);
        let mut norm = |name: &str| Some(family.norm(tensors, &format!("{at}.{name}"), &family.hidden));
        Layer {
            attention_norm: norm("input_layernorm"),
            mixer: attention.into(),
            post_attention_norm: norm("post_attention_layernorm"),
            mlp_norm: norm("pre_feedforward_layernorm"),
            mlp,
            post_mlp_norm: norm("post_feedforward_layernorm"),
            residual: Residual::Sequential,
            per_layer: None,
            scale: 1.0,
        }
    })?;
    decoder.embedding_scale = gemma3::embedding_scale(&decoder.embedding, decoder.hidden);
    decoder.head.softcap = keys.positive_unless_null("final_logit_softcapping", 30.0)?.map(|cap| cap as f32);
    Ok(decoder)
}
