//! Quantised weights: `scale * (data - offset)` with scale and offset per tensor, channel or block.

use std::ops::Range;
use std::sync::Arc;

use super::super::blocks::Blocks;
use super::for_each_chunk;
use super::mask::Mask;
use super::source::{Source, Window, fixed_shape};
use super::sparse::{MaskOutput, check_sparse};
use crate::kernels::dequantize::{round_to_f16, shift_scale};
use crate::kernels::packed::{Codes, Factors, PackedRows};
use crate::mil::op::domain::{FLOAT, INT};
use crate::mil::op::{Call, Decode, Decoders, Eval, OpDef, OpError, Param};
use crate::mil::{Opset, TensorType, Type};
use crate::tensor::{DType, Shape, shape};

const BYTES: &[DType] = &[DType::I8, DType::U8];
const ZERO_POINT: &[DType] = &[DType::I8, DType::U8, DType::F32];
const DATA: &[DType] = &[DType::I4, DType::U4, DType::I8, DType::U8, DType::F16, DType::F32];

pub(crate) const OPS: &[OpDef] = &[
    OpDef {
        name: "constexpr_affine_dequantize",
        since: Opset::Ios16,
        params: &[
            Param::constant("quantized_data", BYTES),
            Param::constant("zero_point", ZERO_POINT),
            Param::constant("scale", FLOAT),
            Param::constant("axis", INT),
        ],
        infer: infer_axis,
        eval: Eval::Constexpr(decode_axis),
    },
    OpDef {
        name: "constexpr_blockwise_shift_scale",
        since: Opset::Ios18,
        params: &[
            Param::constant("data", DATA).packed(),
            Param::constant("scale", FLOAT).packed(),
            Param::constant("offset", DATA).optional().packed(),
        ],
        infer: infer_blocks,
        eval: Eval::Constexpr(decode_blocks),
    },
    OpDef {
        name: "constexpr_sparse_blockwise_shift_scale",
        since: Opset::Ios18,
        params: &[
            Param::constant("data_mask", &[DType::U1]).packed(),
            Param::constant("nonzero_data", DATA).packed(),
            Param::constant("scale", FLOAT).packed(),
            Param::constant("offset", DATA).optional().packed(),
        ],
        infer: infer_sparse,
        eval: Eval::Constexpr(decode_sparse),
    },
];

/// Blocks of a tensor whose scale and zero point are scalars or lie along one axis.
fn axis_blocks(call: &Call<'_>) -> Result<Blocks, OpError> {
    let data = fixed_shape(call, "quantized_data")?;
    let axis = call.axis("axis", data.len())?;
    let mut counts: Shape = smallvec::smallvec![1; data.len()];
    for name in ["scale", "zero_point"] {
        match &fixed_shape(call, name)?[..] {
            [] => {}
            [len] if *len == data[axis] => counts[axis] = *len,
            other => {
                return Err(OpError::new(format!(
                    "`{name}` has shape {other:?}, which is neither a scalar nor one number for each of the \
                     {} along axis {axis}",
                    data[axis]
                )));
            }
        }
    }
    if shape::element_count(&data) == Some(0) {
        counts.fill(1);
    }
    Blocks::new(&data, &counts)
}

fn infer_axis(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    axis_blocks(call)?;
    let shape = call.ty("quantized_data")?.shape.clone();
    Ok(vec![TensorType::new(call.ty("scale")?.dtype, shape).into()])
}

fn decode_axis(call: &Call<'_>) -> Result<Decoders, OpError> {
    let rescale = Rescale {
        blocks: axis_blocks(call)?,
        scale: Source::of(call, "scale")?,
        offset: Some(Source::of(call, "zero_point")?),
        rounds_data: false,
        rounds_difference: false,
    };
    Ok(vec![Arc::new(Affine { data: Source::of(call, "quantized_data")?, rescale, mask: None })])
}

/// Checks scale and offset against data of the given type and shape.
fn blockwise(call: &Call<'_>, dtype: DType, data: &[usize]) -> Result<Blocks, OpError> {
    if data.is_empty() {
        return Err(OpError::new("a scalar cannot be divided into blocks"));
    }
    let scale = fixed_shape(call, "scale")?;
    if let Some(offset) = call.opt_ty("offset")? {
        if offset.concrete().as_deref() != Some(&scale[..]) {
            return Err(OpError::new(format!("`offset` is a {offset}, `scale` has shape {scale:?}")));
        }
        if !offset.dtype.is_float() && offset.dtype != dtype {
            return Err(OpError::new(format!("`offset` holds {}, the data {dtype}", offset.dtype)));
        }
    }
    Blocks::new(data, &scale)
}

fn infer_blocks(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let data = call.ty("data")?;
    blockwise(call, data.dtype, &fixed_shape(call, "data")?)?;
    Ok(vec![TensorType::new(call.ty("scale")?.dtype, data.shape.clone()).into()])
}

