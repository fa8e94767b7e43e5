//! `expand_dims`, `squeeze` and `flatten2d`: dimensions of size one come and go, or dimensions are joined.

use smallvec::SmallVec;

use super::dims;
use super::reshape::keep_elements;
use crate::mil::op::domain::{FLOAT_INT_BOOL, INT, MOVABLE_17};
use crate::mil::op::{Call, Eval, OpDef, OpError, Param};
use crate::mil::{Dim, Opset, Type};
use crate::tensor::shape;

pub(super) const OPS: &[OpDef] = &[
    expand_dims(Opset::Ios15, &[Param::value("x", FLOAT_INT_BOOL), Param::constant("axes", INT)]),
    expand_dims(Opset::Ios17, &[Param::value("x", MOVABLE_17), Param::constant("axes", INT)]),
    squeeze(Opset::Ios15, &[Param::value("x", FLOAT_INT_BOOL), Param::constant("axes", INT).optional()]),
    squeeze(Opset::Ios17, &[Param::value("x", MOVABLE_17), Param::constant("axes", INT).optional()]),
    OpDef {
        name: "flatten2d",
        since: Opset::Ios15,
        params: &[Param::value("x", FLOAT_INT_BOOL), Param::constant("axis", INT).or_int(1)],
        infer: flatten,
        eval: Eval::Kernel(keep_elements),
    },
];

const fn expand_dims(since: Opset, params: &'static [Param]) -> OpDef {
    OpDef { name: "expand_dims", since, params, infer: expand, eval: Eval::Kernel(keep_elements) }
}

const fn squeeze(since: Opset, params: &'static [Param]) -> OpDef {
    OpDef { name: "squeeze", since, params, infer: drop_units, eval: Eval::Kernel(keep_elements) }
}

/// The `axes` parameter as indices below `rank`, in ascending order.
fn axes(call: &Call<'_>, rank: usize) -> Result<SmallVec<[usize; 8]>, OpError> {
    let outside = |axis| OpError::new(format!("`axes` contains {axis}, outside a tensor of rank {rank}"));
    let given = call.ints("axes")?;
    let axes = given.iter().map(|&axis| shape::axis(axis, rank).ok_or_else(|| outside(axis)));
    let mut axes = axes.collect::<Result<SmallVec<_>, _>>()?;
    axes.sort_unstable();
    Ok(axes)
}

fn expand(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let mut dims = x.shape.clone();
    for axis in axes(call, rank + call.ints("axes")?.len())? {
        dims.insert(axis.min(dims.len()), Dim::Fixed(1));
    }
    Ok(dims::one(x.dtype, dims))
}

/// Dimensions that are not known to be one stay, as do named ones of another size.
fn drop_units(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let axes = if call.has("axes") { axes(call, rank)? } else { (0..rank).collect() };
    let dropped = |i: usize, dim: Dim| dim == Dim::Fixed(1) && axes.contains(&i);
    let kept = x.shape.iter().enumerate().filter(|&(i, &dim)| !dropped(i, dim));
    Ok(dims::one(x.dtype, kept.map(|(_, &dim)| dim).collect()))
}

fn flatten(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::one(x.dtype, vec![Dim::Unknown; 2])) };
    let given = call.int("axis")?;
    let axis = if given < 0 { given.saturating_add(rank as i64) } else { given };
    let axis = usize::try_from(axis).ok().filter(|&axis| axis <= rank);
    let axis =
        axis.ok_or_else(|| OpError::new(format!("`axis` is {given}, not between -{rank} and {rank}")))?;
    let (before, after) = x.shape.split_at(axis);
    Ok(dims::one(x.dtype, vec![dims::product(before)?, dims::product(after)?]))
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    fn shape_of(op: &str, x: &[usize], axes: Option<&[i32]>) -> Result<Vec<usize>, String> {
        let x = Tensor::from_slice(x, &vec![0.0f32; x.iter().product()]).unwrap();
        let mut args = vec![("x", x)];
        if let Some(axes) = axes {
            args.push(("axes", Tensor::from_slice(&[axes.len()], axes).unwrap()));
        }
        let out = run(op, Opset::Ios15, &args);
        out.map(|out| out[0].shape().to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn axes_of_expand_dims_count_in_the_result() {
        assert_eq!(shape_of("expand_dims", &[5, 6], Some(&[-3, 1, -1])).unwrap(), [5, 1, 1, 6, 1]);
        assert_eq!(shape_of("expand_dims", &[5], Some(&[0, 1, -2, -1])).unwrap(), [1, 1, 5, 1, 1]);
        assert_eq!(shape_of("expand_dims", &[], Some(&[0])).unwrap(), [1]);
        let error = shape_of("expand_dims", &[5], Some(&[2])).unwrap_err();
        assert_eq!(error, "`axes` contains 2, outside a tensor of rank 2");
    }

    #[test]
    fn squeeze_leaves_other_sizes_alone() {
        assert_eq!(shape_of("squeeze", &[1, 2, 1, 3], None).unwrap(), [2, 3]);
        assert_eq!(shape_of("squeeze", &[1, 2, 1, 3], Some(&[0, 1])).unwrap(), [2, 1, 3]);
        assert!(shape_of("squeeze", &[1], None).unwrap().is_empty());
        assert!(shape_of("squeeze", &[1, 2], Some(&[2])).is_err());
    }

    #[test]
    fn flatten2d_splits_before_the_axis() {
        for (axis, wanted) in [(-1, [6, 4]), (3, [24, 1]), (0, [1, 24]), (1, [2, 12])] {
            let x = Tensor::from_slice(&[2, 3, 4], &[0i32; 24]).unwrap();
            let out = run("flatten2d", Opset::Ios15, &[("x", x), ("axis", Tensor::scalar(axis))]).unwrap();
            assert_eq!(out[0].shape(), wanted);
        }
    }
}
