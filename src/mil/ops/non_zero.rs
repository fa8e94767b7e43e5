//! `non_zero`: where a tensor is not zero.

use half::f16;

use super::dims;
use crate::mil::op::domain::FLOAT_INT_BOOL;
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Dim, Opset, Type};
use crate::tensor::{DType, TensorView};

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "non_zero",
    since: Opset::Ios15,
    params: &[Param::value("x", FLOAT_INT_BOOL)],
    infer,
    eval: Eval::Kernel(eval),
}];

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let found = match call.known("x") {
        Some(x) => {
            let mut count = 0;
            each(&x, |_| count += 1)?;
            Dim::from(count)
        }
        None => Dim::Unknown,
    };
    let rank = call.ty("x")?.rank().map_or(Dim::Unknown, Dim::from);
    Ok(dims::one(DType::I32, vec![found, rank]))
}

/// Calls `f` with the position of each element that is not zero, in order.
fn each(x: &TensorView<'_>, f: impl FnMut(usize)) -> Result<(), OpError> {
    fn positions<T: Copy>(values: &[T], is_set: impl Fn(T) -> bool, f: impl FnMut(usize)) {
        values.iter().enumerate().filter(|&(_, &value)| is_set(value)).map(|(i, _)| i).for_each(f);
    }
    match x.dtype() {
        DType::F32 => positions(x.slice::<f32>()?, |value| value != 0.0, f),
        DType::F16 => positions(x.slice::<f16>()?, |value| value != f16::ZERO, f),
        DType::I32 => positions(x.slice::<i32>()?, |value| value != 0, f),
        _ => positions(x.bools()?, |value| value != 0, f),
    }
    Ok(())
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let mut count = 0;
    each(&x, |_| count += 1)?;
    let out = outputs.resize(0, &[count, x.rank()])?.slice::<i32>()?;
    if x.rank() == 0 {
        return Ok(());
    }
    let mut rows = out.chunks_exact_mut(x.rank());
    each(&x, |mut position| {
        let Some(row) = rows.next() else { return };
        for (out, &size) in row.iter_mut().zip(x.shape()).rev() {
            *out = (position % size) as i32;
            position /= size;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn gives_one_row_of_indices_per_element() {
        let x = Tensor::from_slice(&[2, 3], &[0.0f32, -0.0, 1.0, f32::NAN, 0.0, -1.0]).unwrap();
        let out = run("non_zero", Opset::Ios15, &[("x", x)]).unwrap();
        assert_eq!(out[0].shape(), [3, 2]);
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [0, 2, 1, 0, 1, 2]);
        let x = Tensor::from_bools(&[2], &[false, false]).unwrap();
        assert_eq!(run("non_zero", Opset::Ios15, &[("x", x)]).unwrap()[0].shape(), [0, 1]);
    }
}
