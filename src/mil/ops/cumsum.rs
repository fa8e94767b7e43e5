//! `cumsum`: running sums along a dimension.

use super::map;
use super::prelude::*;
use anemeter_kernels::convert::round_f16;

pub(super) const OPS: &[OpDef] =
    &[define(OpClass::Reduction(per_element::<1>), "cumsum", Ios15, map::same_type_along_axis, eval).takes(
        &[
            Param::value("x", FLOAT_INT),
            Param::constant("axis", INT).or_int(0),
            Param::constant("exclusive", BOOL).or_bool(false),
            Param::constant("reverse", BOOL).or_bool(false),
        ],
    )];

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    match call.ty("x")?.dtype {
        DType::F32 => sum(call, outputs, 0.0, |sum: f32, x: f32| sum + x, |sum| sum),
        DType::F16 if call.rounds(DType::F16) => {
            sum(call, outputs, 0.0, |sum, x: f16| round_f16(sum + x.to_f32()), f16::from_f32)
        }
        DType::F16 => sum(call, outputs, 0.0, |sum, x: f16| sum + x.to_f32(), f16::from_f32),
        _ => sum(call, outputs, 0, i32::wrapping_add, |sum| sum),
    }
}

fn sum<T: Element, S: Copy>(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    zero: S,
    add: impl Fn(S, T) -> S,
    store: impl Fn(S) -> T,
) -> Result {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    done_if!(x.shape().contains(&0));
    let (exclusive, reverse) = (call.bool("exclusive")?, call.bool("reverse")?);
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    let (values, out) = (x.slice::<T>()?, outputs.tensor(0)?.slice::<T>()?);
    for plane in (0..values.len()).step_by(length * inner) {
        for lane in plane..plane + inner {
            let mut total = zero;
            for step in 0..length {
                let at = lane + inner * if reverse { length - 1 - step } else { step };
                let next = add(total, values[at]);
                out[at] = store(if exclusive { total } else { next });
                total = next;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_run_either_way_with_or_without_the_element() {
        let x = tensor(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        for (axis, exclusive, reverse, wanted) in [
            (0, false, false, [1, 2, 3, 5, 7, 9]),
            (-1, false, true, [6, 5, 3, 15, 11, 6]),
            (1, true, false, [0, 1, 3, 0, 4, 9]),
            (1, true, true, [5, 3, 0, 11, 6, 0]),
        ] {
            let args = [
                ("x", x.clone()),
                ("axis", Tensor::scalar(axis)),
                ("exclusive", Tensor::from_bool(exclusive)),
                ("reverse", Tensor::from_bool(reverse)),
            ];
            assert_eq!(output::<i32>(run("cumsum", Ios15, &args)), wanted);
        }
        let error = run("cumsum", Ios15, &[("x", x), ("axis", Tensor::scalar(2))]).unwrap_err();
        assert_eq!(error.to_string(), "`axis` is 2, outside a tensor of rank 2");
    }
}
