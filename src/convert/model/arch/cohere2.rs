//! Cohere 2 (Command R7B): one layer norm without bias per layer, before attention and MLP both; layers behind a window
//! rotate neighbouring dimensions, the others have no positions; logits are scaled, which is folded into the last norm.

use super::family::Family;
use super::{Architecture, llama, windowed};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder, Layer, NormKind, Residual};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "cohere2",
    classes: &["Cohere2ForCausalLM"],
    model_types: &["cohere2"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 8192), ("sliding_window_pattern", 4)]);
    let family = Family {
        epsilon: keys.epsilon("layer_norm_eps", 1e-5)?,
        norm_kind: NormKind::Layer,
        tied_by_default: true,
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let rotary = family.rotary(&keys)?;
    let window = keys.size_unless_null("sliding_window", 4096)?.map(|size| size.value);
    let pattern = keys.size("sliding_window_pattern")?.value;
    let windowed = windowed(&keys, family.layers, |layer| !(layer + 1).is_multiple_of(pattern))?;
    let bias = keys.bool_or("attention_bias", false)?;
    let mut decoder = family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let projections = family.projections(tensors, at, (bias, bias));
        let projections = family.pairs_by_halves(projections, &rotary.rope);
        let window = window.filter(|_| windowed[i]);
        let attention = Attention {
            rope: window.map(|_| rotary.rope.clone()),
            ..family.attention(projections, &rotary.rope, window)
        };
        let mlp = family.gated_mlp(tensors, at, false);
        Layer {
            attention_norm: Some(family.norm(tensors, &format!("{at}.input_layernorm"), &family.hidden)),
            mixer: attention.into(),
            post_attention_norm: None,
            mlp_norm: None,
            mlp,
            post_mlp_norm: None,
            residual: Residual::Parallel,
            per_layer: None,
            scale: 1.0,
        }
    })?;
    decoder.final_norm = decoder.final_norm.scaled(keys.positive_or("logit_scale", 0.0625)? as f32);
    Ok(decoder)
}
