//! MiniCPM 1 to 4, dense: Llama's layers with multipliers of embeddings, residual additions and logits that depend on
//! width and depth (Hu et al. 2024). The last two are folded into weights.

use super::family::Family;
use super::{Architecture, granite, llama};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "minicpm",
    classes: &["MiniCPMForCausalLM"],
    model_types: &["minicpm"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 32_768)]);
    if keys.has("sparse_config") {
        return Err(keys.wrong("sparse_config", "is there, but only dense attention is supported"));
    }
    let family = Family { tied_by_default: true, ..Family::read(DEF.name, &keys, tensors)? };
    let rotary = family.rotary(&keys)?;
    let attention_bias = keys.bool_or("attention_bias", false)?;
    let mlp_bias = keys.bool_or("mlp_bias", false)?;
    let mut decoder = family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (attention_bias, attention_bias));
        let attention = family.attention(projections, &rotary.rope, None);
        let mlp = family.gated_mlp(tensors, at, mlp_bias);
        family.layer(tensors, at, attention, mlp)
    })?;
    decoder.embedding_scale = keys.positive_or("scale_emb", 12.0)? as f32;
    let depth = (family.layers as f64).sqrt();
    let residual = keys.positive_unless_null("scale_depth", 1.4)?.map_or(1.0, |scale| scale / depth);
    decoder.layers =
        decoder.layers.into_iter().map(|layer| granite::added_times(layer, residual as f32)).collect();
    let width = family.hidden.value as f64;
    let logits = keys.positive_unless_null("dim_model_base", 256.0)?.map_or(1.0, |base| base / width);
    decoder.final_norm = decoder.final_norm.scaled(logits as f32);
    Ok(decoder)
}
