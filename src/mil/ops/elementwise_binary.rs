//! Elementwise arithmetic, comparison and logic of two broadcast operands.

use half::f16;

use super::broadcast;
use crate::mil::op::domain::{BOOL, FLOAT_INT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Opset, TensorType, Type};
use crate::tensor::{DType, Element};

pub(super) const OPS: &[OpDef] = &[
    arithmetic("add", |c, o| compute(c, o, |x, y| x + y, i32::wrapping_add)),
    arithmetic("floor_div", |c, o| compute(c, o, |x, y| (x / y).floor(), floor_div)),
    arithmetic("maximum", |c, o| compute(c, o, maximum, i32::max)),
    arithmetic("minimum", |c, o| compute(c, o, minimum, i32::min)),
    arithmetic("mod", |c, o| compute(c, o, |x, y| x - y * (x / y).floor(), floor_mod)),
    arithmetic("mul", |c, o| compute(c, o, |x, y| x * y, i32::wrapping_mul)),
    arithmetic("pow", |c, o| compute(c, o, f32::powf, |x, y| (f64::from(x)).powi(y) as i32)),
    arithmetic("real_div", |c, o| compute(c, o, |x, y| x / y, |x, y| (f64::from(x) / f64::from(y)) as i32)),
    arithmetic("sub", |c, o| compute(c, o, |x, y| x - y, i32::wrapping_sub)),
    comparison("equal", |c, o| compare(c, o, |x, y| x == y, |x, y| x == y)),
    comparison("greater", |c, o| compare(c, o, |x, y| x > y, |x, y| x > y)),
    comparison("greater_equal", |c, o| compare(c, o, |x, y| x >= y, |x, y| x >= y)),
    comparison("less", |c, o| compare(c, o, |x, y| x < y, |x, y| x < y)),
    comparison("less_equal", |c, o| compare(c, o, |x, y| x <= y, |x, y| x <= y)),
    comparison("not_equal", |c, o| compare(c, o, |x, y| x != y, |x, y| x != y)),
    logic("logical_and", |c, o| combine(c, o, |x, y| x && y)),
    logic("logical_or", |c, o| combine(c, o, |x, y| x || y)),
    logic("logical_xor", |c, o| combine(c, o, |x, y| x != y)),
];

