//! Magnitude pruning: only the largest elements and a mask of where they belong, for a share of all of them (Han et al.
//! 2015) or `keep` of each `of` inputs (N:M sparsity, Mishra et al. 2021). They are stored as they are, as integers or as
//! indices.
//!
//! ```text
//! weight   3 0 0 7 | 0 5 1 0       mask    1001 0110       1 bit each
//!                                  stored  3 7 5 1         in order, without gaps
//! ```

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use super::encoder::{EncodedTables, Scheme, flat, too_old};
use super::encoding::{Operand, Step, listed};
use super::layout::Layout;
use super::linear::{first_bad, fit_values, integer_type};
use super::palette::{Group, index_type};
use super::precision::{Granularity, Linear, Palette, Pattern, Precision};
use super::units::{Unit, UnitResult, Units};
use super::weight::{Weight, numbers, to_bytes};
use super::{CompressError, Result};
use anemeter_kernels::quantize::{Loss, encode};
use anemeter_kernels::tensor::DType;
use anemeter_mil::{Opset, TensorType};

/// A weight of which only some elements are stored.
pub(super) struct SparseScheme {
    pattern: Pattern,
    stored: SparseValues,
    opset: Opset,
    dtype: DType,
    layout: Layout,
    /// Elements that are stored.
    kept: usize,
    /// Elements between the inputs of which some are stored, where that is so.
    stride: usize,
    selection: Mutex<Option<Selection>>,
}

/// What the stored elements are.
#[derive(Debug, Clone, Copy)]
enum SparseValues {
    Plain,
    /// Integers with a scale for each block of so many elements.
    Linear(Linear, usize),
    /// Indices, with a palette for each group of so many channels.
    Palette(Palette, usize),
}

/// Which magnitudes are stored: those above a threshold, found by counting, and the first of those equal to it.
#[derive(Debug, Clone, Default)]
struct Selection {
    threshold: u16,
    /// How many that are equal are stored, in order.
    equal: usize,
    /// How many that are equal are before each channel.
    before: Vec<usize>,
}

impl SparseScheme {
    pub(super) fn new(precision: Precision, weight: &Weight, opset: Opset) -> Result<SparseScheme> {
        let name = &weight.name;
        let (pattern, is_plain) = match precision {
            Precision::Sparse(pattern) => (pattern, true),
            Precision::SparseLinear(pattern, _) | Precision::SparsePalette(pattern, _) => (pattern, false),
            Precision::Keep | Precision::Stored | Precision::Linear(_) | Precision::Palette(_) => {
                return Err(CompressError::new(format!("`{precision}` is not sparse")));
            }
        };
        if opset < Opset::Ios16 || opset < Opset::Ios18 && !is_plain {
            return Err(too_old(weight, precision, opset));
        }
        let is_flat = is_plain && matches!(pattern, Pattern::Magnitude(_));
        let layout = if is_flat { Layout::rows_first(&weight.layout.shape) } else { weight.layout.clone() };
        if !layout.is_by_rows() {
            let message = format!(
                "weight `{name}` has its output channels on axis {}, so it cannot be stored as {precision}",
                layout.channel
            );
            return Err(CompressError::new(message)
                .with_help("sparse:SHARE works for it, and so do precisions that are not sparse"));
        }
        let stored = match precision {
            Precision::SparseLinear(_, linear) => SparseValues::Linear(
                linear,
                match linear.granularity {
                    Granularity::Block(size) => layout.block(name, size)?,
                    Granularity::Channel => layout.row(),
                    Granularity::Tensor => {
                        return Err(CompressError::new(format!(
                            "weight `{name}`: sparse integers have a scale per channel or block, not one for all"
                        )));
                    }
                },
            ),
            Precision::SparsePalette(_, palette) => SparseValues::Palette(
                palette,
                match palette.group {
                    Some(group) => layout.groups(name, group, "groups").map(|_| group)?,
                    None => layout.channels(),
                },
            ),
            _ => SparseValues::Plain,
        };
        let (kept, stride) = match pattern {
            Pattern::Magnitude(share) => {
                (layout.elements() - (layout.elements() as f64 * share).floor() as usize, 1)
            }
            Pattern::Structured { keep, of } => {
                layout.block(name, of)?;
                (layout.elements() / of * keep, layout.input_stride().unwrap_or(1))
            }
        };
        let (dtype, selection) = (weight.dtype, Mutex::new(None));
        Ok(SparseScheme { pattern, stored, opset, dtype, layout, kept, stride, selection })
    }

