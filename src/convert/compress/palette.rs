//! Palettisation: indices into look-up tables of numbers, one table for all or one for each group of output channels.
//!
//! ```text
//! group 0  | i i i i … |  lut 0: 2^bits numbers, ascending        element = lut[i] (* scale of its channel)
//! group 1  | i i i i … |  lut 1: 2^bits numbers, ascending
//! ```
//!
//! The palette has the least squared error: it is the optimal one-dimensional k-means (Ckmeans.1d.dp) of the histogram
//! of all numbers.

use std::io::{self, Write};

use super::Result;
use super::encoder::{EncodedTables, Scheme, flat, too_old};
use super::encoding::{Operand, Step, listed};
use super::histogram::{Histogram, Keys, Point, is_finite, weighted_samples};
use super::layout::Layout;
use super::linear::{count, first_bad, keys_of};
use super::precision::Palette;
use super::units::{Unit, UnitResult, Units};
use super::weight::{Weight, numbers, rounded, to_bytes};
use anemeter_kernels::quantize::{Loss, extent};
use anemeter_kernels::tensor::DType;
use anemeter_mil::{Opset, TensorType};

/// Elements handled at a time where all share a palette.
const PIECE: usize = 1 << 14;

/// A weight as indices.
pub(super) struct PaletteScheme {
    palette: Palette,
    opset: Opset,
    dtype: DType,
    layout: Layout,
    groups: usize,
}

impl PaletteScheme {
    pub(super) fn new(palette: Palette, weight: &Weight, opset: Opset) -> Result<PaletteScheme> {
        let is_plain = palette.group.is_none() && !palette.scaled && palette.bits != 3;
        if opset < Opset::Ios16 || opset < Opset::Ios18 && !is_plain {
            return Err(too_old(weight, palette, opset));
        }
        let layout = weight.layout.clone();
        let groups = match palette.group {
            Some(group) => layout.groups(&weight.name, group, "groups")?,
            None => 1,
        };
        Ok(PaletteScheme { palette, opset, dtype: weight.dtype, layout, groups })
    }

    fn entries(&self) -> usize {
        1 << self.palette.bits
    }

    fn write_groups(&self, weight: &Weight, out: &mut dyn Write) -> io::Result<EncodedTables> {
        let row = self.layout.row();
        let channels = self.layout.channels() / self.groups;
        let scales = if self.palette.scaled { channels } else { 0 };
        let units = Units {
            elements: channels * row,
            width: 1,
            bits: self.palette.bits,
            parameters: self.entries() + scales,
        };
        let coded = units.encode(weight, out, Group::default, |group, unit| {
            let Unit { bytes, codes, parameters, .. } = unit;
            let (palette, scales) = parameters.split_at_mut(self.entries());
            group.read(weight, bytes, row, scales)?;
            group.encode(self.dtype, palette, row, scales, codes)
        })?;
        let (mut palettes, mut all) = (Vec::new(), Vec::new());
        for parameters in coded.parameters.chunks_exact(units.parameters) {
            let (palette, scales) = parameters.split_at(self.entries());
            palettes.extend_from_slice(palette);
            all.extend_from_slice(scales);
        }
        Ok(self.tables(&palettes, &all, coded.loss))
    }

    fn write_tensor(&self, weight: &Weight, out: &mut dyn Write) -> io::Result<EncodedTables> {
        let keys = keys_of(weight)?;
        let points = count(weight, keys)?;
        let mut palette = vec![0.0; self.entries()];
        let size = fit(&points, self.dtype, &mut palette);
        let mut table = Histogram::default();
        table.assign(&points, &palette[..size]);
        let units = Units { elements: PIECE, width: 1, bits: self.palette.bits, parameters: 0 };
        let coded = units.encode(weight, out, Default::default, |(floats, found), unit| {
            keys.read(unit.bytes, floats, found);
            table.look_up(found, unit.codes);
            if self.dtype == DType::F16 {
                return Ok((found.len(), Loss::default()));
            }
            let read: Vec<f32> = unit.codes.iter().map(|&code| palette[usize::from(code)]).collect();
            Ok((found.len(), Loss::between(floats, &read)))
        })?;
        let loss = if self.dtype == DType::F16 { points_loss(&points, &palette[..size]) } else { coded.loss };
        Ok(self.tables(&palette, &[], loss))
    }

    fn tables(&self, palettes: &[f32], scales: &[f32], loss: Loss) -> EncodedTables {
        let mut pieces = vec![to_bytes(self.dtype, palettes)];
        if self.palette.scaled {
            pieces.push(to_bytes(self.dtype, scales));
        }
        EncodedTables { pieces, loss }
    }
}

