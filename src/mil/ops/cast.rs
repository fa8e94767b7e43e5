//! `cast`: conversion between element types.
//!
//! Floats become integers by truncation and saturation, NaN becomes 0. Integers wrap into narrower types.
//! Anything but zero is true.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::mil::op::domain::{FLOAT_INT_BOOL, MOVABLE_17, TEXT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Opset, TensorType, Type};
use crate::tensor::{DType, Element, TensorMut, TensorView};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "cast",
        since: Opset::Ios15,
        params: &[Param::value("x", FLOAT_INT_BOOL), Param::constant("dtype", TEXT)],
        infer: |call| infer(call, FLOAT_INT_BOOL),
        eval: Eval::Kernel(eval),
    },
    OpDef {
        name: "cast",
        since: Opset::Ios17,
        params: &[Param::value("x", MOVABLE_17), Param::constant("dtype", TEXT)],
        infer: |call| infer(call, MOVABLE_17),
        eval: Eval::Kernel(eval),
    },
];

fn infer(call: &Call<'_>, targets: &[DType]) -> Result<Vec<Type>, OpError> {
    let name = call.text("dtype")?;
    let dtype = DType::from_name(name).filter(|dtype| targets.contains(dtype));
    let dtype = dtype.ok_or_else(|| {
        OpError::new(format!("`dtype` is \"{name}\", which {} cannot cast to", call.opset()))
    })?;
    Ok(vec![TensorType::new(dtype, call.ty("x")?.shape.clone()).into()])
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let out = outputs.tensor(0)?;
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
        (from, _) => return Err(OpError::new(format!("`x` is {from}, which cannot be cast"))),
    }
    Ok(())
}

fn widened<'a, T: Element + Into<i32>>(
    x: &TensorView<'a>,
) -> Result<impl Iterator<Item = i32> + 'a, OpError> {
    Ok(x.slice::<T>()?.iter().map(|&x| x.into()))
}

fn store_floats(values: impl Iterator<Item = f32>, out: TensorMut<'_>) -> Result<(), OpError> {
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

fn store_ints(values: impl Iterator<Item = i32>, out: TensorMut<'_>) -> Result<(), OpError> {
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
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    fn cast(x: Tensor, dtype: &str) -> Result<Tensor, OpError> {
        let args = [("x", x), ("dtype", Tensor::from_text(dtype))];
        Ok(run("cast", Opset::Ios17, &args)?.remove(0))
    }

    #[test]
    fn floats_truncate_and_saturate() {
        let x = Tensor::from_slice(&[6], &[-1.9f32, 1.9, 300.5, -1e10, f32::NAN, f32::INFINITY]).unwrap();
        let ints = cast(x.clone(), "int32").unwrap();
        assert_eq!(ints.view().slice::<i32>().unwrap(), [-1, 1, 300, i32::MIN, 0, i32::MAX]);
        let bytes = cast(x.clone(), "uint8").unwrap();
        assert_eq!(bytes.view().slice::<u8>().unwrap(), [0, 1, 255, 0, 0, 255]);
        let bools = cast(x, "bool").unwrap();
        assert_eq!(bools.view().bools().unwrap(), [1, 1, 1, 1, 1, 1]);
        let zeros = cast(Tensor::from_slice(&[2], &[-0.0f32, 0.1]).unwrap(), "bool").unwrap();
        assert_eq!(zeros.view().bools().unwrap(), [0, 1]);
    }

    #[test]
    fn integers_wrap_and_widen() {
        let x = Tensor::from_slice(&[3], &[-1i32, 300, 70_000]).unwrap();
        assert_eq!(cast(x.clone(), "int8").unwrap().view().slice::<i8>().unwrap(), [-1, 44, 112]);
        assert_eq!(cast(x.clone(), "uint16").unwrap().view().slice::<u16>().unwrap(), [65535, 300, 4464]);
        let halves = cast(x, "fp16").unwrap();
        assert_eq!(halves.view().slice::<f16>().unwrap(), [-1.0, 300.0, f32::INFINITY].map(f16::from_f32));
        let bytes = Tensor::from_slice(&[2], &[-128i8, 127]).unwrap();
        assert_eq!(cast(bytes, "int32").unwrap().view().slice::<i32>().unwrap(), [-128, 127]);
        let bools = Tensor::from_bools(&[2], &[true, false]).unwrap();
        assert_eq!(cast(bools, "fp32").unwrap().view().slice::<f32>().unwrap(), [1.0, 0.0]);
    }

    #[test]
    fn small_integers_come_with_ios17() {
        let args = [("x", Tensor::scalar(1i32)), ("dtype", Tensor::from_text("int8"))];
        let error = run("cast", Opset::Ios16, &args).unwrap_err();
        assert_eq!(error.to_string(), "`dtype` is \"int8\", which ios16 cannot cast to");
    }
}
