//! One tensor of a checkpoint, as it is stored.

use std::ops::Range;
use std::sync::Arc;

use super::blocks::Block;
use super::mlx_affine::MlxAffine;
use super::quantized::{FakeQuantized, GroupQuantized};
use anemeter_kernels::convert;
use anemeter_kernels::tensor::{Bytes, DType, Shape, TensorView};
use anemeter_mil::QuantizedSource;

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Its shape in Hugging Face's layout.
    pub shape: Shape,
    /// How its elements are encoded.
    pub encoding: Encoding,
    /// Its bytes, mapped.
    pub bytes: Bytes,
    /// Which of the checkpoint's files they are of.
    pub shard: usize,
}

/// How the elements of a stored tensor are encoded.
#[derive(Debug, Clone, PartialEq)]
pub enum Encoding {
    /// One element after the other.
    Plain(DType),
    /// Blocks, or an order or offset of the elements that differs from Hugging Face's.
    Gguf(GgufEncoding),
    /// Packed integers, with a scale and a bias for each group of a row.
    MlxAffine(Arc<MlxAffine>),
    /// Packed integers, with a scale and a zero for each group of a row.
    GroupQuantized(Arc<GroupQuantized>),
    /// Plain elements that were trained to be integers times a scale.
    FakeQuantized(Arc<FakeQuantized>),
}

/// How a GGUF file keeps the elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GgufEncoding {
    /// What an element is.
    pub elements: Elements,
    /// Where an element is.
    pub order: Order,
    /// Whether the file holds each element plus one.
    pub plus_one: bool,
}

/// What an element of a GGUF tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// A number of its own.
    Plain(DType),
    /// Part of a quantised block.
    Blocks(Block),
}

/// Where the elements of a GGUF tensor are, as seen from Hugging Face's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Rows stay where they are.
    Same,
    /// The two halves of each head's rows alternate.
    Interleaved {
        /// Rows of a head.
        head_dim: usize,
    },
    /// In the transpose of this matrix.
    Transposed,
}

impl Stored {
    /// Whether the bytes are elements of a type in Hugging Face's layout.
    pub fn is_plain(&self, dtype: DType) -> bool {
        match &self.encoding {
            Encoding::Plain(stored) => *stored == dtype,
            Encoding::Gguf(GgufEncoding { elements, order: Order::Same, plus_one: false }) => {
                *elements == Elements::Plain(dtype)
            }
            Encoding::FakeQuantized(fake) => fake.dtype == dtype,
            Encoding::Gguf(_) | Encoding::MlxAffine(_) | Encoding::GroupQuantized(_) => false,
        }
    }

    /// Whether the bytes of a row-major range of elements are a range too.
    pub fn is_by_rows(&self) -> bool {
        !matches!(self.encoding, Encoding::GroupQuantized(_))
    }

    /// Writes the elements of a row-major range as f32.
    pub fn read(&self, range: Range<usize>, out: &mut [f32]) {
        match &self.encoding {
            Encoding::Plain(dtype) => {
                let view = TensorView::new(*dtype, &self.shape, &self.bytes);
                convert::to_f32(&view.expect("a reader checks bytes against the shape"), range, out);
            }
            Encoding::Gguf(encoding) => encoding.read(self, range, out),
            Encoding::MlxAffine(groups) => groups.read(&self.bytes, range, out),
            Encoding::GroupQuantized(scaled) => scaled.read(range, out),
            Encoding::FakeQuantized(fake) => fake.read(range, out),
        }
    }
}

/// A stored tensor whose elements are integers times a scale plus a minimum, block by block.
#[derive(Debug, Clone)]
pub struct QuantizedBlocks {
    stored: Stored,
    /// The block that is read as the first.
    first: usize,
    bits: u32,
    is_signed: bool,
    is_rounded: bool,
    is_scattered: bool,
    form: BlockForm,
}

#[derive(Debug, Clone)]
enum BlockForm {
    /// Blocks, with the rows of each head in another order if its size is given.
    Blocks(Block, Option<usize>),
    MlxAffine(Arc<MlxAffine>),
    GroupQuantized(Arc<GroupQuantized>),
    FakeQuantized(Arc<FakeQuantized>),
}

