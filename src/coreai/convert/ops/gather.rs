//! What indices point at.

use super::Emitter;
use crate::convert::body::tensor;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, ValueId};

pub(super) const OPS: &[(&str, Emitter)] =
    &[("gather", gather), ("gather_along_axis", along_axis), ("gather_nd", points)];

/// Indices as aicode takes them.
fn indices(e: &mut Emit<'_, '_, '_>) -> Result<ValueId> {
    let indices = e.arg("indices")?;
    Ok(e.body().cast(indices, Scalar::I32))
}

fn check_batch(e: &Emit<'_, '_, '_>) -> Result<()> {
    if e.call.opset() >= anemeter_mil::Opset::Ios16 && e.call.int("batch_dims")? != 0 {
        refuse!("`batch_dims` is not 0; only tensors that share no leading axes have an aicode form here");
    }
    Ok(())
}

/// Slices of an axis: the axis is brought to the front, and slices of it are points of one coordinate.
fn gather(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    check_batch(e)?;
    let (x, indices) = (e.arg("x")?, indices(e)?);
    let body = e.body();
    let (from, mut at) = (body.dims(x), body.dims(indices));
    let axis = e.call.axis("axis", from.len())?;
    let body = e.body();
    let mut order: Vec<usize> = vec![axis];
    order.extend((0..from.len()).filter(|&other| other != axis));
    let front = body.transpose(x, &order);
    let index_rank = at.len();
    at.push(1);
    let points = body.reshape(indices, &at);
    at.pop();
    let mut dims = at;
    dims.extend(order[1..].iter().map(|&axis| from[axis]));
    let element = body.element(x);
    let found = body.push("primitive.gather_nd_v1", &[front, points], tensor(element, &dims));
    // The axes of the indices go where the axis was.
    let mut back: Vec<usize> = (index_rank..index_rank + axis).collect();
    back.extend(0..index_rank);
    back.extend(index_rank + axis..dims.len());
    Ok(vec![body.transpose(found, &back)])
}

fn points(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    check_batch(e)?;
    let (x, indices) = (e.arg("x")?, indices(e)?);
    let ty = e.result_type()?;
    Ok(vec![e.body().push("primitive.gather_nd_v1", &[x, indices], ty)])
}

fn along_axis(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (x, indices) = (e.arg("x")?, indices(e)?);
    let rank = e.body().dims(x).len();
    let axis = e.call.axis("axis", rank)?;
    let ty = e.result_type()?;
    let axis = e.body().index(axis as i64);
    Ok(vec![e.body().push("primitive.gather_along_axis_v1", &[x, indices, axis], ty)])
}