    fn data_type(&self) -> DType {
        match self.stored {
            SparseValues::Plain => self.dtype,
            SparseValues::Linear(linear, _) => integer_type(linear.bits, true),
            SparseValues::Palette(palette, _) => index_type(palette.bits),
        }
    }

    /// Which magnitudes are stored; looks through the weight the first time.
    fn selection(&self, weight: &Weight) -> io::Result<Selection> {
        let mut held = self.selection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(selection) = &*held {
            return Ok(selection.clone());
        }
        let selection = match self.pattern {
            Pattern::Magnitude(_) => self.select(weight)?,
            Pattern::Structured { .. } => Selection::default(),
        };
        *held = Some(selection.clone());
        Ok(selection)
    }

    fn select(&self, weight: &Weight) -> io::Result<Selection> {
        let row = self.layout.row() * weight.element();
        let mut counts = vec![0usize; 1 << 16];
        let mut found = Vec::new();
        weight.for_each_batch(self.layout.row(), &mut |bytes| {
            magnitudes(weight, bytes, &mut found)?;
            found.iter().for_each(|&magnitude| counts[usize::from(magnitude)] += 1);
            Ok(())
        })?;
        let (mut above, mut threshold) = (0, counts.len() - 1);
        while threshold > 0 && above + counts[threshold] < self.kept {
            above += counts[threshold];
            threshold -= 1;
        }
        let mut selection =
            Selection { threshold: threshold as u16, equal: self.kept - above, before: Vec::new() };
        let mut equal = 0;
        weight.for_each_batch(self.layout.row(), &mut |bytes| {
            for row in bytes.chunks(row) {
                magnitudes(weight, row, &mut found)?;
                selection.before.push(equal);
                equal += found.iter().filter(|&&magnitude| magnitude == selection.threshold).count();
            }
            Ok(())
        })?;
        Ok(selection)
    }

    /// Marks the elements of a channel that are stored.
    fn mark(&self, selection: &Selection, channel: usize, magnitudes: &[u16], mask: &mut [u8]) {
        match self.pattern {
            Pattern::Magnitude(_) => {
                let mut left = selection.equal.saturating_sub(selection.before[channel]);
                for (mark, &magnitude) in mask.iter_mut().zip(magnitudes) {
                    let is_equal = magnitude == selection.threshold && left > 0;
                    left -= usize::from(is_equal);
                    *mark = u8::from(magnitude > selection.threshold || is_equal);
                }
            }
            Pattern::Structured { keep, of } => {
                mask.fill(0);
                for run in (0..mask.len()).step_by(of * self.stride) {
                    for start in run..run + self.stride {
                        let places = || (0..of).map(|i| start + i * self.stride);
                        let rank = |place: usize| {
                            let larger =
                                |other: &usize| (magnitudes[*other], place) > (magnitudes[place], *other);
                            places().filter(larger).count()
                        };
                        places().for_each(|place| mask[place] = u8::from(rank(place) < keep));
                    }
                }
            }
        }
    }

    fn write_mask(&self, weight: &Weight, out: &mut dyn Write) -> io::Result<()> {
        let selection = self.selection(weight)?;
        let units = Units { elements: self.layout.row(), width: 1, bits: 1, parameters: 0 };
        units.encode(weight, out, Vec::new, |found, unit| {
            magnitudes(weight, unit.bytes, found)?;
            self.mark(&selection, unit.index, found, unit.codes);
            Ok((found.len(), Loss::default()))
        })?;
        Ok(())
    }