fn decode_blocks(call: &Call<'_>) -> Result<Decoders, OpError> {
    let data = Source::of(call, "data")?;
    let blocks = blockwise(call, data.dtype(), data.shape())?;
    let rescale = Rescale::of(call, &data, blocks)?;
    Ok(vec![Arc::new(Affine { data, rescale, mask: None })])
}

fn infer_sparse(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    check_sparse(call, "data_mask", "nonzero_data")?;
    let (mask, data) = (call.ty("data_mask")?, call.ty("nonzero_data")?);
    blockwise(call, data.dtype, &fixed_shape(call, "data_mask")?)?;
    let data = TensorType::new(call.ty("scale")?.dtype, data.shape.clone());
    Ok(vec![mask.clone().into(), data.into()])
}

fn decode_sparse(call: &Call<'_>) -> Result<Decoders, OpError> {
    let (mask, data) = (Source::of(call, "data_mask")?, Source::of(call, "nonzero_data")?);
    let blocks = blockwise(call, data.dtype(), mask.shape())?;
    let rescale = Rescale::of(call, &data, blocks)?;
    let bits = Arc::new(Mask::of_nonzero(&mask, &data)?);
    let output = MaskOutput::new(bits.clone(), mask.shape());
    Ok(vec![Arc::new(output), Arc::new(Affine { data, rescale, mask: Some(bits) })])
}

/// `scale * (x - offset)` with scale and offset per block.
struct Rescale {
    blocks: Blocks,
    scale: Source,
    offset: Option<Source>,
    /// Whether elements are rounded to fp16 first, and the difference as well.
    rounds_data: bool,
    rounds_difference: bool,
}

impl Rescale {
    /// Arithmetic in the type of the scale, unless an fp32 offset widens it.
    fn of(call: &Call<'_>, data: &Source, blocks: Blocks) -> Result<Rescale, OpError> {
        let (scale, offset) = (Source::of(call, "scale")?, Source::opt(call, "offset")?);
        let half = scale.dtype() == DType::F16;
        let wide = offset.as_ref().is_some_and(|offset| offset.dtype() == DType::F32);
        let inexact =
            data.dtype().is_float() || offset.as_ref().is_some_and(|offset| offset.dtype().is_float());
        Ok(Rescale {
            blocks,
            rounds_data: half && data.dtype() == DType::F32,
            rounds_difference: half && inexact && !wide && offset.is_some(),
            scale,
            offset,
        })
    }

    fn dtype(&self) -> DType {
        self.scale.dtype()
    }

    fn stored_bytes(&self) -> usize {
        self.scale.stored_bytes() + self.offset.as_ref().map_or(0, Source::stored_bytes)
    }

    /// Applies to values of which `place` finds those that lie in an element range.
    fn apply(
        &self,
        elements: Range<usize>,
        values: &mut [f32],
        mut place: impl FnMut(Range<usize>) -> usize,
    ) {
        if self.rounds_data {
            round_to_f16(values);
        }
        let mut scales = Window::new(&self.scale);
        let mut offsets = self.offset.as_ref().map(Window::new);
        let mut rest = &mut *values;
        self.blocks.for_each_run(elements, |block, run| {
            let count = place(run).min(rest.len());
            let (values, after) = std::mem::take(&mut rest).split_at_mut(count);
            rest = after;
            let offset = offsets.as_mut().map_or(0.0, |offsets| offsets.get(block));
            if self.rounds_difference {
                shift_scale(values, offset, 1.0);
                round_to_f16(values);
                shift_scale(values, 0.0, scales.get(block));
            } else {
                shift_scale(values, offset, scales.get(block));
            }
        });
        if self.dtype() == DType::F16 {
            round_to_f16(values);
        }
    }
}

struct Affine {
    data: Source,
    rescale: Rescale,
    /// If the data are the stored elements of a sparse tensor, where they are in it, which tells the block of each.
    mask: Option<Arc<Mask>>,
}

impl Decode for Affine {
    fn dtype(&self) -> DType {
        self.rescale.dtype()
    }

    fn shape(&self) -> &[usize] {
        self.data.shape()
    }

    fn decode(&self, range: Range<usize>, out: &mut [f32]) {
        for_each_chunk(range, out, |range, out| {
            self.data.read(range.clone(), out);
            match &self.mask {
                None => self.rescale.apply(range, out, |run| run.len()),
                Some(mask) => {
                    let elements = mask.select(range.start)..mask.select(range.end - 1) + 1;
                    self.rescale.apply(elements, out, |run| mask.count(run));
                }
            }
        });
    }

    fn stored_bytes(&self) -> usize {
        let mask = self.mask.as_ref().map_or(0, |mask| mask.stored_bytes());
        mask + self.data.stored_bytes() + self.rescale.stored_bytes()
    }

