//! GPT-2 with paGating MLPs: inside the MLP a gate acts on a share of the value, fixed or learned per layer.
//!
//! Such checkpoints carry GPT-2's configuration and are told by their tensors. Which unit they were trained with is
//! not stored; the key `pagating_unit` names it, paGLU where it is left out.

use super::{Architecture, gpt2};
use crate::checkpoint::Config;
use crate::model::graph::{Activation, Decoder, Gate, Mlp};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "pagating",
    classes: &["GPT2LMHeadModel", "PaGatingGPT2LMHeadModel"],
    model_types: &["gpt2", "gpt2_pagating"],
    marker: Some(".mlp.fc_in.weight"),
    build,
    ..gpt2::DEF
};

const UNITS: &[(&str, Activation)] = &[
    ("paGLU", Activation::Sigmoid),
    ("paGELU", Activation::Gelu),
    ("paSiLU", Activation::Silu),
    ("paReGLU", Activation::Relu),
];

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[]);
    let trunk = gpt2::Trunk::read(&keys, tensors)?;
    let activation = unit(&keys)?;
    let epsilon = keys.epsilon("gate_norm_eps", 1e-5)?;
    let (hidden, inner) = (&trunk.hidden, &trunk.inner);
    trunk.decoder(DEF.name, &keys, tensors, |tensors, at| {
        let norm = format!("{at}.act.gate_norm");
        let normed = tensors.has(&format!("{norm}.weight")) || tensors.has(&format!("{norm}.bias"));
        Mlp::Inner {
            into: tensors.linear(&format!("{at}.fc_in"), inner, hidden, true),
            value: tensors.linear(&format!("{at}.act.value_proj"), inner, inner, true),
            gate: tensors.linear(&format!("{at}.act.gate_proj"), inner, inner, true),
            how: Gate { activation, alpha: alpha(tensors, at) },
            gate_norm: normed.then(|| tensors.layer_norm(&norm, inner, epsilon)),
            out: tensors.linear(&format!("{at}.fc_out"), hidden, inner, true),
        }
    })
}

fn unit(keys: &Keys) -> Result<Activation> {
    let name = keys.opt_text("pagating_unit")?.unwrap_or("paGLU");
    let found = UNITS.iter().find(|(unit, _)| unit.eq_ignore_ascii_case(name));
    found.map(|&(_, activation)| activation).ok_or_else(|| {
        let units: Vec<&str> = UNITS.iter().map(|&(unit, _)| unit).collect();
        keys.wrong("pagating_unit", &format!("is `{name}`, expected one of {}", units.join(", ")))
    })
}

/// The share of the value that is gated: a fixed buffer, or the sigmoid of a parameter.
fn alpha(tensors: &mut Tensors<'_>, at: &str) -> f32 {
    let learned = format!("{at}.act.alpha_param");
    if tensors.has(&learned) {
        tensors.share(&learned, |logit| 1.0 / (1.0 + (-logit).exp()))
    } else {
        tensors.share(&format!("{at}.act.alpha_fixed"), |alpha| alpha)
    }
}
