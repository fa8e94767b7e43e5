//! Phi-3: fused projections, partly rotated heads, frequency factors, an optional window.

use std::rc::Rc;

use candle_core::{Result as CandleResult, Tensor};
use candle_nn::{Linear, VarBuilder, linear_no_bias};

use super::decoder::GatedMlp;
use super::family;
use super::rotary::Rotary;
use crate::error::Result;
use crate::network::Network;
use crate::settings::{PHI3, Settings};
use anemeter_convert::checkpoint::Config;

pub(crate) fn open(config: &Config, positions: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn Network>> {
    let settings = Settings::read(config, PHI3, positions)?;
    let window = settings.keys.opt_size("sliding_window")?;
    let rotary = Rc::new(Rotary::new(&settings.rope()?, positions)?);
    let Settings { hidden, heads, kv_heads, head_dim, intermediate, activation, .. } = settings;
    let (query_width, key_width) = (heads * head_dim, kv_heads * head_dim);
    let decoder = family::decoder(&settings, tensors, |_, at| {
        let fused = at.get((query_width + 2 * key_width, hidden), "self_attn.qkv_proj.weight")?;
        let projections = [
            rows(&fused, 0, query_width)?,
            rows(&fused, query_width, key_width)?,
            rows(&fused, query_width + key_width, key_width)?,
            linear_no_bias(query_width, hidden, at.pp("self_attn.o_proj"))?,
        ];
        let fused = at.get((2 * intermediate, hidden), "mlp.gate_up_proj.weight")?;
        let mlp = GatedMlp {
            gate: rows(&fused, 0, intermediate)?,
            up: rows(&fused, intermediate, intermediate)?,
            down: linear_no_bias(intermediate, hidden, at.pp("mlp.down_proj"))?,
            activation,
        };
        let attention = family::attention(&settings, projections, &rotary, window);
        family::layer(&settings, at, attention, Box::new(mlp))
    })?;
    Ok(Box::new(decoder))
}

fn rows(fused: &Tensor, first: usize, count: usize) -> CandleResult<Linear> {
    Ok(Linear::new(fused.narrow(0, first, count)?.contiguous()?, None))
}
