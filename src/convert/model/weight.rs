//! A weight of the model as a view of a stored tensor, read range by range.

use std::ops::Range;
use std::sync::Arc;

use super::rotate::Mapped;
use crate::checkpoint::{QuantizedBlocks, Stored};
use anemeter_kernels::tensor::{DType, Shape, shape};

/// A weight of the model: a name, a shape, and the stored tensor behind it.
#[derive(Debug, Clone)]
pub struct Weight {
    /// Name in the checkpoint; parts of a fused tensor have the part's name before the last word of it, as in
    /// `qkv_proj.query.weight`.
    pub name: String,
    /// Shape as the model uses it.
    pub shape: Shape,
    /// Where the elements come from.
    pub source: Source,
}

/// How the elements of a weight come from a stored tensor.
#[derive(Debug, Clone)]
pub enum Source {
    /// Read from the checkpoint as they are stored.
    Stored(Stored),
    /// Rows of a fused tensor, from the given row on.
    Rows(Stored, usize),
    /// The transpose of a matrix.
    Transposed(Stored),
    /// Columns of a matrix that is to be transposed, from the given column on.
    TransposedColumns(Stored, usize),
    /// One added to each element.
    PlusOne(Stored),
    /// Rows of heads whose neighbouring dimensions form pairs, in the order of halves.
    Halves(Stored, Pairs),
    /// Ones; of what is stored only the shape is meant.
    Ones(Stored),
    /// Rows of a matrix in stripes that lie between others.
    Striped(Stored, Stripes),
    /// Each element of another source times a number.
    Scaled(Box<Source>, f32),
    /// Another weight with maps of its inputs and outputs in it.
    Mapped(Arc<Mapped>),
}

/// Which rows of a matrix are taken: of so many at a time, some from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// Rows from one stripe's first to the next's.
    pub every: usize,
    /// Rows of a stripe.
    pub rows: usize,
    /// Rows before the first stripe.
    pub first: usize,
}

impl Stripes {
    fn stored_row(self, row: usize) -> usize {
        let size = self.rows.max(1);
        row / size * self.every + self.first + row % size
    }
}

/// Heads in which neighbouring dimensions are rotated against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairs {
    /// Width of a head.
    pub head_dim: usize,
    /// How many of its first dimensions are rotated.
    pub dims: usize,
}

impl Pairs {
    /// The stored row of a row in the order of halves: the first of each pair, then the second, then the rest.
    fn stored_row(self, row: usize) -> usize {
        let at = row % self.head_dim;
        let (half, first) = (self.dims / 2, row - at);
        first
            + if at < half {
                2 * at
            } else if at < 2 * half {
                2 * (at - half) + 1
            } else {
                at
            }
    }
}

impl Weight {
    /// The number of elements.
    pub fn element_count(&self) -> usize {
        count(&self.shape)
    }

    /// The weight times a number, which is multiplied before anything is rounded.
    #[must_use]
    pub fn scaled(self, factor: f32) -> Weight {
        if factor == 1.0 {
            return self;
        }
        Weight { source: Source::Scaled(Box::new(self.source), factor), ..self }
    }

    /// The number that it is multiplied by.
    pub(super) fn factor(&self) -> f32 {
        let mut factor = 1.0;
        let mut source = &self.source;
        while let Source::Scaled(inner, own) = source {
            factor *= own;
            source = inner;
        }
        factor
    }

