//! `argsort` and `topk`: elements in order along a dimension. Equal elements stay in the order they have, and
//! what is not a number comes last, whichever way the order goes.

use super::dims::SIGNED_INDEX;
use super::prelude::*;

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Movement, "argsort", Ios15, infer_argsort, eval_argsort).takes(&[
        Param::value("x", FLOAT_INT),
        Param::constant("axis", INT).or_int(-1),
        Param::constant("ascending", BOOL).or_bool(false),
    ]),
    define(OpClass::Movement, "topk", Ios15, infer_topk, eval_topk).takes(&TOPK_15),
    define(OpClass::Movement, "topk", Ios16, infer_topk, eval_topk).takes(&topk_16(TOPK_15)),
    define(OpClass::Movement, "topk", Ios17, infer_topk, eval_topk).takes(&TOPK_17),
];

const TOPK_15: [Param; 4] = topk_params(FLOAT_INT, INT);
const TOPK_17: [Param; 7] = {
    let [x, k, axis, ascending, sort, indices] = topk_16(topk_params(NUMBER_17, SIGNED_INDEX));
    [x, k, axis, ascending, sort, indices, Param::constant("output_indices_dtype", TEXT).optional()]
};

const fn topk_params(x: &'static [DType], k: &'static [DType]) -> [Param; 4] {
    [
        Param::value("x", x),
        Param::constant("k", k).or_int(1),
        Param::constant("axis", INT).or_int(-1),
        Param::constant("ascending", BOOL).or_bool(false),
    ]
}

const fn topk_16([x, k, axis, ascending]: [Param; 4]) -> [Param; 6] {
    let sort = Param::constant("sort", BOOL).or_bool(true);
    let return_indices = Param::constant("return_indices", BOOL).or_bool(true);
    [x, k, axis, ascending, sort, return_indices]
}

fn infer_argsort(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    if let Some(rank) = x.rank() {
        check_countable(x, call.axis("axis", rank)?, DType::I32)?;
    }
    Ok(dims::one(DType::I32, x.shape.clone()))
}

/// Checks that every index along a dimension is a value of `dtype`.
fn check_countable(x: &TensorType, axis: usize, dtype: DType) -> Result {
    let most = if dtype == DType::U16 { 1 << 16 } else { 1 << 31 };
    match x.shape[axis].size() {
        Some(size) if size > most => {
            refuse!("dimension {axis} has {size} elements, too many for {dtype} indices")
        }
        _ => Ok(()),
    }
}

/// The type of the indices, if they are asked for.
fn indices_dtype(call: &Call<'_>) -> Result<Option<DType>> {
    if call.opset() < Ios16 {
        return Ok(Some(DType::I32));
    }
    let wanted = call.bool("return_indices")?;
    if call.opset() < Ios17 || !call.has("output_indices_dtype") {
        return Ok(wanted.then_some(DType::I32));
    }
    match (wanted, call.text("output_indices_dtype")?) {
        (false, _) => Err(OpError::new("`output_indices_dtype` is given, but no indices are asked for")),
        (true, "int32") => Ok(Some(DType::I32)),
        (true, "uint16") => Ok(Some(DType::U16)),
        (true, other) => refuse!("`output_indices_dtype` is \"{other}\", not int32 or uint16"),
    }
}

fn infer_topk(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, indices) = (call.ty("x")?, indices_dtype(call)?);
    let mut dims = x.shape.clone();
    if let Some(rank) = x.rank() {
        let axis = call.axis("axis", rank)?;
        check_countable(x, axis, indices.unwrap_or(DType::I32))?;
        dims[axis] = match (call.int("k")?, dims[axis].size()) {
            (-1, _) if call.opset() >= Ios17 => dims[axis],
            (k, Some(size)) if k > size as i64 => refuse!("`k` is {k}, dimension {axis} has {size} elements"),
            (k, _) => Dim::from(dims::size("k", k)?),
        };
    }
    let indices = indices.map(|dtype| TensorType::new(dtype, dims.clone()).into());
    Ok([TensorType::new(x.dtype, dims).into()].into_iter().chain(indices).collect())
}

