//! `gather`, `gather_along_axis` and `gather_nd`: copying what indices point at.

use half::slice::HalfFloatSliceExt;

use super::indexing::{self, Indices};
use super::prelude::*;
use anemeter_kernels::gather::Addressing;

const AXIS: Param = Param::constant("axis", INT).or_int(0);
const BATCH_DIMS: Param = Param::constant("batch_dims", INT).or_int(0);
const VALIDATE: Param = Param::constant("validate_indices", BOOL).or_bool(false);
const X: Param = Param::value("x", FLOAT_INT);
const X_17: Param = Param::value("x", NUMBER_17);
const TABLE: Param = X.packed().weight(WeightAxes::Table);
const TABLE_17: Param = X_17.packed().weight(WeightAxes::Table);
const INDICES: Param = Param::value("indices", INT);
const INDICES_16: Param = Param::value("indices", INDEX_16);
const INDICES_17: Param = Param::value("indices", INDEX_17);

pub(super) const OPS: &[OpDef] = &[
    slices(Ios15).takes(&[TABLE, INDICES, AXIS]),
    slices(Ios16).takes(&[TABLE, INDICES_16, AXIS, BATCH_DIMS]),
    slices(Ios17).takes(&[TABLE_17, INDICES_17, AXIS, BATCH_DIMS, VALIDATE]),
    elements(Ios15).takes(&[X, INDICES, AXIS]),
    elements(Ios16).takes(&[X, INDICES_16, AXIS]),
    elements(Ios17).takes(&[X_17, INDICES_17, AXIS, VALIDATE]),
    points(Ios15).takes(&[X.packed(), INDICES]),
    points(Ios16).takes(&[X.packed(), INDICES_16, BATCH_DIMS]),
    points(Ios17).takes(&[X_17.packed(), INDICES_17, BATCH_DIMS, VALIDATE]),
];

const fn slices(since: Opset) -> OpDef {
    define(OpClass::Lookup, "gather", since, infer_slices, eval_slices)
}

const fn elements(since: Opset) -> OpDef {
    define(OpClass::Lookup, "gather_along_axis", since, infer_elements, eval_elements)
}

const fn points(since: Opset) -> OpDef {
    define(OpClass::Lookup, "gather_nd", since, infer_points, eval_points)
}

/// The number of leading dimensions that data and indices share, at most `limit`.
fn batch_dims(call: &Call<'_>, limit: usize) -> Result<usize> {
    if call.opset() < Ios16 {
        return Ok(0);
    }
    let given = call.int("batch_dims")?;
    usize::try_from(given)
        .ok()
        .filter(|&n| n <= limit)
        .ok_or_else(|| op_error!("`batch_dims` is {given}, should be from 0 to {limit}"))
}

fn output(x: &TensorType, parts: &[&[Dim]]) -> Vec<Type> {
    dims::one(x.dtype, parts.concat())
}

fn infer_slices(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, indices) = (call.ty("x")?, call.ty("indices")?);
    let (Some(rank), Some(index_rank)) = (x.rank(), indices.rank()) else {
        return Ok(output(x, &[&[Dim::Variadic]]));
    };
    let axis = call.axis("axis", rank)?;
    let batch = batch_dims(call, axis.min(index_rank))?;
    indexing::agree("indices", &indices.shape[..batch], &x.shape[..batch])?;
    Ok(output(x, &[&x.shape[..axis], &indices.shape[batch..], &x.shape[axis + 1..]]))
}

fn infer_elements(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, indices) = (call.ty("x")?, call.ty("indices")?);
    if let (Some(rank), Some(_)) = (x.rank(), indices.rank()) {
        let axis = call.axis("axis", rank)?;
        let mut wanted = x.shape.clone();
        wanted[axis] = indices.shape.get(axis).copied().unwrap_or(Dim::Unknown);
        indexing::agree("indices", &indices.shape, &wanted)?;
    }
    Ok(output(x, &[&indices.shape]))
}

