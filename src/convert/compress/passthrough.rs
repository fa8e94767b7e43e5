//! Integers that a checkpoint holds, taken over as they are.
//!
//! A checkpoint's element is `scale * q + minimum`, an operation's is `scale * (q - offset)`. The offset that gives
//! the same fp16 numbers is looked for in the narrowest form that has one for every block. Where no form has, offsets
//! are rounded to fp16, which costs far less than new integers would. Numbers that were trained for integers get those
//! integers, and the log tells what that loses if they are not exactly them.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use super::Result;
use super::encoder::{EncodedTables, Scheme, too_old};
use super::encoding::{Operand, Step};
use super::layout::Layout;
use super::linear::integer_type;
use super::precision::{Granularity, Linear};
use super::weight::{Weight, numbers, rounded, to_bytes};
use anemeter_kernels::quantize::{Loss, Packer};
use anemeter_kernels::tensor::{DType, packed};
use anemeter_mil::{Opset, QuantizedSource, TensorType};

/// Elements handled at a time, as far as blocks allow.
const BATCH: usize = 1 << 18;

/// How a weight that comes from integers is stored.
pub(super) enum Passthrough {
    /// With the same integers.
    Same(PassthroughScheme),
    /// With others, because its blocks are not runs of inputs.
    Requantized(Linear),
}

/// A weight with the integers and scales of its checkpoint.
pub(super) struct PassthroughScheme {
    source: Arc<dyn QuantizedSource>,
    layout: Layout,
    offset: Offset,
    /// Whether every element stays what it is.
    is_exact: bool,
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

impl PassthroughScheme {
    /// How a weight is carried over, if it comes from integers.
    pub(super) fn choose(weight: &Weight, opset: Opset) -> Result<Option<Passthrough>> {
        let Some(source) = weight.quantized().filter(|_| weight.dtype == DType::F16) else { return Ok(None) };
        let layout = weight.layout.clone();
        let is_row_wise = layout.is_by_rows() && layout.input_stride() == Some(1);
        if opset < Opset::Ios18 {
            return Err(too_old(weight, "stored", opset));
        }
        layout.block(&weight.name, source.block())?;
        let blocks = layout.elements() / source.block();
        if !is_row_wise || source.is_scattered() {
            let (bits, symmetric) = (source.bits(), source.is_signed());
            let granularity = Granularity::Block(source.block());
            return Ok(Some(Passthrough::Requantized(Linear { bits, symmetric, granularity })));
        }
        let narrowest = |round: Rounding| {
            OFFSETS.iter().copied().find(|&offset| is_same(&*source, offset, blocks, round))
        };
        let exact = narrowest(|scale, minimum| (scale, minimum));
        let offset = exact.or_else(|| narrowest(in_half)).unwrap_or(Offset::Number(DType::F16));
        Ok(Some(Passthrough::Same(PassthroughScheme { source, layout, offset, is_exact: exact.is_some() })))
    }

