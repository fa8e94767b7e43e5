//! Reductions of a tensor over some or all of its dimensions.

use super::axes;
use super::prelude::*;
use anemeter_kernels::convert::convert;
use anemeter_kernels::reduce::{Axes, Reduction, first_best, reduce_f32, reduce_i32};

pub(super) const OPS: &[OpDef] = &[
    arg("reduce_argmax", Ios15, ARG, |c, o| eval_arg(c, o, Side::Max)),
    arg("reduce_argmax", Ios17, ARG_17, |c, o| eval_arg(c, o, Side::Max)),
    arg("reduce_argmin", Ios15, ARG, |c, o| eval_arg(c, o, Side::Min)),
    arg("reduce_argmin", Ios17, ARG_17, |c, o| eval_arg(c, o, Side::Min)),
    plain("reduce_l1_norm", infer, |c, o| eval(c, o, Reduction::L1Norm)),
    plain("reduce_l2_norm", infer, |c, o| eval(c, o, Reduction::L2Norm)),
    plain("reduce_log_sum", infer, |c, o| eval(c, o, Reduction::LogSum)),
    plain("reduce_log_sum_exp", infer_nonempty, |c, o| eval(c, o, Reduction::LogSumExp)),
    plain("reduce_max", infer_nonempty, |c, o| eval(c, o, Reduction::Max)),
    plain("reduce_mean", infer, |c, o| eval(c, o, Reduction::Mean)),
    plain("reduce_min", infer_nonempty, |c, o| eval(c, o, Reduction::Min)),
    plain("reduce_prod", infer, |c, o| eval(c, o, Reduction::Prod)),
    plain("reduce_sum", infer, |c, o| eval(c, o, Reduction::Sum)),
    plain("reduce_sum_square", infer, |c, o| eval(c, o, Reduction::SumSquare)),
];

const X: Param = Param::value("x", FLOAT_INT);
const AXIS: Param = Param::constant("axis", INT).or_int(-1);
const KEEP_DIMS: Param = Param::constant("keep_dims", BOOL).or_bool(false);
const PARAMS: &[Param] = &[X, Param::constant("axes", INT).optional(), KEEP_DIMS];
const ARG: &[Param] = &[X, AXIS, KEEP_DIMS];
const ARG_17: &[Param] = &[X, AXIS, KEEP_DIMS, Param::constant("output_dtype", TEXT).or_text("int32")];

const fn plain(name: &'static str, infer: Infer, kernel: Kernel) -> OpDef {
    define(OpClass::Reduction(per_element::<1>), name, Ios15, infer, kernel).takes(PARAMS)
}

const fn arg(name: &'static str, since: Opset, params: &'static [Param], kernel: Kernel) -> OpDef {
    define(OpClass::Reduction(per_element::<1>), name, since, infer_arg, kernel).takes(params)
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let keep_dims = call.bool("keep_dims")?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let named = axes::named(call, rank)?;
    let shape = reduced_shape(&x.shape, keep_dims, |axis| named[axis]);
    Ok(dims::one(x.dtype, shape))
}

/// The type of a reduction that no elements have no result for.
fn infer_nonempty(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    if let Some(shape) = x.concrete() {
        let named = axes::named(call, shape.len())?;
        let axes = Axes::new(&shape, |axis| named[axis]);
        refuse_if!(axes.reduced() == 0 && axes.kept() > 0, "`x` is a {x}, which leaves nothing to reduce");
    }
    infer(call)
}

fn reduced_shape(shape: &[Dim], keep_dims: bool, is_reduced: impl Fn(usize) -> bool) -> Vec<Dim> {
    let dims = shape.iter().enumerate();
    dims.filter_map(|(axis, &dim)| match (is_reduced(axis), keep_dims) {
        (false, _) => Some(dim),
        (true, true) => Some(Dim::Fixed(1)),
        (true, false) => None,
    })
    .collect()
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, reduction: Reduction) -> Result {
    let x = call.tensor("x")?;
    let named = axes::named(call, x.rank())?;
    let axes = Axes::new(x.shape(), |axis| named[axis]);
    let (out, scratch) = outputs.with_scratch(0)?;
    let sums_len = 2 * axes.kept();
    match x.dtype() {
        DType::I32 => {
            let [sums] = scratch.floats([sums_len]);
            reduce_i32(reduction, &axes, x.slice()?, out.slice()?, bytemuck::cast_slice_mut(sums));
        }
        DType::F32 => {
            let [sums] = scratch.floats([sums_len]);
            let sums = bytemuck::cast_slice_mut(sums);
            reduce_f32(reduction, &axes, x.slice()?, out.slice()?, sums, false);
        }
        _ => {
            let [work, results, sums] = scratch.floats([x.len(), axes.kept(), sums_len]);
            convert(x.slice::<f16>()?, work);
            let sums = bytemuck::cast_slice_mut(sums);
            reduce_f32(reduction, &axes, work, results, sums, call.rounds(DType::F16));
            convert(results, out.slice::<f16>()?);
        }
    }
    Ok(())
}

fn infer_arg(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let keep_dims = call.bool("keep_dims")?;
    let dtype = index_type(call)?;
    let Some(rank) = x.rank() else { return Ok(dims::unranked(dtype)) };
    let axis = call.axis("axis", rank)?;
    match x.shape[axis].size() {
        Some(0) => refuse!("`x` is a {x}, which leaves nothing to reduce"),
        Some(size) if dtype == DType::U16 && size > 1 << 16 => {
            refuse!("`output_dtype` is uint16, too narrow for {size} elements");
        }
        _ => {}
    }
    let shape = reduced_shape(&x.shape, keep_dims, |reduced| reduced == axis);
    Ok(dims::one(dtype, shape))
}

