//! Elementwise arithmetic, comparison and logic of two broadcast operands.

use super::prelude::*;
use anemeter_kernels::convert::convert;
use anemeter_kernels::elementwise::{Binary, Operand, binary};
use anemeter_kernels::simd::Store;

pub(super) const OPS: &[OpDef] = &[
    arithmetic("add", |c, o| vectors(c, o, Binary::Add, i32::wrapping_add)),
    arithmetic("floor_div", |c, o| compute(c, o, floor_quotient, floor_div)),
    arithmetic("maximum", |c, o| vectors(c, o, Binary::Max, i32::max)),
    arithmetic("minimum", |c, o| vectors(c, o, Binary::Min, i32::min)),
    arithmetic("mod", |c, o| compute(c, o, modulo, floor_mod)),
    arithmetic("mul", |c, o| vectors(c, o, Binary::Mul, i32::wrapping_mul)),
    arithmetic("pow", |c, o| compute(c, o, f32::powf, power)),
    arithmetic("real_div", |c, o| vectors(c, o, Binary::Div, real_div)),
    arithmetic("sub", |c, o| vectors(c, o, Binary::Sub, i32::wrapping_sub)),
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

const NUMBERS: &[Param] = &[Param::value("x", FLOAT_INT).group('T'), Param::value("y", FLOAT_INT).group('T')];
const BOOLEANS: &[Param] = &[Param::value("x", BOOL).group('T'), Param::value("y", BOOL).group('T')];

const fn arithmetic(name: &'static str, kernel: Kernel) -> OpDef {
    define(OpClass::Elementwise, name, Ios15, same_type, kernel).takes(NUMBERS)
}

const fn comparison(name: &'static str, kernel: Kernel) -> OpDef {
    define(OpClass::Elementwise, name, Ios15, boolean, kernel).takes(NUMBERS)
}

const fn logic(name: &'static str, kernel: Kernel) -> OpDef {
    define(OpClass::Elementwise, name, Ios15, boolean, kernel).takes(BOOLEANS)
}

fn same_type(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, y) = (call.ty("x")?, call.ty("y")?);
    Ok(dims::one(x.dtype, broadcast::dims(x, y)?))
}

fn boolean(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, y) = (call.ty("x")?, call.ty("y")?);
    Ok(dims::one(DType::Bool, broadcast::dims(x, y)?))
}

/// Computes with a vectorised function, or with `int` where operands are integers.
fn vectors(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    float: Binary,
    int: impl Fn(i32, i32) -> i32,
) -> Result {
    match call.ty("x")?.dtype {
        DType::F32 => zip_vectors::<f32>(call, outputs, float),
        DType::F16 => zip_vectors::<f16>(call, outputs, float),
        _ => zip::<i32>(call, outputs, int),
    }
}

fn zip_vectors<T: Element + Store>(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, f: Binary) -> Result {
    let (x, y, out) = (call.tensor("x")?, call.tensor("y")?, outputs.tensor(0)?);
    let shapes = [x.shape(), y.shape()];
    let (shape, operands) = (out.shape(), [x.slice::<T>()?, y.slice::<T>()?]);
    let out = out.slice::<T>()?;
    broadcast::runs_of(shapes, shape, |run| {
        let [x, y] = [0, 1].map(|i| {
            let from = &operands[i][run.operands[i]..];
            if run.steps[i] == 0 { Operand::All(from[0]) } else { Operand::Each(&from[..run.len]) }
        });
        binary(f, x, y, &mut out[run.output..][..run.len]);
    });
    Ok(())
}

fn compute(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    float: impl Fn(f32, f32) -> f32,
    int: impl Fn(i32, i32) -> i32,
) -> Result {
    match call.ty("x")?.dtype {
        DType::F32 => zip::<f32>(call, outputs, float),
        DType::F16 => zip_halves(call, outputs, float),
        _ => zip::<i32>(call, outputs, int),
    }
}

fn compare(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    float: impl Fn(f32, f32) -> bool,
    int: impl Fn(i32, i32) -> bool,
) -> Result {
    match call.ty("x")?.dtype {
        DType::F32 => zip_bools::<f32>(call, outputs, float),
        DType::F16 => zip_bools::<f16>(call, outputs, |x, y| float(x.to_f32(), y.to_f32())),
        _ => zip_bools::<i32>(call, outputs, int),
    }
}