fn infer_points(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, indices) = (call.ty("x")?, call.ty("indices")?);
    let (Some(rank), Some(index_rank)) = (x.rank(), indices.rank()) else {
        return Ok(output(x, &[&[Dim::Variadic]]));
    };
    let batch = batch_dims(call, rank.min(index_rank.saturating_sub(1)))?;
    let Some(depth) = indexing::depth(&indices.shape, rank - batch)? else {
        return Ok(output(x, &[&[Dim::Variadic]]));
    };
    indexing::agree("indices", &indices.shape[..batch], &x.shape[..batch])?;
    Ok(output(x, &[&indices.shape[..index_rank - 1], &x.shape[batch + depth..]]))
}

fn eval_slices(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    gather(call, outputs, |x, indices| {
        let axis = call.axis("axis", x.len())?;
        Ok(indexing::slices(x, axis, batch_dims(call, axis)?, indices))
    })
}

fn eval_elements(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    gather(call, outputs, |x, indices| Ok(indexing::elements(x, call.axis("axis", x.len())?, indices)))
}

fn eval_points(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    gather(call, outputs, |x, indices| Ok(indexing::points(x, batch_dims(call, x.len())?, indices)))
}

fn gather(
    call: &Call<'_>,
    outputs: &mut Outputs<'_, '_>,
    addressing: impl FnOnce(&[usize], &[usize]) -> Result<Addressing>,
) -> Result {
    let (x, indices) = (call.weight("x")?, Indices::of(call)?);
    done_if!(shape::element_count(outputs.tensor(0)?.shape()) == Some(0));
    let addressing = addressing(x.shape(), indices.shape())?;
    match x {
        Weight::Dense(x) => copy(x, &indices, &addressing, outputs),
        Weight::Packed(x) => decode(x, &indices, &addressing, outputs),
    }
}

fn copy(
    x: TensorView<'_>,
    indices: &Indices<'_>,
    addressing: &Addressing,
    outputs: &mut Outputs<'_, '_>,
) -> Result {
    let (from, to) = (x.bytes(), outputs.tensor(0)?.bytes());
    let size = (x.dtype().bits() / 8) as usize;
    let run = addressing.run() * size;
    addressing.visit(
        |i, dim| indices.resolve(i, dim),
        |data, row| to[row * size..][..run].copy_from_slice(&from[data * size..][..run]),
    )
}

