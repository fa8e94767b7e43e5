//! Compressed weights: block integers and palettes.

use super::Emitter;
use crate::convert::body::{Body, tensor};
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Dim, Scalar, Type, ValueId};
use anemeter_kernels::convert;
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::Literal;

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("constexpr_affine_dequantize", affine),
    ("constexpr_blockwise_shift_scale", blockwise),
    ("constexpr_lut_to_dense", palette),
    ("constexpr_lut_to_sparse", sparse_palette),
    ("constexpr_sparse_blockwise_shift_scale", sparse_blockwise),
    ("constexpr_sparse_to_dense", sparse),
    ("dequantize", dequantize),
];

/// `scale * (data - offset)`, with a scale and an offset for each block.
fn blockwise(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (data, scale, offset) = (e.arg("data")?, e.arg("scale")?, e.opt_arg("offset")?);
    if let Some(offset) = e.call.opt_ty("offset")?
        && offset.dtype != e.call.ty("data")?.dtype
    {
        refuse!("`offset` is {}; aicode takes offsets of the type of the data only", offset.dtype);
    }
    Ok(vec![shift_scale(e, data, scale, offset)])
}

fn shift_scale(e: &mut Emit<'_, '_, '_>, data: ValueId, scale: ValueId, offset: Option<ValueId>) -> ValueId {
    let body = e.body();
    let (blocks, element, codes) = (body.dims(scale), body.element(scale), body.element(data));
    if !codes.is_integer() {
        return scaled(body, data, scale, offset);
    }
    let offset = offset.unwrap_or_else(|| body.splat(codes, &blocks, 0.0));
    let minimum = body.splat(element, &blocks, 0.0);
    let dims = body.dims(data);
    body.push("primitive.blockwise_shift_scale_v2", &[data, scale, offset, minimum], tensor(element, &dims))
}

/// Floats with a scale for each block, such as the entries of a palette: a product, since what is shifted and scaled in aicode
/// are codes.
fn scaled(body: &mut Body, data: ValueId, scale: ValueId, offset: Option<ValueId>) -> ValueId {
    let (element, dims, blocks) = (body.element(scale), body.dims(data), body.dims(scale));
    // An axis of several blocks of several elements becomes two.
    let (mut split, mut factors) = (Vec::new(), Vec::new());
    for (&size, &count) in dims.iter().zip(&blocks) {
        if count == 1 || count == size {
            split.push(size);
            factors.push(count);
        } else {
            split.extend([count, size / count]);
            factors.extend([count, 1]);
        }
    }
    let data = body.cast(data, element);
    let mut data = body.reshape(data, &split);
    if let Some(offset) = offset {
        let offset = body.cast(offset, element);
        let offset = body.reshape(offset, &factors);
        data = body.binary("primitive.sub_v1", data, offset);
    }
    let scale = body.reshape(scale, &factors);
    let product = body.binary("primitive.mul_v1", data, scale);
    body.reshape(product, &dims)
}

/// The older form: a scale and a zero point for the whole tensor or for each index of an axis.
fn affine(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let data = e.arg("quantized_data")?;
    let dims = e.body().dims(data);
    let axis = e.call.axis("axis", dims.len())?;
    let (scale_type, data_type) = (e.call.ty("scale")?.dtype, e.call.ty("quantized_data")?.dtype);
    let count = numbers(e, "scale")?.max(numbers(e, "zero_point")?);
    let mut blocks = vec![1; dims.len()];
    blocks[axis] = count as u64;
    let scale = parameter(e, "scale", scale_type, &blocks)?;
    let zero = parameter(e, "zero_point", data_type, &blocks)?;
    Ok(vec![shift_scale(e, data, scale, Some(zero))])
}

/// How many numbers a scale or a zero point has.
fn numbers(e: &Emit<'_, '_, '_>, name: &str) -> Result<usize> {
    match e.call.ty(name)?.concrete() {
        Some(shape) => Ok(shape.iter().product()),
        None => refuse!("`{name}` has sizes that are unknown"),
    }
}

