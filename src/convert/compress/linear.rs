//! Uniform (linear) quantisation to integers with a scale, and a zero point if they are asymmetric, by round to nearest
//! with a search for the clipping ratio.
//!
//! ```text
//! channel  | block 0: q q q q … | block 1: q q q q … |   data: 4 or 8 bits each, row-major
//!          | scale, zero        | scale, zero        |   one of each per tensor, channel or block
//! ```
//!
//! A scale is not simply the largest magnitude over the largest integer: of several clipping ratios the one with the
//! least squared error is taken, each with the least-squares scale `sum w v / sum v v` of its integers `v`.

use std::io::{self, Write};

use half::f16;

use super::Result;
use super::encoder::{EncodedTables, Scheme, too_old};
use super::encoding::{Operand, Step};
use super::histogram::{Histogram, Keys, Point, is_finite};
use super::layout::Layout;
use super::precision::{Granularity, Linear};
use super::units::{Unit, Units};
use super::weight::{Weight, numbers, rounded, to_bytes};
use anemeter_kernels::block_scale::{LONGEST, Search, best_scales};
use anemeter_kernels::quantize::{Affine, Extent, Range, Sums, encode, extent, round_to_range};
use anemeter_kernels::simd::LANES;
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{Literal, LiteralData, Opset, TensorType};

/// Clipping ratios that are tried for integers of eight and of four bits. Normal numbers lose least when cut off at 3.92
/// and 2.55 standard deviations (ACIQ, Banner et al. 2019); in rows of thousands the largest is about 4.1, and 2.55 of
/// that are 0.62. There is one of four bits to each SIMD lane.
const EIGHT: &[f32] = &[1.0, 0.95];
const FOUR: [f32; LANES] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.62];

/// A number this large times two is finite in fp16.
const LARGE: f32 = 30_000.0;

/// Elements handled at a time where all share a scale.
const PIECE: usize = 1 << 14;

/// A weight as integers.
pub(super) struct LinearScheme {
    linear: Linear,
    opset: Opset,
    dtype: DType,
    layout: Layout,
    /// Elements that share a scale, and how many such blocks a channel has.
    block: usize,
    blocks: usize,
}

impl LinearScheme {
    pub(super) fn new(linear: Linear, weight: &Weight, opset: Opset) -> Result<LinearScheme> {
        let first = opset < Opset::Ios18;
        let is_block = matches!(linear.granularity, Granularity::Block(_));
        if opset < Opset::Ios16 || first && (linear.bits != 8 || is_block) {
            return Err(too_old(weight, linear, opset));
        }
        let layout = weight.layout.clone();
        let block = match linear.granularity {
            Granularity::Tensor => layout.elements(),
            Granularity::Channel => layout.row(),
            Granularity::Block(size) => layout.block(&weight.name, size)?,
        };
        let blocks = (layout.row() / block.max(1)).max(1);
        Ok(LinearScheme { linear, opset, dtype: weight.dtype, layout, block, blocks })
    }

    fn data_type(&self) -> DType {
        integer_type(self.linear.bits, self.linear.symmetric)
    }

    fn is_per_tensor(&self) -> bool {
        self.linear.granularity == Granularity::Tensor
    }

    fn parameters(&self) -> Vec<usize> {
        match (self.opset < Opset::Ios18, self.is_per_tensor()) {
            (true, true) => Vec::new(),
            (true, false) => vec![self.layout.channels()],
            (false, true) => vec![1; self.layout.shape.len()],
            (false, false) => self.layout.parameters(self.layout.channels(), self.blocks),
        }
    }

    /// Scales and, if there are any, zero points from pairs of both.
    fn table_pieces(&self, pairs: &[f32]) -> Vec<Vec<u8>> {
        let (pairs, _) = pairs.as_chunks::<2>();
        let order = |values: Vec<f32>| self.layout.order_parameters(self.blocks, &values);
        let scales = to_bytes(self.dtype, &order(pairs.iter().map(|pair| pair[0]).collect()));
        if self.linear.symmetric {
            return vec![scales];
        }
        let zeros = order(pairs.iter().map(|pair| pair[1]).collect());
        let zeros =
            anemeter_kernels::tensor::packed::pack(zeros.iter().map(|&zero| zero as u8), self.linear.bits);
        vec![scales, zeros]
    }

