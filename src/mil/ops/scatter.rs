//! `scatter`, `scatter_along_axis` and `scatter_nd`: combining updates into what indices point at, in the
//! order of the updates, so that the last of several `update`s of one place stands.

use half::slice::HalfFloatSliceExt;

use super::choice::choice;
use super::indexing::{self, Indices};
use super::prelude::*;
use anemeter_kernels::convert::round_f16;
use anemeter_kernels::gather::Addressing;

const DATA: Param = Param::value("data", FLOAT_INT).group('T');
const INDICES: Param = Param::value("indices", INT);
const UPDATES: Param = Param::value("updates", FLOAT_INT).group('T');
const AXIS: Param = Param::constant("axis", INT).or_int(0);
const MODE: Param = Param::constant("mode", TEXT).or_text("add");
const VALIDATE: Param = Param::constant("validate_indices", BOOL).or_bool(false);

const ALONG: &[Param] = &[DATA, INDICES, UPDATES, AXIS, MODE];
const ALONG_17: &[Param] = &[DATA, INDICES, UPDATES, AXIS, MODE, VALIDATE];
const POINTS: &[Param] = &[DATA, INDICES, UPDATES, MODE];
const POINTS_17: &[Param] = &[DATA, INDICES, UPDATES, MODE, VALIDATE];

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "scatter", Ios15, infer_slices, eval_slices).takes(ALONG),
    define(OpClass::Movement, "scatter", Ios17, infer_slices, eval_slices).takes(ALONG_17),
    define(OpClass::Movement, "scatter_along_axis", Ios15, infer_elements, eval_elements).takes(ALONG),
    define(OpClass::Movement, "scatter_along_axis", Ios17, infer_elements, eval_elements).takes(ALONG_17),
    define(OpClass::Movement, "scatter_nd", Ios15, infer_points, eval_points).takes(POINTS),
    define(OpClass::Movement, "scatter_nd", Ios17, infer_points, eval_points).takes(POINTS_17),
];

/// How an update changes what is there, unless it replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
}

const MODES: &[(&str, Option<Arithmetic>)] = &[
    ("update", None),
    ("add", Some(Arithmetic::Add)),
    ("sub", Some(Arithmetic::Sub)),
    ("mul", Some(Arithmetic::Mul)),
    ("div", Some(Arithmetic::Div)),
    ("max", Some(Arithmetic::Max)),
    ("min", Some(Arithmetic::Min)),
];

impl Arithmetic {
    fn floats(self, old: f32, update: f32) -> f32 {
        match self {
            Arithmetic::Add => old + update,
            Arithmetic::Sub => old - update,
            Arithmetic::Mul => old * update,
            Arithmetic::Div => old / update,
            Arithmetic::Max => old.max(update),
            Arithmetic::Min => old.min(update),
        }
    }

    /// Division rounds towards zero; division by zero gives zero.
    fn ints(self, old: i32, update: i32) -> i32 {
        match self {
            Arithmetic::Add => old.wrapping_add(update),
            Arithmetic::Sub => old.wrapping_sub(update),
            Arithmetic::Mul => old.wrapping_mul(update),
            Arithmetic::Div if update == 0 => 0,
            Arithmetic::Div => old.wrapping_div(update),
            Arithmetic::Max => old.max(update),
            Arithmetic::Min => old.min(update),
        }
    }
}

fn infer_slices(call: &Call<'_>) -> Result<Vec<Type>> {
    let (data, indices) = (call.ty("data")?, call.ty("indices")?);
    if let Some(rank) = data.rank() {
        let axis = call.axis("axis", rank)?;
        let wanted = [&data.shape[..axis], &indices.shape, &data.shape[axis + 1..]].concat();
        indexing::agree("updates", &call.ty("updates")?.shape, &wanted)?;
    }
    same_as_data(call)
}