    fn write_stored(&self, weight: &Weight, out: &mut dyn Write) -> io::Result<EncodedTables> {
        let selection = self.selection(weight)?;
        let row = self.layout.row();
        let (channels, width, bits, parameters) = match self.stored {
            SparseValues::Plain => (1, weight.element(), 8, 0),
            SparseValues::Linear(linear, block) => (1, 1, linear.bits, row / block),
            SparseValues::Palette(palette, group) => (group, 1, palette.bits, 1 << palette.bits),
        };
        let units = Units { elements: channels * row, width, bits, parameters };
        let coded = units.encode(weight, out, Scratch::default, |scratch, mut unit| {
            scratch.mask.resize(unit.bytes.len() / weight.element(), 0);
            for (i, bytes) in unit.bytes.chunks(row * weight.element()).enumerate() {
                magnitudes(weight, bytes, &mut scratch.magnitudes)?;
                let mask = &mut scratch.mask[i * row..(i + 1) * row];
                self.mark(&selection, unit.index * channels + i, &scratch.magnitudes, mask);
            }
            match self.stored {
                SparseValues::Plain => Ok(scratch.copy(weight, &mut unit)),
                SparseValues::Linear(linear, block) => scratch.quantise(weight, linear, block, &mut unit),
                SparseValues::Palette(..) => scratch.palettise(weight, &mut unit),
            }
        })?;
        let pieces = match self.stored {
            SparseValues::Plain => Vec::new(),
            _ => vec![to_bytes(self.dtype, &coded.parameters)],
        };
        Ok(EncodedTables { pieces, loss: coded.loss })
    }
}

impl Scheme for SparseScheme {
    fn pieces(&self) -> Vec<TensorType> {
        let data = TensorType::fixed(self.data_type(), &[self.kept]);
        if self.opset < Opset::Ios18 {
            return vec![flat(DType::U1, self.layout.elements()), data];
        }
        let mask = TensorType::fixed(DType::U1, &self.layout.shape);
        let parameters = match self.stored {
            SparseValues::Plain => return vec![mask, data],
            SparseValues::Linear(_, block) => {
                self.layout.parameters(self.layout.channels(), self.layout.row() / block)
            }
            SparseValues::Palette(palette, group) => {
                let mut sizes = self.layout.parameters(self.layout.channels() / group, 1);
                sizes.extend([1 << palette.bits, 1]);
                sizes
            }
        };
        vec![mask, data, TensorType::fixed(self.dtype, &parameters)]
    }

    fn streams(&self) -> usize {
        2
    }

    fn write(&self, weight: &Weight, part: usize, out: &mut dyn Write) -> io::Result<Option<EncodedTables>> {
        let weight = &weight.with_layout(self.layout.clone());
        match part {
            0 => self.write_mask(weight, out).map(|()| None),
            _ => self.write_stored(weight, out).map(Some),
        }
    }

    fn steps(&self) -> Vec<Step> {
        let (mask, data, parameters) = (Operand::Piece(0), Operand::Piece(1), Operand::Piece(2));
        let (kind, arguments) = match self.stored {
            SparseValues::Plain => {
                let arguments = vec![("mask", mask), ("nonzero_data", data)];
                if self.opset >= Opset::Ios18 {
                    return vec![Step::last("constexpr_sparse_to_dense", arguments)];
                }
                let arguments = [arguments, vec![("shape", listed(&self.layout.shape))]].concat();
                return vec![Step::by_attribute("constexpr_sparse_to_dense", arguments)];
            }
            SparseValues::Linear(..) => (
                "constexpr_sparse_blockwise_shift_scale",
                vec![("data_mask", mask), ("nonzero_data", data), ("scale", parameters)],
            ),
            SparseValues::Palette(..) => (
                "constexpr_lut_to_sparse",
                vec![("indices_mask", mask), ("indices_nonzero_data", data), ("lut", parameters)],
            ),
        };
        let outputs = vec![
            ("mask", Some(TensorType::fixed(DType::U1, &self.layout.shape))),
            ("nonzero", Some(TensorType::fixed(self.dtype, &[self.kept]))),
        ];
        let decode = Step { kind, by_attribute: false, arguments, outputs };
        let (mask, data) = (Operand::Earlier("mask"), Operand::Earlier("nonzero"));
        vec![decode, Step::last("constexpr_sparse_to_dense", vec![("mask", mask), ("nonzero_data", data)])]
    }
}

