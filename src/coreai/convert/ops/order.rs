//! Elements in another order, and where the largest are.

use super::Emitter;
use crate::convert::body::{Body, extremes, tensor};
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, Type, ValueId};
use anemeter_kernels::tensor::shape;

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("argsort", |e| {
        let ascending = e.call.bool("ascending")?;
        sorted_indices(e, !ascending)
    }),
    ("reduce_argmax", |e| first_of_largest(e, |_, x| x)),
    ("reduce_argmin", |e| first_of_largest(e, Body::negative)),
    ("reverse", reverse),
];

fn reverse(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let rank = e.body().dims(x).len();
    let axes: Vec<i64> = match e.call.has("axes") {
        true => e
            .call
            .ints("axes")?
            .iter()
            .filter_map(|&axis| shape::axis(axis, rank))
            .map(|axis| axis as i64)
            .collect(),
        false => (0..rank as i64).collect(),
    };
    let ty = e.result_type()?;
    let axes = e.body().indices(&axes);
    Ok(vec![e.body().push("primitive.reverse_v1", &[x, axes], ty)])
}

/// The index of the largest element along an axis, the first of equal ones.
fn first_of_largest(
    e: &mut Emit<'_, '_, '_>,
    prepare: impl FnOnce(&mut Body, ValueId) -> ValueId,
) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let dims = e.body().dims(x);
    let axis = e.call.axis("axis", dims.len())?;
    let (to, Type::Tensor { element: to_element, .. }) = (e.result_dims()?, e.result_type()?) else {
        refuse!("gives no tensor")
    };
    let body = e.body();
    let x = prepare(body, x);
    let element = body.element(x);
    let mut reduced = dims;
    reduced[axis] = 1;
    let ty = tensor(Scalar::U32, &reduced);
    let along = body.index(axis as i64);
    let index = body.composite("argmax_v1", &[x, along], ty.clone(), |body, arguments| {
        let least = body.splat(element, &[], extremes(element).0);
        let zero = body.splat(Scalar::U32, &[], 0.0);
        let scalar = tensor(element, &[]);
        let mut step = Body::new(vec![scalar.clone(), scalar]);
        let (best, next) = (step.argument(0), step.argument(1));
        let is_larger = step.binary_to("primitive.greater_v1", next, best, Scalar::Bool);
        let region = step.yielding(&[is_larger]);
        let operands = [arguments[0], arguments[1], least, zero];
        body.push_op("primitive.reduce_index_v1", &operands, vec![ty], Vec::new(), vec![region])[0]
    });
    let index = body.cast(index, to_element);
    Ok(vec![body.reshape(index, &to)])
}

fn sorted_indices(e: &mut Emit<'_, '_, '_>, is_largest_first: bool) -> Result<Vec<ValueId>> {
    let x = e.arg("x")?;
    let dims = e.body().dims(x);
    let axis = e.call.axis("axis", dims.len())?;
    let ty = e.result_type()?;
    let body = e.body();
    let operands = [
        x,
        body.index(axis as i64),
        body.splat(Scalar::Bool, &[], f64::from(u8::from(is_largest_first))),
        body.splat(Scalar::Bool, &[], 1.0),
    ];
    Ok(vec![body.push("primitive.argsort_v1", &operands, ty)])
}