    fn data_type(&self) -> DType {
        integer_type(self.source.bits(), self.offset == Offset::None || self.source.is_signed())
    }
}

/// Calls `take` with the codes, scales and minimums of all blocks, some at a time.
fn for_each(
    source: &dyn QuantizedSource,
    blocks: usize,
    mut take: impl FnMut(&mut [u8], &[f32], &[f32]) -> io::Result<()>,
) -> io::Result<()> {
    let size = source.block();
    let batch = (BATCH / size).max(1);
    let mut read = Blocks::default();
    for start in (0..blocks).step_by(batch) {
        read.take(source, start..blocks.min(start + batch));
        take(&mut read.codes, &read.scales, &read.minimums)?;
    }
    Ok(())
}

/// Some blocks.
#[derive(Default)]
struct Blocks {
    codes: Vec<u8>,
    scales: Vec<f32>,
    minimums: Vec<f32>,
}

impl Blocks {
    fn take(&mut self, source: &dyn QuantizedSource, some: Range<usize>) {
        let Blocks { codes, scales, minimums } = self;
        codes.resize(some.len() * source.block(), 0);
        scales.resize(some.len(), 0.0);
        minimums.resize(some.len(), 0.0);
        source.read(some, codes, scales, minimums);
        // A block of one number has no scale: it gets one, and the first integer.
        let flat = scales.iter_mut().zip(minimums).zip(codes.chunks_exact_mut(source.block()));
        for ((scale, minimum), codes) in
            flat.filter(|((scale, minimum), _)| **scale == 0.0 && **minimum != 0.0)
        {
            *scale = minimum.abs();
            codes.fill(0);
        }
    }
}

/// What is made of the scale and the minimum of a block.
type Rounding = fn(f32, f32) -> (f32, f32);

/// The scale of a block as fp16 has it, and its minimum if that stays the same multiple of the scale.
fn in_half(scale: f32, minimum: f32) -> (f32, f32) {
    const NEAR: f32 = 1e-5;
    let (half, zero) = (rounded(DType::F16, scale), -minimum / scale);
    let whole = zero.round_ties_even();
    match (zero - whole).abs() <= NEAR * whole.abs().max(1.0) {
        true => (half, -whole * half),
        false => (half, minimum),
    }
}

/// Whether every integer of every block, rounded as said, gives the same number with an offset of the given form.
fn is_same(source: &dyn QuantizedSource, offset: Offset, blocks: usize, round: Rounding) -> bool {
    let mut same = true;
    let looked = for_each(source, blocks, |_, scales, minimums| {
        let mut pairs = scales.iter().zip(minimums);
        same = pairs.all(|(&scale, &minimum)| {
            let (scale, minimum) = round(scale, minimum);
            block_offset(source, offset, scale, minimum).is_some()
        });
        if same { Ok(()) } else { Err(io::Error::other("differs")) }
    });
    looked.is_ok() && same
}

/// Codes from the least on.
fn codes(source: &dyn QuantizedSource) -> Range<i32> {
    let count = 1 << source.bits();
    if source.is_signed() { -count / 2..count / 2 } else { 0..count }
}

/// The offset with which a block gives the same numbers.
fn block_offset(source: &dyn QuantizedSource, offset: Offset, scale: f32, minimum: f32) -> Option<f32> {
    let codes = codes(source);
    let middle = codes.start.midpoint(codes.end) as f32;
    let exact = if minimum == 0.0 { 0.0 } else { -minimum / scale };
    let candidates: &[f32] = match offset {
        Offset::None => &[middle],
        Offset::Integer => &[exact.round_ties_even().clamp(codes.start as f32, codes.end as f32 - 1.0)],
        Offset::Number(DType::F16) => &[rounded(DType::F16, exact)],
        Offset::Number(_) => &[exact, exact.next_up(), exact.next_down()],
    };
    let gives_same = |&candidate: &f32| {
        codes.clone().all(|code| {
            let (read, wanted) = both(offset, code as f32, scale, minimum, candidate);
            read == wanted && wanted.is_finite()
        })
    };
    candidates.iter().copied().find(|candidate| candidate.is_finite() && gives_same(candidate))
}

/// What an operation gives for an integer, and what the checkpoint means by it.
fn both(form: Offset, code: f32, scale: f32, minimum: f32, offset: f32) -> (f32, f32) {
    let difference = match form {
        Offset::Number(DType::F16) => rounded(DType::F16, code - offset),
        _ => code - offset,
    };
    let stored = rounded(DType::F16, scale);
    (rounded(DType::F16, stored * difference), rounded(DType::F16, scale * code + minimum))
}

impl PassthroughScheme {
    /// The offset of a block, rounded if there is no exact one.
    fn offset(&self, scale: f32, minimum: f32) -> f32 {
        let (scale, minimum) = if self.is_exact { (scale, minimum) } else { in_half(scale, minimum) };
        let nearest = || if minimum == 0.0 { 0.0 } else { rounded(DType::F16, -minimum / scale) };
        block_offset(&*self.source, self.offset, scale, minimum).unwrap_or_else(nearest)
    }

    /// What the elements of a weight lose, given the offset of each block.
    fn loss(&self, weight: &Weight, offsets: &[f32]) -> io::Result<Loss> {
        let source = &*self.source;
        let (mut loss, mut first) = (Loss::default(), 0);
        let (mut wanted, mut read, mut blocks) = (Vec::new(), Vec::new(), Blocks::default());
        let number =
            |code: u8| if source.is_signed() { f32::from(code.cast_signed()) } else { f32::from(code) };
        weight.for_each_batch(source.block(), &mut |bytes| {
            numbers(DType::F16, bytes, &mut wanted);
            let count = wanted.len() / source.block();
            blocks.take(source, first..first + count);
            read.clear();
            let each = blocks.codes.chunks_exact(source.block());
            let parameters = blocks.scales.iter().zip(&blocks.minimums).zip(&offsets[first..first + count]);
            for (codes, ((&scale, &minimum), &offset)) in each.zip(parameters) {
                read.extend(
                    codes.iter().map(|&code| both(self.offset, number(code), scale, minimum, offset).0),
                );
            }
            loss += Loss::between(&wanted, &read);
            first += count;
            Ok(())
        })?;
        Ok(loss)
    }
}

impl Scheme for PassthroughScheme {
    fn pieces(&self) -> Vec<TensorType> {
        let blocks = self.layout.row() / self.source.block();
        let sizes = self.layout.parameters(self.layout.channels(), blocks);
        let data = TensorType::fixed(self.data_type(), &self.layout.shape);
        let mut pieces = vec![data, TensorType::fixed(DType::F16, &sizes)];
        match self.offset {
            Offset::None => {}
            Offset::Integer => pieces.push(TensorType::fixed(self.data_type(), &sizes)),
            Offset::Number(dtype) => pieces.push(TensorType::fixed(dtype, &sizes)),
        }
        pieces
    }

