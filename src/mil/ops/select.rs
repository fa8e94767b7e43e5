//! `select`: elements of one tensor or another, as a condition says.

use bytemuck::Pod;

use super::broadcast;
use crate::mil::op::domain::{BOOL, FLOAT_INT_BOOL};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Opset, TensorType, Type};
use crate::tensor::TensorError;

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "select",
    since: Opset::Ios15,
    params: &[
        Param::value("cond", BOOL),
        Param::value("a", FLOAT_INT_BOOL).group('T'),
        Param::value("b", FLOAT_INT_BOOL).group('T'),
    ],
    infer,
    eval: Eval::Kernel(eval),
}];

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (a, b) = (call.ty("a")?, call.ty("b")?);
    let either = TensorType::new(a.dtype, broadcast::dims(a, b)?);
    Ok(vec![TensorType::new(a.dtype, broadcast::dims(call.ty("cond")?, &either)?).into()])
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let dtype = call.ty("a")?.dtype;
    match dtype.bits() {
        8 => choose::<u8>(call, outputs),
        16 => choose::<u16>(call, outputs),
        32 => choose::<u32>(call, outputs),
        _ => Err(OpError::new(format!("`a` is {dtype}, which cannot be selected"))),
    }
}

fn choose<T: Pod>(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let (cond, a, b) = (call.tensor("cond")?, call.tensor("a")?, call.tensor("b")?);
    let out = outputs.tensor(0)?;
    let shape = out.shape();
    let misaligned = |_| TensorError::Misaligned { dtype: a.dtype() };
    let flags = cond.bools()?;
    let yes: &[T] = bytemuck::try_cast_slice(a.bytes()).map_err(misaligned)?;
    let no: &[T] = bytemuck::try_cast_slice(b.bytes()).map_err(misaligned)?;
    let out: &mut [T] = bytemuck::try_cast_slice_mut(out.bytes()).map_err(misaligned)?;
    broadcast::runs_of([cond.shape(), a.shape(), b.shape()], shape, |run| {
        let [at_flag, at_yes, at_no] = run.operands;
        let [flag_step, yes_step, no_step] = run.steps;
        for (i, out) in out[run.output..run.output + run.len].iter_mut().enumerate() {
            *out = if flags[at_flag + i * flag_step] != 0 {
                yes[at_yes + i * yes_step]
            } else {
                no[at_no + i * no_step]
            };
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn all_three_operands_broadcast() {
        let cond = Tensor::from_bools(&[2, 1], &[true, false]).unwrap();
        let a = Tensor::from_slice(&[3], &[1i32, 2, 3]).unwrap();
        let out =
            run("select", Opset::Ios15, &[("cond", cond), ("a", a), ("b", Tensor::scalar(9i32))]).unwrap();
        assert_eq!(out[0].shape(), [2, 3]);
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [1, 2, 3, 9, 9, 9]);
    }

    #[test]
    fn a_condition_of_another_shape_is_refused() {
        let cond = Tensor::from_bools(&[2], &[true, false]).unwrap();
        let a = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).unwrap();
        let error = run("select", Opset::Ios15, &[("cond", cond), ("a", a.clone()), ("b", a)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "shapes tensor<bool, [2]> and tensor<fp32, [3]> do not broadcast: 2 against 3 in dimension 0 of 1"
        );
    }
}
