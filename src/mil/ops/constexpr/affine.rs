//! Quantised weights: `scale * (data - offset)` with scale and offset per tensor, channel or block.

use std::ops::Range;
use std::sync::Arc;

use super::super::blocks::Blocks;
use super::super::prelude::*;
use super::for_each_chunk;
use super::mask::Mask;
use super::source::{Source, Window, fixed_shape};
use super::sparse::{MaskOutput, check_sparse};
use anemeter_kernels::dequantize::{round_to_f16, shift_scale};
use anemeter_kernels::weight_gemv::{Int4Codes, Scales, WeightRows, WeightStorage};

const BYTES: &[DType] = &[DType::I8, DType::U8];
const ZERO_POINT: &[DType] = &[DType::I8, DType::U8, DType::F32];
const DATA: &[DType] = &[DType::I4, DType::U4, DType::I8, DType::U8, DType::F16, DType::F32];

pub(crate) const OPS: &[OpDef] = &[
    constexpr("constexpr_affine_dequantize", Ios16, infer_axis, decode_axis).takes(&[
        Param::constant("quantized_data", BYTES),
        Param::constant("zero_point", ZERO_POINT),
        Param::constant("scale", FLOAT),
        Param::constant("axis", INT),
    ]),
    constexpr("constexpr_blockwise_shift_scale", Ios18, infer_blocks, decode_blocks).takes(&[
        Param::constant("data", DATA).packed(),
        Param::constant("scale", FLOAT).packed(),
        Param::constant("offset", DATA).optional().packed(),
    ]),
    constexpr("constexpr_sparse_blockwise_shift_scale", Ios18, infer_sparse, decode_sparse).takes(&[
        Param::constant("data_mask", &[DType::U1]).packed(),
        Param::constant("nonzero_data", DATA).packed(),
        Param::constant("scale", FLOAT).packed(),
        Param::constant("offset", DATA).optional().packed(),
    ]),
];

/// Blocks of a tensor whose scale and zero point are scalars or lie along one axis.
fn axis_blocks(call: &Call<'_>) -> Result<Blocks> {
    let data = fixed_shape(call, "quantized_data")?;
    let axis = call.axis("axis", data.len())?;
    let mut counts: Shape = smallvec::smallvec![1; data.len()];
    for name in ["scale", "zero_point"] {
        match &fixed_shape(call, name)?[..] {
            [] => {}
            [len] if *len == data[axis] => counts[axis] = *len,
            other => {
                refuse!(
                    "`{name}` has shape {other:?}, which is neither a scalar nor one number for each of the \
                     {} along axis {axis}",
                    data[axis]
                );
            }
        }
    }
    if shape::element_count(&data) == Some(0) {
        counts.fill(1);
    }
    Blocks::new(&data, &counts)
}

fn infer_axis(call: &Call<'_>) -> Result<Vec<Type>> {
    axis_blocks(call)?;
    let shape = call.ty("quantized_data")?.shape.clone();
    Ok(dims::one(call.ty("scale")?.dtype, shape))
}

fn decode_axis(call: &Call<'_>) -> Result<Decoders> {
    let zero_point = Source::of(call, "zero_point")?;
    let rescale = Rescale {
        blocks: axis_blocks(call)?,
        scale: Source::of(call, "scale")?,
        // Symmetric weights have a zero point too, since the operation asks for one.
        offset: (!zero_point.is_zero()).then_some(zero_point),
        rounds_data: false,
        rounds_difference: false,
    };
    Ok(vec![Arc::new(Affine { data: Source::of(call, "quantized_data")?, rescale, mask: None })])
}

/// Checks scale and offset against data of the given type and shape.
fn blockwise(call: &Call<'_>, dtype: DType, data: &[usize]) -> Result<Blocks> {
    refuse_if!(data.is_empty(), "a scalar cannot be divided into blocks");
    let scale = fixed_shape(call, "scale")?;
    if let Some(offset) = call.opt_ty("offset")? {
        if offset.concrete().as_deref() != Some(&scale[..]) {
            refuse!("`offset` is a {offset}, `scale` has shape {scale:?}");
        }
        if !offset.dtype.is_float() && offset.dtype != dtype {
            refuse!("`offset` holds {}, the data {dtype}", offset.dtype);
        }
    }
    Blocks::new(data, &scale)
}

