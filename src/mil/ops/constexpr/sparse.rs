//! Sparse weights: the stored elements and a bit mask of where they belong; the others are zero.

use std::ops::Range;
use std::sync::Arc;

use super::super::prelude::*;
use super::mask::Mask;
use super::source::{Source, fixed_shape, listed_shape};

const DATA_16: &[DType] = &[DType::I8, DType::U8, DType::F16, DType::F32];
const DATA_18: &[DType] = &[DType::I4, DType::U4, DType::I8, DType::U8, DType::F16, DType::F32];

pub(crate) const OPS: &[OpDef] = &[
    constexpr("constexpr_sparse_to_dense", Ios16, infer_flat, decode_flat).takes(&[
        Param::constant("nonzero_data", DATA_16),
        Param::constant("mask", &[DType::U8]),
        Param::constant("shape", &[DType::U32]),
    ]),
    constexpr("constexpr_sparse_to_dense", Ios18, infer_shaped, decode_shaped).takes(&[
        Param::constant("nonzero_data", DATA_18).packed(),
        Param::constant("mask", &[DType::U1]).packed(),
    ]),
];

/// The first generation: the mask is a list of bytes, the shape is given apart.
fn flat(call: &Call<'_>) -> Result<(Mask, Shape)> {
    check_vector(call, "nonzero_data")?;
    check_vector(call, "mask")?;
    let shape = listed_shape(call, "shape")?;
    let len = shape::element_count(&shape)
        .ok_or_else(|| op_error!("`shape` {:?} is too large to address", &shape[..]))?;
    let mask = Mask::new(call.shared("mask")?.bytes().clone(), len)?;
    check_population(&mask, fixed_shape(call, "nonzero_data")?[0])?;
    match call.tensor("mask")?.bytes().last() {
        Some(last) if len % 8 != 0 && last >> (len % 8) != 0 => {
            refuse!("`mask` has bits set after the {len} that `shape` implies")
        }
        _ => Ok((mask, shape)),
    }
}

fn infer_flat(call: &Call<'_>) -> Result<Vec<Type>> {
    let shape = match call.known("mask") {
        Some(_) => flat(call)?.1,
        None => {
            check_vector(call, "nonzero_data")?;
            check_vector(call, "mask")?;
            listed_shape(call, "shape")?
        }
    };
    Ok(vec![TensorType::fixed(call.ty("nonzero_data")?.dtype, &shape).into()])
}

fn decode_flat(call: &Call<'_>) -> Result<Decoders> {
    let (mask, shape) = flat(call)?;
    Ok(vec![Arc::new(Sparse { mask, data: Source::of(call, "nonzero_data")?, shape })])
}

fn infer_shaped(call: &Call<'_>) -> Result<Vec<Type>> {
    check_sparse(call, "mask", "nonzero_data")?;
    Ok(dims::one(call.ty("nonzero_data")?.dtype, call.ty("mask")?.shape.clone()))
}

fn decode_shaped(call: &Call<'_>) -> Result<Decoders> {
    let (mask, data) = (Source::of(call, "mask")?, Source::of(call, "nonzero_data")?);
    let shape = mask.shape().into();
    Ok(vec![Arc::new(Sparse { mask: Mask::of_nonzero(&mask, &data)?, data, shape })])
}

fn check_vector(call: &Call<'_>, name: &str) -> Result {
    match fixed_shape(call, name)?.len() {
        1 => Ok(()),
        rank => refuse!("`{name}` has rank {rank}, not 1"),
    }
}

fn check_population(mask: &Mask, stored: usize) -> Result {
    match mask.total() {
        total if total == stored => Ok(()),
        total => refuse!("the mask has {total} bits set for {stored} stored elements"),
    }
}

/// Checks a shaped mask against the elements stored for it.
pub(super) fn check_sparse(call: &Call<'_>, mask: &str, data: &str) -> Result {
    check_vector(call, data)?;
    let shape = fixed_shape(call, mask)?;
    match (call.known(mask), shape::element_count(&shape)) {
        (Some(_), Some(len)) => {
            let mask = Mask::new(call.shared(mask)?.bytes().clone(), len)?;
            check_population(&mask, fixed_shape(call, data)?[0])
        }
        _ => Ok(()),
    }
}

impl Mask {
    /// The mask held by an operand, if as many bits are set as elements are stored.
    pub(super) fn of_nonzero(mask: &Source, data: &Source) -> Result<Mask> {
        let mask = Mask::of(mask)?;
        check_population(&mask, data.len())?;
        Ok(mask)
    }
}

struct Sparse {
    mask: Mask,
    data: Source,
    shape: Shape,
}

