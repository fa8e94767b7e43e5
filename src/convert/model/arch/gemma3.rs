//! The text model of Gemma 3: four norms per layer that scale by `1 + weight`, norms of query and key heads, and
//! layers that look back over a window between those that see everything, each sort with its own rotation.
//!
//! Of a checkpoint that also sees images, the text model is taken and the tensors of the image side are left.

use half::{bf16, f16};

use super::family::{self, Family};
use super::rotary::{self, BASE, Defaults, Rotary, USUAL};
use super::{Architecture, activation, windowed};
use crate::checkpoint::{Config, Encoding};
use crate::model::graph::{Activation, Attention, Decoder, Layer, Residual};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::{Prefix, Tensors};
use crate::model::weight::{Source, Weight};
use anemeter_kernels::tensor::DType;

pub(super) const DEF: Architecture = Architecture {
    name: "gemma3",
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    model_types: &["gemma3_text", "gemma3"],
    marker: None,
    prefixes: &[
        Prefix { body: "language_model.model.", head: "language_model." },
        Prefix { body: "model.language_model.", head: "" },
        Prefix { body: "model.", head: "" },
        Prefix { body: "", head: "" },
    ],
    probe: family::PROBE,
    harmless: |name| {
        let image_sides = ["vision_tower.", "multi_modal_projector."];
        let inner = name.strip_prefix("model.").unwrap_or(name);
        family::harmless(name) || image_sides.iter().any(|side| inner.starts_with(side))
    },
    build,
};

/// The sizes of the 4B model, which its `config.json` leaves out.
const DEFAULTS: &[(&str, usize)] = &[
    ("vocab_size", 262_208),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("max_position_embeddings", 131_072),
    ("sliding_window", 4096),
    ("sliding_window_pattern", 6),
];

const GLOBAL_BASE: f64 = 1_000_000.0;

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    refuse_bidirectional(&text_keys(config)?)?;
    layers(config, tensors)
}

fn text_keys(config: &Config) -> Result<Keys> {
    let whole = Keys::new(config, &[]);
    Ok(whole.section("text_config")?.unwrap_or(whole).with_defaults(DEFAULTS))
}

/// The whole model, whatever its tokens see of each other.
pub(super) fn layers(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = text_keys(config)?;
    let family = Family {
        activation: activation(&keys, "hidden_activation", Activation::GeluTanh)?,
        adds_one: true,
        tied_by_default: true,
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let (local, global) = rotations(&keys, &family)?;
    let window = keys.size("sliding_window")?.value;
    let windowed = windowed_layers(&keys, family.layers)?;
    let bias = keys.bool_or("attention_bias", false)?;
    let scale = keys.positive_or("query_pre_attn_scalar", 256.0)?.powf(-0.5) as f32;
    let softcap = keys.opt_positive("attn_logit_softcapping")?.map(|cap| cap as f32);
    let mut decoder = family.decoder(&keys, tensors, global.max_positions, |tensors, i, at| {
        let (rope, window) = if windowed[i] { (&local, Some(window)) } else { (&global, None) };
        let projections = family.projections(tensors, at, (bias, bias));
        let attention = Attention {
            scale,
            softcap,
            query_norm: Some(family.norm(tensors, &format!("{at}.self_attn.q_norm"), &family.head_dim)),
            key_norm: Some(family.norm(tensors, &format!("{at}.self_attn.k_norm"), &family.head_dim)),
            ..family.attention(projections, &rope.rope, window)
        };
        let mlp = family.gated_mlp(tensors, at, false);
        let mut norm = |name: &str| family.norm(tensors, &format!("{at}.{name}"), &family.hidden);
        Layer {
            attention_norm: Some(norm("input_layernorm")),
            mixer: attention.into(),
            post_attention_norm: Some(norm("post_attention_layernorm")),
            mlp_norm: Some(norm("pre_feedforward_layernorm")),
            mlp,
            post_mlp_norm: Some(norm("post_feedforward_layernorm")),
            residual: Residual::Sequential,
            per_layer: None,
            scale: 1.0,
        }
    })?;
    decoder.embedding_scale = embedding_scale(&decoder.embedding, decoder.hidden);
    decoder.head.softcap = keys.opt_positive("final_logit_softcapping")?.map(|cap| cap as f32);
    Ok(decoder)
}

pub(super) fn refuse_bidirectional(keys: &Keys) -> Result<()> {
    if keys.bool_or("use_bidirectional_attention", false)? {
        return Err(
            keys.wrong("use_bidirectional_attention", "is true, but only causal attention is supported")
        );
    }
    Ok(())
}

/// The rotation of layers with a window, and of those without.
fn rotations(keys: &Keys, family: &Family) -> Result<(Rotary, Rotary)> {
    let local_base = keys.positive_or("rope_local_base_freq", BASE)?;
    let global_base = keys.positive_or("rope_theta", GLOBAL_BASE)?;
    let scaled = |section: Option<&Keys>, base| {
        rotary::scaled(keys, section, &family.head_dim, Defaults { base, ..USUAL })
    };
    if let Some(parameters) = keys.section("rope_parameters")? {
        let local = parameters.section("sliding_attention")?;
        let global = parameters.section("full_attention")?;
        return Ok((scaled(local.as_ref(), local_base)?, scaled(global.as_ref(), global_base)?));
    }
    Ok((scaled(None, local_base)?, scaled(keys.section("rope_scaling")?.as_ref(), global_base)?))
}

fn windowed_layers(keys: &Keys, layers: usize) -> Result<Vec<bool>> {
    let pattern = match keys.opt_size("_sliding_window_pattern")? {
        Some(pattern) => pattern,
        None => keys.size("sliding_window_pattern")?,
    };
    windowed(keys, layers, |layer| !(layer + 1).is_multiple_of(pattern.value))
}

/// The root of the width, rounded to the type that the embedding is stored in.
pub(super) fn embedding_scale(embedding: &Weight, hidden: usize) -> f32 {
    let scale = (hidden as f64).sqrt() as f32;
    let Source::Stored(stored) = &embedding.source else { return scale };
    match stored.encoding {
        Encoding::Plain(DType::BF16) => bf16::from_f32(scale).to_f32(),
        Encoding::Plain(DType::F16) => f16::from_f32(scale).to_f32(),
        _ => scale,
    }
}