fn infer_blocks(call: &Call<'_>) -> Result<Vec<Type>> {
    let data = call.ty("data")?;
    blockwise(call, data.dtype, &fixed_shape(call, "data")?)?;
    Ok(dims::one(call.ty("scale")?.dtype, data.shape.clone()))
}

fn decode_blocks(call: &Call<'_>) -> Result<Decoders> {
    let data = Source::of(call, "data")?;
    let blocks = blockwise(call, data.dtype(), data.shape())?;
    let rescale = Rescale::of(call, &data, blocks)?;
    Ok(vec![Arc::new(Affine { data, rescale, mask: None })])
}

fn infer_sparse(call: &Call<'_>) -> Result<Vec<Type>> {
    check_sparse(call, "data_mask", "nonzero_data")?;
    let (mask, data) = (call.ty("data_mask")?, call.ty("nonzero_data")?);
    blockwise(call, data.dtype, &fixed_shape(call, "data_mask")?)?;
    let data = TensorType::new(call.ty("scale")?.dtype, data.shape.clone());
    Ok(vec![mask.clone().into(), data.into()])
}

fn decode_sparse(call: &Call<'_>) -> Result<Decoders> {
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
    fn of(call: &Call<'_>, data: &Source, blocks: Blocks) -> Result<Rescale> {
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

    fn rows(&self, columns: usize) -> Option<WeightRows<'_>> {
        let (Source::Plain(data), Source::Plain(scale), None) = (&self.data, &self.rescale.scale, &self.mask)
        else {
            return None;
        };
        let offsets = match &self.rescale.offset {
            None => None,
            Some(Source::Plain(offset)) if offset.shape() == scale.shape() => Some(offset.view()),
            Some(_) => return None,
        };
        let (rows, block) = self.rescale.blocks.of_rows(columns)?;
        // One scale for all, where only zero points are along an axis, is not one for each block.
        if rows * block * scale.view().len() != data.view().len() {
            return None;
        }
        let scales = Scales { rows, block, values: scale.view() };
        let int4 = |is_signed| Int4Codes { bytes: data.bytes(), is_signed, offsets };
        let storage = match data.dtype() {
            DType::I8 if offsets.is_none() => WeightStorage::Int8(bytemuck::cast_slice(data.bytes()), scales),
            DType::I4 => WeightStorage::Int4(int4(true), scales),
            DType::U4 => WeightStorage::Int4(int4(false), scales),
            _ => return None,
        };
        Some(WeightRows { columns, storage }).filter(WeightRows::is_regular)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Eval;

    #[test]
    fn zero_points_are_subtracted_before_scaling_along_the_axis() {
        let args = [
            ("quantized_data", tensor(&[2, 2], &[10i8, -128, 127, 0])),
            ("zero_point", Tensor::scalar(-1i8)),
            ("scale", tensor(&[2], &[0.5f32, 2.0])),
            ("axis", Tensor::scalar(-1i32)),
        ];
        assert_eq!(output::<f32>(run("constexpr_affine_dequantize", Ios16, &args)), [5.5, -254.0, 64.0, 2.0]);
    }

    #[test]
    fn blocks_of_int4_have_their_own_scale_and_offset() {
        let args = [
            ("data", packed(DType::I4, &[2, 4], &[-8, 7, 1, -1, 3, 0, 2, 5])),
            ("scale", tensor(&[2, 2], &[1.0f32, 2.0, 3.0, 0.5])),
            ("offset", packed(DType::I4, &[2, 2], &[1, -1, 0, 2])),
        ];
        let out = run("constexpr_blockwise_shift_scale", Ios18, &args).unwrap();
        assert_eq!(out[0].view().slice::<f32>().unwrap(), [-9.0, 6.0, 4.0, 0.0, 9.0, 0.0, 0.0, 1.5]);
    }

    #[test]
    fn fp16_differences_and_products_are_rounded() {
        let half = |x: f32| f16::from_f32(x);
        let args = [
            ("data", tensor(&[1], &[200u8])),
            ("scale", tensor(&[1], &[half(0.1)])),
            ("offset", tensor(&[1], &[half(0.03)])),
        ];
        let out = run("constexpr_blockwise_shift_scale", Ios18, &args).unwrap();
        // numpy: np.float16(0.1) * (np.float16(200) - np.float16(0.03)) == np.float16(20.0)
        assert_eq!(out[0].view().slice::<f16>().unwrap(), [half(20.0)]);
    }

    #[test]
    fn stored_elements_take_the_scale_of_their_place() {
        let args = [
            ("data_mask", packed(DType::U1, &[4, 4], &[1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0])),
            ("nonzero_data", tensor(&[9], &[10i8, 11, 3, 4, 5, 6, 7, 8, 9])),
            ("scale", tensor(&[1, 4], &[1.0f32, 2.0, 3.0, 4.0])),
            ("offset", tensor(&[1, 4], &[1i8, 2, 3, 4])),
        ];
        let out = run_many("constexpr_sparse_blockwise_shift_scale", Ios18, &args, 2).unwrap();
        assert_eq!(out[0], args[0].1);
        let expected = [9.0, 18.0, 2.0, 4.0, 6.0, 9.0, 12.0, 7.0, 14.0];
        assert_eq!(out[1].view().slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn scales_must_fit_the_data() {
        let data = tensor(&[3], &[1i8, 2, 3]);
        let scale = tensor(&[2], &[1.0f32, 2.0]);
        let args = [("data", data.clone()), ("scale", scale.clone())];
        let error = run("constexpr_blockwise_shift_scale", Ios18, &args).unwrap_err();
        assert_eq!(error.to_string(), "dimension 0 of size 3 cannot be divided into 2 blocks");
        let args = [
            ("quantized_data", data),
            ("zero_point", Tensor::scalar(0i8)),
            ("scale", scale),
            ("axis", Tensor::scalar(0i32)),
        ];
        assert!(run("constexpr_affine_dequantize", Ios16, &args).is_err());
    }

    #[test]
    fn symmetric_weights_of_ios16_are_multiplied_as_stored() {
        let int8 = |zero_point: Tensor, scale: Tensor| {
            let args = [
                ("quantized_data", tensor(&[3, 64], &[1i8; 192])),
                ("zero_point", zero_point),
                ("scale", scale),
                ("axis", Tensor::scalar(0i32)),
            ];
            let def = definition("constexpr_affine_dequantize", Ios16);
            let Eval::Constexpr(decode) = def.eval else { panic!("it makes weights") };
            decode(&Call::new(def, Ios16, 1, &arguments(def, &args))).unwrap().remove(0)
        };
        let (scales, scale) = (tensor(&[3], &[0.5f32, 1.0, 2.0]), Tensor::scalar(0.5f32));
        for zero_point in [Tensor::scalar(0i8), tensor(&[3], &[0i8; 3])] {
            assert!(int8(zero_point, scales.clone()).rows(64).is_some());
        }
        assert!(int8(Tensor::scalar(0i8), scale.clone()).rows(64).is_some());
        assert!(int8(tensor(&[3], &[0i8; 3]), scale).rows(64).is_none(), "one scale for three blocks");
        assert!(int8(Tensor::scalar(1i8), scales).rows(64).is_none(), "int8 with an offset has no kernel");
    }

    #[test]
    fn integers_are_multiplied_as_stored_whatever_their_blocks_and_offsets() {
        let (shape, blocks) = ([2, 128], [2, 4]);
        let scale = tensor(&blocks, &[0.5f32; 8]);
        let ints = |dtype| packed(dtype, &blocks, &[3; 8]);
        let half = tensor(&blocks, &[f16::from_f32(2.5); 8]);
        let wide = tensor(&blocks, &[2.5f32; 8]);
        for (dtype, offset) in [
            (DType::I8, None),
            (DType::I4, None),
            (DType::U4, None),
            (DType::I4, Some(ints(DType::I4))),
            (DType::U4, Some(ints(DType::U4))),
            (DType::U4, Some(half)),
            (DType::I4, Some(wide)),
        ] {
            let data = match dtype {
                DType::I8 => tensor(&shape, &[1i8; 256]),
                _ => packed(dtype, &shape, &[1; 256]),
            };
            let weight = Affine {
                data: Source::Plain(data),
                rescale: Rescale {
                    blocks: Blocks::new(&shape, &blocks).unwrap(),
                    scale: Source::Plain(scale.clone()),
                    offset: offset.clone().map(Source::Plain),
                    rounds_data: false,
                    rounds_difference: false,
                },
                mask: None,
            };
            assert!(weight.rows(128).is_some(), "{dtype} with {offset:?}");
            assert!(weight.rows(64).is_none(), "rows must hold whole blocks of a row");
        }
    }
}
