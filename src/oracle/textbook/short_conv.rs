//! Convolutions over the latest tokens, one token and one kernel element at a time, and LFM2's gated mixer around one.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder, linear_b};

use super::decoder::Mixer;

/// A convolution of each channel over the latest tokens, with what it saw last.
pub(super) struct CausalConv {
    /// `[channels, kernel]`.
    weight: Tensor,
    bias: Option<Tensor>,
    /// The latest inputs, one row each, fewer than the kernel has elements.
    seen: Vec<Tensor>,
}

impl CausalConv {
    pub(super) fn new(channels: usize, kernel: usize, bias: bool, at: &VarBuilder<'_>) -> Result<CausalConv> {
        Ok(CausalConv {
            weight: at.get((channels, 1, kernel), "weight")?.squeeze(1)?,
            bias: if bias { Some(at.get(channels, "bias")?) } else { None },
            seen: Vec::new(),
        })
    }

    /// `[tokens, channels]` to the same.
    pub(super) fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let kernel = self.weight.dim(1)?;
        let mut rows = Vec::with_capacity(x.dim(0)?);
        for token in 0..x.dim(0)? {
            self.seen.push(x.narrow(0, token, 1)?);
            if self.seen.len() > kernel {
                self.seen.remove(0);
            }
            let mut sum = x.narrow(0, token, 1)?.zeros_like()?;
            // The last element is for the token itself, the one before for the token before.
            for (back, row) in self.seen.iter().rev().enumerate() {
                let element = self.weight.narrow(1, kernel - 1 - back, 1)?.reshape((1, ()))?;
                sum = (sum + row.mul(&element)?)?;
            }
            rows.push(match &self.bias {
                Some(bias) => sum.broadcast_add(bias)?,
                None => sum,
            });
        }
        Tensor::cat(&rows, 0)
    }

    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }
}

/// `out(c * conv(b * x))` with `b`, `c` and `x` projected by one matrix.
pub(super) struct ShortConv {
    into: Linear,
    conv: CausalConv,
    out: Linear,
}

impl ShortConv {
    pub(super) fn new(hidden: usize, kernel: usize, bias: bool, at: &VarBuilder<'_>) -> Result<ShortConv> {
        Ok(ShortConv {
            into: linear_b(hidden, 3 * hidden, bias, at.pp("in_proj"))?,
            conv: CausalConv::new(hidden, kernel, bias, &at.pp("conv"))?,
            out: linear_b(hidden, hidden, bias, at.pp("out_proj"))?,
        })
    }
}

impl Mixer for ShortConv {
    fn forward(&mut self, x: &Tensor, _: usize) -> Result<Tensor> {
        let parts = self.into.forward(x)?.chunk(3, 1)?;
        let mixed = self.conv.forward(&(&parts[0] * &parts[2])?)?;
        self.out.forward(&(&parts[1] * mixed)?)
    }

    fn clear(&mut self) {
        self.conv.clear();
    }
}