fn decode(
    x: &dyn Decode,
    indices: &Indices<'_>,
    addressing: &Addressing,
    outputs: &mut Outputs<'_, '_>,
) -> Result {
    let (out, scratch) = outputs.with_scratch(0)?;
    let run = addressing.run();
    let resolve = |i: usize, dim: usize| indices.resolve(i, dim);
    match out.dtype() {
        DType::F32 => {
            let out = out.slice::<f32>()?;
            addressing.visit(resolve, |data, row| x.decode(data..data + run, &mut out[row..row + run]))
        }
        DType::F16 => {
            let out = out.slice::<f16>()?;
            let [values] = scratch.floats([run]);
            addressing.visit(resolve, |data, row| {
                x.decode(data..data + run, values);
                out[row..row + run].convert_from_f32_slice(values);
            })
        }
        other => refuse!("`x` is a compressed {other} tensor, should be fp16 or fp32"),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use super::super::testing::output;
    use super::*;
    use crate::op::{KnownArguments, apply};

    fn count(shape: &[usize]) -> Tensor {
        let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
        floats(shape, &values)
    }

    #[test]
    fn slices_come_from_any_axis() {
        for (axis, indices, shape, values) in [
            (0, tensor(&[2], &[1, 0]), &[2, 3][..], &[3.0, 4.0, 5.0, 0.0, 1.0, 2.0][..]),
            (-1, tensor(&[2], &[-1, 0]), &[2, 2], &[2.0, 0.0, 5.0, 3.0]),
            (1, tensor(&[], &[1]), &[2], &[1.0, 4.0]),
            (0, tensor(&[1, 2], &[7, -9]), &[1, 2, 3], &[3.0, 4.0, 5.0, 0.0, 1.0, 2.0]),
            (0, ints(&[]), &[0, 3], &[]),
        ] {
            let args = [("x", count(&[2, 3])), ("indices", indices), ("axis", Tensor::scalar(axis))];
            gives::<f32>(run("gather", Ios15, &args), shape, values);
        }
    }

    #[test]
    fn batches_have_indices_of_their_own() {
        let x = tensor(&[2, 1, 3], &[0u8, 1, 2, 3, 4, 5]);
        let indices = tensor(&[2, 2], &[0i8, 2, 1, 1]);
        let args =
            [("x", x), ("indices", indices), ("axis", Tensor::scalar(2)), ("batch_dims", Tensor::scalar(1))];
        gives::<u8>(run("gather", Ios17, &args), &[2, 1, 2], &[0, 2, 4, 4]);
    }

    #[test]
    fn elements_and_points() {
        let indices = tensor(&[2, 1], &[2, 0]);
        let args = [("x", count(&[2, 3])), ("indices", indices), ("axis", Tensor::scalar(-1))];
        assert_eq!(output::<f32>(run("gather_along_axis", Ios15, &args)), [2.0, 3.0]);

        let args = [("x", count(&[2, 2, 2])), ("indices", tensor(&[2, 2], &[0, 1, -1, 0]))];
        gives::<f32>(run("gather_nd", Ios16, &args), &[2, 2], &[2.0, 3.0, 4.0, 5.0]);

        let indices = tensor(&[2, 1, 1], &[1, 0]);
        let args = [("x", count(&[2, 2, 2])), ("indices", indices), ("batch_dims", Tensor::scalar(1))];
        gives::<f32>(run("gather_nd", Ios16, &args), &[2, 1, 2], &[2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn validated_indices_must_lie_inside() {
        let args = |index: i32| {
            let validate = Tensor::from_bool(true);
            [("x", count(&[2, 3])), ("indices", tensor(&[1], &[index])), ("validate_indices", validate)]
        };
        assert!(run("gather", Ios17, &args(1)).is_ok());
        for index in [-1, 2] {
            let reason = format!("`indices` holds {index}, outside a dimension of 2");
            refused(run("gather", Ios17, &args(index)), &reason);
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_named() {
        let args =
            [("x", count(&[2, 3])), ("indices", tensor(&[3, 1], &[0; 3])), ("axis", Tensor::scalar(1))];
        refused(run("gather_along_axis", Ios15, &args), "`indices` is [3, 1], should be [2, 1]");
        let args = [("x", count(&[2, 3])), ("indices", tensor(&[1, 3], &[0; 3]))];
        assert!(run("gather_nd", Ios15, &args).is_err());
        let args =
            [("x", count(&[2, 3])), ("indices", tensor(&[2], &[0; 2])), ("batch_dims", Tensor::scalar(1))];
        refused(run("gather", Ios16, &args), "`batch_dims` is 1, should be from 0 to 0");
    }

    struct Doubled;

    impl Decode for Doubled {
        fn dtype(&self) -> DType {
            DType::F16
        }

        fn shape(&self) -> &[usize] {
            &[3, 2]
        }

        fn decode(&self, range: Range<usize>, out: &mut [f32]) {
            assert_eq!(range.len(), 2, "only the rows that are read");
            for (out, i) in out.iter_mut().zip(range) {
                *out = i as f32 * 2.0;
            }
        }

        fn stored_bytes(&self) -> usize {
            6
        }
    }

    #[test]
    fn a_compressed_table_is_decoded_by_row() {
        let def = super::super::find("gather", Ios17).unwrap();
        let mut arguments = KnownArguments::new(def);
        let table: Arc<dyn Decode> = Arc::new(Doubled);
        arguments.bind(0, table);
        arguments.bind(1, tensor(&[2], &[2, 0]));
        let out = apply(def, Ios17, Numerics::Fast, &arguments, 1).unwrap();
        let expected = [8.0, 10.0, 0.0, 2.0].map(f16::from_f32);
        assert_eq!(out[0].view().slice::<f16>().unwrap(), expected);
    }
}