fn combine(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, f: impl Fn(bool, bool) -> bool) -> Result {
    let (x, y, out) = (call.tensor("x")?, call.tensor("y")?, outputs.tensor(0)?);
    let shapes = [x.shape(), y.shape(), out.shape()];
    apply(shapes, x.bools()?, y.bools()?, out.bools()?, |x, y| u8::from(f(x != 0, y != 0)));
    Ok(())
}

fn zip<T: Element>(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, f: impl Fn(T, T) -> T) -> Result {
    let (x, y, out) = (call.tensor("x")?, call.tensor("y")?, outputs.tensor(0)?);
    let shapes = [x.shape(), y.shape(), out.shape()];
    apply(shapes, x.slice()?, y.slice()?, out.slice()?, f);
    Ok(())
}

fn zip_bools<T: Element>(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, f: impl Fn(T, T) -> bool) -> Result {
    let (x, y, out) = (call.tensor("x")?, call.tensor("y")?, outputs.tensor(0)?);
    let shapes = [x.shape(), y.shape(), out.shape()];
    apply(shapes, x.slice()?, y.slice()?, out.bools()?, |x, y| u8::from(f(x, y)));
    Ok(())
}

/// Applies `f` to the broadcast of `x` and `y`; `shapes` are those of `x`, `y` and `out`.
fn apply<T: Copy, U: Copy>(shapes: [&[usize]; 3], x: &[T], y: &[T], out: &mut [U], f: impl Fn(T, T) -> U) {
    broadcast::runs(shapes[0], shapes[1], shapes[2], |at_x, at_y, at, run, step_x, step_y| {
        let out = &mut out[at..at + run];
        match (step_x, step_y) {
            (0, 0) => out.fill(f(x[at_x], y[at_y])),
            (0, _) => {
                let x = x[at_x];
                for (out, &y) in out.iter_mut().zip(&y[at_y..at_y + run]) {
                    *out = f(x, y);
                }
            }
            (_, 0) => {
                let y = y[at_y];
                for (out, &x) in out.iter_mut().zip(&x[at_x..at_x + run]) {
                    *out = f(x, y);
                }
            }
            _ => {
                for ((out, &x), &y) in out.iter_mut().zip(&x[at_x..at_x + run]).zip(&y[at_y..at_y + run]) {
                    *out = f(x, y);
                }
            }
        }
    });
}

/// Computes with fp16 operands in f32, in blocks.
fn zip_halves(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, f: impl Fn(f32, f32) -> f32) -> Result {
    let (x, y, out) = (call.tensor("x")?, call.tensor("y")?, outputs.tensor(0)?);
    let shape = out.shape();
    let (left, right, out) = (x.slice::<f16>()?, y.slice::<f16>()?, out.slice::<f16>()?);
    let (mut x_block, mut y_block) = ([0.0; BLOCK], [0.0; BLOCK]);
    broadcast::runs(x.shape(), y.shape(), shape, |at_x, at_y, at, run, step_x, step_y| {
        for (i, out) in out[at..at + run].chunks_mut(BLOCK).enumerate() {
            let xs = load(left, at_x + i * BLOCK * step_x, step_x, &mut x_block[..out.len()]);
            let ys = load(right, at_y + i * BLOCK * step_y, step_y, &mut y_block[..out.len()]);
            for (x, &y) in xs.iter_mut().zip(&*ys) {
                *x = f(*x, y);
            }
            convert(xs, out);
        }
    });
    Ok(())
}

/// fp16 elements are converted to f32 and back in blocks of this many.
const BLOCK: usize = 256;

fn load<'b>(from: &[f16], at: usize, step: usize, block: &'b mut [f32]) -> &'b mut [f32] {
    match step {
        0 => block.fill(from[at].to_f32()),
        _ => convert(&from[at..at + block.len()], block),
    }
    block
}

/// The exact quotient rounded down, so that it fits [`modulo`].
fn floor_quotient(x: f32, y: f32) -> f32 {
    let rest = x % y;
    if y == 0.0 || !rest.is_finite() {
        return (x / y).floor();
    }
    let quotient = (x - rest) / y;
    let below = rest != 0.0 && (rest < 0.0) != (y < 0.0);
    (if below { quotient - 1.0 } else { quotient }).round_ties_even()
}

/// The remainder with the sign of the divisor.
fn modulo(x: f32, y: f32) -> f32 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
}

