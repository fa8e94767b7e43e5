//! `split`: a tensor in several parts along a dimension.

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

pub(super) const OPS: &[OpDef] = &[define(OpClass::Slice(|_| None), "split", Ios15, infer, eval).takes(&[
    Param::value("x", FLOAT_INT_BOOL),
    Param::constant("num_splits", INT).optional(),
    Param::constant("split_sizes", INT).optional(),
    Param::constant("axis", INT),
])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let Some(rank) = x.rank() else {
        return Ok(vec![TensorType::new(x.dtype, vec![Dim::Variadic]).into(); call.output_count()]);
    };
    let axis = call.axis("axis", rank)?;
    let sizes = sizes(call, x.shape[axis])?;
    if sizes.len() != call.output_count() {
        let (parts, outputs) = (sizes.len(), call.output_count());
        refuse!("{parts} parts are split into {outputs} outputs");
    }
    let part = |size| {
        let mut ty = x.clone();
        ty.shape[axis] = size;
        ty.into()
    };
    Ok(sizes.into_iter().map(part).collect())
}

/// The size of each part of a dimension.
fn sizes(call: &Call<'_>, whole: Dim) -> Result<Vec<Dim>> {
    let count = if call.has("num_splits") { Some(call.int("num_splits")?) } else { None };
    if !call.has("split_sizes") {
        let count = count.ok_or_else(|| OpError::new("neither `num_splits` nor `split_sizes` is given"))?;
        let count = dims::positive("num_splits", count)?;
        if count > call.output_count() {
            refuse!("`num_splits` is {count} for {} outputs", call.output_count());
        }
        let size = dims::map(whole, |whole| match whole % count {
            0 => Ok(whole / count),
            _ => refuse!("`num_splits` is {count}, which does not divide {whole}"),
        })?;
        return Ok(vec![size; count]);
    }
    let given = call.ints("split_sizes")?;
    if count.is_some_and(|count| count != given.len() as i64) {
        refuse!("`num_splits` does not match {} `split_sizes`", given.len());
    }
    let sizes = given.iter().map(|&size| dims::size("split_sizes", size)).collect::<Result<Vec<_>, _>>()?;
    let total = sizes.iter().try_fold(0, |total, &size| dims::plus(total, size))?;
    match whole.size() {
        Some(whole) if whole != total => {
            refuse!("`split_sizes` add up to {total}, the dimension has {whole}")
        }
        _ => Ok(sizes.into_iter().map(Dim::from).collect()),
    }
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    done_if!(x.shape().contains(&0));
    let outer: usize = x.shape()[..axis].iter().product();
    let inner: usize = x.shape()[axis + 1..].iter().product();
    let row = x.shape()[axis] * inner;
    let mut start = 0;
    for out in outputs.all() {
        let out = out?;
        let part = out.shape()[axis] * inner;
        let copy = StridedCopy::new(start, 0).axis(outer, row.cast_signed(), part.cast_signed());
        copy.axis(part, 1, 1).run(x.dtype(), x.bytes(), out.bytes());
        start += part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Part = (Vec<usize>, Vec<i32>);

    fn split(args: &[(&str, Tensor)], outputs: usize) -> Result<Vec<Part>, String> {
        let x = tensor(&[2, 4], &[0, 1, 2, 3, 4, 5, 6, 7]);
        let args = [&[("x", x), ("axis", Tensor::scalar(-1))], args].concat();
        let parts = run_many("split", Ios15, &args, outputs).map_err(|error| error.to_string())?;
        let part = |t: &Tensor| (t.shape().to_vec(), t.view().slice::<i32>().unwrap().to_vec());
        Ok(parts.iter().map(part).collect())
    }

    #[test]
    fn parts_are_even_or_as_given() {
        let even = split(&[("num_splits", Tensor::scalar(2))], 2).unwrap();
        assert_eq!(even, [(vec![2, 2], vec![0, 1, 4, 5]), (vec![2, 2], vec![2, 3, 6, 7])]);
        let sizes = tensor(&[3], &[1, 0, 3]);
        let parts = split(&[("split_sizes", sizes), ("num_splits", Tensor::scalar(3))], 3).unwrap();
        assert_eq!(parts[0], (vec![2, 1], vec![0, 4]));
        assert_eq!(parts[1], (vec![2, 0], vec![]));
        assert_eq!(parts[2], (vec![2, 3], vec![1, 2, 3, 5, 6, 7]));
    }

    #[test]
    fn parts_must_add_up() {
        let sizes = tensor(&[2], &[1, 2]);
        refused(split(&[("split_sizes", sizes)], 2), "`split_sizes` add up to 3, the dimension has 4");
        refused(split(&[("num_splits", Tensor::scalar(3))], 3), "`num_splits` is 3, which does not divide 4");
        assert!(split(&[], 1).is_err());
    }
}