fn infer_elements(call: &Call<'_>) -> Result<Vec<Type>> {
    let (data, indices) = (call.ty("data")?, call.ty("indices")?);
    indexing::agree("updates", &call.ty("updates")?.shape, &indices.shape)?;
    if let (Some(rank), Some(_)) = (data.rank(), indices.rank()) {
        let axis = call.axis("axis", rank)?;
        let mut wanted = data.shape.clone();
        wanted[axis] = indices.shape.get(axis).copied().unwrap_or(Dim::Unknown);
        indexing::agree("indices", &indices.shape, &wanted)?;
    }
    same_as_data(call)
}

fn infer_points(call: &Call<'_>) -> Result<Vec<Type>> {
    let (data, indices) = (call.ty("data")?, call.ty("indices")?);
    if let (Some(rank), Some(index_rank)) = (data.rank(), indices.rank())
        && let Some(depth) = indexing::depth(&indices.shape, rank)?
    {
        let wanted = [&indices.shape[..index_rank - 1], &data.shape[depth..]].concat();
        indexing::agree("updates", &call.ty("updates")?.shape, &wanted)?;
    }
    same_as_data(call)
}

fn same_as_data(call: &Call<'_>) -> Result<Vec<Type>> {
    choice(call, "mode", MODES)?;
    Ok(vec![call.ty("data")?.clone().into()])
}

fn eval_slices(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    scatter(call, outputs, |data, indices| {
        Ok(indexing::slices(data, call.axis("axis", data.len())?, 0, indices))
    })
}

fn eval_elements(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    scatter(call, outputs, |data, indices| {
        Ok(indexing::elements(data, call.axis("axis", data.len())?, indices))
    })
}

fn eval_points(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    scatter(call, outputs, |data, indices| Ok(indexing::points(data, 0, indices)))
}

fn scatter(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    addressing: impl FnOnce(&[usize], &[usize]) -> Result<Addressing>,
) -> Result {
    let (data, updates, indices) = (call.tensor("data")?, call.tensor("updates")?, Indices::of(call)?);
    let (out, scratch) = outputs.with_scratch(0)?;
    if shape::element_count(updates.shape()) == Some(0) {
        out.bytes().copy_from_slice(data.bytes());
        return Ok(());
    }
    let addressing = addressing(data.shape(), indices.shape())?;
    let Some(mode) = choice(call, "mode", MODES)? else {
        return replace(&addressing, &indices, data, updates, out.bytes());
    };
    match out.dtype() {
        DType::F32 => {
            let out = out.slice::<f32>()?;
            out.copy_from_slice(data.slice()?);
            combine(&addressing, &indices, updates.slice::<f32>()?, out, |old, new| mode.floats(old, new))
        }
        DType::F16 => {
            let [work] = scratch.floats([data.len()]);
            data.slice::<f16>()?.convert_to_f32_slice(work);
            let updates = updates.slice::<f16>()?;
            if call.rounds(DType::F16) {
                let step = |old, new: f16| round_f16(mode.floats(old, new.to_f32()));
                combine(&addressing, &indices, updates, work, step)?;
            } else {
                combine(&addressing, &indices, updates, work, |old, new| mode.floats(old, new.to_f32()))?;
            }
            out.slice::<f16>()?.convert_from_f32_slice(work);
            Ok(())
        }
        _ => {
            let out = out.slice::<i32>()?;
            out.copy_from_slice(data.slice()?);
            combine(&addressing, &indices, updates.slice::<i32>()?, out, |old, new| mode.ints(old, new))
        }
    }
}

fn replace(
    addressing: &Addressing,
    indices: &Indices<'_>,
    data: TensorView<'_>,
    updates: TensorView<'_>,
    out: &mut [u8],
) -> Result {
    out.copy_from_slice(data.bytes());
    let size = (data.dtype().bits() / 8) as usize;
    let run = addressing.run() * size;
    addressing.visit(
        |i, dim| indices.resolve(i, dim),
        |at, row| out[at * size..][..run].copy_from_slice(&updates.bytes()[row * size..][..run]),
    )
}

