//! Matrix products.

use super::Emitter;
use crate::convert::body::{Body, joint, tensor};
use crate::convert::emit::Emit;
use crate::convert::error::Result;
use crate::program::ValueId;

pub(super) const OPS: &[(&str, Emitter)] = &[("linear", linear), ("matmul", matmul)];

/// The product of two stacks of matrices, of which either is repeated where it has size one.
pub(super) fn product(body: &mut Body, x: ValueId, y: ValueId) -> ValueId {
    let (x_dims, y_dims) = (body.dims(x), body.dims(y));
    let (x_batch, x_matrix) = x_dims.split_at(x_dims.len() - 2);
    let (y_batch, y_matrix) = y_dims.split_at(y_dims.len() - 2);
    let batch = joint(x_batch, y_batch);
    let x = body.broadcast(x, &[&batch, x_matrix].concat());
    let y = body.broadcast(y, &[&batch, y_matrix].concat());
    let dims = [&batch[..], &[x_matrix[0], y_matrix[1]]].concat();
    let element = body.element(x);
    body.push("primitive.batch_matmul_v1", &[x, y], tensor(element, &dims))
}

fn matmul(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (mut x, mut y) = (e.arg("x")?, e.arg("y")?);
    let (transpose_x, transpose_y) = (e.call.bool("transpose_x")?, e.call.bool("transpose_y")?);
    let dims = e.result_dims()?;
    let body = e.body();
    y = body.cast(y, body.element(x));
    let (x_dims, y_dims) = (body.dims(x), body.dims(y));
    // Vectors are matrices of one row on the left and of one column on the right.
    x = match x_dims[..] {
        [size] => body.reshape(x, &[1, size]),
        _ if transpose_x => body.swap_last(x),
        _ => x,
    };
    y = match y_dims[..] {
        [size] => body.reshape(y, &[size, 1]),
        _ if transpose_y => body.swap_last(y),
        _ => y,
    };
    let product = product(body, x, y);
    Ok(vec![body.reshape(product, &dims)])
}

/// `x` times a weight of output rows, and a bias.
fn linear(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (x, weight, bias) = (e.arg("x")?, e.arg("weight")?, e.opt_arg("bias")?);
    let dims = e.result_dims()?;
    let body = e.body();
    let element = body.element(x);
    let weight = body.cast(weight, element);
    let weight = body.swap_last(weight);
    let width = *body.dims(x).last().unwrap_or(&1);
    let rows = body.dims(x).iter().product::<u64>() / width.max(1);
    let flat = body.reshape(x, &[rows, width]);
    let mut out = product(body, flat, weight);
    if let Some(bias) = bias {
        let bias = body.cast(bias, element);
        out = body.binary("primitive.add_v1", out, bias);
    }
    Ok(vec![body.reshape(out, &dims)])
}
