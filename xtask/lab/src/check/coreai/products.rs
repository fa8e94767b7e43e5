//! Products with compressed weights, as a decoder has them: of one token and of several.
//!
//! The CPU runtime computes those of one token on the integers of the weights, with activations of 15 bits in blocks of 32, and
//! palettes of 15 bits as well; that is what differs from Apple's runtime, which multiplies in fp32. How far such a product may
//! be off is known (`src/kernels/gemv_accuracy.rs`), and its cases get that bound. With `fp16-exact` numerics the CPU runtime
//! multiplies in fp32 too, and is held to the rounding of fp32 sums.

use anyhow::Result;

use super::compressed::{codes, literal};
use super::made::{Case, Making};
use anemeter::mil::op::Numerics;
use anemeter::tensor::{DType, packed};

/// Elements that have a scale in common, of weights and of activations.
const BLOCK: usize = 32;

/// What sums of a few hundred fp32 products may be off by.
const SUMS: f32 = 5e-5;

/// A weight of rows and columns, decoded, beside the constants that say it.
struct Stored {
    decoded: Vec<f32>,
    is_palette: bool,
}

pub(super) fn make(mut m: Making<'_>, op: &str) -> Result<Case> {
    let kind = ["int8", "int4", "lut4"][m.rng.usize(0..3)];
    let (rows, columns) = (4 * m.rng.usize(1..7), BLOCK * m.rng.usize(4..13));
    let tokens = [1, 1, 7][m.rng.usize(0..3)];
    let is_exact = m.rng.bool();
    m.note(&format!("{kind} [{rows}, {columns}] of {tokens} tokens, exact {is_exact}"));
    let shape = [rows, columns, 1, 1];
    let x = m.floats(&[1, columns, 1, tokens], (-2.0, 2.0))?;
    let (weight, stored) = match kind {
        "lut4" => {
            let indices = codes(&mut m, DType::U4, &shape);
            let table = m.floats(&[rows / 4, 1, 1, 1, 16, 1], (-0.1, 0.1))?;
            let entries = table.view().slice::<f32>()?.to_vec();
            let bytes = bytes_of(&indices);
            let at = |index: usize| {
                let group = index / (4 * columns);
                entries[16 * group + usize::from(packed::get(&bytes, index, 4))]
            };
            let decoded = (0..rows * columns).map(at).collect();
            let lut = literal(DType::F32, &[rows / 4, 1, 1, 1, 16, 1], table.bytes().to_vec());
            let weight = m.builder.op("constexpr_lut_to_dense").arg("indices", indices).arg("lut", lut);
            (weight.named("weight").push()?, Stored { decoded, is_palette: true })
        }
        kind => {
            let (dtype, block) = if kind == "int8" { (DType::I8, columns) } else { (DType::I4, BLOCK) };
            let data = codes(&mut m, dtype, &shape);
            let scales = m.floats(&[rows, columns / block, 1, 1], (0.001, 0.01))?;
            let factors = scales.view().slice::<f32>()?.to_vec();
            let bytes = bytes_of(&data);
            let at = |index: usize| packed::get_int(&bytes, index, dtype) as f32 * factors[index / block];
            let decoded = (0..rows * columns).map(at).collect();
            let scale = literal(DType::F32, &[rows, columns / block, 1, 1], scales.bytes().to_vec());
            let weight =
                m.builder.op("constexpr_blockwise_shift_scale").arg("data", data).arg("scale", scale);
            (weight.named("weight").push()?, Stored { decoded, is_palette: false })
        }
    };
    let bound = stored.bound(x.view().slice::<f32>()?, columns, tokens);
    let x = m.given("x", x);
    let y = m.builder.op("conv").arg("x", x).arg("weight", weight).named("y").push()?;
    let mut case = m.end(op, SUMS + if is_exact { 0.0 } else { bound }, &[y]);
    if is_exact {
        case.numerics = Numerics::Fp16Exact;
    }
    Ok(case)
}

fn bytes_of(literal: &anemeter::mil::Literal) -> Vec<u8> {
    match &literal.data {
        anemeter::mil::LiteralData::Blob(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

impl Stored {
    /// The most that integers for activations and palettes can change a product.
    fn bound(&self, x: &[f32], columns: usize, tokens: usize) -> f32 {
        let off = |row: &[f32], token: usize| -> f32 {
            let of_block = |(block, weights): (usize, &[f32])| -> f32 {
                let x = |at: usize| x[(block * BLOCK + at) * tokens + token].abs();
                let largest = (0..weights.len()).map(x).fold(0.0, f32::max);
                let sum: f32 = weights.iter().map(|w| w.abs()).sum();
                let products: f32 = weights.iter().enumerate().map(|(at, w)| w.abs() * x(at)).sum();
                sum * largest / 32_766.0 + if self.is_palette { products / 4096.0 } else { 0.0 }
            };
            row.chunks(BLOCK).enumerate().map(of_block).sum()
        };
        let rows = self.decoded.chunks(columns);
        rows.flat_map(|row| (0..tokens).map(move |token| off(row, token))).fold(0.0, f32::max)
    }
}