impl Stored {
    /// The integers behind the elements, where there are such of 4 or 8 bits.
    pub fn quantized_blocks(&self) -> Option<QuantizedBlocks> {
        let (mut is_rounded, mut is_scattered) = (false, false);
        let (bits, is_signed, form) = match &self.encoding {
            Encoding::Gguf(GgufEncoding { elements: Elements::Blocks(block), order, plus_one: false }) => {
                let (bits, is_signed) = block.integers()?;
                let head_dim = match *order {
                    Order::Same => None,
                    Order::Interleaved { head_dim } if self.shape.len() > 1 => Some(head_dim),
                    // The elements of a block are then not those of a stored one.
                    Order::Interleaved { .. } | Order::Transposed => return None,
                };
                (bits, is_signed, BlockForm::Blocks(*block, head_dim))
            }
            Encoding::MlxAffine(groups) if matches!(groups.bits, 4 | 8) => {
                (groups.bits, false, BlockForm::MlxAffine(groups.clone()))
            }
            Encoding::GroupQuantized(scaled) if matches!(scaled.bits(), 4 | 8) => {
                is_scattered = !scaled.is_in_order();
                (scaled.bits(), scaled.is_signed, BlockForm::GroupQuantized(scaled.clone()))
            }
            Encoding::FakeQuantized(fake) => {
                let found = fake.found()?;
                is_rounded = !found.is_exact;
                (found.bits, found.is_signed, BlockForm::FakeQuantized(fake.clone()))
            }
            _ => return None,
        };
        let stored = self.clone();
        Some(QuantizedBlocks { stored, first: 0, bits, is_signed, is_rounded, is_scattered, form })
    }
}

impl QuantizedBlocks {
    /// The blocks from an element on, if one begins there.
    pub fn starting_at(self, element: usize) -> Option<QuantizedBlocks> {
        let is_whole = element.is_multiple_of(self.block());
        is_whole.then(|| QuantizedBlocks { first: element / self.block(), ..self })
    }
}

impl QuantizedSource for QuantizedBlocks {
    fn bits(&self) -> u32 {
        self.bits
    }

    fn is_signed(&self) -> bool {
        self.is_signed
    }

    fn is_rounded(&self) -> bool {
        self.is_rounded
    }

    fn is_scattered(&self) -> bool {
        self.is_scattered
    }

    fn block(&self) -> usize {
        match &self.form {
            BlockForm::Blocks(block, _) => block.elements(),
            BlockForm::MlxAffine(groups) => groups.size,
            BlockForm::GroupQuantized(scaled) => scaled.size(),
            BlockForm::FakeQuantized(fake) => fake.size,
        }
    }

    fn read(&self, blocks: Range<usize>, codes: &mut [u8], scales: &mut [f32], minimums: &mut [f32]) {
        let width: usize = self.stored.shape.iter().skip(1).product::<usize>() / self.block();
        let each = codes.chunks_exact_mut(self.block()).zip(scales.iter_mut().zip(minimums));
        for (index, (codes, (scale, minimum))) in blocks.map(|block| self.first + block).zip(each) {
            (*scale, *minimum) = match &self.form {
                BlockForm::Blocks(block, head_dim) => {
                    let from = match head_dim {
                        Some(head_dim) => interleaved(index / width, *head_dim) * width + index % width,
                        None => index,
                    };
                    let size = block.bytes();
                    block.split(&self.stored.bytes[from * size..(from + 1) * size], codes)
                }
                BlockForm::MlxAffine(groups) => groups.split(&self.stored.bytes, index, codes),
                BlockForm::GroupQuantized(scaled) => scaled.split(index, codes),
                BlockForm::FakeQuantized(fake) => fake.split(index, codes),
            };
        }
    }
}

impl GgufEncoding {
    fn read(self, stored: &Stored, range: Range<usize>, out: &mut [f32]) {
        let out = &mut out[..range.len()];
        let width: usize = stored.shape.iter().skip(1).product();
        match self.order {
            Order::Same => self.elements.read(&stored.bytes, range, out),
            Order::Interleaved { head_dim } => {
                let mut rest = &mut *out;
                let mut at = range.start;
                while !rest.is_empty() {
                    let (row, column) = (at / width, at % width);
                    let (now, later) = rest.split_at_mut((width - column).min(rest.len()));
                    let from = interleaved(row, head_dim) * width + column;
                    self.elements.read(&stored.bytes, from..from + now.len(), now);
                    at += now.len();
                    rest = later;
                }
            }
            Order::Transposed => self.read_transposed(stored, width, range, out),
        }
        if self.plus_one {
            out.iter_mut().for_each(|x| *x -= 1.0);
        }
    }

    /// Reads along the stored rows, so that a block serves as many elements as the range has of it.
    fn read_transposed(self, stored: &Stored, width: usize, range: Range<usize>, out: &mut [f32]) {
        if range.is_empty() {
            return;
        }
        let stored_width = stored.shape[0];
        let rows = range.start / width..(range.end - 1) / width + 1;
        let columns = match rows.len() {
            1 => range.start % width..(range.end - 1) % width + 1,
            _ => 0..width,
        };
        let mut line = vec![0.0; rows.len()];
        for column in columns {
            let from = column * stored_width;
            self.elements.read(&stored.bytes, from + rows.start..from + rows.end, &mut line);
            for (row, &value) in rows.clone().zip(&line) {
                let at = row * width + column;
                if range.contains(&at) {
                    out[at - range.start] = value;
                }
            }
        }
    }
}

