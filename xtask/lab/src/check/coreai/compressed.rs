//! Cases of compressed weights: added to an input, so that every element is seen.

use anyhow::Result;

use super::made::{CLOSE, Case, Making};
use anemeter::mil::{Builder, Literal, LiteralData, TensorType, ValueId};
use anemeter::tensor::{DType, packed};

/// Ends with the sum of an input and a weight.
fn added(mut m: Making<'_>, op: &str, shape: &[usize], weight: ValueId) -> Result<Case> {
    let x = m.input("x", shape, (-1.0, 1.0))?;
    let y = m.builder.op("add").arg("x", x).arg("y", weight).named("y").push()?;
    Ok(m.end(op, CLOSE, &[y]))
}

pub(super) fn literal(dtype: DType, shape: &[usize], bytes: Vec<u8>) -> Literal {
    Literal { ty: TensorType::fixed(dtype, shape).into(), data: LiteralData::Blob(bytes.into()) }
}

/// Random integers of so many bits.
pub(super) fn codes(m: &mut Making<'_>, dtype: DType, shape: &[usize]) -> Literal {
    let count = shape.iter().product();
    let most = ((1u16 << dtype.bits()) - 1) as u8;
    let values: Vec<u8> = (0..count).map(|_| m.rng.u8(0..=most)).collect();
    literal(dtype, shape, packed::pack(values, dtype.bits()))
}

fn floats(m: &mut Making<'_>, shape: &[usize]) -> Result<Literal> {
    Ok(Literal::blob(&m.floats(shape, (0.01, 0.1))?))
}

pub(super) fn affine(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = [m.rng.usize(1..6), m.rng.usize(1..6)];
    let dtype = if m.rng.bool() { DType::I8 } else { DType::U8 };
    let per_channel = m.rng.bool();
    let channels: &[usize] = if per_channel { &shape[..1] } else { &[] };
    let (data, zero) = (codes(&mut m, dtype, &shape), codes(&mut m, dtype, channels));
    let scale = floats(&mut m, channels)?;
    m.note(&format!("{dtype} per channel {per_channel}"));
    let build = |b: &mut Builder| {
        let weight = b.op(op).arg("quantized_data", data).arg("zero_point", zero).arg("scale", scale);
        weight.arg("axis", 0).named("weight").push()
    };
    let weight = build(&mut m.builder)?;
    added(m, op, &shape, weight)
}

pub(super) fn blockwise(mut m: Making<'_>, op: &str) -> Result<Case> {
    let dtype = [DType::I8, DType::U8, DType::I4, DType::U4][m.rng.usize(0..4)];
    let rank4 = m.rng.bool();
    let (rows, blocks, block) = (m.rng.usize(1..6), m.rng.usize(1..4), [2, 8, 32][m.rng.usize(0..3)]);
    let tail: &[usize] = if rank4 { &[1, 1] } else { &[] };
    let shape = [&[rows, blocks * block][..], tail].concat();
    let scales = [&[rows, blocks][..], tail].concat();
    let data = codes(&mut m, dtype, &shape);
    let scale = floats(&mut m, &scales)?;
    let offset = m.rng.bool().then(|| codes(&mut m, dtype, &scales));
    m.note(&format!("{dtype} blocks of {block}, offsets {}", offset.is_some()));
    let weight = m.builder.op(op).arg("data", data).arg("scale", scale).named("weight");
    let weight = match offset {
        Some(offset) => weight.arg("offset", offset).push()?,
        None => weight.push()?,
    };
    added(m, op, &shape, weight)
}

