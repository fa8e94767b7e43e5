//! Functions of one operand, element by element: same shape and type in and out.

use super::prelude::*;
use anemeter_kernels::convert::{convert, round_f16};
use anemeter_kernels::elementwise::{self, Unary};
use anemeter_kernels::simd::Store;

/// Functions of f32 are applied to blocks of this many elements.
const BLOCK: usize = 256;

/// The output type of an operation that keeps the type of `x`.
pub(super) fn same_type(call: &Call<'_>) -> Result<Vec<Type>> {
    Ok(vec![call.ty("x")?.clone().into()])
}

/// The same for an operation with further constants, each a single number.
pub(super) fn same_type_given(call: &Call<'_>, constants: &[&str]) -> Result<Vec<Type>> {
    for name in constants {
        call.float(name)?;
    }
    same_type(call)
}

/// The same for an operation along the dimension `axis`.
pub(super) fn same_type_along_axis(call: &Call<'_>) -> Result<Vec<Type>> {
    if let Some(rank) = call.ty("x")?.rank() {
        call.axis("axis", rank)?;
    }
    same_type(call)
}

/// Applies `f` to every element of the float tensor `x`.
pub(super) fn floats(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, f: impl Fn(f32) -> f32) -> Result {
    match call.ty("x")?.dtype {
        DType::F16 => whole::<f16>(call, outputs, |x, out| halves(x, out, f)),
        _ => whole::<f32>(call, outputs, |x, out| each(x, out, f)),
    }
}

/// Applies a vectorised function to every element of the float tensor `x`.
pub(super) fn vectors(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, f: Unary) -> Result {
    match call.ty("x")?.dtype {
        DType::F16 => whole::<f16>(call, outputs, |x, out| elementwise::unary(f, x, out)),
        _ => whole::<f32>(call, outputs, |x, out| elementwise::unary(f, x, out)),
    }
}

/// Bounds every element of the float tensor `x`: first from below, then from above.
pub(super) fn clamped(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, low: f32, high: f32) -> Result {
    match call.ty("x")?.dtype {
        DType::F16 => whole::<f16>(call, outputs, |x, out| elementwise::clamp(low, high, x, out)),
        _ => whole::<f32>(call, outputs, |x, out| elementwise::clamp(low, high, x, out)),
    }
}

/// Gives `outer(x, f(inner(x)))` for every element of the float tensor `x`.
pub(super) fn composed(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    inner: impl Fn(f32) -> f32,
    f: Unary,
    outer: impl Fn(f32, f32) -> f32,
) -> Result {
    match call.ty("x")?.dtype {
        DType::F16 => whole::<f16>(call, outputs, |x, out| compose(x, out, inner, f, outer)),
        _ => whole::<f32>(call, outputs, |x, out| compose(x, out, inner, f, outer)),
    }
}

/// Calls `f` with all elements of `x` and of the output.
fn whole<T: Element>(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    f: impl FnOnce(&[T], &mut [T]),
) -> Result {
    f(call.tensor("x")?.slice()?, outputs.tensor(0)?.slice()?);
    Ok(())
}

/// Applies `float` or `int` to every element of `x`, whichever fits its type.
pub(super) fn numbers(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    float: impl Fn(f32) -> f32,
    int: impl Fn(i32) -> i32,
) -> Result {
    match call.ty("x")?.dtype {
        DType::I32 => whole::<i32>(call, outputs, |x, out| each(x, out, int)),
        _ => floats(call, outputs, float),
    }
}

fn each<T: Copy>(x: &[T], out: &mut [T], f: impl Fn(T) -> T) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f(x);
    }
}

fn halves(x: &[f16], out: &mut [f16], f: impl Fn(f32) -> f32) {
    let mut block = [0.0; BLOCK];
    for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let block = &mut block[..x.len()];
        convert(x, block);
        for value in &mut *block {
            *value = f(*value);
        }
        convert(block, out);
    }
}

fn compose<T: Store>(
    x: &[T],
    out: &mut [T],
    inner: impl Fn(f32) -> f32,
    f: Unary,
    outer: impl Fn(f32, f32) -> f32,
) {
    let (mut arguments, mut values) = ([0.0; BLOCK], [0.0; BLOCK]);
    for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let (arguments, values) = (&mut arguments[..x.len()], &mut values[..x.len()]);
        for (argument, x) in arguments.iter_mut().zip(x) {
            *argument = inner(x.widen());
        }
        elementwise::unary(f, arguments, values);
        for (value, x) in values.iter_mut().zip(x) {
            *value = outer(x.widen(), *value);
        }
        convert(values, out);
    }
}

/// Rounding of the intermediate steps of a function, where the arithmetic of the call asks for it.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    rounds: bool,
}

impl Steps {
    /// The rounding for operations on `x`.
    pub(super) fn of(call: &Call<'_>) -> Result<Steps> {
        Ok(Steps { rounds: call.rounds(call.ty("x")?.dtype) })
    }

    pub(super) fn any(self) -> bool {
        self.rounds
    }

    /// An intermediate result as the device holds it.
    pub(super) fn round(self, value: f32) -> f32 {
        if self.rounds { round_f16(value) } else { value }
    }
}
