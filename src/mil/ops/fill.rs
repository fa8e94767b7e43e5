//! `fill` and `fill_like`: one value everywhere.

use super::prelude::*;
use anemeter_kernels::copy;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "fill", Ios15, infer_fill, eval)
        .takes(&[Param::value("shape", INT), Param::constant("value", FLOAT_INT_BOOL).or_float(0.0)]),
    define(OpClass::Movement, "fill_like", Ios16, infer_like, eval).takes(&[
        Param::value("ref_tensor", FLOAT_INT_BOOL),
        Param::constant("value", FLOAT_INT_BOOL).or_float(0.0),
    ]),
];

fn dtype(call: &Call<'_>) -> Result<DType> {
    Ok(call.opt_ty("value")?.map_or(DType::F32, |value| value.dtype))
}

fn infer_fill(call: &Call<'_>) -> Result<Vec<Type>> {
    let length = dims::of_rank("shape", call.ty("shape")?, 1)?[0].size();
    let dims = match (call.known_ints("shape")?, length) {
        (Some(shape), _) => {
            let sizes = shape.iter().map(|&size| dims::size("shape", size).map(Dim::from));
            sizes.collect::<Result<_, _>>()?
        }
        (None, Some(length)) => vec![Dim::Unknown; length],
        (None, None) => vec![Dim::Variadic],
    };
    Ok(dims::one(dtype(call)?, dims))
}

fn infer_like(call: &Call<'_>) -> Result<Vec<Type>> {
    Ok(dims::one(dtype(call)?, call.ty("ref_tensor")?.shape.clone()))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let out = outputs.tensor(0)?.bytes();
    match call.opt_tensor("value")? {
        None => out.fill(0),
        Some(value) if value.len() == 1 => copy::fill(out, value.bytes()),
        Some(value) => refuse!("`value` holds {} elements, not one", value.len()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_with_the_value_or_with_fp32_zero() {
        let shape = tensor(&[2], &[2, 1]);
        let out = run("fill", Ios15, &[("shape", shape.clone()), ("value", Tensor::scalar(7))]).unwrap();
        assert_eq!((out[0].shape(), out[0].view().slice::<i32>().unwrap()), (&[2, 1][..], &[7, 7][..]));
        assert_eq!(output::<f32>(run("fill_like", Ios16, &[("ref_tensor", shape)])), [0.0, 0.0]);
    }

    #[test]
    fn sizes_are_not_negative() {
        let shape = tensor(&[2], &[2, -1]);
        refused(run("fill", Ios15, &[("shape", shape)]), "`shape` is -1, which is not a size");
    }
}
