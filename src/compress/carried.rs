//! Integers that a checkpoint holds, taken over as they are.
//!
//! A checkpoint's element is `scale * q + minimum`, an operation's is `scale * (q - offset)`. The offset that gives
//! the same fp16 numbers is looked for in the narrowest form that has one for every block.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use half::f16;

use super::CompressError;
use super::encoding::{Operand, Step};
use super::job::{Learned, Scheme, too_old};
use super::layout::Layout;
use super::precision::{Granularity, Linear};
use super::weight::{Weight, rounded, to_bytes};
use crate::kernels::quantize::{Loss, Packer};
use crate::mil::{Opset, Quantised, TensorType};
use crate::tensor::{DType, packed};

/// Blocks handled at a time.
const BATCH: usize = 1 << 13;

/// How a weight that comes from integers is stored.
pub(super) enum Carried {
    /// With the same integers.
    Same(CarriedScheme),
    /// With others, because no operation gives the same numbers.
    Requantised(Linear),
}

/// A weight with the integers and scales of its checkpoint.
pub(super) struct CarriedScheme {
    source: Arc<dyn Quantised>,
    layout: Layout,
    offset: Offset,
}

/// What is subtracted from an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offset {
    /// Nothing; unsigned integers lose half their range first.
    None,
    /// An integer of the same type.
    Integer,
    /// A number of this type.
    Number(DType),
}

/// The narrowest first.
const OFFSETS: &[Offset] =
    &[Offset::None, Offset::Integer, Offset::Number(DType::F16), Offset::Number(DType::F32)];

impl CarriedScheme {
    /// How a weight is carried over, if it comes from integers.
    pub(super) fn new(weight: &Weight, opset: Opset) -> Result<Option<Carried>, CompressError> {
        let Some(source) = weight.quantised().filter(|_| weight.dtype == DType::F16) else { return Ok(None) };
        let layout = weight.layout.clone();
        let is_row_wise = layout.is_by_rows() && layout.input_stride() == Some(1);
        if opset < Opset::Ios18 {
            return Err(too_old(weight, "stored", opset));
        }
        layout.block(&weight.name, source.block())?;
        let blocks = layout.elements() / source.block();
        let fits = |offset: &&Offset| is_row_wise && is_same(&*source, **offset, blocks);
        Ok(Some(match OFFSETS.iter().find(fits) {
            Some(&offset) => Carried::Same(CarriedScheme { source, layout, offset }),
            None => Carried::Requantised(Linear {
                bits: source.bits(),
                symmetric: source.is_signed(),
                granularity: Granularity::Block(source.block()),
            }),
        }))
    }

    fn data_type(&self) -> DType {
        match (self.source.bits(), self.offset == Offset::None || self.source.is_signed()) {
            (4, true) => DType::I4,
            (4, false) => DType::U4,
            (_, true) => DType::I8,
            (_, false) => DType::U8,
        }
    }
}

/// Calls `take` with the codes, scales and minimums of all blocks, some at a time.
fn for_each(
    source: &dyn Quantised,
    blocks: usize,
    mut take: impl FnMut(&mut [u8], &[f32], &[f32]) -> io::Result<()>,
) -> io::Result<()> {
    let size = source.block();
    let (mut codes, mut scales, mut minimums) = (vec![0; BATCH * size], vec![0.0; BATCH], vec![0.0; BATCH]);
    for start in (0..blocks).step_by(BATCH) {
        let some: Range<usize> = start..blocks.min(start + BATCH);
        let count = some.len();
        source.read(some, &mut codes, &mut scales, &mut minimums);
        take(&mut codes[..count * size], &scales[..count], &minimums[..count])?;
    }
    Ok(())
}

/// Whether every integer of every block gives the same number with an offset of the given form.
fn is_same(source: &dyn Quantised, offset: Offset, blocks: usize) -> bool {
    let mut same = true;
    let looked = for_each(source, blocks, |_, scales, minimums| {
        let mut pairs = scales.iter().zip(minimums);
        same = pairs.all(|(&scale, &minimum)| block_offset(source, offset, scale, minimum).is_some());
        if same { Ok(()) } else { Err(io::Error::other("differs")) }
    });
    looked.is_ok() && same
}

/// Codes from the least on.
fn codes(source: &dyn Quantised) -> Range<i32> {
    let count = 1 << source.bits();
    if source.is_signed() { -count / 2..count / 2 } else { 0..count }
}

/// The offset with which a block gives the same numbers.
fn block_offset(source: &dyn Quantised, offset: Offset, scale: f32, minimum: f32) -> Option<f32> {
    let codes = codes(source);
    let middle = codes.start.midpoint(codes.end) as f32;
    let exact = if minimum == 0.0 { 0.0 } else { -minimum / scale };
    let candidates: &[f32] = match offset {
        Offset::None => &[middle],
        Offset::Integer => &[exact.round_ties_even().clamp(codes.start as f32, codes.end as f32 - 1.0)],
        Offset::Number(DType::F16) => &[rounded(DType::F16, exact)],
        Offset::Number(_) => &[exact, exact.next_up(), exact.next_down()],
    };
    let rounds = offset == Offset::Number(DType::F16);
    let gives_same = |&candidate: &f32| {
        codes.clone().all(|code| {
            let code = code as f32;
            let difference = if rounds { rounded(DType::F16, code - candidate) } else { code - candidate };
            let (read, wanted) = (f16::from_f32(scale * difference), f16::from_f32(scale * code + minimum));
            read == wanted && wanted.is_finite()
        })
    };
    candidates.iter().copied().find(|candidate| candidate.is_finite() && gives_same(candidate))
}

