//! `select`: elements of one tensor or another, as a condition says.

use bytemuck::Pod;

use super::prelude::*;
use anemeter_kernels::tensor::TensorError;

pub(super) const OPS: &[OpDef] = &[define(OpClass::Movement, "select", Ios15, infer, eval).takes(&[
    Param::value("cond", BOOL),
    Param::value("a", FLOAT_INT_BOOL).group('T'),
    Param::value("b", FLOAT_INT_BOOL).group('T'),
])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let (a, b) = (call.ty("a")?, call.ty("b")?);
    let either = TensorType::new(a.dtype, broadcast::dims(a, b)?);
    Ok(dims::one(a.dtype, broadcast::dims(call.ty("cond")?, &either)?))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let dtype = call.ty("a")?.dtype;
    match dtype.bits() {
        8 => choose::<u8>(call, outputs),
        16 => choose::<u16>(call, outputs),
        32 => choose::<u32>(call, outputs),
        _ => refuse!("`a` is {dtype}, which cannot be selected"),
    }
}

fn choose<T: Pod>(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (cond, a, b, out) = (call.tensor("cond")?, call.tensor("a")?, call.tensor("b")?, outputs.tensor(0)?);
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
    use super::*;

    #[test]
    fn all_three_operands_broadcast() {
        let cond = bools(&[2, 1], &[true, false]);
        let a = tensor(&[3], &[1i32, 2, 3]);
        let out = run("select", Ios15, &[("cond", cond), ("a", a), ("b", Tensor::scalar(9i32))]);
        gives::<i32>(out, &[2, 3], &[1, 2, 3, 9, 9, 9]);
    }

    #[test]
    fn a_condition_of_another_shape_is_refused() {
        let cond = bools(&[2], &[true, false]);
        let a = tensor(&[3], &[1.0f32, 2.0, 3.0]);
        refused(
            run("select", Ios15, &[("cond", cond), ("a", a.clone()), ("b", a)]),
            "shapes tensor<bool, [2]> and tensor<fp32, [3]> do not broadcast: 2 against 3 in dimension 0 of 1",
        );
    }
}