type Kernel = fn(&Call<'_>, &mut Outputs<'_, '_>) -> Result<(), OpError>;

const NUMBERS: &[Param] = &[Param::value("x", FLOAT_INT).group('T'), Param::value("y", FLOAT_INT).group('T')];
const BOOLEANS: &[Param] = &[Param::value("x", BOOL), Param::value("y", BOOL)];

const fn arithmetic(name: &'static str, kernel: Kernel) -> OpDef {
    OpDef { name, since: Opset::Ios15, params: NUMBERS, infer: same_type, eval: Eval::Kernel(kernel) }
}

const fn comparison(name: &'static str, kernel: Kernel) -> OpDef {
    OpDef { name, since: Opset::Ios15, params: NUMBERS, infer: boolean, eval: Eval::Kernel(kernel) }
}

const fn logic(name: &'static str, kernel: Kernel) -> OpDef {
    OpDef { name, since: Opset::Ios15, params: BOOLEANS, infer: boolean, eval: Eval::Kernel(kernel) }
}

fn same_type(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (x, y) = (call.ty("x")?, call.ty("y")?);
    Ok(vec![TensorType::new(x.dtype, broadcast::dims(x, y)?).into()])
}

fn boolean(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let (x, y) = (call.ty("x")?, call.ty("y")?);
    Ok(vec![TensorType::new(DType::Bool, broadcast::dims(x, y)?).into()])
}

fn compute(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    float: impl Fn(f32, f32) -> f32,
    int: impl Fn(i32, i32) -> i32,
) -> Result<(), OpError> {
    match call.ty("x")?.dtype {
        DType::F32 => zip::<f32, f32>(call, outputs, float),
        DType::F16 => zip::<f16, f16>(call, outputs, |x, y| f16::from_f32(float(x.to_f32(), y.to_f32()))),
        _ => zip::<i32, i32>(call, outputs, int),
    }
}

fn compare(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    float: impl Fn(f32, f32) -> bool,
    int: impl Fn(i32, i32) -> bool,
) -> Result<(), OpError> {
    match call.ty("x")?.dtype {
        DType::F32 => zip_bools::<f32>(call, outputs, float),
        DType::F16 => zip_bools::<f16>(call, outputs, |x, y| float(x.to_f32(), y.to_f32())),
        _ => zip_bools::<i32>(call, outputs, int),
    }
}

fn combine(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    f: impl Fn(bool, bool) -> bool,
) -> Result<(), OpError> {
    let (x, y) = (call.tensor("x")?, call.tensor("y")?);
    let out = outputs.tensor(0)?;
    let shape = out.shape();
    apply(x.shape(), y.shape(), shape, x.bools()?, y.bools()?, out.bools()?, |x, y| {
        u8::from(f(x != 0, y != 0))
    });
    Ok(())
}

fn zip<T: Element, U: Element>(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    f: impl Fn(T, T) -> U,
) -> Result<(), OpError> {
    let (x, y) = (call.tensor("x")?, call.tensor("y")?);
    let out = outputs.tensor(0)?;
    let shape = out.shape();
    apply(x.shape(), y.shape(), shape, x.slice()?, y.slice()?, out.slice()?, f);
    Ok(())
}

fn zip_bools<T: Element>(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    f: impl Fn(T, T) -> bool,
) -> Result<(), OpError> {
    let (x, y) = (call.tensor("x")?, call.tensor("y")?);
    let out = outputs.tensor(0)?;
    let shape = out.shape();
    apply(x.shape(), y.shape(), shape, x.slice()?, y.slice()?, out.bools()?, |x, y| u8::from(f(x, y)));
    Ok(())
}

fn apply<T: Copy, U: Copy>(
    x_shape: &[usize],
    y_shape: &[usize],
    shape: &[usize],
    x: &[T],
    y: &[T],
    out: &mut [U],
    f: impl Fn(T, T) -> U,
) {
    broadcast::runs(x_shape, y_shape, shape, |at_x, at_y, at, run, step_x, step_y| {
        for i in 0..run {
            out[at + i] = f(x[at_x + i * step_x], y[at_y + i * step_y]);
        }
    });
}

fn maximum(x: f32, y: f32) -> f32 {
    if x.is_nan() || x > y { x } else { y }
}

fn minimum(x: f32, y: f32) -> f32 {
    if x.is_nan() || x < y { x } else { y }
}

fn floor_div(x: i32, y: i32) -> i32 {
    if y == 0 {
        return 0;
    }
    let (x, y) = (i64::from(x), i64::from(y));
    let towards_zero = x / y;
    let below = x % y != 0 && (x < 0) != (y < 0);
    (towards_zero - i64::from(below)) as i32
}

fn floor_mod(x: i32, y: i32) -> i32 {
    if y == 0 { 0 } else { x.wrapping_sub(y.wrapping_mul(floor_div(x, y))) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn broadcasts_like_numpy() {
        let x = Tensor::from_slice(&[2, 1], &[1.0f32, 2.0]).unwrap();
        let y = Tensor::from_slice(&[3], &[10.0f32, 20.0, 30.0]).unwrap();
        let out = run("add", Opset::Ios15, &[("x", x), ("y", y)]).unwrap();
        assert_eq!(out[0].shape(), [2, 3]);
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [11.0, 21.0, 31.0, 12.0, 22.0, 32.0]);
    }

    #[test]
    fn integer_division_rounds_down_and_survives_zero() {
        assert_eq!(floor_div(-7, 2), -4);
        assert_eq!(floor_mod(-7, 2), 1);
        assert_eq!(floor_div(1, 0), 0);
        assert_eq!(floor_mod(i32::MIN, -1), 0);
    }
}
