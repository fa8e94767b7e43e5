//! `tile`: a tensor repeated along its dimensions.

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[define(OpClass::Movement, "tile", Ios15, infer, eval)
    .takes(&[Param::value("x", FLOAT_INT_BOOL), Param::value("reps", INT)])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    refuse_if!(rank == 0, "`x` has rank 0");
    let Some(reps) = dims::vector(call, "reps", rank)? else {
        return Ok(dims::one(x.dtype, vec![Dim::Unknown; rank]));
    };
    let dims = x.shape.iter().zip(&reps).map(|(&dim, &times)| {
        let times = dims::size("reps", times)?;
        dims::map(dim, |size| dims::times(size, times))
    });
    Ok(dims::one(x.dtype, dims.collect::<Result<_, _>>()?))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, out) = (call.tensor("x")?, outputs.tensor(0)?);
    done_if!(out.shape().contains(&0));
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
    use super::*;

    #[test]
    fn repeats_along_each_dimension() {
        let x = tensor(&[2, 2], &[1, 2, 3, 4]);
        let tile = |reps: &[i32]| {
            let reps = tensor(&[reps.len()], reps);
            run("tile", Ios15, &[("x", x.clone()), ("reps", reps)])
        };
        let out = tile(&[2, 3]).unwrap();
        assert_eq!(out[0].shape(), [4, 6]);
        let (one, two) = ([1, 2, 1, 2, 1, 2], [3, 4, 3, 4, 3, 4]);
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [one, two, one, two].concat());
        assert_eq!(tile(&[1, 0]).unwrap()[0].shape(), [2, 0], "as Apple's own tests have it");
        refused(tile(&[1, -1]), "`reps` is -1, which is not a size");
        refused(tile(&[1]), "`reps` has 1 elements, not 2");
    }
}