impl Scheme for CarriedScheme {
    fn pieces(&self) -> Vec<TensorType> {
        let blocks = self.layout.row() / self.source.block();
        let sizes = self.layout.parameters(self.layout.channels(), blocks);
        let mut pieces = vec![
            TensorType::fixed(self.data_type(), &self.layout.shape),
            TensorType::fixed(DType::F16, &sizes),
        ];
        match self.offset {
            Offset::None => {}
            Offset::Integer => pieces.push(TensorType::fixed(self.data_type(), &sizes)),
            Offset::Number(dtype) => pieces.push(TensorType::fixed(dtype, &sizes)),
        }
        pieces
    }

    fn write(&self, weight: &Weight, _: usize, out: &mut dyn Write) -> io::Result<Option<Learned>> {
        let source = &*self.source;
        let (mut packer, mut bytes) = (Packer::new(source.bits()), Vec::new());
        let (mut all_scales, mut offsets) = (Vec::new(), Vec::new());
        // Moves unsigned integers to where their middle is zero.
        let flip =
            if self.offset == Offset::None && !source.is_signed() { 1 << (source.bits() - 1) } else { 0 };
        for_each(source, self.layout.elements() / source.block(), |codes, scales, minimums| {
            codes.iter_mut().for_each(|code| *code ^= flip);
            packer.push(codes, &mut bytes);
            out.write_all(&bytes)?;
            bytes.clear();
            all_scales.extend_from_slice(scales);
            for (&scale, &minimum) in scales.iter().zip(minimums) {
                let offset = block_offset(source, self.offset, scale, minimum);
                offsets.push(offset.ok_or_else(|| {
                    io::Error::other(format!("weight `{}` changed while it was read", weight.name))
                })?);
            }
            Ok(())
        })?;
        packer.finish(&mut bytes);
        out.write_all(&bytes)?;
        let mut pieces = vec![to_bytes(DType::F16, &all_scales)];
        match self.offset {
            Offset::None => {}
            Offset::Integer => {
                pieces.push(packed::pack(offsets.iter().map(|&x| x as i32 as u8), source.bits()))
            }
            Offset::Number(dtype) => pieces.push(to_bytes(dtype, &offsets)),
        }
        Ok(Some(Learned { pieces, loss: Loss::default() }))
    }

    fn steps(&self) -> Vec<Step> {
        let mut arguments = vec![("data", Operand::Piece(0)), ("scale", Operand::Piece(1))];
        arguments.extend((self.offset != Offset::None).then_some(("offset", Operand::Piece(2))));
        vec![Step::last("constexpr_blockwise_shift_scale", arguments)]
    }

    fn form(&self) -> Option<String> {
        let offset = match self.offset {
            Offset::None => String::new(),
            Offset::Integer => ":asym".to_owned(),
            Offset::Number(dtype) => format!(" with {dtype} offsets"),
        };
        Some(format!("int{}:block={}{offset}, carried over", self.source.bits(), self.source.block()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::{Integers, decoded, form_of};

    fn halves(values: &[f32]) -> Vec<f32> {
        values.iter().map(|&x| rounded(DType::F16, x)).collect()
    }

    fn source(bits: u32, is_signed: bool, minimum: impl Fn(usize, f32) -> f32) -> Integers {
        let blocks = 2 * 6;
        let scales: Vec<f32> =
            (0..blocks).map(|i| rounded(DType::F16, 0.013 + (i * i % 7) as f32 * 0.0071)).collect();
        let minimums = (0..blocks).map(|i| rounded(DType::F16, minimum(i, scales[i]))).collect();
        let codes = (0..blocks * 32).map(|i| (i * 29 % (1 << bits)) as u8).collect();
        Integers { bits, is_signed, block: 32, codes, scales, minimums }
    }

    #[test]
    fn numbers_are_the_same_to_the_last_bit() {
        let cases = [
            (source(8, true, |_, _| 0.0), "int8:block=32, carried over"),
            (source(4, false, |_, scale| -8.0 * scale), "int4:block=32, carried over"),
            (source(4, false, |i, scale| -((i % 3) as f32) * scale), "int4:block=32:asym, carried over"),
            (
                source(4, false, |i, _| -0.1 - i as f32 * 0.017),
                "int4:block=32 with fp32 offsets, carried over",
            ),
        ];
        for (integers, form) in cases {
            let weight = integers.weight(&[6, 64]);
            assert_eq!(form_of(&weight, "stored"), form);
            assert_eq!(decoded(&weight, "stored", Opset::Ios18), halves(&integers.values()), "{form}");
        }
    }

    #[test]
    fn what_no_operation_gives_is_requantised_and_said_so() {
        let integers = source(4, false, |_, _| 1000.0);
        let weight = integers.weight(&[6, 64]);
        assert_eq!(form_of(&weight, "stored"), "int4:block=32:asym, requantised");
    }

    #[test]
    fn blocks_must_be_parts_of_rows() {
        let weight = source(8, true, |_, _| 0.0).weight(&[8, 48]);
        let error = crate::compress::testing::error_of(&weight, "stored", Opset::Ios18);
        assert_eq!(error, "weight `w` has 48 inputs, which cannot be divided into blocks of 32");
    }
}
