//! `transpose`: dimensions in another order.

use smallvec::SmallVec;

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[
    transpose(Ios15).takes(&[Param::value("x", FLOAT_INT_BOOL), Param::constant("perm", INT)]),
    transpose(Ios17).takes(&[Param::value("x", MOVABLE_17), Param::constant("perm", INT)]),
];

const fn transpose(since: Opset) -> OpDef {
    define(OpClass::Transposition(first_element), "transpose", since, infer, eval)
}

/// Per dimension of the output, the dimension of `x` it is.
fn permutation(call: &Call<'_>, rank: usize) -> Result<SmallVec<[usize; 8]>> {
    let given = call.ints("perm")?;
    let perm: Option<SmallVec<[usize; 8]>> = given.iter().map(|&axis| shape::axis(axis, rank)).collect();
    perm.filter(|perm| perm.len() == rank && (0..rank).all(|axis| perm.contains(&axis)))
        .ok_or_else(|| op_error!("`perm` is {given:?}, not an order of {rank} dimensions"))
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let perm = permutation(call, x.rank().unwrap_or(call.ints("perm")?.len()))?;
    let dims = match x.rank() {
        Some(_) => perm.iter().map(|&axis| x.shape[axis]).collect(),
        None => vec![Dim::Unknown; perm.len()],
    };
    Ok(dims::one(x.dtype, dims))
}

/// 0 if elements stay where they are: only dimensions of size one change places.
fn first_element(call: &Call<'_>) -> Option<usize> {
    let shape = call.ty("x").ok()?.concrete()?;
    let perm = permutation(call, shape.len()).ok()?;
    perm.into_iter().filter(|&axis| shape[axis] != 1).is_sorted().then_some(0)
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let perm = permutation(call, x.rank())?;
    let out = outputs.tensor(0)?;
    done_if!(out.shape().contains(&0));
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
    use super::*;

    #[test]
    fn dimensions_change_places() {
        let x = tensor(&[2, 1, 3], &[1u8, 2, 3, 4, 5, 6]);
        let perm = tensor(&[3], &[-1, 1, 0]);
        let out = run("transpose", Ios17, &[("x", x.clone()), ("perm", perm)]);
        gives::<u8>(out, &[3, 1, 2], &[1, 4, 2, 5, 3, 6]);
        let perm = tensor(&[3], &[0, 1, 1]);
        let error = run("transpose", Ios17, &[("x", x), ("perm", perm)]).unwrap_err();
        assert_eq!(error.to_string(), "`perm` is [0, 1, 1], not an order of 3 dimensions");
    }
}