impl Decode for Sparse {
    fn dtype(&self) -> DType {
        self.data.dtype()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn decode(&self, range: Range<usize>, out: &mut [f32]) {
        let mut stored = [0.0; 512];
        let (mut at, mut rank) = (range.start, self.mask.rank(range.start));
        for out in out[..range.len()].chunks_mut(stored.len()) {
            let count = self.mask.count(at..at + out.len());
            self.data.read(rank..rank + count, &mut stored[..count]);
            let mut next = stored[..count].iter();
            for (i, out) in out.iter_mut().enumerate() {
                let value = if self.mask.is_set(at + i) { next.next() } else { None };
                *out = value.copied().unwrap_or(0.0);
            }
            at += out.len();
            rank += count;
        }
    }

    fn stored_bytes(&self) -> usize {
        self.mask.stored_bytes() + self.data.stored_bytes()
    }
}

/// A mask handed on as the output of an operation that works on the stored elements only. Every row of
/// `inner` bits stands for `repeats` rows.
pub(super) struct MaskOutput {
    mask: Arc<Mask>,
    shape: Shape,
    inner: usize,
    repeats: usize,
}

impl MaskOutput {
    pub(super) fn new(mask: Arc<Mask>, shape: &[usize]) -> MaskOutput {
        MaskOutput::repeated(mask, shape, 1, 1)
    }

    pub(super) fn repeated(mask: Arc<Mask>, shape: &[usize], inner: usize, repeats: usize) -> MaskOutput {
        MaskOutput { mask, shape: shape.into(), inner, repeats }
    }
}

impl Decode for MaskOutput {
    fn dtype(&self) -> DType {
        DType::U1
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn decode(&self, range: Range<usize>, out: &mut [f32]) {
        for (out, i) in out.iter_mut().zip(range) {
            let bit = match self.repeats {
                1 => i,
                repeats => i / self.inner / repeats * self.inner + i % self.inner,
            };
            *out = f32::from(u8::from(self.mask.is_set(bit)));
        }
    }

    fn stored_bytes(&self) -> usize {
        self.mask.stored_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::find;
    use super::*;
    use crate::op::{Eval, KnownArguments, apply};

    fn mask(shape: &[usize], bytes: &[u8]) -> Tensor {
        Tensor::new(DType::U1, shape.into(), bytes.to_vec().into()).unwrap()
    }

    #[test]
    fn stored_elements_go_where_the_mask_is_set() {
        let data = tensor(&[2], &[7i8, -3]);
        let flat = [
            ("nonzero_data", data.clone()),
            ("mask", tensor(&[1], &[0b0000_1100u8])),
            ("shape", tensor(&[1], &[5u32])),
        ];
        assert_eq!(output::<i8>(run("constexpr_sparse_to_dense", Ios16, &flat)), [0, 0, 7, -3, 0]);
        let shaped = [("nonzero_data", data), ("mask", mask(&[2, 2], &[0b1010]))];
        gives::<i8>(run("constexpr_sparse_to_dense", Ios18, &shaped), &[2, 2], &[0, 7, 0, -3]);
    }

    #[test]
    fn quantised_sparse_weights_compose() {
        let quantised = find("constexpr_sparse_blockwise_shift_scale", Ios18).unwrap();
        let mut arguments = KnownArguments::new(quantised);
        arguments.bind(0, mask(&[2, 4], &[0b0110_1001]));
        arguments.bind(1, tensor(&[4], &[1i8, 2, 3, 4]));
        arguments.bind(2, tensor(&[2, 1], &[10.0f32, 100.0]));
        let Eval::Constexpr(decoders) = quantised.eval else { panic!() };
        let outputs = decoders(&Call::new(quantised, Ios18, 2, &arguments)).unwrap();

        let sparse = find("constexpr_sparse_to_dense", Ios18).unwrap();
        let mut arguments = KnownArguments::new(sparse);
        arguments.bind(0, outputs[1].clone());
        arguments.bind(1, outputs[0].clone());
        let out = apply(sparse, Ios18, Numerics::Fast, &arguments, 1).unwrap();
        let expected = [10.0, 0.0, 0.0, 20.0, 0.0, 300.0, 400.0, 0.0];
        assert_eq!(out[0].view().slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn masks_must_count_the_stored_elements() {
        let data = tensor(&[2], &[7i8, -3]);
        let args = [("nonzero_data", data.clone()), ("mask", mask(&[2, 2], &[0b1000]))];
        let error = run("constexpr_sparse_to_dense", Ios18, &args).unwrap_err();
        assert_eq!(error.to_string(), "the mask has 1 bits set for 2 stored elements");
        let flat = [
            ("nonzero_data", data),
            ("mask", tensor(&[1], &[0b0010_0100u8])),
            ("shape", tensor(&[1], &[5u32])),
        ];
        assert!(run("constexpr_sparse_to_dense", Ios16, &flat).is_err());
    }
}
