//! A weight to be compressed: its elements, read in batches.

use std::io::{self, Write};
use std::sync::Arc;

use half::f16;

use super::layout::Layout;
use anemeter_kernels::convert;
use anemeter_kernels::tensor::{AlignedBuf, Bytes, DType};
use anemeter_mil::{Literal, LiteralData, Payload, QuantizedSource};

/// Elements that are handled at a time, as far as units allow.
const BATCH: usize = 1 << 20;

/// A weight of fp16 or fp32 elements.
#[derive(Debug, Clone)]
pub(super) struct Weight {
    /// Its name in the program.
    pub(super) name: String,
    /// Type of its elements: fp16 or fp32.
    pub(super) dtype: DType,
    /// Its shape.
    pub(super) layout: Layout,
    data: Data,
}

#[derive(Debug, Clone)]
enum Data {
    Bytes(Bytes),
    Stream(Arc<dyn Payload>),
}

/// What tells the bytes of one weight from those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Identity {
    address: usize,
    len: u64,
}

impl Identity {
    /// The identity of a constant of the weight file.
    pub(super) fn of(literal: &Literal) -> Option<Identity> {
        match &literal.data {
            LiteralData::Blob(bytes) => Some(Identity::of_bytes(bytes)),
            LiteralData::Stream(payload) => Some(Identity::of_stream(payload)),
            _ => None,
        }
    }

    fn of_bytes(bytes: &Bytes) -> Identity {
        Identity { address: bytes.as_ptr() as usize, len: bytes.len() as u64 }
    }

    fn of_stream(payload: &Arc<dyn Payload>) -> Identity {
        Identity { address: Arc::as_ptr(payload).cast::<()>() as usize, len: payload.byte_len() }
    }
}

impl Weight {
    /// A constant of the weight file, if it has elements that can be compressed.
    pub(super) fn of(name: &str, literal: &Literal, layout: Layout) -> Option<Weight> {
        let dtype = literal.ty.tensor()?.dtype;
        let data = match &literal.data {
            LiteralData::Blob(bytes) => Data::Bytes(bytes.clone()),
            LiteralData::Stream(payload) => Data::Stream(payload.clone()),
            _ => return None,
        };
        let is_compressible = matches!(dtype, DType::F16 | DType::F32);
        is_compressible.then(|| Weight { name: name.to_owned(), dtype, layout, data })
    }

    /// The same elements, seen otherwise.
    pub(super) fn with_layout(&self, layout: Layout) -> Weight {
        Weight { layout, ..self.clone() }
    }

    pub(super) fn identity(&self) -> Identity {
        match &self.data {
            Data::Bytes(bytes) => Identity::of_bytes(bytes),
            Data::Stream(payload) => Identity::of_stream(payload),
        }
    }

    /// The integers behind the elements, where they come from such.
    pub(super) fn quantized(&self) -> Option<Arc<dyn QuantizedSource>> {
        match &self.data {
            Data::Stream(payload) => payload.quantized(),
            Data::Bytes(_) => None,
        }
    }

    /// Bytes of an element.
    pub(super) fn element(&self) -> usize {
        self.dtype.bits() as usize / 8
    }

    /// Bytes of all elements.
    pub(super) fn byte_len(&self) -> u64 {
        self.layout.elements() as u64 * self.element() as u64
    }

    /// Hands over the elements channel by channel, in batches of whole units of that many elements; the last unit
    /// may be shorter.
    pub(super) fn for_each_batch(
        &self,
        unit: usize,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let unit = unit.max(1);
        let size = (BATCH / unit).max(1) * unit * self.element();
        if !self.layout.is_by_rows() {
            let rows = self.layout.to_rows(self.element(), &self.whole()?);
            return rows.chunks(size).try_for_each(take);
        }
        match &self.data {
            Data::Bytes(bytes) => {
                for (index, chunk) in bytes.chunks(size).enumerate() {
                    take(chunk)?;
                    bytes.release(index * size..index * size + chunk.len());
                }
                Ok(())
            }
            Data::Stream(payload) => {
                let len = (payload.byte_len() as usize).min(size);
                let mut gather = Gather { buffer: AlignedBuf::zeroed(len), filled: 0, take };
                payload.write_to(&mut gather)?;
                gather.finish()
            }
        }
    }

    fn whole(&self) -> io::Result<Vec<u8>> {
        match &self.data {
            Data::Bytes(bytes) => Ok(bytes.to_vec()),
            Data::Stream(payload) => {
                let mut whole = Vec::new();
                payload.write_to(&mut whole)?;
                Ok(whole)
            }
        }
    }

    /// An error about an element.
    pub(super) fn not_finite(&self, value: f32) -> io::Error {
        let message =
            format!("weight `{}` has an element that is {value} and cannot be compressed", self.name);
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

/// Collects what is written until a batch is full.
struct Gather<'a> {
    buffer: AlignedBuf,
    filled: usize,
    take: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
}

impl Gather<'_> {
    fn finish(self) -> io::Result<()> {
        if self.filled > 0 { (self.take)(&self.buffer[..self.filled]) } else { Ok(()) }
    }
}

impl Write for Gather<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.buffer.len() - self.filled);
        self.buffer[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        if self.filled == self.buffer.len() && self.filled > 0 {
            self.filled = 0;
            (self.take)(&self.buffer)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Elements of fp16 or fp32 as numbers.
pub(super) fn numbers(dtype: DType, bytes: &[u8], out: &mut Vec<f32>) {
    if dtype == DType::F16 {
        out.resize(bytes.len() / 2, 0.0);
        match bytemuck::try_cast_slice::<u8, f16>(bytes) {
            Ok(halves) => convert::convert(halves, out),
            Err(_) => {
                for (out, half) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *out = f16::from_le_bytes(*half).to_f32();
                }
            }
        }
    } else {
        out.clear();
        out.extend(bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)));
    }
}

/// Numbers in the given type as bytes.
pub(super) fn to_bytes(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F16 => values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// The nearest number of the given type.
pub(super) fn rounded(dtype: DType, value: f32) -> f32 {
    if dtype == DType::F16 { convert::round_f16(value) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::testing::{Streamed, weight};

    #[test]
    fn batches_are_whole_units_from_memory_and_streams() {
        let values: Vec<f32> = (0..3 << 19).map(|i| (i % 2048) as f32).collect();
        let shape = [3 << 9, 1 << 10];
        let in_memory = weight(DType::F16, &shape, &values);
        let streamed = Weight {
            data: Data::Stream(Arc::new(Streamed(to_bytes(DType::F16, &values)))),
            ..in_memory.clone()
        };
        for weight in [in_memory, streamed] {
            for unit in [1 << 10, 1000, 1 << 21] {
                let mut read = Vec::new();
                weight
                    .for_each_batch(unit, &mut |bytes| {
                        assert!(
                            bytes.len() % (unit * 2) == 0 || read.len() + bytes.len() == values.len() * 2
                        );
                        read.extend_from_slice(bytes);
                        Ok(())
                    })
                    .unwrap();
                assert!(read == to_bytes(DType::F16, &values));
            }
        }
    }

    #[test]
    fn columns_are_read_one_after_the_other() {
        let mut weight = weight(DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        weight.layout.channel = 1;
        weight.layout.input = 0;
        let mut read = Vec::new();
        let mut take = |bytes: &[u8]| {
            let mut out = Vec::new();
            numbers(DType::F32, bytes, &mut out);
            read.extend(out);
            Ok(())
        };
        weight.for_each_batch(2, &mut take).unwrap();
        assert_eq!(read, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
