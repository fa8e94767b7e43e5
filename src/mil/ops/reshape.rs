//! `reshape` and `reshape_like`: the same elements in the same order under another shape.

use super::dims::SIGNED_INDEX;
use super::prelude::*;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::View, "reshape", Ios15, infer, keep_elements)
        .takes(&[Param::value("x", FLOAT_INT_BOOL), Param::value("shape", INT)]),
    define(OpClass::View, "reshape", Ios17, infer, keep_elements)
        .takes(&[Param::value("x", MOVABLE_17), Param::value("shape", SIGNED_INDEX)]),
    define(OpClass::View, "reshape_like", Ios16, infer_like, keep_elements)
        .takes(&like_params(FLOAT_INT_BOOL)),
    define(OpClass::View, "reshape_like", Ios17, infer_like, keep_elements).takes(&like_params(MOVABLE_17)),
];

const fn like_params(x: &'static [DType]) -> [Param; 5] {
    [
        Param::value("x", x),
        Param::value("ref_tensors", ANY).many(),
        Param::constant("begins", INT).many(),
        Param::constant("ends", INT).many(),
        Param::constant("end_masks", BOOL).many(),
    ]
}

/// Evaluates any operation that changes only the shape.
pub(super) fn keep_elements(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, out) = (call.tensor("x")?, outputs.tensor(0)?.bytes());
    if x.bytes().len() != out.len() {
        let (found, room) = (x.bytes().len(), out.len());
        refuse!("`x` has {found} bytes, the output has room for {room}");
    }
    out.copy_from_slice(x.bytes());
    Ok(())
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, shape) = (call.ty("x")?, call.ty("shape")?);
    let length = dims::of_rank("shape", shape, 1)?[0].size();
    let dims = match (call.known_ints("shape")?, length) {
        (Some(wanted), _) => {
            let copied = copy_dims(x, &wanted, call.opset())?;
            solve(x, copied)?
        }
        (None, Some(length)) => vec![Dim::Unknown; length],
        (None, None) => vec![Dim::Variadic],
    };
    Ok(dims::one(x.dtype, dims))
}

/// The target with each 0 replaced by a dimension of `x`; -1 is `None`.
fn copy_dims(x: &TensorType, wanted: &[i64], opset: Opset) -> Result<Vec<Option<Dim>>> {
    let rank = x.rank();
    let copied = |i: usize| match rank {
        None => Ok(Dim::Unknown),
        Some(rank) if rank == wanted.len() => Ok(x.shape[i]),
        Some(rank) if opset < Ios17 => {
            refuse!("`shape` contains 0 and has {} elements, but `x` has rank {rank}", wanted.len())
        }
        Some(rank) => Ok((i + rank).checked_sub(wanted.len()).map_or(Dim::Fixed(1), |i| x.shape[i])),
    };
    let dims = wanted.iter().enumerate().map(|(i, &size)| match size {
        -1 => Ok(None),
        0 => copied(i).map(Some),
        _ => dims::size("shape", size).map(|size| Some(Dim::from(size))),
    });
    let dims: Vec<Option<Dim>> = dims.collect::<Result<_>>()?;
    match dims.iter().filter(|dim| dim.is_none()).count() {
        0 | 1 => Ok(dims),
        more => refuse!("`shape` is {wanted:?}, with {more} dimensions to be determined"),
    }
}

/// Determines the dimension left open, and checks that the number of elements stays the same. Unknown
/// dimensions of the target must be copies of dimensions of `x`.
fn solve(x: &TensorType, target: Vec<Option<Dim>>) -> Result<Vec<Dim>> {
    let given: Vec<Dim> = target.iter().copied().flatten().collect();
    let open = target.len() != given.len();
    let missing = match (known_part(&x.shape)?, known_part(&given)?) {
        ((unknown, _), (copied, _)) if unknown != copied || x.rank().is_none() => Dim::Unknown,
        ((_, total), (_, rest)) if open && rest > 0 && total % rest == 0 => Dim::from(total / rest),
        ((_, total), (_, rest)) if !open && rest == total => Dim::Unknown,
        ((_, total), (_, rest)) => {
            let open = if open { "a multiple of " } else { "" };
            refuse!("{x} has {total} elements, the new shape {open}{rest}");
        }
    };
    Ok(target.into_iter().map(|dim| dim.unwrap_or(missing)).collect())
}

/// How many dimensions are unknown, and the product of the others.
fn known_part(dims: &[Dim]) -> Result<(usize, usize)> {
    dims.iter().try_fold((0, 1), |(unknown, known), dim| match dim.size() {
        Some(size) => Ok((unknown, dims::times(known, size)?)),
        None => Ok((unknown + 1, known)),
    })
}

