//! Other shapes of the same elements, other orders of axes, repetition.

use super::Emitter;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::ValueId;
use anemeter_kernels::tensor::shape;

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("depth_to_space", depth_to_space),
    ("expand_dims", reshape),
    ("flatten2d", reshape),
    ("pad", pad),
    ("reshape", reshape),
    ("reshape_like", reshape),
    ("squeeze", reshape),
    ("tile", tile),
    ("transpose", transpose),
];

fn reshape(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (x, dims) = (e.arg("x")?, e.result_dims()?);
    Ok(vec![e.body().reshape(x, &dims)])
}

fn transpose(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let rank = e.body().dims(x).len();
    let order: Vec<usize> = e.call.ints("perm")?.iter().filter_map(|&axis| shape::axis(axis, rank)).collect();
    Ok(vec![e.body().transpose(x, &order)])
}

/// Repeats by broadcasting along new axes.
fn tile(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let (from, to) = (e.body().dims(x), e.result_dims()?);
    if from.contains(&0) {
        refuse!("repeats nothing");
    }
    let apart: Vec<u64> = from.iter().flat_map(|&size| [1, size]).collect();
    let repeated: Vec<u64> = from.iter().zip(&to).flat_map(|(&from, &to)| [to / from, from]).collect();
    let x = e.body().reshape(x, &apart);
    let x = e.body().broadcast(x, &repeated);
    Ok(vec![e.body().reshape(x, &to)])
}

fn pad(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let mode = e.call.text("mode")?;
    if mode != "constant" {
        refuse!("`mode` is {mode}; only constant margins have an aicode form here");
    }
    let x = e.arg("x")?;
    let (pad, rank) = (e.call.ints("pad")?, e.body().dims(x).len());
    let value = f64::from(e.call.float("constant_val")?);
    let padded = pad.len() / 2;
    let margin = |axis: usize| match (axis + padded).checked_sub(rank) {
        Some(at) => (pad[2 * at].unsigned_abs(), pad[2 * at + 1].unsigned_abs()),
        None => (0, 0),
    };
    let margins: Vec<(u64, u64)> = (0..rank).map(margin).collect();
    Ok(vec![e.body().pad(x, &margins, value)])
}

/// `[n, c * b * b, h, w]` as `[n, c, h * b, w * b]`.
fn depth_to_space(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let block = e.call.int("block_size")?.unsigned_abs();
    let [n, c, h, w] = e.body().dims(x)[..] else { refuse!("takes a tensor of rank 4") };
    let dims = e.result_dims()?;
    let x = e.body().reshape(x, &[n, block, block, c / (block * block), h, w]);
    let x = e.body().transpose(x, &[0, 3, 4, 1, 5, 2]);
    Ok(vec![e.body().reshape(x, &dims)])
}