/// What a thread keeps between units.
#[derive(Default)]
struct Scratch {
    magnitudes: Vec<u16>,
    mask: Vec<u8>,
    values: Vec<f32>,
    kept: Vec<f32>,
    bytes: Vec<u8>,
    group: Option<Group>,
}

impl Scratch {
    /// The stored elements as they are.
    fn copy(&mut self, weight: &Weight, unit: &mut Unit<'_>) -> (usize, Loss) {
        numbers(weight.dtype, unit.bytes, &mut self.values);
        let size = weight.element();
        let mut used = 0;
        let mut loss = self.dropped();
        for (i, element) in unit.bytes.chunks_exact(size).enumerate().filter(|(i, _)| self.mask[*i] != 0) {
            unit.codes[used..used + size].copy_from_slice(element);
            used += size;
            let square = f64::from(self.values[i]).powi(2);
            loss += Loss { signal: square, noise: 0.0, decoded: square };
        }
        (used, loss)
    }

    fn quantise(&mut self, weight: &Weight, linear: Linear, block: usize, unit: &mut Unit<'_>) -> UnitResult {
        numbers(weight.dtype, unit.bytes, &mut self.values);
        let mut loss = self.dropped();
        let mut used = 0;
        let blocks = self.values.chunks(block).zip(self.mask.chunks(block));
        for ((values, mask), scale) in blocks.zip(unit.parameters.iter_mut()) {
            self.kept.clear();
            self.kept.extend(values.iter().zip(mask).filter(|(_, mark)| **mark != 0).map(|(x, _)| x));
            let affine = fit_values(linear, weight.dtype, &self.kept)
                .ok_or_else(|| weight.not_finite(first_bad(&self.kept)))?;
            loss += encode(&self.kept, &affine, &mut unit.codes[used..used + self.kept.len()]);
            used += self.kept.len();
            *scale = affine.scale;
        }
        Ok((used, loss))
    }

    fn palettise(&mut self, weight: &Weight, unit: &mut Unit<'_>) -> UnitResult {
        numbers(weight.dtype, unit.bytes, &mut self.values);
        let mut loss = self.dropped();
        let elements = unit.bytes.chunks_exact(weight.element());
        self.bytes.clear();
        self.bytes.extend(elements.zip(&self.mask).filter(|(_, mark)| **mark != 0).flat_map(|(x, _)| x));
        let group = self.group.get_or_insert_default();
        group.read(weight, &self.bytes, 1, &mut [])?;
        let (used, kept) = group.encode(weight.dtype, unit.parameters, 1, &[], unit.codes)?;
        loss += kept;
        Ok((used, loss))
    }

    /// What is lost with the elements that are not stored.
    fn dropped(&self) -> Loss {
        let dropped = self.values.iter().zip(&self.mask).filter(|(_, mark)| **mark == 0);
        let square: f64 = dropped.map(|(x, _)| f64::from(*x).powi(2)).sum();
        Loss { signal: square, noise: square, decoded: 0.0 }
    }
}

