//! Tensors joined along an axis, and taken apart.

use super::Emitter;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Type, ValueId};

pub(super) const OPS: &[(&str, Emitter)] = &[("concat", concat), ("split", split), ("stack", stack)];

fn concat(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    if e.call.bool("interleave")? {
        return interleave(e);
    }
    let mut values = e.args("values")?;
    let rank = e.result_dims()?.len();
    let axis = e.call.axis("axis", rank)?;
    // Scalars become the elements of a list.
    values = values
        .iter()
        .map(|&value| if e.body().dims(value).is_empty() { e.body().reshape(value, &[1]) } else { value })
        .collect();
    Ok(vec![e.body().concat(&values, axis)])
}

/// Elements of the values in turn: a stack whose new axis is joined with the one before it.
fn interleave(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (values, dims) = (e.args("values")?, e.result_dims()?);
    let axis = e.call.axis("axis", dims.len())?;
    let stacked = stacked(e, &values, axis + 1);
    Ok(vec![e.body().reshape(stacked, &dims)])
}

fn stack(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let values = e.args("values")?;
    let rank = e.result_dims()?.len();
    let axis = e.call.axis("axis", rank)?;
    Ok(vec![stacked(e, &values, axis)])
}

fn stacked(e: &mut Emit<'_, '_, '_>, values: &[ValueId], axis: usize) -> ValueId {
    let mut parts = Vec::with_capacity(values.len());
    for &value in values {
        let mut dims = e.body().dims(value);
        dims.insert(axis, 1);
        parts.push(e.body().reshape(value, &dims));
    }
    e.body().concat(&parts, axis)
}

fn split(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let rank = e.body().dims(x).len();
    let axis = e.call.axis("axis", rank)?;
    let types = e.result_types()?;
    let mut sizes = Vec::with_capacity(types.len());
    for ty in &types {
        match ty {
            Type::Tensor { dims, .. } => match dims.get(axis) {
                Some(&crate::program::Dim::Fixed(size)) => sizes.push(size),
                _ => refuse!("gives parts of unknown sizes"),
            },
            _ => refuse!("gives no tensors"),
        }
    }
    let operands = [x, e.body().sizes(&sizes), e.body().index(axis as i64)];
    Ok(e.body().push_op("primitive.split_v1", &operands, types, Vec::new(), Vec::new()))
}
