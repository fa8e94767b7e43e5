//! Functions of one operand, element by element: same shape and type in and out.

use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::kernels::convert::round_f16;
use crate::mil::Type;
use crate::mil::op::{Call, OpError, Outputs};
use crate::tensor::DType;

/// fp16 elements are converted to f32 and back in blocks of this many.
const BLOCK: usize = 256;

/// How an operation evaluates itself.
pub(super) type Kernel = fn(&Call<'_>, &mut Outputs<'_, '_>) -> Result<(), OpError>;

/// The output type of an operation that keeps the type of `x`.
pub(super) fn same_type(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    Ok(vec![call.ty("x")?.clone().into()])
}

/// The same for an operation with further constants, each a single number.
pub(super) fn same_type_given(call: &Call<'_>, constants: &[&str]) -> Result<Vec<Type>, OpError> {
    for name in constants {
        call.float(name)?;
    }
    same_type(call)
}

/// Applies `f` to every element of the float tensor `x`.
pub(super) fn floats(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    f: impl Fn(f32) -> f32,
) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let out = outputs.tensor(0)?;
    if x.dtype() == DType::F16 {
        halves(x.slice()?, out.slice()?, f);
    } else {
        each::<f32>(x.slice()?, out.slice()?, f);
    }
    Ok(())
}

/// Applies `float` or `int` to every element of `x`, whichever fits its type.
pub(super) fn numbers(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    float: impl Fn(f32) -> f32,
    int: impl Fn(i32) -> i32,
) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    if x.dtype() != DType::I32 {
        return floats(call, outputs, float);
    }
    each::<i32>(x.slice()?, outputs.tensor(0)?.slice()?, int);
    Ok(())
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
        x.convert_to_f32_slice(block);
        for value in &mut *block {
            *value = f(*value);
        }
        out.convert_from_f32_slice(block);
    }
}

/// Rounding of the intermediate steps of a function, where the arithmetic of the call asks for it.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    rounds: bool,
}

impl Steps {
    /// The rounding for operations on `x`.
    pub(super) fn of(call: &Call<'_>) -> Result<Steps, OpError> {
        Ok(Steps { rounds: call.rounds(call.ty("x")?.dtype) })
    }

    /// An intermediate result as the device holds it.
    pub(super) fn round(self, value: f32) -> f32 {
        if self.rounds { round_f16(value) } else { value }
    }
}