fn infer_like(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let count = call.count("ref_tensors");
    for name in ["begins", "ends", "end_masks"] {
        let found = call.count(name);
        refuse_if!(found != count, "{count} `ref_tensors` come with {found} `{name}`");
    }
    let mut dims = Vec::new();
    for i in 0..count {
        let reference = call.ty_at("ref_tensors", i)?;
        if reference.rank().is_none() {
            return Ok(dims::unranked(x.dtype));
        }
        dims.extend_from_slice(part(call, i, &reference.shape)?);
    }
    if !dims.contains(&Dim::Unknown) {
        solve(x, dims.iter().copied().map(Some).collect())?;
    }
    Ok(dims::one(x.dtype, dims))
}

/// The dimensions that the `i`-th reference contributes.
fn part<'d>(call: &Call<'_>, i: usize, dims: &'d [Dim]) -> Result<&'d [Dim]> {
    let position = |name: &str| -> Result<usize> {
        let value = scalar(name, &anemeter_kernels::convert::to_ints(&call.tensor_at(name, i)?)?)?;
        let value = if value < 0 { value.saturating_add(dims.len() as i64) } else { value };
        Ok(usize::try_from(value).unwrap_or(0).min(dims.len()))
    };
    let begin = position("begins")?;
    let masked = scalar("end_masks", call.tensor_at("end_masks", i)?.bools()?)? != 0;
    let end = if masked { dims.len() } else { position("ends")? };
    Ok(&dims[begin..end.max(begin)])
}

fn scalar<T: Copy>(name: &str, values: &[T]) -> Result<T> {
    match values {
        [value] => Ok(*value),
        more => refuse!("`{name}` holds {} elements, not one", more.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reshape(opset: Opset, from: &[usize], to: &[i32]) -> Result<Vec<usize>, String> {
        let x = tensor(from, &vec![0.0f32; from.iter().product()]);
        let shape = tensor(&[to.len()], to);
        let out = run("reshape", opset, &[("x", x), ("shape", shape)]);
        out.map(|out| out[0].shape().to_vec()).map_err(|error| error.to_string())
    }

    #[test]
    fn zero_copies_a_dimension_and_minus_one_takes_the_rest() {
        refused(
            reshape(Ios15, &[2, 6], &[0, 2, 0]),
            "`shape` contains 0 and has 3 elements, but `x` has rank 2",
        );
        assert_eq!(reshape(Ios15, &[2, 6], &[0, -1]).unwrap(), [2, 6]);
        assert_eq!(reshape(Ios17, &[2, 50], &[1, 0, -1, 0]).unwrap(), [1, 1, 2, 50]);
        assert_eq!(reshape(Ios17, &[3, 2], &[-1]).unwrap(), [6]);
        assert!(reshape(Ios17, &[1], &[]).unwrap().is_empty());
        assert_eq!(reshape(Ios17, &[0, 4], &[2, -1]).unwrap(), [2, 0]);
    }

    #[test]
    fn element_counts_must_agree() {
        let error = reshape(Ios17, &[2, 3], &[4, -1]).unwrap_err();
        assert_eq!(error, "tensor<fp32, [2, 3]> has 6 elements, the new shape a multiple of 4");
        refused(reshape(Ios17, &[2, 3], &[7]), "tensor<fp32, [2, 3]> has 6 elements, the new shape 7");
        assert!(reshape(Ios17, &[2, 3], &[-1, -1]).is_err());
        assert!(reshape(Ios17, &[2, 3], &[-2, -3]).is_err());
    }

    #[test]
    fn unknown_dimensions_cancel() {
        let x = TensorType::new(DType::F32, vec![Dim::Unknown, Dim::Fixed(6)]);
        let target = copy_dims(&x, &[0, 2, -1], Ios17).unwrap();
        assert_eq!(solve(&x, target).unwrap(), [Dim::Fixed(1), Dim::Fixed(2), Dim::Unknown]);
        let target = copy_dims(&x, &[0, -1], Ios15).unwrap();
        assert_eq!(solve(&x, target).unwrap(), x.shape);
    }

    #[test]
    fn like_joins_parts_of_shapes() {
        let zeros = |shape: &[usize]| tensor(shape, &vec![0i32; shape.iter().product()]);
        let int = |value: i32| Tensor::scalar(value);
        let mask = |value: bool| Tensor::from_bool(value);
        let out = run(
            "reshape_like",
            Ios16,
            &[
                ("x", zeros(&[180])),
                ("ref_tensors", zeros(&[2, 3, 4])),
                ("ref_tensors", zeros(&[1, 5, 6])),
                ("begins", int(0)),
                ("begins", int(-2)),
                ("ends", int(-1)),
                ("ends", int(0)),
                ("end_masks", mask(false)),
                ("end_masks", mask(true)),
            ],
        );
        assert_eq!(out.unwrap()[0].shape(), [2, 3, 5, 6]);
    }
}