    fn rows(&self, columns: usize) -> Option<PackedRows<'_>> {
        let (Source::Plain(data), Source::Plain(scale), None, None) =
            (&self.data, &self.rescale.scale, &self.rescale.offset, &self.mask)
        else {
            return None;
        };
        let (rows, block) = self.rescale.blocks.of_rows(columns)?;
        let factors = Factors { rows, block, values: scale.view() };
        let codes = match data.dtype() {
            DType::I8 => Codes::Bytes(bytemuck::cast_slice(data.bytes()), factors),
            DType::I4 => Codes::Nibbles(data.bytes(), factors),
            _ => return None,
        };
        Some(PackedRows { columns, codes }).filter(PackedRows::is_regular)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{run, run_many};
    use super::*;
    use crate::tensor::{Tensor, packed};
    use half::f16;

    fn bits(dtype: DType, shape: &[usize], values: &[i8]) -> Tensor {
        let bytes = packed::pack(values.iter().map(|v| v.cast_unsigned()), dtype.bits());
        Tensor::new(dtype, shape.into(), bytes.into()).unwrap()
    }

    #[test]
    fn zero_points_are_subtracted_before_scaling_along_the_axis() {
        let args = [
            ("quantized_data", Tensor::from_slice(&[2, 2], &[10i8, -128, 127, 0]).unwrap()),
            ("zero_point", Tensor::scalar(-1i8)),
            ("scale", Tensor::from_slice(&[2], &[0.5f32, 2.0]).unwrap()),
            ("axis", Tensor::scalar(-1i32)),
        ];
        let out = run("constexpr_affine_dequantize", Opset::Ios16, &args).unwrap();
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [5.5, -254.0, 64.0, 2.0]);
    }

    #[test]
    fn blocks_of_int4_have_their_own_scale_and_offset() {
        let args = [
            ("data", bits(DType::I4, &[2, 4], &[-8, 7, 1, -1, 3, 0, 2, 5])),
            ("scale", Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 0.5]).unwrap()),
            ("offset", bits(DType::I4, &[2, 2], &[1, -1, 0, 2])),
        ];
        let out = run("constexpr_blockwise_shift_scale", Opset::Ios18, &args).unwrap();
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [-9.0, 6.0, 4.0, 0.0, 9.0, 0.0, 0.0, 1.5]);
    }

    #[test]
    fn fp16_differences_and_products_are_rounded() {
        let half = |x: f32| f16::from_f32(x);
        let args = [
            ("data", Tensor::from_slice(&[1], &[200u8]).unwrap()),
            ("scale", Tensor::from_slice(&[1], &[half(0.1)]).unwrap()),
            ("offset", Tensor::from_slice(&[1], &[half(0.03)]).unwrap()),
        ];
        let out = run("constexpr_blockwise_shift_scale", Opset::Ios18, &args).unwrap();
        // numpy: np.float16(0.1) * (np.float16(200) - np.float16(0.03)) == np.float16(20.0)
        assert_eq!(out[0].view().slice::<f16>().unwrap(), [half(20.0)]);
    }

    #[test]
    fn stored_elements_take_the_scale_of_their_place() {
        let args = [
            ("data_mask", bits(DType::U1, &[4, 4], &[1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0])),
            ("nonzero_data", Tensor::from_slice(&[9], &[10i8, 11, 3, 4, 5, 6, 7, 8, 9]).unwrap()),
            ("scale", Tensor::from_slice(&[1, 4], &[1.0f32, 2.0, 3.0, 4.0]).unwrap()),
            ("offset", Tensor::from_slice(&[1, 4], &[1i8, 2, 3, 4]).unwrap()),
        ];
        let out = run_many("constexpr_sparse_blockwise_shift_scale", Opset::Ios18, &args, 2).unwrap();
        assert_eq!(out[0], args[0].1);
        let expected = [9.0, 18.0, 2.0, 4.0, 6.0, 9.0, 12.0, 7.0, 14.0];
        assert_eq!(out[1].view().slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn scales_must_fit_the_data() {
        let data = Tensor::from_slice(&[3], &[1i8, 2, 3]).unwrap();
        let scale = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
        let args = [("data", data.clone()), ("scale", scale.clone())];
        let error = run("constexpr_blockwise_shift_scale", Opset::Ios18, &args).unwrap_err();
        assert_eq!(error.to_string(), "dimension 0 of size 3 cannot be divided into 2 blocks");
        let args = [
            ("quantized_data", data),
            ("zero_point", Tensor::scalar(0i8)),
            ("scale", scale),
            ("axis", Tensor::scalar(0i32)),
        ];
        assert!(run("constexpr_affine_dequantize", Opset::Ios16, &args).is_err());
    }
}
