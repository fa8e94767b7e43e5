//! Weights that were trained for integers and are stored as numbers, with the scale they were trained for beside them.
//!
//! An integer is what a number divided by the scale rounds to. If all numbers are those integers times the scale, in
//! fp16, the integers say the same; otherwise they are what training meant, and something is lost.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::Tensors;
use super::group_quantized::Table;
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::{Encoding, Stored};
use anemeter_kernels::convert::round_f16;
use anemeter_kernels::tensor::DType;

/// Parts of a module: a scale and its zero. All else that is under the name of the scale's module is left out.
const PARTS: &[(&str, &str)] =
    &[("weight_scale", "weight_zero_point"), ("weight_fake_quant.scale", "weight_fake_quant.zero_point")];

/// Elements looked at at a time.
const BATCH: usize = 1 << 14;

/// The integers that a matrix of numbers was trained for.
#[derive(Debug)]
pub struct FakeQuantized {
    pub(in crate::checkpoint) dtype: DType,
    /// The numbers.
    numbers: Stored,
    scales: Table,
    zeros: Option<Table>,
    /// Inputs of a group.
    pub(in crate::checkpoint) size: usize,
    found: OnceLock<Option<IntegerGrid>>,
}

/// Integers that numbers round to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::checkpoint) struct IntegerGrid {
    pub(in crate::checkpoint) bits: u32,
    pub(in crate::checkpoint) is_signed: bool,
    /// Whether the numbers are the integers' to the last bit of fp16.
    pub(in crate::checkpoint) is_exact: bool,
}

impl PartialEq for FakeQuantized {
    fn eq(&self, other: &FakeQuantized) -> bool {
        self.numbers == other.numbers && self.scales == other.scales && self.zeros == other.zeros
    }
}

/// Gives numbers the scales that are stored beside them.
pub(super) fn fold(tensors: &mut Tensors) -> Result<()> {
    for &(scale, zero) in PARTS {
        for module in super::modules(tensors, scale) {
            let name = format!("{module}.weight");
            let is_number =
                |stored: &Stored| matches!(stored.encoding, Encoding::Plain(dtype) if dtype.is_float());
            let Some(numbers) = tensors.get(&name).filter(|stored| is_number(stored)).cloned() else {
                continue;
            };
            let scales = super::take(tensors, &module, scale)?;
            let zeros = tensors.remove(&format!("{module}.{zero}"));
            let matrix = matrix(&module, (scale, zero), numbers, scales, zeros)?;
            tensors.insert(name, matrix);
            if let Some((quantiser, _)) = scale.rsplit_once('.') {
                let (weights, activations) =
                    (format!("{module}.{quantiser}."), format!("{module}.activation_post_process."));
                tensors.retain(|name, _| !name.starts_with(&weights) && !name.starts_with(&activations));
            }
        }
    }
    Ok(())
}

fn matrix(
    module: &str,
    (scale, zero): (&str, &str),
    numbers: Stored,
    scales: Stored,
    zeros: Option<Stored>,
) -> Result<Stored> {
    let (Encoding::Plain(dtype), &[rows, columns]) = (&numbers.encoding, &numbers.shape[..]) else {
        let message = format!("is {:?}, expected a matrix, because it has a scale", &numbers.shape[..]);
        return Err(CheckpointError::new(message).at_tensor(&format!("{module}.weight")));
    };
    let (dtype, shape) = (*dtype, [rows, columns]);
    let (scales, size) = Table::of(scales, &format!("{module}.{scale}"), shape)?;
    let name = format!("{module}.{zero}");
    let zeros = zeros.map(|zeros| Table::beside(size, zeros, &name, shape)).transpose()?;
    let (shape, bytes, shard) = (numbers.shape.clone(), numbers.bytes.clone(), numbers.shard);
    let fake = FakeQuantized { dtype, numbers, scales, zeros, size, found: OnceLock::new() };
    Ok(Stored { shape, encoding: Encoding::FakeQuantized(Arc::new(fake)), bytes, shard })
}