fn floor_div(x: i32, y: i32) -> i32 {
    if y == 0 {
        return 0;
    }
    let (towards_zero, rest) = (x.wrapping_div(y), x.wrapping_rem(y));
    if rest != 0 && (rest < 0) != (y < 0) { towards_zero - 1 } else { towards_zero }
}

fn floor_mod(x: i32, y: i32) -> i32 {
    if y == 0 { 0 } else { x.wrapping_sub(y.wrapping_mul(floor_div(x, y))) }
}

/// The quotient towards zero; division by zero saturates.
fn real_div(x: i32, y: i32) -> i32 {
    (f64::from(x) / f64::from(y)) as i32
}

/// Wraps like multiplication; a negative exponent leaves only what is not below one.
fn power(x: i32, y: i32) -> i32 {
    match (x, u32::try_from(y)) {
        (_, Ok(exponent)) => x.wrapping_pow(exponent),
        (0, _) => i32::MAX,
        (1, _) => 1,
        (-1, _) => 1 - 2 * (y & 1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_like_numpy() {
        let (x, y) = (floats(&[2, 1], &[1.0, 2.0]), floats(&[3], &[10.0, 20.0, 30.0]));
        gives::<f32>(
            run("add", Ios15, &[("x", x), ("y", y)]),
            &[2, 3],
            &[11.0, 21.0, 31.0, 12.0, 22.0, 32.0],
        );
    }

    #[test]
    fn fp16_rounds_once_in_every_layout() {
        let halves = |values: &[f32]| values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>();
        let long: Vec<f32> = (0..600u16).map(f32::from).collect();
        let x = tensor(&[600], &halves(&long));
        let y = Tensor::scalar(f16::from_f32(0.1));
        for args in [[("x", x.clone()), ("y", y.clone())], [("x", y.clone()), ("y", x.clone())]] {
            let out = run("mul", Ios15, &args).unwrap();
            let expected: Vec<f32> = long.iter().map(|x| x * f16::from_f32(0.1).to_f32()).collect();
            assert_eq!(out[0].view().slice::<f16>().unwrap(), halves(&expected));
        }
    }

    #[test]
    fn integer_division_rounds_down_and_survives_zero() {
        assert_eq!(floor_div(-7, 2), -4);
        assert_eq!(floor_mod(-7, 2), 1);
        assert_eq!(floor_mod(7, -2), -1);
        assert_eq!(floor_div(1, 0), 0);
        assert_eq!(floor_div(i32::MIN, -1), i32::MIN);
        assert_eq!(floor_mod(i32::MIN, -1), 0);
        assert_eq!(real_div(-7, 2), -3);
        assert_eq!(real_div(-7, 0), i32::MIN);
    }

    #[test]
    fn integer_powers_wrap_and_vanish() {
        assert_eq!(power(-3, 3), -27);
        assert_eq!(power(2, 33), 0);
        assert_eq!([power(5, -1), power(-1, -3), power(-1, -2), power(0, 0)], [0, -1, 1, 1]);
    }

    #[test]
    fn float_division_rounds_the_exact_quotient_down() {
        assert_eq!(floor_quotient(1.0, 0.1), 9.0);
        assert_eq!(floor_quotient(-7.0, 2.0), -4.0);
        assert_eq!(floor_quotient(1.0, 0.0), f32::INFINITY);
        assert_eq!(modulo(-7.5, 2.0), 0.5);
        assert_eq!(modulo(7.5, -2.0), -0.5);
        assert_eq!(modulo(1e20, 3.0), 2.0);
    }

    #[test]
    fn nan_is_neither_larger_nor_smaller_but_wins() {
        let (x, y) = (floats(&[3], &[f32::NAN, 1.0, 2.0]), floats(&[3], &[1.0, f32::NAN, -3.0]));
        for (name, last) in [("maximum", 2.0), ("minimum", -3.0)] {
            let out = run(name, Ios15, &[("x", x.clone()), ("y", y.clone())]).unwrap();
            let out = out[0].view().slice::<f32>().unwrap();
            assert!(out[0].is_nan() && out[1].is_nan() && out[2] == last, "{name} gives {out:?}");
        }
    }

    #[test]
    fn shapes_that_do_not_broadcast_are_named() {
        let args = [("x", floats(&[2], &[0.0; 2])), ("y", floats(&[3], &[0.0; 3]))];
        refused(
            run("add", Ios15, &args),
            "shapes tensor<fp32, [2]> and tensor<fp32, [3]> do not broadcast: 2 against 3 in dimension 0 of 1",
        );
    }
}
