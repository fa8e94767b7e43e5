//! OLMo 3: the layers of OLMo 2, three of four behind a window.

use super::{Architecture, llama, olmo2, windowed};
use crate::checkpoint::Config;
use crate::model::graph::Decoder;
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "olmo3",
    classes: &["Olmo3ForCausalLM"],
    model_types: &["olmo3"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 2048)]);
    let family = olmo2::family(DEF.name, &keys, tensors)?;
    let rotary = family.rotary(&keys)?;
    let window = keys.size_unless_null("sliding_window", 4096)?.map(|size| size.value);
    let windowed = windowed(&keys, family.layers, |layer| !(layer + 1).is_multiple_of(4))?;
    olmo2::decoder(&family, &keys, tensors, rotary.max_positions, |i| {
        (&rotary.rope, window.filter(|_| windowed[i]))
    })
}