/// The least and the greatest integers, without zeros and with them.
struct Extent {
    plain: (f32, f32),
    moved: (f32, f32),
    is_exact: bool,
}

impl FakeQuantized {
    /// Writes the elements of a row-major range.
    pub(in crate::checkpoint) fn read(&self, range: Range<usize>, out: &mut [f32]) {
        self.numbers.read(range, out);
    }

    /// The integers that the numbers round to; nothing if they are too many for eight bits or a scale is no scale.
    pub(in crate::checkpoint) fn found(&self) -> Option<IntegerGrid> {
        *self.found.get_or_init(|| {
            let Extent { plain, moved, is_exact } = self.extent()?;
            let within = |(least, greatest): (f32, f32), from: f32, to: f32| least >= from && greatest <= to;
            let forms = [
                (4, true, within(plain, -8.0, 7.0)),
                (4, false, within(moved, 0.0, 15.0)),
                (8, true, within(plain, -128.0, 127.0)),
                (8, false, within(moved, 0.0, 255.0)),
            ];
            if let Some(&(bits, is_signed, _)) = forms.iter().find(|form| form.2) {
                return Some(IntegerGrid { bits, is_signed, is_exact });
            }
            // Training cuts off what is beyond the range.
            within(plain, -129.0, 128.0).then_some(IntegerGrid { bits: 8, is_signed: true, is_exact: false })
        })
    }

    fn extent(&self) -> Option<Extent> {
        let mut extent = Extent {
            plain: (f32::INFINITY, f32::NEG_INFINITY),
            moved: (f32::INFINITY, f32::NEG_INFINITY),
            is_exact: true,
        };
        let mut values = vec![0.0; BATCH.min(self.size)];
        let groups = self.numbers.shape.iter().product::<usize>() / self.size.max(1);
        for group in 0..groups {
            let (scale, zero) = self.parameters(group);
            if !scale.is_normal() || zero.fract() != 0.0 {
                return None;
            }
            for start in (0..self.size).step_by(BATCH) {
                let values = &mut values[..(self.size - start).min(BATCH)];
                let first = group * self.size + start;
                self.numbers.read(first..first + values.len(), values);
                for &value in &*values {
                    let integer = (value / scale).round_ties_even();
                    extent.is_exact &= round_f16(scale * integer) == round_f16(value);
                    extent.plain = (extent.plain.0.min(integer), extent.plain.1.max(integer));
                    let integer = integer + zero;
                    extent.moved = (extent.moved.0.min(integer), extent.moved.1.max(integer));
                }
            }
        }
        Some(extent)
    }

    /// Writes the integers of a group, and tells its scale and what an integer of zero is.
    pub(in crate::checkpoint) fn split(&self, group: usize, codes: &mut [u8]) -> (f32, f32) {
        let (scale, zero) = self.parameters(group);
        let mut values = vec![0.0; self.size];
        self.numbers.read(group * self.size..(group + 1) * self.size, &mut values);
        let Some(IntegerGrid { bits, is_signed, .. }) = self.found() else { return (0.0, 0.0) };
        let half = f32::from(1u8 << (bits - 1));
        let (zero, least) = if is_signed { (0.0, -half) } else { (zero, 0.0) };
        for (code, &value) in codes.iter_mut().zip(&values) {
            let integer = (value / scale).round_ties_even() + zero;
            *code = integer.clamp(least, least + 2.0 * half - 1.0) as i16 as u8;
        }
        (scale, if zero == 0.0 { 0.0 } else { -zero * scale })
    }

    /// The scale in fp16, as a package holds it, and the zero.
    fn parameters(&self, group: usize) -> (f32, f32) {
        let groups = self.numbers.shape[1] / self.size;
        let (row, group) = (group / groups, group % groups);
        let zero = self.zeros.as_ref().map_or(0.0, |zeros| zeros.get(row, group));
        (round_f16(self.scales.get(row, group)), zero)
    }
}