    /// The search over several blocks at once, where their form allows it.
    fn search(&self) -> Option<Search> {
        let fits = self.block.is_multiple_of(LANES) && self.block <= LONGEST;
        let (range, half) = (symmetric_range(self.linear.bits), self.dtype == DType::F16);
        let search = Search { clip_ratios: FOUR, range, half };
        (fits && self.linear.bits == 4 && self.linear.symmetric).then_some(search)
    }

    fn write_blocks(&self, weight: &Weight, out: &mut dyn Write) -> io::Result<EncodedTables> {
        let elements = self.block * self.blocks;
        let units = Units { elements, width: 1, bits: self.linear.bits, parameters: 2 * self.blocks };
        let search = self.search();
        let make = || (Vec::new(), vec![f32::NAN; self.blocks]);
        let coded = units.encode(weight, out, make, |(floats, scales), unit| {
            let Unit { bytes, codes, parameters, .. } = unit;
            numbers(self.dtype, bytes, floats);
            if let Some(search) = &search {
                best_scales(floats, self.block, search, scales);
            }
            let mut loss = Default::default();
            let blocks = floats.chunks(self.block).zip(codes.chunks_mut(self.block)).zip(&*scales);
            for (((values, codes), &scale), pair) in blocks.zip(parameters.chunks_exact_mut(2)) {
                let affine =
                    self.affine(values, scale).ok_or_else(|| weight.not_finite(first_bad(values)))?;
                loss += encode(values, &affine, codes);
                pair.copy_from_slice(&[affine.scale, affine.zero]);
            }
            Ok((floats.len(), loss))
        })?;
        Ok(EncodedTables { pieces: self.table_pieces(&coded.parameters), loss: coded.loss })
    }

    /// A scale that was found for symmetric integers, or a search for one.
    fn affine(&self, values: &[f32], found: f32) -> Option<Affine> {
        if found.is_nan() {
            return fit_values(self.linear, self.dtype, values);
        }
        let range = symmetric_range(self.linear.bits);
        Some(Affine { scale: found, range, zero: 0.0, half: self.dtype == DType::F16 })
    }

    fn write_tensor(&self, weight: &Weight, out: &mut dyn Write) -> io::Result<EncodedTables> {
        let points = count(weight, keys_of(weight)?)?;
        let affine = fit_points(self.linear, self.dtype, &points);
        let units = Units { elements: PIECE, width: 1, bits: self.linear.bits, parameters: 0 };
        let coded = units.encode(weight, out, Vec::new, |floats, unit| {
            numbers(self.dtype, unit.bytes, floats);
            Ok((floats.len(), encode(floats, &affine, unit.codes)))
        })?;
        Ok(EncodedTables { pieces: self.table_pieces(&[affine.scale, affine.zero]), loss: coded.loss })
    }
}

impl Scheme for LinearScheme {
    fn pieces(&self) -> Vec<TensorType> {
        let (sizes, dtype) = (self.parameters(), self.data_type());
        let data = TensorType::fixed(dtype, &self.layout.shape);
        let mut pieces = vec![data, TensorType::fixed(self.dtype, &sizes)];
        pieces.extend((!self.linear.symmetric).then(|| TensorType::fixed(dtype, &sizes)));
        pieces
    }

    fn write(&self, weight: &Weight, _: usize, out: &mut dyn Write) -> io::Result<Option<EncodedTables>> {
        if self.is_per_tensor() { self.write_tensor(weight, out) } else { self.write_blocks(weight, out) }
            .map(Some)
    }

    fn form(&self) -> Option<String> {
        Some(format!("{}, requantised", self.linear))
    }

    fn solved_tables(&self, parameters: &[f32], _: &[f32]) -> Option<Vec<Vec<u8>>> {
        Some(self.table_pieces(parameters))
    }