/// A scale or a zero point, one number for each of some blocks. What has that form already stays the stream that it may be.
fn parameter(e: &mut Emit<'_, '_, '_>, name: &str, dtype: DType, blocks: &[u64]) -> Result<ValueId> {
    let count = blocks.iter().product::<u64>() as usize;
    if numbers(e, name)? == count && e.call.ty(name)?.dtype == dtype {
        let stored = e.stored(name)?;
        return e.shaped(stored, dtype, blocks);
    }
    let known = e.call.shared(name)?;
    let known = if dtype.is_float() { known } else { integers(&known, dtype)? };
    e.shaped(&Literal::immediate(&repeated(&known, count)?), dtype, blocks)
}

/// Integers that are computed or given at run time, with one scale or one for each index of an axis.
fn dequantize(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let data = e.arg("input")?;
    let dims = e.body().dims(data);
    let mut blocks = vec![1; dims.len()];
    let (scale, zero) = (e.arg("scale")?, e.opt_arg("zero_point")?);
    if let [channels] = e.body().dims(scale)[..] {
        blocks[e.call.axis("axis", dims.len())?] = channels;
    }
    // Of the rank of the data: Apple's interpreter traps on scales of rank 0.
    let scale = e.body().reshape(scale, &blocks);
    let zero = zero.map(|zero| e.body().reshape(zero, &blocks));
    Ok(vec![shift_scale(e, data, scale, zero)])
}

/// A number for each of so many blocks.
fn repeated(tensor: &Tensor, count: usize) -> Result<Tensor> {
    let bytes = match tensor.view().len() {
        1 => tensor.bytes().repeat(count),
        _ => tensor.bytes().to_vec(),
    };
    let shape = [count].into_iter().collect();
    Ok(Tensor::new(tensor.dtype(), shape, bytes.into())?)
}

/// Zero points as integers of the data's type.
fn integers(zero: &Tensor, to: DType) -> Result<Tensor> {
    if zero.dtype() == to {
        return Ok(zero.clone());
    }
    let view = zero.view();
    let mut values = vec![0.0; view.len()];
    convert::to_f32(&view, 0..view.len(), &mut values);
    let range = if to == DType::I8 { -128.0..=127.0 } else { 0.0..=255.0 };
    if let Some(bad) = values.iter().find(|value| value.fract() != 0.0 || !range.contains(*value)) {
        refuse!(
            "`zero_point` has {bad}, which is no {to}; aicode takes offsets of the type of the data only"
        );
    }
    let bytes: Vec<u8> = values.iter().map(|&value| value as i32 as u8).collect();
    Ok(Tensor::new(to, zero.shape().iter().copied().collect(), bytes.into())?)
}

/// Indices into tables, one table for each block.
fn palette(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let ty = e.result_type()?;
    let is_flat = e.call.ty("lut")?.shape.len() == 1;
    let (indices, tables) = if is_flat { flat_palette(e)? } else { (e.arg("indices")?, e.arg("lut")?) };
    let vector_axis = match !is_flat && e.call.has("vector_axis") {
        true => e.call.axis("vector_axis", e.call.ty("indices")?.shape.len())?,
        false => 0,
    };
    let axis = e.body().splat(Scalar::I16, &[], vector_axis as f64);
    Ok(vec![e.body().push("primitive.lut_to_dense_v1", &[indices, tables, axis], ty)])
}

/// A tensor of the stored elements and the bit mask of where they belong.
fn masked(e: &mut Emit<'_, '_, '_>, values: ValueId, mask: ValueId) -> Result<ValueId> {
    let body = e.body();
    let (&[stored], dims) = (&body.dims(values)[..], body.dims(mask)) else {
        refuse!("stored elements are no list")
    };
    let dims = dims.into_iter().map(Dim::Fixed).collect();
    let ty = Type::Sparse { dims, element: body.element(values), stored };
    Ok(body.push("primitive.build_sparse_with_bitmask_v1", &[values, mask], ty))
}

fn to_dense(e: &mut Emit<'_, '_, '_>, sparse: ValueId) -> ValueId {
    match e.body().ty(sparse).clone() {
        Type::Sparse { dims, element, .. } => {
            let ty = Type::Tensor { dims, element, constraints: None };
            e.body().push("primitive.sparse_with_bitmask_to_dense_v1", &[sparse], ty)
        }
        _ => sparse,
    }
}

