//! `transpose`: dimensions in another order.

use smallvec::SmallVec;

use super::dims;
use crate::kernels::copy::StridedCopy;
use crate::mil::op::domain::{FLOAT_INT_BOOL, INT, MOVABLE_17};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, TensorType, Type};
use crate::tensor::shape;

pub(super) const OPS: &[OpDef] = &[
    transpose(Opset::Ios15, &[Param::value("x", FLOAT_INT_BOOL), Param::constant("perm", INT)]),
    transpose(Opset::Ios17, &[Param::value("x", MOVABLE_17), Param::constant("perm", INT)]),
];

const fn transpose(since: Opset, params: &'static [Param]) -> OpDef {
    OpDef { name: "transpose", since, params, infer, eval: Eval::Kernel(eval) }
}

/// Per dimension of the output, the dimension of `x` it is.
fn permutation(call: &Call<'_>, rank: usize) -> Result<SmallVec<[usize; 8]>, OpError> {
    let given = call.ints("perm")?;
    let perm: Option<SmallVec<[usize; 8]>> = given.iter().map(|&axis| shape::axis(axis, rank)).collect();
    perm.filter(|perm| perm.len() == rank && (0..rank).all(|axis| perm.contains(&axis)))
        .ok_or_else(|| OpError::new(format!("`perm` is {given:?}, not an order of {rank} dimensions")))
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let perm = permutation(call, x.rank().unwrap_or(call.ints("perm")?.len()))?;
    let dims = match x.rank() {
        Some(_) => perm.iter().map(|&axis| x.shape[axis]).collect(),
        None => vec![Dim::Unknown; perm.len()],
    };
    Ok(dims::one(x.dtype, dims))
}

/// Whether elements stay where they are: only dimensions of size one change places.
pub(super) fn keeps_order(call: &Call<'_>) -> bool {
    let Some(shape) = call.ty("x").ok().and_then(TensorType::concrete) else { return false };
    let Ok(perm) = permutation(call, shape.len()) else { return false };
    perm.into_iter().filter(|&axis| shape[axis] != 1).is_sorted()
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let perm = permutation(call, x.rank())?;
    let out = outputs.tensor(0)?;
    if out.shape().contains(&0) {
        return Ok(());
    }
    let (from, to) = (shape::strides(x.shape()), shape::strides(out.shape()));
    let mut copy = StridedCopy::new(0, 0);
    for (&axis, to) in perm.iter().zip(to) {
        copy.push(x.shape()[axis], from[axis].cast_signed(), to.cast_signed());
    }
    copy.run(x.dtype(), x.bytes(), out.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn dimensions_change_places() {
        let x = Tensor::from_slice(&[2, 1, 3], &[1u8, 2, 3, 4, 5, 6]).unwrap();
        let perm = Tensor::from_slice(&[3], &[-1, 1, 0]).unwrap();
        let out = run("transpose", Opset::Ios17, &[("x", x.clone()), ("perm", perm)]).unwrap();
        assert_eq!(out[0].shape(), [3, 1, 2]);
        assert_eq!(out[0].view().slice::<u8>().unwrap(), [1, 4, 2, 5, 3, 6]);
        let perm = Tensor::from_slice(&[3], &[0, 1, 1]).unwrap();
        let error = run("transpose", Opset::Ios17, &[("x", x), ("perm", perm)]).unwrap_err();
        assert_eq!(error.to_string(), "`perm` is [0, 1, 1], not an order of 3 dimensions");
    }
}
