//! Vector quantisation: indices into palettes of vectors, one index for the same element of several output channels.
//!
//! ```text
//! channel 0 | a0 a1 a2 … |    vectors of 2: (a0 b0) (a1 b1) (a2 b2) …  ->  indices i0 i1 i2 …
//! channel 1 | b0 b1 b2 … |    lut: 2^bits vectors
//! ```
//!
//! The palette comes from Lloyd's algorithm after k-means++, over a sample.

use std::io::{self, Write};

use super::encoder::{EncodedTables, Scheme, too_old};
use super::encoding::{Operand, Step};
use super::layout::Layout;
use super::linear::first_bad;
use super::palette::index_type;
use super::precision::Palette;
use super::units::{Unit, UnitResult, Units};
use super::weight::{Weight, numbers, rounded, to_bytes};
use super::{CompressError, Result};
use anemeter_kernels::kmeans::{centroids, nearest};
use anemeter_kernels::quantize::{Loss, extent};
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{Literal, Opset, TensorType};

/// Vectors that decide on a palette at most, at equal distances: 64 for each of the 256 entries there can be.
const SAMPLE: usize = 1 << 14;

/// A weight as indices of vectors.
pub(super) struct VectorScheme {
    palette: Palette,
    dtype: DType,
    layout: Layout,
    /// Channels that share a palette.
    group: usize,
}

impl VectorScheme {
    pub(super) fn new(palette: Palette, weight: &Weight, opset: Opset) -> Result<VectorScheme> {
        if opset < Opset::Ios18 {
            return Err(too_old(weight, palette, opset));
        }
        let layout = weight.layout.clone();
        if !layout.is_by_rows() {
            let message = format!(
                "weight `{}` has its output channels on axis {}, so it cannot be stored as {palette}",
                weight.name, layout.channel
            );
            return Err(
                CompressError::new(message).with_help("palettes of numbers work for it, such as lut4")
            );
        }
        layout.groups(&weight.name, palette.vector, "vectors")?;
        let group = palette.group.unwrap_or(layout.channels());
        layout.groups(&weight.name, group, "groups")?;
        Ok(VectorScheme { palette, dtype: weight.dtype, layout, group })
    }

    fn entries(&self) -> usize {
        1 << self.palette.bits
    }

    fn encode(&self, weight: &Weight, scratch: &mut Scratch, unit: Unit<'_>) -> UnitResult {
        let (row, width) = (self.layout.row(), self.palette.vector);
        numbers(self.dtype, unit.bytes, &mut scratch.values);
        if !extent(&scratch.values).is_finite {
            return Err(weight.not_finite(first_bad(&scratch.values)));
        }
        scratch.vectors.clear();
        for rows in scratch.values.chunks_exact(row * width) {
            for at in 0..row {
                scratch.vectors.extend(rows[at..].iter().step_by(row).take(width));
            }
        }
        let count = scratch.vectors.len() / width;
        let step = count.div_ceil(SAMPLE).max(1);
        let sample: Vec<f32> = scratch.vectors.chunks_exact(width).step_by(step).flatten().copied().collect();
        let mut palette = centroids(&sample, width, self.entries());
        palette.iter_mut().for_each(|x| *x = rounded(self.dtype, *x));
        let mut loss = Loss::default();
        for (vector, code) in scratch.vectors.chunks_exact(width).zip(unit.codes) {
            let (index, _) = nearest(vector, &palette, width);
            *code = index as u8;
            loss += Loss::between(vector, &palette[index * width..(index + 1) * width]);
        }
        let last = palette[palette.len().saturating_sub(width)..].to_vec();
        unit.parameters.chunks_exact_mut(width).for_each(|entry| entry.copy_from_slice(&last));
        unit.parameters[..palette.len()].copy_from_slice(&palette);
        Ok((count, loss))
    }
}

#[derive(Default)]
struct Scratch {
    values: Vec<f32>,
    vectors: Vec<f32>,
}

impl Scheme for VectorScheme {
    fn pieces(&self) -> Vec<TensorType> {
        let mut indices = self.layout.shape.clone();
        indices[self.layout.channel] /= self.palette.vector;
        let mut lut = self.layout.parameters(self.layout.channels() / self.group, 1);
        lut.extend([self.entries(), self.palette.vector]);
        vec![TensorType::fixed(index_type(self.palette.bits), &indices), TensorType::fixed(self.dtype, &lut)]
    }

    fn write(&self, weight: &Weight, _: usize, out: &mut dyn Write) -> io::Result<Option<EncodedTables>> {
        let units = Units {
            elements: self.group * self.layout.row(),
            width: 1,
            bits: self.palette.bits,
            parameters: self.entries() * self.palette.vector,
        };
        let coded = units
            .encode(weight, out, Scratch::default, |scratch, unit| self.encode(weight, scratch, unit))?;
        Ok(Some(EncodedTables { pieces: vec![to_bytes(self.dtype, &coded.parameters)], loss: coded.loss }))
    }

    fn steps(&self) -> Vec<Step> {
        let axis = Operand::Constant(Literal::immediate(&Tensor::scalar(self.layout.channel as i32)));
        let arguments =
            vec![("indices", Operand::Piece(0)), ("lut", Operand::Piece(1)), ("vector_axis", axis)];
        vec![Step::last("constexpr_lut_to_dense", arguments)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::{check, decoded, error_of, normal, weight};

    #[test]
    fn what_the_operation_gives_is_what_the_loss_says() {
        for dtype in [DType::F16, DType::F32] {
            let values = normal(24 * 32, 21);
            for (kind, bound) in
                [("lut4:vector=2", 0.5), ("lut6:group=8:vector=2", 0.3), ("lut8:vector=4", 0.5)]
            {
                check(&weight(dtype, &[24, 32], &values), kind, Opset::Ios18, bound);
                check(&weight(dtype, &[24, 8, 2, 2], &values), kind, Opset::Ios18, bound);
            }
        }
    }

    #[test]
    fn pairs_of_channels_share_an_index() {
        let values: Vec<f32> = (0..64).map(|i| (i % 4) as f32 + (i / 32) as f32 * 10.0).collect();
        let got = decoded(&weight(DType::F16, &[4, 16], &values), "lut4:vector=2", Opset::Ios18);
        assert_eq!(got, values);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let odd = weight(DType::F16, &[5, 8], &[1.0; 40]);
        let error = error_of(&odd, "lut4:vector=2", Opset::Ios18);
        assert_eq!(error, "weight `w` has 5 output channels, which cannot be divided into vectors of 2");
        assert!(error_of(&odd, "lut4:vector=5", Opset::Ios17).ends_with("in ios17"));
        let bad = weight(DType::F16, &[2, 8], &[f32::NAN; 16]);
        assert!(error_of(&bad, "lut4:vector=2", Opset::Ios18).contains("NaN"));
    }
}