/// What is stored and a mask, or what one of the operations below made of them already.
fn sparse(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (values, dims) = (e.arg("nonzero_data")?, e.result_dims()?);
    let is_made = matches!(e.body().ty(values), Type::Sparse { .. }) || e.body().dims(values) == dims;
    if is_made && dims.len() > 1 {
        return Ok(vec![to_dense(e, values)]);
    }
    // The older form has a list of bytes, and the shape apart.
    let mask = match e.call.ty("mask")?.dtype == DType::U8 {
        true => {
            let stored = e.stored("mask")?;
            e.shaped(stored, DType::U1, &dims)?
        }
        false => e.arg("mask")?,
    };
    let sparse = masked(e, values, mask)?;
    Ok(vec![to_dense(e, sparse)])
}

/// Integers of which only some are stored: zeros stay zeros, since they have no offset.
fn sparse_blockwise(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    if e.call.has("offset") {
        refuse!("has offsets, with which elements that are not stored would not be zero");
    }
    let (mask, scale, dtype) = (e.arg("data_mask")?, e.arg("scale")?, e.call.ty("nonzero_data")?.dtype);
    let sparse = match dtype {
        DType::I4 => signed_nibbles(e, mask)?,
        _ => {
            let values = e.arg("nonzero_data")?;
            masked(e, values, mask)?
        }
    };
    let codes = to_dense(e, sparse);
    Ok(vec![mask, shift_scale(e, codes, scale, None)])
}

/// Signed integers of four bits as those of eight. Apple's runtime makes no dense tensor of the former; as unsigned ones they are
/// indices of what they stand for.
fn signed_nibbles(e: &mut Emit<'_, '_, '_>, mask: ValueId) -> Result<ValueId> {
    let stored = e.stored("nonzero_data")?;
    let Some(count) = e.call.ty("nonzero_data")?.concrete().and_then(|shape| shape.first().copied()) else {
        refuse!("stored elements are no list")
    };
    let values = e.shaped(stored, DType::U4, &[count as u64])?;
    let sparse = masked(e, values, mask)?;
    let Type::Sparse { dims, stored, .. } = e.body().ty(sparse).clone() else { refuse!("is not sparse") };
    let table: Vec<u8> = (0..8i8).chain(-8..0).map(i8::cast_unsigned).collect();
    let mut sizes = vec![1; dims.len()];
    sizes.extend([table.len() as u64, 1]);
    let table = e.body().constant(tensor(Scalar::I8, &sizes), &table);
    let axis = e.body().splat(Scalar::I16, &[], 0.0);
    let ty = Type::Sparse { dims, element: Scalar::I8, stored };
    Ok(e.body().push("primitive.lut_to_sparse_with_bitmask_v1", &[sparse, table, axis], ty))
}

/// Indices of which only some are stored.
fn sparse_palette(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (values, mask, tables) = (e.arg("indices_nonzero_data")?, e.arg("indices_mask")?, e.arg("lut")?);
    if e.call.has("vector_axis") {
        refuse!(
            "has vectors in its tables; only tables of numbers have an aicode form here where elements are sparse"
        );
    }
    let sparse = masked(e, values, mask)?;
    let Type::Sparse { dims, stored, .. } = e.body().ty(sparse).clone() else { refuse!("is not sparse") };
    let ty = Type::Sparse { dims, element: e.body().element(tables), stored };
    let axis = e.body().splat(Scalar::I16, &[], 0.0);
    Ok(vec![mask, e.body().push("primitive.lut_to_sparse_with_bitmask_v1", &[sparse, tables, axis], ty)])
}

/// The older form: one table, and indices packed into bytes.
fn flat_palette(e: &mut Emit<'_, '_, '_>) -> Result<(ValueId, ValueId)> {
    let dims = e.result_dims()?;
    let (lut, lut_type) = (e.stored("lut")?, e.call.ty("lut")?);
    let entries = lut_type.concrete().and_then(|shape| shape.first().copied()).unwrap_or(0);
    let index_type = match entries {
        2 => DType::U1,
        4 => DType::U2,
        16 => DType::U4,
        64 => DType::U6,
        256 => DType::U8,
        other => refuse!("`lut` has {other} entries"),
    };
    let indices = e.stored("indices")?;
    let indices = e.shaped(indices, index_type, &dims)?;
    let mut table = vec![1; dims.len()];
    table.extend([entries as u64, 1]);
    let dtype = lut_type.dtype;
    Ok((indices, e.shaped(lut, dtype, &table)?))
}