/// Where the elements of one row along the sorted dimension lie.
#[derive(Clone, Copy)]
struct Lane {
    start: usize,
    step: usize,
    len: usize,
}

/// Calls `f` with each row of `x` along `axis` and with where the row starts in an output of `kept` elements.
fn lanes(x: &[usize], axis: usize, kept: usize, mut f: impl FnMut(Lane, Lane) -> Result) -> Result {
    done_if!(kept == 0 || x.contains(&0));
    let (len, step) = (x[axis], x[axis + 1..].iter().product());
    for outer in 0..x[..axis].iter().product() {
        for inner in 0..step {
            let lane = |len: usize| Lane { start: outer * len * step + inner, step, len };
            f(lane(len), lane(kept))?;
        }
    }
    Ok(())
}

fn eval_argsort(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    let ascending = call.bool("ascending")?;
    let (out, scratch) = outputs.with_scratch(0)?;
    let out = out.slice::<i32>()?;
    let len = x.shape()[axis];
    lanes(x.shape(), axis, len, |lane, _| {
        let order = ranked(&x, lane, ascending, len, scratch)?;
        write_indices(order, lane, |at, index| out[at] = index.cast_signed());
        Ok(())
    })
}

fn eval_topk(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let axis = call.axis("axis", x.rank())?;
    let ascending = call.bool("ascending")?;
    if indices_dtype(call)?.is_none() {
        let (values, scratch) = outputs.with_scratch(0)?;
        let kept = values.shape()[axis];
        let values = values.bytes();
        return lanes(x.shape(), axis, kept, |lane, out| {
            write_values(&x, lane, ranked(&x, lane, ascending, kept, scratch)?, out, values);
            Ok(())
        });
    }
    let (values, indices, scratch) = outputs.pair()?;
    let kept = values.shape()[axis];
    let (values, mut indices) = (values.bytes(), Indices::new(indices)?);
    lanes(x.shape(), axis, kept, |lane, out| {
        let order = ranked(&x, lane, ascending, kept, scratch)?;
        write_values(&x, lane, order, out, values);
        write_indices(order, out, |at, index| indices.set(at, index));
        Ok(())
    })
}

/// The first `kept` elements of a row in order: rank in the upper half, index in the lower.
fn ranked<'s>(
    x: &TensorView<'_>,
    lane: Lane,
    ascending: bool,
    kept: usize,
    scratch: &'s mut Scratch,
) -> Result<&'s [u64]> {
    let [work] = scratch.floats([2 * lane.len]);
    let keys: &mut [u64] = bytemuck::cast_slice_mut(work);
    let signed = |value: i32| rank_int(value, ascending);
    match x.dtype() {
        DType::F32 => fill_keys(keys, x.slice::<f32>()?, lane, |value| rank_float(value, ascending)),
        DType::F16 => fill_keys(keys, x.slice::<f16>()?, lane, |value| rank_float(value.to_f32(), ascending)),
        DType::I8 => fill_keys(keys, x.slice::<i8>()?, lane, |value| signed(value.into())),
        DType::U8 => fill_keys(keys, x.slice::<u8>()?, lane, |value| signed(value.into())),
        DType::I16 => fill_keys(keys, x.slice::<i16>()?, lane, |value| signed(value.into())),
        DType::U16 => fill_keys(keys, x.slice::<u16>()?, lane, |value| signed(value.into())),
        _ => fill_keys(keys, x.slice::<i32>()?, lane, signed),
    }
    if kept < keys.len() {
        keys.select_nth_unstable(kept);
    }
    let kept = &mut keys[..kept];
    kept.sort_unstable();
    Ok(kept)
}

fn fill_keys<T: Copy>(keys: &mut [u64], values: &[T], lane: Lane, rank: impl Fn(T) -> u32) {
    for (i, key) in keys.iter_mut().enumerate() {
        *key = u64::from(rank(values[lane.start + i * lane.step])) << 32 | i as u64;
    }
}

