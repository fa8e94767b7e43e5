//! Products with compressed weights, as a decoder has them: of one token and of several, in fp32.

use anyhow::Result;

use super::compressed::{codes, literal};
use super::made::{Case, Making, SUMS};
use anemeter::mil::Literal;
use anemeter::tensor::DType;

/// Elements that have a scale in common.
const BLOCK: usize = 32;

pub(super) fn make(mut m: Making<'_>, op: &str) -> Result<Case> {
    let kind = ["int8", "int4", "lut4"][m.rng.usize(0..3)];
    let (rows, columns) = (4 * m.rng.usize(1..7), BLOCK * m.rng.usize(4..13));
    let tokens = [1, 1, 7][m.rng.usize(0..3)];
    m.note(&format!("{kind} [{rows}, {columns}] of {tokens} tokens"));
    let shape = [rows, columns, 1, 1];
    let weight = match kind {
        "lut4" => {
            let indices = codes(&mut m, DType::U4, &shape);
            let table = m.floats(&[rows / 4, 1, 1, 1, 16, 1], (-0.1, 0.1))?;
            let lut = literal(DType::F32, &[rows / 4, 1, 1, 1, 16, 1], table.bytes().to_vec());
            m.builder.op("constexpr_lut_to_dense").arg("indices", indices).arg("lut", lut)
        }
        kind => {
            let (dtype, block) = if kind == "int8" { (DType::I8, columns) } else { (DType::I4, BLOCK) };
            let data = codes(&mut m, dtype, &shape);
            let scale = Literal::blob(&m.floats(&[rows, columns / block, 1, 1], (0.0005, 0.005))?);
            m.builder.op("constexpr_blockwise_shift_scale").arg("data", data).arg("scale", scale)
        }
    };
    let weight = weight.named("weight").push()?;
    let x = m.input("x", &[1, columns, 1, tokens], (-2.0, 2.0))?;
    let y = m.builder.op("conv").arg("x", x).arg("weight", weight).named("y").push()?;
    Ok(m.end(op, SUMS, &[y]))
}