/// Magnitudes of elements as integers of the same order.
fn magnitudes(weight: &Weight, bytes: &[u8], out: &mut Vec<u16>) -> io::Result<()> {
    out.clear();
    let infinite = if weight.dtype == DType::F16 {
        out.extend(bytes.as_chunks().0.iter().map(|&half| u16::from_le_bytes(half) & 0x7fff));
        0x7c00
    } else {
        let top = |&number: &[u8; 4]| ((u32::from_le_bytes(number) & 0x7fff_ffff) >> 15) as u16;
        out.extend(bytes.as_chunks().0.iter().map(top));
        0xff00
    };
    if out.iter().any(|&magnitude| magnitude >= infinite) {
        let mut values = Vec::new();
        numbers(weight.dtype, bytes, &mut values);
        return Err(weight.not_finite(first_bad(&values)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::{check, decoded, error_of, normal, weight, weight_by};

    #[test]
    fn what_the_operations_give_is_what_the_loss_says() {
        for dtype in [DType::F16, DType::F32] {
            let values = normal(24 * 32, 11);
            for kind in [
                "sparse:0.5",
                "sparse:0.3",
                "sparse:2:4",
                "sparse:0.5+int8",
                "sparse:0.4+int4:block=8",
                "sparse:2:4+int8",
                "sparse:0.5+lut4",
                "sparse:1:2+lut6:group=8",
            ] {
                check(&weight(dtype, &[24, 32], &values), kind, Opset::Ios18, 0.5);
                check(&weight(dtype, &[24, 8, 2, 2], &values), kind, Opset::Ios18, 0.5);
            }
            check(&weight(dtype, &[24, 32], &values), "sparse:0.5", Opset::Ios16, 0.5);
            check(&weight_by(dtype, &[32, 24], &values, (1, 0)), "sparse:0.5", Opset::Ios18, 0.5);
        }
    }

    #[test]
    fn exactly_the_share_is_dropped_even_of_equal_numbers() {
        for value in [0.0, 0.25] {
            let got = decoded(&weight(DType::F16, &[4, 25], &[value; 100]), "sparse:0.3", Opset::Ios18);
            let expected = if value == 0.0 { 0 } else { 70 };
            assert_eq!(got.iter().filter(|x| **x != 0.0).count(), expected);
            assert!(got[..expected].iter().all(|x| *x == value));
        }
    }

    #[test]
    fn structured_patterns_keep_the_largest_of_each_run() {
        let values = [1.0, -4.0, 2.0, 3.0, 0.5, 0.5, 0.5, 0.5];
        let got = decoded(&weight(DType::F16, &[1, 8], &values), "sparse:2:4", Opset::Ios18);
        assert_eq!(got, [0.0, -4.0, 0.0, 3.0, 0.5, 0.5, 0.0, 0.0]);
        // Inputs are two elements apart.
        let got = decoded(&weight(DType::F16, &[1, 4, 2], &values), "sparse:1:2", Opset::Ios18);
        assert_eq!(got, [0.0, -4.0, 2.0, 0.0, 0.5, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let odd = weight(DType::F16, &[4, 6], &[1.0; 24]);
        let error = error_of(&odd, "sparse:2:4", Opset::Ios18);
        assert_eq!(error, "weight `w` has 6 inputs, which cannot be divided into blocks of 4");
        let columns = weight_by(DType::F16, &[8, 4], &[1.0; 32], (1, 0));
        let error = error_of(&columns, "sparse:0.5+int8", Opset::Ios18);
        let expected =
            "weight `w` has its output channels on axis 1, so it cannot be stored as sparse:0.5+int8:channel";
        assert_eq!(error, expected);
        assert!(error_of(&odd, "sparse:0.5+int8", Opset::Ios17).ends_with("in ios17"));
        assert!(error_of(&odd, "sparse:0.5+int8:tensor", Opset::Ios18).contains("not one for all"));
        let mut bad = [1.0; 24];
        bad[9] = f32::NAN;
        let error = error_of(&weight(DType::F32, &[4, 6], &bad), "sparse:0.5", Opset::Ios18);
        assert_eq!(error, "weight `w` has an element that is NaN and cannot be compressed");
    }
}