pub(super) fn palette(mut m: Making<'_>, op: &str) -> Result<Case> {
    let dtype = [DType::U1, DType::U2, DType::U3, DType::U4, DType::U6, DType::U8][m.rng.usize(0..6)];
    let rank4 = m.rng.bool();
    let (groups, rows, columns) = (m.rng.usize(1..4), m.rng.usize(1..4), m.rng.usize(1..9));
    let tail: &[usize] = if rank4 { &[1, 1] } else { &[] };
    let shape = [&[groups * rows, columns][..], tail].concat();
    let ones: &[usize] = if rank4 { &[1, 1, 1] } else { &[1] };
    let indices = codes(&mut m, dtype, &shape);
    let tables = floats(&mut m, &[&[groups][..], ones, &[1 << dtype.bits(), 1]].concat())?;
    m.note(&format!("{dtype}, {groups} groups of {rows} rows"));
    let weight = m.builder.op(op).arg("indices", indices).arg("lut", tables).named("weight").push()?;
    added(m, op, &shape, weight)
}

/// Integers that are an input.
pub(super) fn given(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = m.shape(3, 5);
    let numbers = m.ints(&shape, -100..100)?;
    let numbers = m.given("numbers", numbers);
    let per_channel = m.rng.bool();
    let channels: &[usize] = if per_channel { &shape[1..2] } else { &[] };
    let scale = floats(&mut m, channels)?;
    let zero = m.rng.bool().then(|| codes(&mut m, DType::I8, channels));
    m.note(&format!("per channel {per_channel}, zero points {}", zero.is_some()));
    // No int8 can be an input before iOS 26.
    let data = m.builder.op("cast").arg("x", numbers).arg("dtype", "int8").named("data").push()?;
    m.done(op, CLOSE, |pending| {
        let pending = pending.arg("input", data).arg("scale", scale);
        let pending = if per_channel { pending.arg("axis", 1) } else { pending };
        match zero {
            Some(zero) => pending.arg("zero_point", zero),
            None => pending,
        }
    })
}

/// Weights of which only some elements are stored: plain, as integers or as indices.
pub(super) fn sparse(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (groups, rows, columns) = (m.rng.usize(1..4), m.rng.usize(1..4), 8 * m.rng.usize(1..5));
    let shape = [groups * rows, columns];
    let mask: Vec<u8> = (0..shape[0] * columns).map(|_| u8::from(m.rng.u8(0..10) < 4)).collect();
    let mask: Vec<u8> = if mask.contains(&1) { mask } else { vec![1; mask.len()] };
    let stored = mask.iter().map(|&bit| usize::from(bit)).sum();
    let mask = literal(DType::U1, &shape, packed::pack(mask, 1));
    m.note(&format!("{stored} of {} stored", shape[0] * columns));
    if op == "constexpr_sparse_to_dense" {
        let values = floats(&mut m, &[stored])?;
        let weight = m.builder.op(op).arg("nonzero_data", values).arg("mask", mask).named("weight").push()?;
        return added(m, op, &shape, weight);
    }
    let made = match op {
        "constexpr_lut_to_sparse" => {
            let dtype = [DType::U1, DType::U2, DType::U3, DType::U4, DType::U6, DType::U8][m.rng.usize(0..6)];
            m.note(&dtype.to_string());
            let indices = codes(&mut m, dtype, &[stored]);
            let tables = floats(&mut m, &[groups, 1, 1 << dtype.bits(), 1])?;
            let pending = m.builder.op(op).arg("indices_nonzero_data", indices).arg("indices_mask", mask);
            pending.arg("lut", tables).outputs(&["mask_out", "values"]).push_all()?
        }
        _ => {
            let dtype = [DType::I8, DType::I4, DType::U4][m.rng.usize(0..3)];
            m.note(&dtype.to_string());
            let data = codes(&mut m, dtype, &[stored]);
            let scale = floats(&mut m, &[shape[0], columns / 8])?;
            let pending = m.builder.op(op).arg("nonzero_data", data).arg("data_mask", mask);
            pending.arg("scale", scale).outputs(&["mask_out", "values"]).push_all()?
        }
    };
    let weight = m.builder.op("constexpr_sparse_to_dense").arg("nonzero_data", made[1]).arg("mask", made[0]);
    let weight = weight.named("weight").push()?;
    added(m, op, &shape, weight)
}