/// A number that is the smaller the earlier a value comes; equal for equal values.
pub(super) fn rank_float(value: f32, ascending: bool) -> u32 {
    let bits = (value + 0.0).to_bits();
    let rising = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    match (value.is_nan(), ascending) {
        (true, _) => u32::MAX,
        (false, true) => rising,
        (false, false) => !rising,
    }
}

fn rank_int(value: i32, ascending: bool) -> u32 {
    let rising = value.cast_unsigned() ^ 1 << 31;
    if ascending { rising } else { !rising }
}

fn write_values(x: &TensorView<'_>, lane: Lane, order: &[u64], out: Lane, values: &mut [u8]) {
    let width = x.dtype().bits() as usize / 8;
    write_indices(order, out, |at, index| {
        let from = (lane.start + index as usize * lane.step) * width;
        values[at * width..][..width].copy_from_slice(&x.bytes()[from..][..width]);
    });
}

/// Calls `write` with each place in the output row and the index of the element that goes there.
fn write_indices(order: &[u64], out: Lane, mut write: impl FnMut(usize, u32)) {
    for (i, &key) in order.iter().enumerate() {
        write(out.start + i * out.step, (key & 0xffff_ffff) as u32);
    }
}

enum Indices<'a> {
    Int32(&'a mut [i32]),
    Uint16(&'a mut [u16]),
}

impl<'a> Indices<'a> {
    fn new(out: TensorMut<'a>) -> Result<Indices<'a>> {
        match out.dtype() {
            DType::U16 => Ok(Indices::Uint16(out.slice()?)),
            _ => Ok(Indices::Int32(out.slice()?)),
        }
    }

    fn set(&mut self, at: usize, index: u32) {
        match self {
            Indices::Int32(out) => out[at] = index.cast_signed(),
            Indices::Uint16(out) => out[at] = (index & 0xffff) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argsort_is_stable_and_puts_nan_last() {
        let x = tensor(&[6], &[1.0f32, f32::NAN, -0.0, 0.0, 1.0, f32::NEG_INFINITY]);
        for (ascending, wanted) in [(true, [5, 2, 3, 0, 4, 1]), (false, [0, 4, 2, 3, 5, 1])] {
            let out = run("argsort", Ios15, &[("x", x.clone()), ("ascending", Tensor::from_bool(ascending))]);
            assert_eq!(output::<i32>(out), wanted);
        }
    }

    #[test]
    fn argsort_sorts_along_any_dimension() {
        let x = tensor(&[3, 2], &[1, 9, 3, 8, 2, 7]);
        let out = run("argsort", Ios15, &[("x", x), ("axis", Tensor::scalar(0))]).unwrap();
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [1, 0, 2, 1, 0, 2]);
    }

    #[test]
    fn topk_gives_values_and_indices() {
        let x = tensor(&[2, 3], &[200u8, 2, 3, 4, 5, 5]);
        let args = [("x", x), ("k", Tensor::scalar(2i8)), text("output_indices_dtype", "uint16")];
        let out = run_many("topk", Ios17, &args, 2).unwrap();
        assert_eq!(out[0].view().slice::<u8>().unwrap(), [200, 3, 5, 5]);
        assert_eq!(out[1].view().slice::<u16>().unwrap(), [0, 2, 1, 2]);
    }

    #[test]
    fn topk_may_give_values_alone_and_all_of_them() {
        let x = tensor(&[3], &[i32::MIN, 5, i32::MAX]);
        let args =
            [("x", x.clone()), ("k", Tensor::scalar(-1)), ("return_indices", Tensor::from_bool(false))];
        let out = run("topk", Ios17, &args).unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].view().slice::<i32>().unwrap(), [i32::MAX, 5, i32::MIN]);
        let error = run_many("topk", Ios15, &[("x", x), ("k", Tensor::scalar(4))], 2).unwrap_err();
        assert_eq!(error.to_string(), "`k` is 4, dimension 0 has 3 elements");
    }
}
