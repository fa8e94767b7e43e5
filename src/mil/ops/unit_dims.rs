//! `expand_dims`, `squeeze` and `flatten2d`: dimensions of size one come and go, or dimensions are joined.

use smallvec::SmallVec;

use super::prelude::*;
use super::reshape::keep_elements;

pub(super) const OPS: &[OpDef] = &[
    expand_dims(Ios15).takes(&[Param::value("x", FLOAT_INT_BOOL), Param::constant("axes", INT)]),
    expand_dims(Ios17).takes(&[Param::value("x", MOVABLE_17), Param::constant("axes", INT)]),
    squeeze(Ios15).takes(&[Param::value("x", FLOAT_INT_BOOL), Param::constant("axes", INT).optional()]),
    squeeze(Ios17).takes(&[Param::value("x", MOVABLE_17), Param::constant("axes", INT).optional()]),
    define(OpClass::View, "flatten2d", Ios15, flatten, keep_elements)
        .takes(&[Param::value("x", FLOAT_INT_BOOL), Param::constant("axis", INT).or_int(1)]),
];

const fn expand_dims(since: Opset) -> OpDef {
    define(OpClass::View, "expand_dims", since, expand, keep_elements)
}

const fn squeeze(since: Opset) -> OpDef {
    define(OpClass::View, "squeeze", since, drop_units, keep_elements)
}

/// The `axes` parameter as indices below `rank`, in ascending order.
fn axes(call: &Call<'_>, rank: usize) -> Result<SmallVec<[usize; 8]>> {
    let outside = |axis| op_error!("`axes` contains {axis}, outside a tensor of rank {rank}");
    let given = call.ints("axes")?;
    let axes = given.iter().map(|&axis| shape::axis(axis, rank).ok_or_else(|| outside(axis)));
    let mut axes = axes.collect::<Result<SmallVec<_>, _>>()?;
    axes.sort_unstable();
    Ok(axes)
}

fn expand(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let mut dims = x.shape.clone();
    for axis in axes(call, rank + call.ints("axes")?.len())? {
        dims.insert(axis.min(dims.len()), Dim::Fixed(1));
    }
    Ok(dims::one(x.dtype, dims))
}

/// Dimensions that are not known to be one stay, as do named ones of another size.
fn drop_units(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let axes = if call.has("axes") { axes(call, rank)? } else { (0..rank).collect() };
    let dropped = |i: usize, dim: Dim| dim == Dim::Fixed(1) && axes.contains(&i);
    let kept = x.shape.iter().enumerate().filter(|&(i, &dim)| !dropped(i, dim));
    Ok(dims::one(x.dtype, kept.map(|(_, &dim)| dim).collect()))
}

fn flatten(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else { return Ok(dims::one(x.dtype, vec![Dim::Unknown; 2])) };
    let given = call.int("axis")?;
    let axis = if given < 0 { given.saturating_add(rank as i64) } else { given };
    let axis = usize::try_from(axis).ok().filter(|&axis| axis <= rank);
    let axis = axis.ok_or_else(|| op_error!("`axis` is {given}, not between -{rank} and {rank}"))?;
    let (before, after) = x.shape.split_at(axis);
    Ok(dims::one(x.dtype, vec![dims::product(before)?, dims::product(after)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(op: &str, x: &[usize], axes: Option<&[i32]>) -> Result<Vec<usize>, String> {
        let x = tensor(x, &vec![0.0f32; x.iter().product()]);
        let mut args = vec![("x", x)];
        if let Some(axes) = axes {
            args.push(("axes", tensor(&[axes.len()], axes)));
        }
        let out = run(op, Ios15, &args);
        out.map(|out| out[0].shape().to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn axes_of_expand_dims_count_in_the_result() {
        assert_eq!(shape_of("expand_dims", &[5, 6], Some(&[-3, 1, -1])).unwrap(), [5, 1, 1, 6, 1]);
        assert_eq!(shape_of("expand_dims", &[5], Some(&[0, 1, -2, -1])).unwrap(), [1, 1, 5, 1, 1]);
        assert_eq!(shape_of("expand_dims", &[], Some(&[0])).unwrap(), [1]);
        refused(shape_of("expand_dims", &[5], Some(&[2])), "`axes` contains 2, outside a tensor of rank 2");
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
            let x = tensor(&[2, 3, 4], &[0i32; 24]);
            let out = run("flatten2d", Ios15, &[("x", x), ("axis", Tensor::scalar(axis))]).unwrap();
            assert_eq!(out[0].shape(), wanted);
        }
    }
}