impl Scheme for PaletteScheme {
    fn pieces(&self) -> Vec<TensorType> {
        let indices = index_type(self.palette.bits);
        if self.opset < Opset::Ios18 {
            let lut = TensorType::fixed(self.dtype, &[self.entries()]);
            return vec![flat(indices, self.layout.elements()), lut];
        }
        let mut lut = self.layout.parameters(self.groups, 1);
        lut.extend([self.entries(), 1]);
        let mut pieces =
            vec![TensorType::fixed(indices, &self.layout.shape), TensorType::fixed(self.dtype, &lut)];
        if self.palette.scaled {
            let scales = self.layout.parameters(self.layout.channels(), 1);
            pieces.push(TensorType::fixed(self.dtype, &scales));
        }
        pieces
    }

    fn write(&self, weight: &Weight, _: usize, out: &mut dyn Write) -> io::Result<Option<EncodedTables>> {
        let tables = match self.groups {
            1 if !self.palette.scaled => self.write_tensor(weight, out),
            _ => self.write_groups(weight, out),
        };
        tables.map(Some)
    }

    fn solved_tables(&self, parameters: &[f32], scales: &[f32]) -> Option<Vec<Vec<u8>>> {
        Some(self.tables(parameters, scales, Loss::default()).pieces)
    }

    fn steps(&self) -> Vec<Step> {
        let arguments = vec![("indices", Operand::Piece(0)), ("lut", Operand::Piece(1))];
        if self.opset < Opset::Ios18 {
            let arguments = [arguments, vec![("shape", listed(&self.layout.shape))]].concat();
            return vec![Step::by_attribute("constexpr_lut_to_dense", arguments)];
        }
        let mut look_up = Step::last("constexpr_lut_to_dense", arguments);
        if !self.palette.scaled {
            return vec![look_up];
        }
        look_up.outputs = vec![("unscaled", Some(TensorType::fixed(self.dtype, &self.layout.shape)))];
        let arguments = vec![("data", Operand::Earlier("unscaled")), ("scale", Operand::Piece(2))];
        vec![look_up, Step::last("constexpr_blockwise_shift_scale", arguments)]
    }
}

/// The type of indices of so many bits.
pub(super) fn index_type(bits: u32) -> DType {
    match bits {
        1 => DType::U1,
        2 => DType::U2,
        3 => DType::U3,
        4 => DType::U4,
        6 => DType::U6,
        _ => DType::U8,
    }
}

/// Fills a palette, of whose entries so many are used; the others repeat the last.
pub(super) fn fit(points: &[Point], dtype: DType, palette: &mut [f32]) -> usize {
    let mut centroids = weighted_samples(points).centroids(palette.len());
    centroids.iter_mut().for_each(|centroid| *centroid = rounded(dtype, *centroid));
    centroids.dedup();
    palette.fill(centroids.last().copied().unwrap_or(0.0));
    palette[..centroids.len()].copy_from_slice(&centroids);
    centroids.len().max(1)
}

/// What numbers lose that are replaced by the nearest entry of a palette.
fn points_loss(points: &[Point], palette: &[f32]) -> Loss {
    let mut loss = Loss::default();
    let mut nearest = 0;
    for point in points {
        let distance = |entry: usize| (palette[entry] - point.value).abs();
        while nearest + 1 < palette.len() && distance(nearest + 1) <= distance(nearest) {
            nearest += 1;
        }
        let (w, read, count) = (f64::from(point.value), f64::from(palette[nearest]), f64::from(point.count));
        let energy = |x: f64| count * x * x;
        loss += Loss { signal: energy(w), noise: energy(w - read), decoded: energy(read) };
    }
    loss
}

/// Elements that share a palette, and what finding it needs.
#[derive(Default)]
pub(super) struct Group {
    histogram: Histogram,
    /// The elements, where they are not fp16 or have scales.
    values: Vec<f32>,
    divided: Vec<u8>,
    scratch: Vec<f32>,
    keys: Vec<u16>,
    points: Vec<Point>,
}

impl Group {
    /// Takes the elements of some channels, each divided by its scale if there are scales.
    pub(super) fn read(
        &mut self,
        weight: &Weight,
        bytes: &[u8],
        row: usize,
        scales: &mut [f32],
    ) -> io::Result<()> {
        let keys = if weight.dtype == DType::F16 && scales.is_empty() {
            self.values.clear();
            let keys = Keys::new(DType::F16, 0.0);
            keys.read(bytes, &mut self.scratch, &mut self.keys);
            if !is_finite(&self.keys) {
                numbers(weight.dtype, bytes, &mut self.values);
                return Err(weight.not_finite(first_bad(&self.values)));
            }
            keys
        } else {
            numbers(weight.dtype, bytes, &mut self.values);
            let whole = extent(&self.values);
            if !whole.is_finite {
                return Err(weight.not_finite(first_bad(&self.values)));
            }
            if scales.is_empty() {
                let keys = Keys::new(weight.dtype, whole.max.max(-whole.min));
                keys.read(bytes, &mut self.scratch, &mut self.keys);
                keys
            } else {
                self.divide(weight.dtype, row, scales);
                let keys = Keys::new(DType::F32, 1.0);
                keys.read(&self.divided, &mut self.scratch, &mut self.keys);
                keys
            }
        };
        self.histogram.add(&self.keys);
        self.histogram.take(keys, &mut self.points);
        Ok(())
    }

