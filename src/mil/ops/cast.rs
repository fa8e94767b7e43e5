//! `cast`: conversion between element types.
//!
//! Floats become integers by truncation and saturation, NaN becomes 0. Integers wrap into narrower types.
//! Anything but zero is true.

use half::slice::HalfFloatSliceExt;

use super::prelude::*;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "cast", Ios15, |call| infer(call, FLOAT_INT_BOOL), eval)
        .takes(&[Param::value("x", FLOAT_INT_BOOL), Param::constant("dtype", TEXT)]),
    define(OpClass::Movement, "cast", Ios17, |call| infer(call, MOVABLE_17), eval)
        .takes(&[Param::value("x", MOVABLE_17), Param::constant("dtype", TEXT)]),
];

fn infer(call: &Call<'_>, targets: &[DType]) -> Result<Vec<Type>> {
    let name = call.text("dtype")?;
    let dtype = DType::from_name(name).filter(|dtype| targets.contains(dtype));
    let dtype =
        dtype.ok_or_else(|| op_error!("`dtype` is \"{name}\", which {} cannot cast to", call.opset()))?;
    Ok(dims::one(dtype, call.ty("x")?.shape.clone()))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, out) = (call.tensor("x")?, outputs.tensor(0)?);
    match (x.dtype(), out.dtype()) {
        (from, to) if from == to && from != DType::Bool => out.bytes().copy_from_slice(x.bytes()),
        (DType::F16, DType::F32) => x.slice::<f16>()?.convert_to_f32_slice(out.slice()?),
        (DType::F32, DType::F16) => out.slice::<f16>()?.convert_from_f32_slice(x.slice()?),
        (DType::F32, _) => store_floats(x.slice::<f32>()?.iter().copied(), out)?,
        (DType::F16, _) => store_floats(x.slice::<f16>()?.iter().map(|x| x.to_f32()), out)?,
        (DType::Bool, _) => store_ints(x.bools()?.iter().map(|&x| i32::from(x != 0)), out)?,
        (DType::I32, _) => store_ints(x.slice::<i32>()?.iter().copied(), out)?,
        (DType::I16, _) => store_ints(widened::<i16>(&x)?, out)?,
        (DType::U16, _) => store_ints(widened::<u16>(&x)?, out)?,
        (DType::I8, _) => store_ints(widened::<i8>(&x)?, out)?,
        (DType::U8, _) => store_ints(widened::<u8>(&x)?, out)?,
        (from, _) => refuse!("`x` is {from}, which cannot be cast"),
    }
    Ok(())
}

fn widened<'a, T: Element + Into<i32>>(x: &TensorView<'a>) -> Result<impl Iterator<Item = i32> + 'a> {
    Ok(x.slice::<T>()?.iter().map(|&x| x.into()))
}

fn store_floats(values: impl Iterator<Item = f32>, out: TensorMut<'_>) -> Result {
    match out.dtype() {
        DType::F32 => store(values, out.slice()?, |x| x),
        DType::F16 => store(values, out.slice()?, f16::from_f32),
        DType::I32 => store(values, out.slice()?, |x| x as i32),
        DType::I16 => store(values, out.slice()?, |x| x as i16),
        DType::U16 => store(values, out.slice()?, |x| x as u16),
        DType::I8 => store(values, out.slice()?, |x| x as i8),
        DType::U8 => store(values, out.slice()?, |x| x as u8),
        _ => store(values, out.bools()?, |x| u8::from(x != 0.0)),
    }
    Ok(())
}

fn store_ints(values: impl Iterator<Item = i32>, out: TensorMut<'_>) -> Result {
    match out.dtype() {
        DType::F32 => store(values, out.slice()?, |x| x as f32),
        DType::F16 => store(values, out.slice()?, |x| f16::from_f32(x as f32)),
        DType::I32 => store(values, out.slice()?, |x| x),
        DType::I16 => store(values, out.slice()?, |x| x as i16),
        DType::U16 => store(values, out.slice()?, |x| x as u16),
        DType::I8 => store(values, out.slice()?, |x| x as i8),
        DType::U8 => store(values, out.slice()?, |x| x as u8),
        _ => store(values, out.bools()?, |x| u8::from(x != 0)),
    }
    Ok(())
}

fn store<T, U>(values: impl Iterator<Item = T>, out: &mut [U], convert: impl Fn(T) -> U) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = convert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(x: &Tensor, dtype: &str) -> Result<Vec<Tensor>> {
        run("cast", Ios17, &[("x", x.clone()), text("dtype", dtype)])
    }

    #[test]
    fn floats_truncate_and_saturate() {
        let x = tensor(&[6], &[-1.9f32, 1.9, 300.5, -1e10, f32::NAN, f32::INFINITY]);
        assert_eq!(output::<i32>(cast(&x, "int32")), [-1, 1, 300, i32::MIN, 0, i32::MAX]);
        assert_eq!(output::<u8>(cast(&x, "uint8")), [0, 1, 255, 0, 0, 255]);
        let bools = |x: &Tensor| cast(x, "bool").unwrap()[0].view().bools().unwrap().to_vec();
        assert_eq!(bools(&x), [1, 1, 1, 1, 1, 1]);
        assert_eq!(bools(&tensor(&[2], &[-0.0f32, 0.1])), [0, 1]);
    }

    #[test]
    fn integers_wrap_and_widen() {
        let x = tensor(&[3], &[-1i32, 300, 70_000]);
        assert_eq!(output::<i8>(cast(&x, "int8")), [-1, 44, 112]);
        assert_eq!(output::<u16>(cast(&x, "uint16")), [65535, 300, 4464]);
        assert_eq!(output::<f16>(cast(&x, "fp16")), [-1.0, 300.0, f32::INFINITY].map(f16::from_f32));
        assert_eq!(output::<i32>(cast(&tensor(&[2], &[-128i8, 127]), "int32")), [-128, 127]);
        assert_eq!(output::<f32>(cast(&bools(&[2], &[true, false]), "fp32")), [1.0, 0.0]);
    }

    #[test]
    fn small_integers_come_with_ios17() {
        let args = [("x", Tensor::scalar(1i32)), text("dtype", "int8")];
        refused(run("cast", Ios16, &args), "`dtype` is \"int8\", which ios16 cannot cast to");
    }
}