    fn steps(&self) -> Vec<Step> {
        let piece = Operand::Piece;
        if self.opset >= Opset::Ios18 {
            let mut arguments = vec![("data", piece(0)), ("scale", piece(1))];
            arguments.extend((!self.linear.symmetric).then_some(("offset", piece(2))));
            return vec![Step::last("constexpr_blockwise_shift_scale", arguments)];
        }
        let zero_point = if self.linear.symmetric { zeros(&self.parameters()) } else { piece(2) };
        let axis = Operand::Constant(Literal::immediate(&Tensor::scalar(self.layout.channel as i32)));
        let data = piece(0);
        let arguments =
            vec![("axis", axis), ("quantized_data", data), ("scale", piece(1)), ("zero_point", zero_point)];
        vec![Step::by_attribute("constexpr_affine_dequantize", arguments)]
    }
}

/// The type of integers of four or eight bits.
pub(super) fn integer_type(bits: u32, is_signed: bool) -> DType {
    match (bits, is_signed) {
        (4, true) => DType::I4,
        (4, false) => DType::U4,
        (_, true) => DType::I8,
        (_, false) => DType::U8,
    }
}

/// Zero points of symmetric integers, which the first generation wants written out.
fn zeros(shape: &[usize]) -> Operand {
    let bytes: anemeter_kernels::tensor::Bytes = vec![0; shape.iter().product::<usize>()].into();
    let data = if shape.is_empty() { LiteralData::Immediate(bytes) } else { LiteralData::Blob(bytes) };
    Operand::Constant(Literal { ty: TensorType::fixed(DType::I8, shape).into(), data })
}

/// The first number that is not finite.
pub(super) fn first_bad(values: &[f32]) -> f32 {
    values.iter().copied().find(|x| !x.is_finite()).unwrap_or(f32::NAN)
}

/// Every number of a weight and how often it occurs.
pub(super) fn count(weight: &Weight, keys: Keys) -> io::Result<Vec<Point>> {
    let mut histogram = Histogram::default();
    let (mut floats, mut found) = (Vec::new(), Vec::new());
    weight.for_each_batch(PIECE, &mut |bytes| {
        for piece in bytes.chunks(PIECE * weight.element()) {
            keys.read(piece, &mut floats, &mut found);
            if !is_finite(&found) {
                numbers(weight.dtype, piece, &mut floats);
                return Err(weight.not_finite(first_bad(&floats)));
            }
            histogram.add(&found);
        }
        Ok(())
    })?;
    let mut points = Vec::new();
    histogram.take(keys, &mut points);
    Ok(points)
}

/// Keys that fit all elements of a weight.
pub(super) fn keys_of(weight: &Weight) -> io::Result<Keys> {
    let mut largest = 0.0f32;
    if weight.dtype != DType::F16 {
        let mut floats = Vec::new();
        weight.for_each_batch(PIECE, &mut |bytes| {
            numbers(weight.dtype, bytes, &mut floats);
            let extent = extent(&floats);
            largest = largest.max(extent.max).max(-extent.min);
            if extent.is_finite { Ok(()) } else { Err(weight.not_finite(first_bad(&floats))) }
        })?;
    }
    Ok(Keys::new(weight.dtype, largest))
}

/// Scale and zero point for numbers, or nothing if they are not all finite.
pub(super) fn fit_values(linear: Linear, dtype: DType, values: &[f32]) -> Option<Affine> {
    let extent = extent(values);
    let evaluate = |inverse, range| round_to_range(values, inverse, range);
    extent.is_finite.then(|| fit(linear, dtype, extent, evaluate))
}

fn fit_points(linear: Linear, dtype: DType, points: &[Point]) -> Affine {
    let least = points.first().map_or(0.0, |point| point.value.min(0.0));
    let greatest = points.last().map_or(0.0, |point| point.value.max(0.0));
    fit(linear, dtype, Extent { min: least, max: greatest, is_finite: true }, |inverse, range| {
        let mut sums = Sums::default();
        for point in points {
            let (w, count) = (f64::from(point.value), f64::from(point.count));
            let v = f64::from((point.value * inverse).round_ties_even().clamp(range.low, range.high));
            sums.product += count * w * v;
            sums.square += count * v * v;
        }
        sums
    })
}

pub(super) fn symmetric_range(bits: u32) -> Range {
    let half = (1u32 << (bits - 1)) as f32;
    Range { low: -half, high: half - 1.0 }
}