fn combine<T: Copy, U: Copy>(
    addressing: &Addressing,
    indices: &Indices<'_>,
    updates: &[U],
    data: &mut [T],
    step: impl Fn(T, U) -> T,
) -> Result {
    let run = addressing.run();
    addressing.visit(
        |i, size| indices.resolve(i, size),
        |at, row| {
            for (old, &new) in data[at..at + run].iter_mut().zip(&updates[row..row + run]) {
                *old = step(*old, new);
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> (&'static str, Tensor) {
        ("mode", Tensor::from_text(text))
    }

    #[test]
    fn repeated_indices_combine_in_order() {
        for (mode, expected) in [
            ("update", [6.0, 5.0]),
            ("add", [12.0, 8.0]),
            ("sub", [-8.0, -2.0]),
            ("mul", [48.0, 15.0]),
            ("div", [2.0 / 4.0 / 6.0, 3.0 / 5.0]),
            ("max", [6.0, 5.0]),
            ("min", [2.0, 3.0]),
        ] {
            let data = floats(&[2], &[2.0, 3.0]);
            let updates = floats(&[3], &[4.0, 5.0, 6.0]);
            let args =
                [("data", data), ("indices", tensor(&[3], &[0, 1, 0])), ("updates", updates), text(mode)];
            assert_eq!(output::<f32>(run("scatter", Ios15, &args)), expected, "{mode}");
        }
    }

    #[test]
    fn half_precision_sums_are_rounded_once() {
        let args = [
            ("data", halves(&[1], &[2048.0])),
            ("indices", tensor(&[2], &[0, 0])),
            ("updates", halves(&[2], &[1.0, 1.0])),
            text("add"),
        ];
        assert_eq!(output::<f16>(run("scatter", Ios16, &args)), [f16::from_f32(2050.0)]);
    }

    #[test]
    fn slices_elements_and_points() {
        let data = || tensor(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        let updates = tensor(&[2, 1, 2], &[10, 20, 30, 40]);
        let args = [
            ("data", data()),
            ("indices", tensor(&[1, 2], &[-1, 0])),
            ("updates", updates),
            ("axis", Tensor::scalar(1)),
        ];
        assert_eq!(output::<i32>(run("scatter", Ios15, &args)), [21, 2, 13, 44, 5, 36]);

        let updates = tensor(&[1, 3], &[7, 8, 9]);
        let args = [
            ("data", data()),
            ("indices", tensor(&[1, 3], &[1, 0, 1])),
            ("updates", updates),
            text("update"),
        ];
        assert_eq!(output::<i32>(run("scatter_along_axis", Ios15, &args)), [1, 8, 3, 7, 5, 9]);

        let args = [
            ("data", data()),
            ("indices", tensor(&[2, 2], &[0, 1, 1, 2])),
            ("updates", tensor(&[2], &[7, 0])),
            text("div"),
        ];
        assert_eq!(output::<i32>(run("scatter_nd", Ios15, &args)), [1, 0, 3, 4, 5, 0]);
    }

    #[test]
    fn bad_calls_are_named() {
        let zeros = |shape: &[usize]| floats(shape, &vec![0.0; shape.iter().product()]);
        for (op, indices, updates, message) in [
            ("scatter", tensor(&[1], &[2]), &[1, 3][..], "`indices` holds 2, outside a dimension of 2"),
            ("scatter", tensor(&[2], &[0, 1]), &[1, 3], "`updates` is [1, 3], should be [2, 3]"),
            ("scatter_nd", tensor(&[1, 2], &[1, -1]), &[1], "`indices` holds -1, outside a dimension of 3"),
            (
                "scatter_along_axis",
                tensor(&[1, 2], &[0, 0]),
                &[1, 2],
                "`indices` is [1, 2], should be [1, 3]",
            ),
        ] {
            let data = [("data", zeros(&[2, 3])), ("indices", indices), ("updates", zeros(updates))];
            let args = [&data[..], &[("validate_indices", Tensor::from_bool(true))]].concat();
            refused(run(op, Ios17, &args), message);
        }
    }
}