    fn write(&self, weight: &Weight, _: usize, out: &mut dyn Write) -> io::Result<Option<EncodedTables>> {
        let source = &*self.source;
        let (mut packer, mut bytes) = (Packer::new(source.bits()), Vec::new());
        let (mut all_scales, mut offsets) = (Vec::new(), Vec::new());
        // Moves unsigned integers to where their middle is zero.
        let flip =
            if self.offset == Offset::None && !source.is_signed() { 1 << (source.bits() - 1) } else { 0 };
        for_each(source, self.layout.elements() / source.block(), |codes, scales, minimums| {
            all_scales.extend_from_slice(scales);
            for (&scale, &minimum) in scales.iter().zip(minimums) {
                let offset = self.offset(scale, minimum);
                let parameters = [rounded(DType::F16, scale), offset];
                if let Some(&bad) = parameters.iter().find(|number| !number.is_finite()) {
                    return Err(weight.not_finite(bad));
                }
                offsets.push(offset);
            }
            codes.iter_mut().for_each(|code| *code ^= flip);
            packer.push(codes, &mut bytes);
            out.write_all(&bytes)?;
            bytes.clear();
            Ok(())
        })?;
        packer.finish(&mut bytes);
        out.write_all(&bytes)?;
        let mut pieces = vec![to_bytes(DType::F16, &all_scales)];
        match self.offset {
            Offset::None => {}
            Offset::Integer => {
                pieces.push(packed::pack(offsets.iter().map(|&x| x as i32 as u8), source.bits()));
            }
            Offset::Number(dtype) => pieces.push(to_bytes(dtype, &offsets)),
        }
        let is_same = self.is_exact && !source.is_rounded();
        let loss = if is_same { Loss::default() } else { self.loss(weight, &offsets)? };
        Ok(Some(EncodedTables { pieces, loss }))
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
        let how = match self.is_exact {
            _ if self.source.is_rounded() => "requantised",
            true => "carried over",
            false => "rounded",
        };
        Some(format!("int{}:block={}{offset}, {how}", self.source.bits(), self.source.block()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::{Integers, decoded, form_of, round_trip};

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
            (source(4, false, |_, scale| -0.5 * scale), "int4:block=32 with fp16 offsets, carried over"),
        ];
        for (integers, form) in cases {
            let weight = integers.weight(&[6, 64]);
            assert_eq!(form_of(&weight, "stored"), form);
            assert_eq!(decoded(&weight, "stored", Opset::Ios18), halves(&integers.values()), "{form}");
        }
    }

    #[test]
    fn offsets_that_cannot_be_exact_are_rounded_and_the_loss_is_told() {
        let integers = source(4, false, |i, _| -0.1 - i as f32 * 0.0173);
        let weight = integers.weight(&[6, 64]);
        assert_eq!(form_of(&weight, "stored"), "int4:block=32 with fp16 offsets, rounded");
        let (got, loss) = round_trip(&weight, "stored", Opset::Ios18).unwrap();
        let measured = Loss::between(&halves(&integers.values()), &got);
        assert!((measured.noise - loss.noise).abs() <= 1e-9 * measured.signal);
        assert!(loss.noise > 0.0 && loss.snr().unwrap() > 55.0, "{:?}", loss.snr());
    }

    #[test]
    fn scales_that_fp16_does_not_have_are_rounded_and_nothing_else_is() {
        for (bits, is_signed, zero, form) in [
            (8, true, 0.0, "int8:block=32, rounded"),
            (4, false, 8.0, "int4:block=32, rounded"),
            (4, false, 3.0, "int4:block=32:asym, rounded"),
        ] {
            let mut integers = source(bits, is_signed, |_, _| 0.0);
            for (scale, minimum) in integers.scales.iter_mut().zip(&mut integers.minimums) {
                *scale *= 1.0003;
                *minimum = -zero * *scale;
            }
            let weight = integers.weight(&[6, 64]);
            assert_eq!(form_of(&weight, "stored"), form);
            let (got, loss) = round_trip(&weight, "stored", Opset::Ios18).unwrap();
            let measured = Loss::between(&halves(&integers.values()), &got);
            assert!((measured.noise - loss.noise).abs() <= 1e-9 * measured.signal);
            assert!(loss.noise > 0.0 && loss.snr().unwrap() > 60.0, "{form}: {:?}", loss.snr());
        }
    }

    #[test]
    fn blocks_without_a_scale_are_their_minimum() {
        let mut integers = source(4, false, |_, scale| -8.0 * scale);
        (integers.scales[3], integers.minimums[3]) = (0.0, 0.25);
        (integers.scales[4], integers.minimums[4]) = (0.0, 0.0);
        let got = decoded(&integers.weight(&[6, 64]), "stored", Opset::Ios18);
        assert_eq!(got, halves(&integers.values()));
    }

    #[test]
    fn blocks_across_the_inputs_are_requantised_and_said_so() {
        let mut weight = source(8, true, |_, _| 0.0).weight(&[64, 6]);
        weight.layout = Layout { channel: 1, input: 0, ..weight.layout };
        assert_eq!(form_of(&weight, "stored"), "int8:block=32, requantised");
    }

    #[test]
    fn blocks_must_be_parts_of_rows() {
        let weight = source(8, true, |_, _| 0.0).weight(&[8, 48]);
        let error = crate::compress::testing::error_of(&weight, "stored", Opset::Ios18);
        assert_eq!(error, "weight `w` has 48 inputs, which cannot be divided into blocks of 32");
    }
}
