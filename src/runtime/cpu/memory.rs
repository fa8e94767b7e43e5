//! The memory of a session: arena, growing buffers and states, and the split of the arena between what an
//! operation reads and what it writes.

use std::ops::Range;

use smallvec::SmallVec;

use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, TensorView};
use anemeter_mil::op::Scratch;
use anemeter_mil::{TensorType, Type};

/// Working memory, reused from prediction to prediction.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) arena: AlignedBuf,
    pub(super) grown: Vec<GrowableTensor>,
    pub(super) scratch: Scratch,
}

/// A value in a buffer of its own.
pub(super) struct GrowableTensor {
    pub(super) buffer: AlignedBuf,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) ty: Type,
}

impl Default for GrowableTensor {
    /// A value that is not there: no bytes for one element. Nothing is allocated.
    fn default() -> GrowableTensor {
        let ty = TensorType::scalar(DType::Bool).into();
        GrowableTensor { buffer: AlignedBuf::default(), dtype: DType::Bool, shape: Shape::new(), ty }
    }
}

impl GrowableTensor {
    pub(super) fn view(&self) -> Option<TensorView<'_>> {
        TensorView::new(self.dtype, &self.shape, &self.buffer).ok()
    }

    /// Records what an operation left in the buffer; `ty` says whether it is a list.
    pub(super) fn set_type(&mut self, dtype: DType, shape: &[usize], is_list: bool) {
        if self.dtype == dtype && self.shape[..] == *shape && matches!(self.ty, Type::List(..)) == is_list {
            return;
        }
        self.dtype = dtype;
        self.shape = shape.into();
        self.ty = match shape {
            [length, element @ ..] if is_list => {
                Type::List(Box::new(TensorType::fixed(dtype, element).into()), (*length).into())
            }
            _ => TensorType::fixed(dtype, shape).into(),
        };
    }

    pub(super) fn copy_from(&mut self, view: &TensorView<'_>, is_list: bool) {
        self.buffer.resize(view.bytes().len());
        self.buffer.copy_from_slice(view.bytes());
        self.set_type(view.dtype(), view.shape(), is_list);
    }
}

impl Memory {
    /// Makes room for a plan; what is there already stays.
    pub(super) fn reserve(&mut self, arena_bytes: usize, growable: usize) {
        if self.arena.len() < arena_bytes {
            self.arena.resize(arena_bytes);
        }
        while self.grown.len() < growable {
            self.grown.push(GrowableTensor::default());
        }
    }
}

/// The parts of the arena that an operation does not write to.
pub(super) struct ReadableArena<'a> {
    gaps: SmallVec<[(usize, &'a [u8]); 4]>,
}

impl<'a> ReadableArena<'a> {
    /// The arena while nothing is written.
    pub(super) fn whole(arena: &'a [u8]) -> ReadableArena<'a> {
        ReadableArena { gaps: smallvec::smallvec![(0, arena)] }
    }

    pub(super) fn get(&self, range: Range<usize>) -> Option<&'a [u8]> {
        self.gaps.iter().find_map(|&(start, bytes)| {
            let from = range.start.checked_sub(start)?;
            bytes.get(from..from + range.len())
        })
    }
}

/// Splits the arena into mutable parts, given by ascending and disjoint ranges, and the readable rest.
pub(super) fn split<'a>(
    arena: &'a mut [u8],
    written: &[Range<usize>],
) -> (SmallVec<[&'a mut [u8]; 4]>, ReadableArena<'a>) {
    let mut writable = SmallVec::new();
    let mut gaps = SmallVec::new();
    let (mut rest, mut at) = (arena, 0);
    for range in written {
        let (gap, tail) = rest.split_at_mut(range.start - at);
        let (part, tail) = tail.split_at_mut(range.len());
        gaps.push((at, &*gap));
        writable.push(part);
        (rest, at) = (tail, range.end);
    }
    gaps.push((at, &*rest));
    (writable, ReadableArena { gaps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arena_splits_into_written_and_read_parts() {
        let mut arena: Vec<u8> = (0..10).collect();
        let (mut writable, readable) = split(&mut arena, &[2..4, 6..9]);
        assert_eq!(readable.get(0..2), Some(&[0, 1][..]));
        assert_eq!(readable.get(4..6), Some(&[4, 5][..]));
        assert_eq!(readable.get(9..10), Some(&[9][..]));
        assert_eq!(readable.get(3..5), None);
        writable[1][0] = 60;
        assert_eq!(writable[0], [2, 3]);
        drop((writable, readable));
        assert_eq!(arena[6], 60);
    }
}
