//! `softmax` along one axis.

use super::prelude::*;
use super::{in_place, map};
use crate::op::SOFTMAX_FLOPS;
use anemeter_kernels::softmax::{softmax_f16_steps, softmax_f32, softmax_rows};

pub(super) const OPS: &[OpDef] = &[define(
    OpClass::Reduction(per_element::<SOFTMAX_FLOPS>),
    "softmax",
    Ios15,
    map::same_type_along_axis,
    eval,
)
.takes(&[Param::value("x", FLOAT), Param::constant("axis", INT).or_int(-1)])];

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product());
    if inner == 1 && x.dtype() == DType::F16 && !call.rounds(DType::F16) {
        softmax_rows(x.slice::<f16>()?, outputs.tensor(0)?.slice()?, length);
        return Ok(());
    }
    in_place::run(call, outputs, 0, |data, _| {
        if call.rounds(x.dtype()) {
            softmax_f16_steps(data, length, inner);
        } else {
            softmax_f32(data, length, inner);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_to_one_along_the_axis() {
        let x = tensor(&[2, 2], &[0.0f32, 1000.0, 0.0, 0.0]);
        let out = run("softmax", Ios15, &[("x", x), ("axis", Tensor::scalar(-1i32))]).unwrap();
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [0.0, 1.0, 0.5, 0.5]);
    }

    #[test]
    fn an_axis_outside_the_tensor_is_named() {
        let x = tensor(&[1], &[0.0f32]);
        let error = run("softmax", Ios15, &[("x", x), ("axis", Tensor::scalar(1i32))]).unwrap_err();
        assert_eq!(error.to_string(), "`axis` is 1, outside a tensor of rank 1");
    }
}