/// The stored row of a row of queries or keys.
fn interleaved(row: usize, head_dim: usize) -> usize {
    let (within, half) = (row % head_dim, head_dim / 2);
    row - within + within % half * 2 + within / half
}

impl Elements {
    fn read(self, bytes: &Bytes, range: Range<usize>, out: &mut [f32]) {
        match self {
            Elements::Plain(dtype) => {
                let count = bytes.len() * 8 / dtype.bits() as usize;
                let shape = [count];
                let view = TensorView::new(dtype, &shape, bytes);
                convert::to_f32(&view.expect("a reader takes whole elements"), range, out);
            }
            Elements::Blocks(block) => block.read(bytes, range, out),
        }
    }

    /// Bytes of a tensor of the given shape, or `None` if its rows are not whole blocks or it is too large.
    pub(super) fn byte_len(self, shape: &[usize]) -> Option<usize> {
        let count = anemeter_kernels::tensor::shape::element_count(shape)?;
        match self {
            Elements::Plain(dtype) => dtype.byte_len(count),
            Elements::Blocks(block) => {
                let is_whole = shape.last().copied().unwrap_or(1).is_multiple_of(block.elements());
                is_whole.then(|| (count / block.elements()).checked_mul(block.bytes())).flatten()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::all;

    fn stored(shape: &[usize], order: Order, plus_one: bool, values: &[f32]) -> Stored {
        let encoding = GgufEncoding { elements: Elements::Plain(DType::F32), order, plus_one };
        gguf(shape, encoding, bytemuck::cast_slice(values).to_vec())
    }

    fn gguf(shape: &[usize], encoding: GgufEncoding, bytes: Vec<u8>) -> Stored {
        Stored { shape: shape.into(), encoding: Encoding::Gguf(encoding), bytes: bytes.into(), shard: 0 }
    }

    #[test]
    fn orders_are_undone() {
        let rows: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let heads = stored(&[8, 2], Order::Interleaved { head_dim: 4 }, false, &rows);
        let expected = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15].map(|i| i as f32);
        assert_eq!(all(&heads), expected);
        let transposed = stored(&[2, 3], Order::Transposed, false, &rows[..6]);
        assert_eq!(all(&transposed), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
        let norm = stored(&[3], Order::Same, true, &[1.0, 1.5, 0.0]);
        assert_eq!(all(&norm), [0.0, 0.5, -1.0]);
    }

    #[test]
    fn integers_times_scale_plus_minimum_are_the_elements() {
        for (block, order) in [
            (Block::Q8_0, Order::Same),
            (Block::Q4_0, Order::Interleaved { head_dim: 4 }),
            (Block::Q4_1, Order::Same),
        ] {
            let bytes: Vec<u8> = (0..16 * block.bytes()).map(|i| (i * 37 % 113) as u8).collect();
            let encoding = GgufEncoding { elements: Elements::Blocks(block), order, plus_one: false };
            let stored = gguf(&[8, 64], encoding, bytes);
            let integers = stored.quantized_blocks().unwrap();
            let (mut codes, mut scales, mut minimums) = ([0; 160], [0.0; 5], [0.0; 5]);
            integers.read(3..8, &mut codes, &mut scales, &mut minimums);
            let code =
                |code: u8| if integers.is_signed() { f32::from(code.cast_signed()) } else { f32::from(code) };
            let got: Vec<_> = (0..160).map(|i| scales[i / 32] * code(codes[i]) + minimums[i / 32]).collect();
            assert_eq!(got, all(&stored)[96..256], "{block:?}");
        }
        let blocks = |shape: &[usize], block, order, plus_one| {
            gguf(shape, GgufEncoding { elements: Elements::Blocks(block), order, plus_one }, vec![0; 512])
        };
        assert!(blocks(&[1, 256], Block::Q6_K, Order::Same, false).quantized_blocks().is_none());
        assert!(blocks(&[1, 256], Block::Q8_0, Order::Same, true).quantized_blocks().is_none());
        let interleaved = Order::Interleaved { head_dim: 4 };
        assert!(blocks(&[256], Block::Q8_0, interleaved, false).quantized_blocks().is_none());
    }

    proptest::proptest! {
        #[test]
        fn ranges_are_parts_of_the_whole(order in 0usize..3, a in 0usize..=96, b in 0usize..=96) {
            let order = [Order::Same, Order::Interleaved { head_dim: 4 }, Order::Transposed][order];
            let values: Vec<f32> = (0..96).map(|i| i as f32).collect();
            let stored = stored(&[8, 12], order, false, &values);
            let range = a.min(b)..a.max(b);
            let mut part = vec![0.0; range.len()];
            stored.read(range.clone(), &mut part);
            assert_eq!(part, all(&stored)[range]);
        }
    }
}