/// The scale and zero point with the least squared error of those that are tried.
fn fit(linear: Linear, dtype: DType, extent: Extent, evaluate: impl Fn(f32, Range) -> Sums) -> Affine {
    let half = dtype == DType::F16;
    let steps = ((1u32 << linear.bits) - 1) as f32;
    let top = (steps - 1.0) / 2.0;
    let Extent { min, max, .. } = extent;
    let symmetric = symmetric_range(linear.bits);
    let mut best = Affine { scale: 1.0, range: symmetric, zero: 0.0, half };
    if min == 0.0 && max == 0.0 {
        if !linear.symmetric {
            best.range = Range { low: 0.0, high: steps };
        }
        return best;
    }
    let mut most = f64::NEG_INFINITY;
    let shares = if linear.bits == 8 { EIGHT } else { &FOUR };
    let mut attempt = |scale: f32, zero: f32, range: Range| {
        if scale <= 0.0 || !scale.is_finite() || !(1.0 / scale).is_finite() {
            return;
        }
        let sums = evaluate(1.0 / scale, range);
        for scale in [sums.best_scale() as f32, scale] {
            let scale = storable(dtype, scale, extent, range);
            let gain = sums.gain(f64::from(scale));
            if gain > most {
                most = gain;
                best = Affine { scale, range, zero, half };
            }
        }
    };
    let (tight, wide) = ((max / top).max(-min / (top + 1.0)), max.max(-min) / top);
    if linear.symmetric {
        if wide > tight {
            attempt(wide, 0.0, symmetric);
        }
        shares.iter().for_each(|share| attempt(tight * share, 0.0, symmetric));
    } else {
        let scale = max / steps - min / steps;
        let zero = (-min / scale).round_ties_even().clamp(0.0, steps);
        let range = Range { low: -zero, high: steps - zero };
        shares.iter().for_each(|share| attempt(scale * share, zero, range));
    }
    if most == f64::NEG_INFINITY {
        best.scale = storable(dtype, 0.0, extent, best.range);
    }
    best
}

