//! `shape`: the dimensions of a tensor as a vector.

use super::prelude::*;

pub(super) const OPS: &[OpDef] =
    &[define(OpClass::Metadata, "shape", Ios15, infer, eval).takes(&[Param::value("x", FLOAT_INT_BOOL)])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let rank = call.ty("x")?.rank().map_or(Dim::Unknown, Dim::from);
    Ok(dims::one(DType::I32, vec![rank]))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let shape = match call.known("x") {
        Some(x) => Shape::from_slice(x.shape()),
        None => call.ty("x")?.concrete().ok_or_else(|| OpError::new("the shape of `x` is not known"))?,
    };
    let out = outputs.resize(0, &[shape.len()])?;
    for (out, size) in out.slice::<i32>()?.iter_mut().zip(shape) {
        *out = i32::try_from(size).map_err(|_| op_error!("a dimension of {size} does not fit int32"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_vector_of_int32() {
        let x = bools(&[2, 0, 5], &[]);
        assert_eq!(output::<i32>(run("shape", Ios15, &[("x", x)])), [2, 0, 5]);
        let out = run("shape", Ios15, &[("x", Tensor::scalar(1.0f32))]).unwrap();
        assert_eq!(out[0].shape(), [0]);
    }
}