    /// Stripes of the rows, under a name of their own.
    #[must_use]
    pub fn striped(&self, stripes: Stripes, part: &str) -> Weight {
        let (module, last) = self.name.rsplit_once('.').unwrap_or(("", &self.name));
        let name = format!("{module}.{part}.{last}");
        let mut shape = self.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows = *rows / stripes.every.max(1) * stripes.rows;
        }
        let source = match &self.source {
            Source::Stored(stored) => Source::Striped(stored.clone(), stripes),
            source => source.clone(),
        };
        Weight { name, shape, source }
    }

    /// The rows of heads whose neighbouring dimensions form pairs, in the order of halves.
    #[must_use]
    pub fn by_halves(self, pairs: Pairs) -> Weight {
        match self.source {
            Source::Stored(stored) => Weight { source: Source::Halves(stored, pairs), ..self },
            source => Weight { source, ..self },
        }
    }

    /// Writes the elements of a row-major range as f32.
    pub fn read(&self, range: Range<usize>, out: &mut [f32]) {
        self.read_source(&self.source, range, out);
    }

    fn read_source(&self, source: &Source, range: Range<usize>, out: &mut [f32]) {
        match source {
            Source::Stored(stored) => stored.read(range, out),
            Source::Rows(stored, row) => {
                let start = self.row_start(*row);
                stored.read(start + range.start..start + range.end, out);
            }
            Source::Transposed(stored) => self.columns(stored, 0).read(range, out),
            Source::TransposedColumns(stored, column) => self.columns(stored, *column).read(range, out),
            Source::PlusOne(stored) => {
                let out = &mut out[..range.len()];
                stored.read(range, out);
                out.iter_mut().for_each(|x| *x += 1.0);
            }
            Source::Halves(stored, pairs) => {
                self.read_rows(stored, |row| pairs.stored_row(row), range, out);
            }
            Source::Striped(stored, stripes) => {
                self.read_rows(stored, |row| stripes.stored_row(row), range, out);
            }
            Source::Ones(_) => out[..range.len()].fill(1.0),
            Source::Mapped(mapped) => mapped.read(range, out),
            Source::Scaled(inner, factor) => {
                let out = &mut out[..range.len()];
                self.read_source(inner, range, out);
                out.iter_mut().for_each(|x| *x *= factor);
            }
        }
    }

    /// Reads rows that are stored in another order.
    fn read_rows(
        &self,
        stored: &Stored,
        stored_row: impl Fn(usize) -> usize,
        range: Range<usize>,
        out: &mut [f32],
    ) {
        let width = self.row_start(1).max(1);
        let mut at = range.start;
        while at < range.end {
            let (row, column) = (at / width, at % width);
            let len = (width - column).min(range.end - at);
            let start = stored_row(row) * width + column;
            stored.read(start..start + len, &mut out[at - range.start..][..len]);
            at += len;
        }
    }

    /// The elements of a row-major range where they are fp16 and stored as they are used.
    pub fn halves(&self, range: Range<usize>) -> Option<&[u8]> {
        let is_plain = match &self.source {
            Source::Stored(stored) | Source::Rows(stored, _) => stored.is_plain(DType::F16),
            Source::Transposed(_)
            | Source::TransposedColumns(..)
            | Source::PlusOne(_)
            | Source::Halves(..)
            | Source::Ones(_)
            | Source::Striped(..)
            | Source::Mapped(_)
            | Source::Scaled(..) => false,
        };
        is_plain.then(|| self.source_bytes(range))
    }

    /// The stored bytes that a row-major range of elements comes from; of a transpose, all of them.
    pub fn source_bytes(&self, range: Range<usize>) -> &[u8] {
        let (stored, bytes) = self.source_range(range);
        &stored.bytes[bytes]
    }

    /// Which of the checkpoint's files the elements come from.
    pub fn shard(&self) -> usize {
        self.source_range(0..0).0.shard
    }

    /// How many stored bytes a number of elements takes.
    pub fn stored_len(&self, elements: usize) -> u64 {
        let stored = self.source_range(0..0).0;
        let all = count(&stored.shape).max(1) as u128;
        (elements as u128 * stored.bytes.len() as u128 / all) as u64
    }

    /// Waits until the stored bytes of a range are in memory.
    pub fn page_in(&self, range: Range<usize>) {
        const PAGE: usize = 4096;
        std::hint::black_box(self.source_bytes(range).iter().step_by(PAGE).fold(0, |all, byte| all ^ byte));
    }

    /// Lets the system drop the stored bytes of a range from memory; those of a transpose once its end is read.
    pub fn release(&self, range: Range<usize>) {
        let all = range.end == self.element_count();
        let (stored, bytes) = self.source_range(range);
        if bytes.len() < stored.bytes.len() || all {
            stored.bytes.release(bytes);
        }
    }

    fn source_range(&self, range: Range<usize>) -> (&Stored, Range<usize>) {
        self.range_of(&self.source, range)
    }

    fn range_of<'a>(&self, source: &'a Source, range: Range<usize>) -> (&'a Stored, Range<usize>) {
        let (stored, offset) = match source {
            Source::Scaled(inner, _) => return self.range_of(inner, range),
            Source::Mapped(mapped) => return mapped.inner().source_range(mapped.needed(range)),
            Source::Stored(stored) | Source::PlusOne(stored) => (stored, 0),
            Source::Rows(stored, row) => (stored, self.row_start(*row)),
            Source::Transposed(stored)
            | Source::TransposedColumns(stored, _)
            | Source::Halves(stored, _)
            | Source::Striped(stored, _)
            | Source::Ones(stored) => {
                return (stored, 0..stored.bytes.len());
            }
        };
        if !stored.is_by_rows() {
            return (stored, 0..stored.bytes.len());
        }
        let elements = count(&stored.shape).max(1) as u128;
        let len = stored.bytes.len();
        let byte = |element: usize| ((element as u128 * len as u128).div_ceil(elements) as usize).min(len);
        (stored, byte(offset + range.start)..byte(offset + range.end))
    }

    /// The integers behind the elements from one on, where there are such and a block begins there.
    pub fn quantized_blocks(&self, first: usize) -> Option<QuantizedBlocks> {
        let (stored, start) = match &self.source {
            Source::Stored(stored) => (stored, 0),
            Source::Rows(stored, row) => (stored, self.row_start(*row)),
            Source::Transposed(_)
            | Source::TransposedColumns(..)
            | Source::PlusOne(_)
            | Source::Halves(..)
            | Source::Ones(_)
            | Source::Striped(..)
            | Source::Mapped(_)
            | Source::Scaled(..) => return None,
        };
        stored.quantized_blocks()?.starting_at(start + first)
    }

    /// The element that a stored row begins with.
    fn row_start(&self, row: usize) -> usize {
        row * self.shape.iter().skip(1).product::<usize>()
    }

    fn columns<'a>(&self, stored: &'a Stored, first: usize) -> Columns<'a> {
        let last = |shape: &[usize]| shape.last().copied().unwrap_or(1);
        Columns { stored, stride: last(&stored.shape), first, width: last(&self.shape) }
    }
}

