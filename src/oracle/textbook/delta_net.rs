//! Linear attention by the gated delta rule, one token after the other as its recurrence is written.

use candle_core::{D, Result, Tensor};
use candle_nn::{Activation, LayerNorm, Linear, Module, VarBuilder, linear_no_bias, ops};

use super::decoder::{Mixer, rms};
use super::short_conv::CausalConv;

/// Sizes of a delta rule.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) key_heads: usize,
    pub(super) value_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
    pub(super) kernel: usize,
    pub(super) epsilon: f64,
    pub(super) activation: Activation,
}

/// The projections, the convolution, and the matrix of each head.
pub(super) struct DeltaNet {
    sizes: Sizes,
    qkv: Linear,
    conv: CausalConv,
    gate: Linear,
    beta: Linear,
    decay: Linear,
    decay_bias: Tensor,
    decay_log: Tensor,
    norm: LayerNorm,
    out: Linear,
    /// `[value heads, key_dim, value_dim]`.
    state: Option<Tensor>,
}

impl DeltaNet {
    pub(super) fn new(sizes: Sizes, at: &VarBuilder<'_>) -> Result<DeltaNet> {
        let Sizes { hidden, key_heads, value_heads, key_dim, value_dim, kernel, epsilon, .. } = sizes;
        let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
        let all = 2 * keys + values;
        Ok(DeltaNet {
            sizes,
            qkv: linear_no_bias(hidden, all, at.pp("in_proj_qkv"))?,
            conv: CausalConv::new(all, kernel, false, &at.pp("conv1d"))?,
            gate: linear_no_bias(hidden, values, at.pp("in_proj_z"))?,
            beta: linear_no_bias(hidden, value_heads, at.pp("in_proj_b"))?,
            decay: linear_no_bias(hidden, value_heads, at.pp("in_proj_a"))?,
            decay_bias: at.get(value_heads, "dt_bias")?,
            decay_log: at.get(value_heads, "A_log")?,
            norm: rms(value_dim, epsilon, &at.pp("norm"))?,
            out: linear_no_bias(values, hidden, at.pp("out_proj"))?,
            state: None,
        })
    }

    /// The heads of one token: queries or keys of unit length, `[value heads, key_dim, 1]`.
    fn unit(&self, row: &Tensor) -> Result<Tensor> {
        let Sizes { key_heads, value_heads, key_dim, .. } = self.sizes;
        let heads = row.reshape((key_heads, 1, key_dim))?;
        let length = (heads.sqr()?.sum_keepdim(D::Minus1)? + 1e-6)?.sqrt()?;
        let heads = heads.broadcast_div(&length)?;
        // Each key head serves as many value heads in a row.
        let each = (key_heads, value_heads / key_heads, key_dim);
        heads.broadcast_as(each)?.reshape((value_heads, key_dim, 1))
    }
}

impl Mixer for DeltaNet {
    fn forward(&mut self, x: &Tensor, _: usize) -> Result<Tensor> {
        let Sizes { key_heads, value_heads, key_dim, value_dim, activation, .. } = self.sizes;
        let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
        let qkv = activation.forward(&self.conv.forward(&self.qkv.forward(x)?)?)?;
        let beta = ops::sigmoid(&self.beta.forward(x)?)?;
        let biased = self.decay.forward(x)?.broadcast_add(&self.decay_bias)?;
        // softplus(x) = max(x, 0) + ln(1 + exp(-|x|))
        let soft = (biased.relu()? + (biased.abs()?.neg()?.exp()? + 1.0)?.log()?)?;
        let decay = soft.broadcast_mul(&self.decay_log.exp()?)?.neg()?.exp()?;
        let mut state = match &self.state {
            Some(state) => state.clone(),
            None => Tensor::zeros((value_heads, key_dim, value_dim), x.dtype(), x.device())?,
        };
        let mut rows = Vec::with_capacity(x.dim(0)?);
        for token in 0..x.dim(0)? {
            let row = qkv.narrow(0, token, 1)?;
            let query = (self.unit(&row.narrow(1, 0, keys)?)? / (key_dim as f64).sqrt())?;
            let key = self.unit(&row.narrow(1, keys, keys)?)?;
            let value = row.narrow(1, 2 * keys, values)?.reshape((value_heads, 1, value_dim))?;
            let of_head = |all: &Tensor| all.narrow(0, token, 1)?.reshape((value_heads, 1, 1));
            state = state.broadcast_mul(&of_head(&decay)?)?;
            let known = state.broadcast_mul(&key)?.sum_keepdim(1)?;
            let correction = (value - known)?.broadcast_mul(&of_head(&beta)?)?;
            state = (state + key.broadcast_mul(&correction)?)?;
            rows.push(state.broadcast_mul(&query)?.sum(1)?.unsqueeze(0)?);
        }
        self.state = Some(state);
        let read = self.norm.forward(&Tensor::cat(&rows, 0)?)?;
        let gate = ops::silu(&self.gate.forward(x)?)?;
        self.out.forward(&(read.reshape(gate.shape())? * gate)?)
    }

    fn clear(&mut self) {
        self.conv.clear();
        self.state = None;
    }
}
