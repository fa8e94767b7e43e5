//! StarCoder 2: layer norms, plain MLPs, biases everywhere, each layer behind a window if there is one.

use super::family::Family;
use super::{Architecture, activation, llama};
use crate::checkpoint::Config;
use crate::model::graph::{Activation, Decoder, Mlp, NormKind};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "starcoder2",
    classes: &["Starcoder2ForCausalLM"],
    model_types: &["starcoder2"],
    build,
    ..llama::DEF
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[("max_position_embeddings", 4096)]);
    let family = Family {
        activation: activation(&keys, "hidden_act", Activation::GeluTanh)?,
        epsilon: keys.epsilon("norm_epsilon", 1e-5)?,
        norm_kind: NormKind::Layer,
        norm_bias: true,
        tied_by_default: true,
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let rotary = family.rotary(&keys)?;
    let bias = keys.bool_or("use_bias", true)?;
    let window = keys.opt_size("sliding_window")?.map(|size| size.value);
    let (hidden, wide) = (&family.hidden, &family.intermediate);
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, _, at| {
        let projections = family.projections(tensors, at, (bias, bias));
        let attention = family.attention(projections, &rotary.rope, window);
        let mlp = Mlp::Plain {
            up: tensors.linear(&format!("{at}.mlp.c_fc"), wide, hidden, bias),
            activation: family.activation,
            down: tensors.linear(&format!("{at}.mlp.c_proj"), hidden, wide, bias),
        };
        family.layer(tensors, at, attention, mlp)
    })
}