fn index_type(call: &Call<'_>) -> Result<DType> {
    if call.opset() < Ios17 {
        return Ok(DType::I32);
    }
    match call.text("output_dtype")? {
        name if name.eq_ignore_ascii_case("int32") => Ok(DType::I32),
        name if name.eq_ignore_ascii_case("uint16") => Ok(DType::U16),
        other => refuse!("`output_dtype` is \"{other}\", not int32 or uint16"),
    }
}

#[derive(Clone, Copy)]
enum Side {
    Max,
    Min,
}

fn eval_arg(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, side: Side) -> Result {
    let (out, scratch) = outputs.with_scratch(0)?;
    match out.dtype() {
        DType::U16 => {
            let out = out.slice::<u16>()?;
            find(call, scratch, side, |result, index| out[result] = index as u16)
        }
        _ => {
            let out = out.slice::<i32>()?;
            find(call, scratch, side, |result, index| out[result] = index as i32)
        }
    }
}

fn find(call: &Call<'_>, scratch: &mut Scratch, side: Side, store: impl FnMut(usize, usize)) -> Result {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    match x.dtype() {
        DType::I32 => find_in::<i32>(x.slice()?, x.shape(), axis, side, store),
        DType::F32 => find_in::<f32>(x.slice()?, x.shape(), axis, side, store),
        _ => {
            let [work] = scratch.floats([x.len()]);
            convert(x.slice::<f16>()?, work);
            find_in::<f32>(work, x.shape(), axis, side, store);
        }
    }
    Ok(())
}

fn find_in<T: Copy + PartialOrd>(
    x: &[T],
    shape: &[usize],
    axis: usize,
    side: Side,
    store: impl FnMut(usize, usize),
) {
    let (length, inner) = (shape[axis], shape[axis + 1..].iter().product());
    match side {
        Side::Max => first_best(x, length, inner, |a, b| a > b, store),
        Side::Min => first_best(x, length, inner, |a, b| a < b, store),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x() -> Tensor {
        tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 6.0, 6.0])
    }

    fn axes(values: &[i32]) -> (&'static str, Tensor) {
        ("axes", tensor(&[values.len()], values))
    }

    #[test]
    fn values_agree_with_numpy() {
        for (name, expected) in [
            ("reduce_l1_norm", [6.0, 16.0]),
            ("reduce_l2_norm", [3.741_657_5, 9.380_832]),
            ("reduce_log_sum", [1.791_759_5, 2.772_588_7]),
            ("reduce_log_sum_exp", [3.407_606, 6.758_624]),
            ("reduce_max", [3.0, 6.0]),
            ("reduce_mean", [2.0, 5.333_333_5]),
            ("reduce_min", [1.0, 4.0]),
            ("reduce_prod", [6.0, 144.0]),
            ("reduce_sum", [6.0, 16.0]),
            ("reduce_sum_square", [14.0, 88.0]),
        ] {
            let out = run(name, Ios15, &[("x", x()), axes(&[-1])]).unwrap();
            assert_eq!(out[0].shape(), [2]);
            near(name, &out[0], &expected, 1e-6);
        }
    }

    #[test]
    fn axes_left_out_mean_all_and_empty_axes_none() {
        let all = run("reduce_sum", Ios15, &[("x", x())]).unwrap();
        assert!(all[0].shape().is_empty());
        assert_eq!(all[0].view().slice::<f32>().unwrap(), [22.0]);
        let keep = ("keep_dims", Tensor::from_bool(true));
        let kept = run("reduce_sum", Ios15, &[("x", x()), axes(&[0, 1]), keep]).unwrap();
        assert_eq!(kept[0].shape(), [1, 1]);
        let none = run("reduce_sum_square", Ios15, &[("x", x()), axes(&[])]).unwrap();
        assert_eq!(none[0].view().slice::<f32>().unwrap(), [1.0, 4.0, 9.0, 16.0, 36.0, 36.0]);
    }

    #[test]
    fn argmax_takes_the_first_of_equals_in_the_type_asked_for() {
        let args = [("x", x()), ("axis", Tensor::scalar(1i32)), text("output_dtype", "uint16")];
        assert_eq!(output::<u16>(run("reduce_argmax", Ios17, &args)), [2, 1]);
        let out = run("reduce_argmin", Ios15, &[("x", x()), ("axis", Tensor::scalar(-2i32))]).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [0, 0, 0]);
    }

    #[test]
    fn what_cannot_be_reduced_is_refused() {
        let empty = Tensor::from_slice::<f32>(&[2, 0], &[]).unwrap();
        for (name, args, expected) in [
            ("reduce_sum", [("x", x()), axes(&[2])], "`axes` has 2, outside a tensor of rank 2"),
            ("reduce_sum", [("x", x()), axes(&[1, -1])], "`axes` names dimension 1 twice"),
            (
                "reduce_max",
                [("x", empty), axes(&[1])],
                "`x` is a tensor<fp32, [2, 0]>, which leaves nothing to reduce",
            ),
        ] {
            refused(run(name, Ios15, &args), expected);
        }
    }
}
