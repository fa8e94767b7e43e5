//! `tile`: a tensor repeated along its dimensions.

use super::dims;
use crate::kernels::copy::StridedCopy;
use crate::mil::op::domain::{FLOAT_INT_BOOL, INT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, Type};
use crate::tensor::shape;

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "tile",
    since: Opset::Ios15,
    params: &[Param::value("x", FLOAT_INT_BOOL), Param::value("reps", INT)],
    infer,
    eval: Eval::Kernel(eval),
}];

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    if rank == 0 {
        return Err(OpError::new("`x` has rank 0"));
    }
    let Some(reps) = dims::vector(call, "reps", rank)? else {
        return Ok(dims::one(x.dtype, vec![Dim::Unknown; rank]));
    };
    let dims = x.shape.iter().zip(&reps).map(|(&dim, &times)| {
        let times = dims::size("reps", times)?;
        dims::map(dim, |size| dims::times(size, times))
    });
    Ok(dims::one(x.dtype, dims.collect::<Result<_, _>>()?))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let out = outputs.tensor(0)?;
    if out.shape().contains(&0) {
        return Ok(());
    }
    let (from, to) = (shape::strides(x.shape()), shape::strides(out.shape()));
    let mut copy = StridedCopy::new(0, 0);
    for (i, &size) in x.shape().iter().enumerate() {
        let (from, to) = (from[i].cast_signed(), to[i].cast_signed());
        copy.push(out.shape()[i] / size, 0, to * size.cast_signed());
        copy.push(size, from, to);
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
    fn repeats_along_each_dimension() {
        let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4]).unwrap();
        let tile = |reps: &[i32]| {
            let reps = Tensor::from_slice(&[reps.len()], reps).unwrap();
            run("tile", Opset::Ios15, &[("x", x.clone()), ("reps", reps)])
        };
        let out = tile(&[2, 3]).unwrap();
        assert_eq!(out[0].shape(), [4, 6]);
        let (one, two) = ([1, 2, 1, 2, 1, 2], [3, 4, 3, 4, 3, 4]);
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [one, two, one, two].concat());
        assert_eq!(tile(&[1, 0]).unwrap()[0].shape(), [2, 0]);
        assert_eq!(tile(&[1, -1]).unwrap_err().to_string(), "`reps` is -1, which is not a size");
        assert_eq!(tile(&[1]).unwrap_err().to_string(), "`reps` has 1 elements, not 2");
    }
}
