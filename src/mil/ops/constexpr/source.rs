//! A constant that a decoder keeps: a plain tensor, or the result of another constexpr operation.

use std::ops::Range;
use std::sync::Arc;

use super::super::prelude::*;
use anemeter_kernels::{convert, dequantize};

/// A constant operand. Cloning shares the bytes.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Plain(Tensor),
    Packed(Arc<dyn Decode>),
}

impl Source {
    pub(super) fn of(call: &Call<'_>, name: &str) -> Result<Source> {
        match call.value_at(name, 0) {
            Some(ArgValue::Packed(packed)) => Ok(Source::Packed(packed.clone())),
            _ => Ok(Source::Plain(call.shared(name)?)),
        }
    }

    pub(super) fn opt(call: &Call<'_>, name: &str) -> Result<Option<Source>> {
        call.has(name).then(|| Source::of(call, name)).transpose()
    }

    pub(super) fn dtype(&self) -> DType {
        match self {
            Source::Plain(tensor) => tensor.dtype(),
            Source::Packed(packed) => packed.dtype(),
        }
    }

    pub(super) fn shape(&self) -> &[usize] {
        match self {
            Source::Plain(tensor) => tensor.shape(),
            Source::Packed(packed) => packed.shape(),
        }
    }

    pub(super) fn len(&self) -> usize {
        shape::element_count(self.shape()).expect("whoever made the operand has counted its elements")
    }

    /// Whether all elements are known to be zero.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Source::Plain(tensor) if tensor.bytes().iter().all(|&byte| byte == 0))
    }

    pub(super) fn stored_bytes(&self) -> usize {
        match self {
            Source::Plain(tensor) => tensor.bytes().len(),
            Source::Packed(packed) => packed.stored_bytes(),
        }
    }

    /// Writes the elements of a row-major range as numbers.
    pub(super) fn read(&self, range: Range<usize>, out: &mut [f32]) {
        match self {
            Source::Packed(packed) => packed.decode(range, out),
            Source::Plain(tensor) if tensor.dtype().is_int() && tensor.dtype().bits() <= 8 => {
                dequantize::read_ints(tensor.bytes(), tensor.dtype(), range.start, &mut out[..range.len()]);
            }
            Source::Plain(tensor) => convert::to_f32(&tensor.view(), range, out),
        }
    }

    /// Writes the raw `bits`-wide fields from field `start` on; a plain tensor is read as one bit stream.
    pub(super) fn read_fields(&self, bits: u32, start: usize, out: &mut [u8]) {
        match self {
            Source::Plain(tensor) => dequantize::unpack(tensor.bytes(), bits, start, out),
            Source::Packed(packed) => {
                let (mut values, mask) = ([0.0; dequantize::CHUNK], ((1u32 << bits) - 1) as u8);
                for (i, out) in out.chunks_mut(dequantize::CHUNK).enumerate() {
                    let at = start + i * dequantize::CHUNK;
                    packed.decode(at..at + out.len(), &mut values[..out.len()]);
                    for (out, &value) in out.iter_mut().zip(&values) {
                        *out = value as u8 & mask;
                    }
                }
            }
        }
    }
}

/// Single elements of a source read mostly in order: neighbours are fetched together.
pub(super) struct Window<'a> {
    source: &'a Source,
    start: usize,
    filled: usize,
    values: [f32; 64],
}

impl<'a> Window<'a> {
    pub(super) fn new(source: &'a Source) -> Window<'a> {
        Window { source, start: 0, filled: 0, values: [0.0; 64] }
    }

    /// Element `index`; of a source with a single element, that one.
    pub(super) fn get(&mut self, index: usize) -> f32 {
        let len = self.source.len();
        let index = if len == 1 { 0 } else { index };
        if !(self.start..self.start + self.filled).contains(&index) {
            self.start = index;
            self.filled = (len - index).min(self.values.len());
            self.source.read(index..index + self.filled, &mut self.values[..self.filled]);
        }
        self.values[index - self.start]
    }
}

/// The shape of a constant parameter.
pub(super) fn fixed_shape(call: &Call<'_>, name: &str) -> Result<Shape> {
    let ty = call.ty(name)?;
    ty.concrete().ok_or_else(|| op_error!("`{name}` is a constant of unknown shape {ty}"))
}

/// The shape given by a list of dimensions.
pub(super) fn listed_shape(call: &Call<'_>, name: &str) -> Result<Shape> {
    let dims = call.ints(name)?;
    dims.iter().map(|&dim| usize::try_from(dim).map_err(|_| op_error!("`{name}` holds {dim}"))).collect()
}
