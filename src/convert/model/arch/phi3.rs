//! Phi-3: Llama's layers with fused projections, partly rotated heads and, for LongRoPE, a frequency factor per dimension.

use super::family::{Family, Projections};
use super::{Architecture, llama};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture =
    Architecture { name: "phi3", classes: &["Phi3ForCausalLM"], model_types: &["phi3"], build, ..llama::DEF };

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let defaults = &[("max_position_embeddings", 4096), ("original_max_position_embeddings", 4096)];
    let keys = Keys::new(config, defaults);
    let family =
        Family { epsilon: keys.epsilon("rms_norm_eps", 1e-5)?, ..Family::read(DEF.name, &keys, tensors)? };
    let rotary = family.rotary(&keys)?;
    let window = keys.opt_size("sliding_window")?.map(|size| size.value);
    let (query, key) = (family.query_width(), family.key_width());
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let parts = [("query", &query), ("key", &key), ("value", &key)];
        let [query_part, key_part, value_part] =
            tensors.fused(&format!("{at}.self_attn.qkv_proj"), parts, &family.hidden);
        let projections = Projections {
            query: query_part,
            key: key_part,
            value: value_part,
            output: tensors.linear(&format!("{at}.self_attn.o_proj"), &family.hidden, &query, false),
        };
        let attention = family.attention(projections, &rotary.rope, window);
        let mlp = family.fused_mlp(tensors, at);
        family.layer(tensors, at, attention, mlp)
    })
}
