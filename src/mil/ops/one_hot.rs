//! `one_hot`: indices as vectors that are on in one place.

use super::prelude::*;
use anemeter_kernels::copy;

pub(super) const OPS: &[OpDef] = &[define(OpClass::Movement, "one_hot", Ios15, infer, eval).takes(&[
    Param::value("indices", INT),
    Param::value("one_hot_vector_size", INT),
    Param::constant("axis", INT).or_int(-1),
    Param::constant("on_value", FLOAT_INT_BOOL).group('T').or_int(1),
    Param::constant("off_value", FLOAT_INT_BOOL).group('T').or_int(0),
])];

fn axis(call: &Call<'_>, rank: usize) -> Result<usize> {
    let given = call.int("axis")?;
    let outside = || op_error!("`axis` is {given}, outside a result of rank {}", rank + 1);
    shape::axis(given, rank + 1).ok_or_else(outside)
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let dtypes = [call.opt_ty("on_value")?, call.opt_ty("off_value")?];
    let dtypes = dtypes.map(|ty| ty.map_or(DType::I32, |ty| ty.dtype));
    refuse_if!(dtypes[0] != dtypes[1], "`on_value` is {}, `off_value` is {}", dtypes[0], dtypes[1]);
    let indices = call.ty("indices")?;
    let Some(rank) = indices.rank() else { return Ok(dims::unranked(dtypes[0])) };
    let size = match call.known("one_hot_vector_size") {
        Some(_) => dims::size("one_hot_vector_size", call.int("one_hot_vector_size")?)?.into(),
        None => Dim::Unknown,
    };
    let mut dims = indices.shape.clone();
    dims.insert(axis(call, rank)?, size);
    Ok(dims::one(dtypes[0], dims))
}

/// An index outside the vector, negative ones included, leaves it off everywhere.
fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let indices = call.tensor("indices")?;
    let axis = axis(call, indices.rank())?;
    let out = outputs.tensor(0)?;
    done_if!(out.shape().contains(&0));
    let (size, inner) = (out.shape()[axis], indices.shape()[axis..].iter().product::<usize>());
    let (dtype, bytes) = (out.dtype(), out.bytes());
    let element = |name, default: i32| match call.opt_tensor(name)? {
        Some(value) if value.len() == 1 => Ok(smallvec::SmallVec::<[u8; 8]>::from_slice(value.bytes())),
        Some(value) => refuse!("`{name}` holds {} elements, not one", value.len()),
        None => Ok(smallvec::SmallVec::from_slice(bytemuck::bytes_of(&default))),
    };
    let (on, off) = (element("on_value", 1)?, element("off_value", 0)?);
    copy::fill(bytes, &off);
    let width = dtype.bits() as usize / 8;
    for (i, &index) in indices.slice::<i32>()?.iter().enumerate() {
        if let Some(index) = usize::try_from(index).ok().filter(|&index| index < size) {
            let at = (i / inner * size + index) * inner + i % inner;
            bytes[at * width..][..width].copy_from_slice(&on);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_hot(args: &[(&str, Tensor)]) -> Result<Tensor, String> {
        let indices = tensor(&[4], &[1, 0, -1, 3]);
        let args = [&[("indices", indices), ("one_hot_vector_size", Tensor::scalar(3))], args].concat();
        run("one_hot", Ios15, &args).map(|mut out| out.remove(0)).map_err(|error| error.to_string())
    }

    #[test]
    fn is_on_at_the_index_if_there_is_one() {
        let out = one_hot(&[]).unwrap();
        assert_eq!(out.shape(), [4, 3]);
        assert_eq!(out.view().slice::<i32>().unwrap(), [0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let values = [("on_value", Tensor::scalar(2.0f32)), ("off_value", Tensor::scalar(0.5f32))];
        let out = one_hot(&[&[("axis", Tensor::scalar(0))], &values[..]].concat()).unwrap();
        assert_eq!(out.shape(), [3, 4]);
        let wanted = [0.5, 2.0, 0.5, 0.5, 2.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5];
        assert_eq!(out.view().slice::<f32>().unwrap(), wanted);
    }

    #[test]
    fn both_values_have_one_type() {
        refused(one_hot(&[("on_value", Tensor::scalar(2.0f32))]), "`on_value` is fp32, `off_value` is int32");
    }
}