fn count(shape: &[usize]) -> usize {
    shape::element_count(shape).expect("a reader takes no tensor whose elements cannot be counted")
}

/// Columns of a stored matrix, read as the rows of its transpose.
struct Columns<'a> {
    stored: &'a Stored,
    /// Columns of the stored matrix.
    stride: usize,
    first: usize,
    /// Rows of the stored matrix.
    width: usize,
}

/// Side of the square that is transposed at a time.
const TILE: usize = 64;

impl Columns<'_> {
    fn read(&self, range: Range<usize>, out: &mut [f32]) {
        let width = self.width.max(1);
        let mut at = range.start;
        while at < range.end {
            let (row, column) = (at / width, at % width);
            let whole = (range.end - at) / width;
            let (rows, columns) = if column == 0 && whole > 0 {
                (row..row + whole, 0..width)
            } else {
                (row..row + 1, column..width.min(column + range.end - at))
            };
            let len = rows.len() * columns.len();
            self.rectangle(rows, columns, &mut out[at - range.start..][..len]);
            at += len;
        }
    }

    fn rectangle(&self, rows: Range<usize>, columns: Range<usize>, out: &mut [f32]) {
        let mut tile = [0.0; TILE * TILE];
        for top in rows.clone().step_by(TILE) {
            let height = TILE.min(rows.end - top);
            for left in columns.clone().step_by(TILE) {
                let breadth = TILE.min(columns.end - left);
                for (line, column) in tile.chunks_exact_mut(TILE).zip(left..left + breadth) {
                    let start = column * self.stride + self.first + top;
                    self.stored.read(start..start + height, &mut line[..height]);
                }
                for row in 0..height {
                    let start = (top - rows.start + row) * columns.len() + left - columns.start;
                    for (out, line) in out[start..start + breadth].iter_mut().zip(tile.chunks_exact(TILE)) {
                        *out = line[row];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::stored;
    use super::*;

    fn weight(shape: &[usize], source: Source) -> Weight {
        Weight { name: "w".to_owned(), shape: shape.into(), source }
    }

    #[test]
    fn every_source_gives_any_range() {
        let matrix = stored(&[130, 201]);
        let element = |row: usize, column: usize| (row * 201 + column) as f32;
        let by_halves = |row: usize| row / 10 * 10 + [0, 2, 4, 1, 3, 5, 6, 7, 8, 9][row % 10];
        let pairs = Pairs { head_dim: 10, dims: 6 };
        let halves = weight(&[130, 201], Source::Stored(matrix.clone())).by_halves(pairs);
        let rows = weight(&[30, 201], Source::Rows(matrix.clone(), 7));
        let stripes = Stripes { every: 13, rows: 5, first: 3 };
        let striped = weight(&[50, 201], Source::Striped(matrix.clone(), stripes));
        let cases: [(Weight, &dyn Fn(usize) -> f32); 9] = [
            (striped, &|i| element(i / 201 / 5 * 13 + 3 + i / 201 % 5, i % 201)),
            (weight(&[130, 201], Source::Stored(matrix.clone())), &|i| i as f32),
            (weight(&[30, 201], Source::Rows(matrix.clone(), 7)), &|i| (7 * 201 + i) as f32),
            (weight(&[201, 130], Source::Transposed(matrix.clone())), &|i| element(i % 130, i / 130)),
            (weight(&[67, 130], Source::TransposedColumns(matrix.clone(), 67)), &|i| {
                element(i % 130, 67 + i / 130)
            }),
            (weight(&[130, 201], Source::PlusOne(matrix.clone())), &|i| i as f32 + 1.0),
            (halves.clone(), &|i| element(by_halves(i / 201), i % 201)),
            (halves.scaled(0.5), &|i| element(by_halves(i / 201), i % 201) * 0.5),
            (rows.scaled(3.0), &|i| (7 * 201 + i) as f32 * 3.0),
        ];
        for (weight, expected) in cases {
            let count = weight.element_count();
            for range in [0..count, 0..1, 129..131, 100..1000, 128..128, 131..count - 1, count - 1..count] {
                let mut out = vec![-1.0; range.len()];
                weight.read(range.clone(), &mut out);
                let wanted: Vec<f32> = range.clone().map(expected).collect();
                assert!(out == wanted, "{:?} {range:?}", weight.shape);
            }
        }
    }

    #[test]
    fn rows_of_a_vector_are_elements() {
        let bias = weight(&[3], Source::Rows(stored(&[9]), 3));
        let mut out = [0.0; 2];
        bias.read(1..3, &mut out);
        assert_eq!(out, [4.0, 5.0]);
    }
}