/// The nearest scale that the type can hold, with which no number is read back as infinite.
pub(super) fn storable(dtype: DType, scale: f32, extent: Extent, range: Range) -> f32 {
    if dtype != DType::F16 {
        return if scale.is_finite() { scale.max(f32::MIN_POSITIVE) } else { f32::MIN_POSITIVE };
    }
    let mut half = f16::from_f32(if scale.is_nan() { 0.0 } else { scale.max(0.0) });
    if half.to_bits() == 0 {
        half = f16::from_bits(1);
    }
    if half.is_finite() && extent.max.max(-extent.min) < LARGE {
        return half.to_f32();
    }
    let largest = |scale: f32| {
        let reached = |x: f32| (x / scale).round_ties_even().clamp(range.low, range.high).abs() * scale;
        rounded(DType::F16, reached(extent.max).max(reached(extent.min)))
    };
    while !half.is_finite() || !largest(half.to_f32()).is_finite() {
        half = f16::from_bits(half.to_bits() - 1);
    }
    half.to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::{check, decoded, normal, weight, weight_by};

    const KINDS: &[&str] = &[
        "int8",
        "int8:tensor",
        "int8:asym",
        "int4:block=8",
        "int4:block=8:asym",
        "int4:channel",
        "int4:tensor:asym",
    ];

    #[test]
    fn what_the_operation_gives_is_what_the_loss_says() {
        for dtype in [DType::F16, DType::F32] {
            for kind in KINDS {
                let values = normal(24 * 32, 7);
                check(&weight(dtype, &[24, 32], &values), kind, Opset::Ios18, 0.2);
                check(&weight(dtype, &[24, 8, 2, 2], &values), kind, Opset::Ios18, 0.2);
                check(&weight_by(dtype, &[32, 24], &values, (1, 0)), kind, Opset::Ios18, 0.2);
            }
            for kind in ["int8", "int8:tensor", "int8:asym"] {
                check(&weight(dtype, &[24, 32], &normal(24 * 32, 3)), kind, Opset::Ios16, 0.02);
            }
        }
    }

    #[test]
    fn errors_stay_within_half_a_step_of_the_range() {
        let values = normal(64 * 32, 5);
        for (kind, steps) in [("int8", 127.0), ("int4:block=32", 7.0)] {
            let got = decoded(&weight(DType::F32, &[64, 32], &values), kind, Opset::Ios18);
            for (row, got) in values.chunks(32).zip(got.chunks(32)) {
                let largest = row.iter().fold(0.0f32, |a, x| a.max(x.abs()));
                let error: f32 = row.iter().zip(got).map(|(a, b)| (a - b) * (a - b)).sum();
                let plain: f32 = row
                    .iter()
                    .map(|x| x - (x / (largest / steps)).round() * (largest / steps))
                    .map(|e| e * e)
                    .sum();
                assert!(error <= plain * 1.0001, "{kind}: {error} against {plain}");
            }
        }
    }

    #[test]
    fn several_blocks_at_once_lose_no_more_than_one_by_one() {
        let heavy = |x: &f32| x * x * x * 40.0;
        let cubes: Vec<f32> = normal(256 * 96, 12).iter().map(heavy).collect();
        for (values, dtype) in
            [(normal(256 * 96, 11), DType::F16), (cubes, DType::F16), (normal(256 * 96, 13), DType::F32)]
        {
            let weight = weight(dtype, &[256, 96], &values);
            let scheme = LinearScheme::new(crate::compress::testing::linear("int4"), &weight, Opset::Ios18);
            let scheme = scheme.unwrap();
            assert!(scheme.search().is_some());
            let found = scheme.write(&weight, 0, &mut io::sink()).unwrap().unwrap().loss;
            let mut one_by_one = 0.0;
            let stored: Vec<f32> = values.iter().map(|&x| rounded(dtype, x)).collect();
            for block in stored.chunks(32) {
                let affine = fit_values(scheme.linear, dtype, block).unwrap();
                one_by_one += encode(block, &affine, &mut [0; 32]).noise;
            }
            assert!(found.noise <= one_by_one * (1.0 + 1e-6), "{} against {one_by_one}", found.noise);
        }
    }

    #[test]
    fn extreme_weights_are_defined() {
        for kind in KINDS {
            let zero = decoded(&weight(DType::F16, &[8, 16], &[0.0; 128]), kind, Opset::Ios18);
            assert_eq!(zero, [0.0; 128], "{kind}");
            let tiny = decoded(&weight(DType::F16, &[8, 16], &[6e-8; 128]), kind, Opset::Ios18);
            assert_eq!(tiny, [f16::from_bits(1).to_f32(); 128], "{kind}");
            let constant = decoded(&weight(DType::F16, &[8, 16], &[-0.37; 128]), kind, Opset::Ios18);
            assert!(constant.iter().all(|x| (x + 0.37).abs() < 0.37e-3), "{kind}: {}", constant[0]);
            let mut outlier = [0.01; 128];
            outlier[5] = 65504.0;
            let outlier = decoded(&weight(DType::F16, &[8, 16], &outlier), kind, Opset::Ios18);
            assert!(outlier.iter().all(|x| x.is_finite()) && outlier[5] > 60000.0, "{kind}: {}", outlier[5]);
        }
    }

    #[test]
    fn numbers_that_are_none_are_refused_by_name() {
        for kind in KINDS {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut values = [0.5; 128];
                values[77] = bad;
                let weight = weight(DType::F16, &[8, 16], &values);
                let scheme = LinearScheme::new(crate::compress::testing::linear(kind), &weight, Opset::Ios18);
                let error = scheme.unwrap().write(&weight, 0, &mut io::sink()).unwrap_err();
                let expected = format!("weight `w` has an element that is {bad} and cannot be compressed");
                assert_eq!(error.to_string(), expected, "{kind}");
            }
        }
    }

    #[test]
    fn old_opsets_and_indivisible_rows_are_refused() {
        let weight = weight(DType::F16, &[8, 18], &[0.0; 144]);
        let new = |kind, opset| LinearScheme::new(crate::compress::testing::linear(kind), &weight, opset);
        let error = new("int4:block=8", Opset::Ios18).err().unwrap();
        assert_eq!(error.to_string(), "weight `w` has 18 inputs, which cannot be divided into blocks of 8");
        let error = new("int4", Opset::Ios17).err().unwrap();
        assert_eq!(error.to_string(), "weight `w` cannot be stored as int4:block=32 in ios17");
        assert!(new("int8", Opset::Ios15).is_err() && new("int8", Opset::Ios16).is_ok());
    }
}
