//! GPT-2 with paGating MLPs: `fc_out(value * (alpha * activation(gate) + 1 - alpha))` over `fc_in(x)`.

use candle_core::{Module, Result as CandleResult, Tensor};
use candle_nn::{Activation, LayerNorm, Linear, VarBuilder, linear};

use super::decoder::centred_and_shifted;
use super::gpt2::Trunk;
use crate::error::Result;
use crate::network::Network;
use crate::reader;
use crate::settings::wrong;
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, _positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let trunk = Trunk::read(config)?;
    let unit = trunk.keys.text("pagating_unit")?.unwrap_or("paglu").to_ascii_lowercase();
    let activation = match unit.as_str() {
        "paglu" => Activation::Sigmoid,
        "pagelu" => Activation::Gelu,
        "pasilu" => Activation::Silu,
        "pareglu" => Activation::Relu,
        _ => return Err(wrong("pagating_unit", "names no known unit").into()),
    };
    let epsilon = trunk.keys.opt_number("gate_norm_eps")?.unwrap_or(1e-5);
    let (hidden, inner) = (trunk.hidden, trunk.inner);
    let decoder = trunk.decoder(tensors, |at| {
        let act = at.pp("act");
        let normed = act.contains_tensor("gate_norm.weight");
        Ok(Box::new(PaGating {
            into: reader::linear(hidden, inner, true, &at.pp("fc_in"))?,
            value: linear(inner, inner, act.pp("value_proj"))?,
            gate: linear(inner, inner, act.pp("gate_proj"))?,
            gate_norm: normed
                .then(|| centred_and_shifted(inner, epsilon, &act.pp("gate_norm")))
                .transpose()?,
            out: linear(inner, hidden, at.pp("fc_out"))?,
            activation,
            alpha: alpha(&act)?,
        }))
    })?;
    Ok(Box::new(decoder))
}

/// The gated share: a fixed buffer, or the sigmoid of a parameter.
fn alpha(act: &VarBuilder<'_>) -> CandleResult<f64> {
    let number = |name: &str| act.get((), name)?.to_scalar::<f32>().map(f64::from);
    if act.contains_tensor("alpha_param") {
        return Ok(1.0 / (1.0 + (-number("alpha_param")?).exp()));
    }
    number("alpha_fixed")
}

struct PaGating {
    into: Linear,
    value: Linear,
    gate: Linear,
    gate_norm: Option<LayerNorm>,
    out: Linear,
    activation: Activation,
    alpha: f64,
}

impl Module for PaGating {
    fn forward(&self, x: &Tensor) -> CandleResult<Tensor> {
        let wide = self.into.forward(x)?;
        let mut gate = self.activation.forward(&self.gate.forward(&wide)?)?;
        if let Some(norm) = &self.gate_norm {
            gate = norm.forward(&gate)?;
        }
        let share = gate.affine(self.alpha, 1.0 - self.alpha)?;
        self.out.forward(&(self.value.forward(&wide)? * share)?)
    }
}