    /// Divides each channel by its largest magnitude.
    fn divide(&mut self, dtype: DType, row: usize, scales: &mut [f32]) {
        self.divided.clear();
        for (values, scale) in self.values.chunks(row).zip(scales) {
            let extent = extent(values);
            *scale = match rounded(dtype, extent.max.max(-extent.min)) {
                0.0 => 1.0,
                largest => largest,
            };
            self.divided.extend(values.iter().flat_map(|x| (x / *scale).to_le_bytes()));
        }
    }

    /// Fills the palette, gives each element its index and tells what is lost.
    pub(super) fn encode(
        &mut self,
        dtype: DType,
        palette: &mut [f32],
        row: usize,
        scales: &[f32],
        codes: &mut [u8],
    ) -> UnitResult {
        let size = fit(&self.points, dtype, palette);
        let palette = &palette[..size];
        self.histogram.assign(&self.points, palette);
        self.histogram.look_up(&self.keys, codes);
        if self.values.is_empty() {
            return Ok((self.keys.len(), points_loss(&self.points, palette)));
        }
        self.scratch.clear();
        let scale = |at: usize| scales.get(at / row).copied().unwrap_or(1.0);
        let read = |(at, &code): (usize, &u8)| rounded(dtype, scale(at) * palette[usize::from(code)]);
        self.scratch.extend(codes[..self.keys.len()].iter().enumerate().map(read));
        Ok((self.keys.len(), Loss::between(&self.values, &self.scratch)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::{check, decoded, error_of, normal, weight, weight_by};

    #[test]
    fn what_the_operation_gives_is_what_the_loss_says() {
        for dtype in [DType::F16, DType::F32] {
            for (bits, bound) in [(1, 0.7), (2, 0.5), (3, 0.3), (4, 0.15), (6, 0.05), (8, 0.02)] {
                let values = normal(24 * 32, bits);
                for kind in ["", ":group=8", ":scale", ":group=4:scale"] {
                    let kind = format!("lut{bits}{kind}");
                    check(&weight(dtype, &[24, 32], &values), &kind, Opset::Ios18, bound);
                    check(&weight(dtype, &[24, 8, 2, 2], &values), &kind, Opset::Ios18, bound);
                    check(&weight_by(dtype, &[32, 24], &values, (1, 0)), &kind, Opset::Ios18, bound);
                }
                if bits != 3 {
                    check(&weight(dtype, &[24, 32], &values), &format!("lut{bits}"), Opset::Ios16, bound);
                }
            }
        }
    }

    #[test]
    fn no_more_numbers_than_entries_are_kept_exactly() {
        let values: Vec<f32> = (0..256).map(|i| (i % 16) as f32 * 0.25 - 2.0).collect();
        assert_eq!(decoded(&weight(DType::F16, &[16, 16], &values), "lut4", Opset::Ios18), values);
        assert_eq!(decoded(&weight(DType::F32, &[16, 16], &values), "lut4:group=4", Opset::Ios18), values);
    }

    #[test]
    fn extreme_weights_are_defined() {
        for kind in ["lut4", "lut2:group=4", "lut4:scale"] {
            for value in [0.0, -0.37, 6e-8, 65504.0] {
                let got = decoded(&weight(DType::F16, &[8, 16], &[value; 128]), kind, Opset::Ios18);
                assert_eq!(got, [anemeter_kernels::convert::round_f16(value); 128], "{kind}");
            }
            let mut outlier = vec![0.01; 128];
            outlier[5] = 65504.0;
            let got = decoded(&weight(DType::F16, &[8, 16], &outlier), kind, Opset::Ios18);
            assert!(got[5] == 65504.0 && got.iter().all(|x| x.is_finite()), "{kind}");
            for bad in [f32::NAN, f32::NEG_INFINITY] {
                outlier[100] = bad;
                let error = error_of(&weight(DType::F16, &[8, 16], &outlier), kind, Opset::Ios18);
                let expected = format!("weight `w` has an element that is {bad} and cannot be compressed");
                assert_eq!(error, expected);
            }
        }
    }

    #[test]
    fn groups_must_divide_and_old_opsets_have_few_forms() {
        let weight = weight(DType::F16, &[10, 16], &[0.0; 160]);
        let error = error_of(&weight, "lut4:group=4", Opset::Ios18);
        assert_eq!(error, "weight `w` has 10 output channels, which cannot be divided into groups of 4");
        for kind in ["lut3", "lut4:group=5", "lut4:scale"] {
            let error = error_of(&weight, kind, Opset::Ios17);
            assert_eq!(error, format!("weight `w` cannot be stored as {kind} in ios17"));
        }
    }
}
