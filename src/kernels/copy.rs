//! Copies between two strided layouts of the same elements, whatever the elements are: only their size counts.

use smallvec::SmallVec;

use super::parallel::for_each_chunk;
use crate::tensor::DType;

/// Bytes from which a copy is worth splitting between threads.
const PARALLEL_BYTES: usize = 1 << 20;

/// Into how many parts a large copy is split at most.
const SHARES: usize = 16;

/// Side of the square blocks in which a transposition is carried out.
const BLOCK: usize = 16;

/// A copy of a box of elements: where it starts on either side, and how far each axis steps.
#[derive(Debug, Clone)]
pub struct StridedCopy {
    from: usize,
    to: usize,
    axes: Axes,
}

type Axes = SmallVec<[Axis; 12]>;

#[derive(Debug, Clone, Copy)]
struct Axis {
    len: usize,
    from: isize,
    to: isize,
}

impl StridedCopy {
    /// A copy of a single element from index `from` to index `to`; axes make it a box.
    pub fn new(from: usize, to: usize) -> StridedCopy {
        StridedCopy { from, to, axes: Axes::new() }
    }

    /// Adds an axis inside the present ones, with its steps in elements. The copy is fastest if the axes come
    /// in the order of the destination.
    pub fn axis(mut self, len: usize, from: isize, to: isize) -> StridedCopy {
        self.push(len, from, to);
        self
    }

    /// [`StridedCopy::axis`] in place.
    pub fn push(&mut self, len: usize, from: isize, to: isize) {
        self.axes.push(Axis { len, from, to });
    }

    /// Carries the copy out on elements of a type that takes whole bytes.
    pub fn run(mut self, dtype: DType, src: &[u8], dst: &mut [u8]) {
        if self.axes.iter().any(|axis| axis.len == 0) {
            return;
        }
        self.simplify();
        match dtype.bits() {
            8 => self.run_sized::<1>(src, dst),
            16 => self.run_sized::<2>(src, dst),
            32 => self.run_sized::<4>(src, dst),
            64 => self.run_sized::<8>(src, dst),
            bits => unreachable!("{dtype} has {bits} bits and cannot be moved by bytes"),
        }
    }

    /// Drops axes of one element and joins axes that step as one on both sides.
    fn simplify(&mut self) {
        self.axes.retain(|axis| axis.len != 1);
        let mut last = self.axes.len().saturating_sub(1);
        while last > 0 {
            let (outer, inner) = (self.axes[last - 1], self.axes[last]);
            let len = inner.len.cast_signed();
            if outer.from == inner.from.wrapping_mul(len) && outer.to == inner.to.wrapping_mul(len) {
                self.axes[last - 1] = Axis { len: outer.len * inner.len, ..inner };
                self.axes.remove(last);
            }
            last -= 1;
        }
    }

    fn run_sized<const N: usize>(&self, src: &[u8], dst: &mut [u8]) {
        let src: &[[u8; N]] = bytemuck::cast_slice(src);
        let dst: &mut [[u8; N]] = bytemuck::cast_slice_mut(dst);
        let elements: usize = self.axes.iter().map(|axis| axis.len).product();
        // Threads get disjoint parts of the destination, which must therefore be without gaps.
        if elements * N < PARALLEL_BYTES || self.axes.len() < 2 || !is_row_major(&self.axes) {
            return copy(&self.axes, self.from, self.to, src, dst);
        }
        let outer = self.axes[0];
        let row = elements / outer.len;
        let share = outer.len.div_ceil(SHARES);
        let whole = &mut dst[self.to..self.to + elements];
        for_each_chunk(whole, row * share, elements * N, |i, part| {
            let mut axes = self.axes.clone();
            axes[0].len = part.len() / row;
            copy(&axes, step(self.from, outer.from, i * share), 0, src, part);
        });
    }
}

/// Writes `element` over and over.
pub fn fill(dst: &mut [u8], element: &[u8]) {
    match element {
        [byte] => dst.fill(*byte),
        _ if element.iter().all(|&byte| byte == 0) => dst.fill(0),
        _ => dst.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element)),
    }
}

fn is_row_major(axes: &[Axis]) -> bool {
    let mut stride = 1;
    axes.iter().rev().all(|axis| {
        let matches = axis.to == stride;
        stride *= axis.len.cast_signed();
        matches
    })
}

fn step(start: usize, stride: isize, times: usize) -> usize {
    start.wrapping_add_signed(stride.wrapping_mul(times.cast_signed()))
}

fn copy<T: Copy>(axes: &[Axis], from: usize, to: usize, src: &[T], dst: &mut [T]) {
    let Some((&inner, outer)) = axes.split_last() else {
        dst[to] = src[from];
        return;
    };
    if inner.to == 1 && inner.from == 1 {
        return walk(outer, from, to, |from, to| {
            dst[to..to + inner.len].copy_from_slice(&src[from..from + inner.len]);
        });
    }
    // Broadcasting: a stride of 0 reads one element over and over.
    if inner.to == 1 && inner.from == 0 {
        return walk(outer, from, to, |from, to| dst[to..to + inner.len].fill(src[from]));
    }
    match outer.iter().position(|axis| axis.from == 1) {
        // A transposition. In square blocks every cache line of either side is used up before it leaves the cache.
        Some(at) => {
            let mut outer = Axes::from_slice(outer);
            let across = outer.remove(at);
            walk(&outer, from, to, |from, to| copy_blocks([across, inner], from, to, src, dst));
        }
        None => walk(outer, from, to, |from, to| copy_row(inner, from, to, src, dst)),
    }
}

/// Copies a plane whose rows lie along one axis in the source and along the other in the destination.
fn copy_blocks<T: Copy>([across, along]: [Axis; 2], from: usize, to: usize, src: &[T], dst: &mut [T]) {
    for top in (0..across.len).step_by(BLOCK) {
        let height = BLOCK.min(across.len - top);
        for left in (0..along.len).step_by(BLOCK) {
            let width = BLOCK.min(along.len - left);
            for i in top..top + height {
                let row = Axis { len: width, ..along };
                let from = step(step(from, across.from, i), along.from, left);
                let to = step(step(to, across.to, i), along.to, left);
                copy_row(row, from, to, src, dst);
            }
        }
    }
}

fn copy_row<T: Copy>(axis: Axis, mut from: usize, mut to: usize, src: &[T], dst: &mut [T]) {
    for _ in 0..axis.len {
        dst[to] = src[from];
        from = from.wrapping_add_signed(axis.from);
        to = to.wrapping_add_signed(axis.to);
    }
}

/// Calls `f` with both offsets for each element of the box that `axes` span.
fn walk(axes: &[Axis], mut from: usize, mut to: usize, mut f: impl FnMut(usize, usize)) {
    let mut index: SmallVec<[usize; 12]> = smallvec::smallvec![0; axes.len()];
    loop {
        f(from, to);
        let mut at = axes.len();
        loop {
            if at == 0 {
                return;
            }
            at -= 1;
            let axis = axes[at];
            index[at] += 1;
            from = from.wrapping_add_signed(axis.from);
            to = to.wrapping_add_signed(axis.to);
            if index[at] < axis.len {
                break;
            }
            // An odometer: the axis goes back to its beginning and the next one outside advances.
            from = step(from, axis.from.wrapping_neg(), axis.len);
            to = step(to, axis.to.wrapping_neg(), axis.len);
            index[at] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(copy: StridedCopy, src: &[u16], len: usize) -> Vec<u16> {
        let mut dst = vec![0u16; len];
        copy.run(DType::U16, bytemuck::cast_slice(src), bytemuck::cast_slice_mut(&mut dst));
        dst
    }

    #[test]
    fn steps_may_be_negative_or_zero_on_the_source_side() {
        let src = [1, 2, 3, 4, 5, 6];
        assert_eq!(run(StridedCopy::new(5, 0).axis(3, -2, 1), &src, 3), [6, 4, 2]);
        assert_eq!(
            run(StridedCopy::new(0, 0).axis(2, 3, 4).axis(2, 0, 2).axis(2, 1, 1), &src, 8),
            [1, 2, 1, 2, 4, 5, 4, 5]
        );
        assert_eq!(run(StridedCopy::new(4, 1).axis(2, 0, 1), &src, 3), [0, 5, 5]);
    }

    #[test]
    fn an_empty_axis_copies_nothing() {
        assert_eq!(run(StridedCopy::new(9, 9).axis(3, 1, 1).axis(0, 1, 1), &[], 1), [0]);
    }

    #[test]
    fn a_large_transposition_is_the_same_as_element_by_element() {
        let (rows, columns) = (700, 901);
        let src: Vec<u16> = (0..rows * columns).map(|i| (i % 65_521) as u16).collect();
        let copy =
            StridedCopy::new(0, 0).axis(columns, 1, rows.cast_signed()).axis(rows, columns.cast_signed(), 1);
        let out = run(copy, &src, rows * columns);
        for i in 0..rows * columns {
            assert_eq!(out[i % columns * rows + i / columns], src[i]);
        }
    }

    #[test]
    fn fills_with_whole_elements() {
        let mut dst = [0u8; 6];
        fill(&mut dst, &[1, 2]);
        assert_eq!(dst, [1, 2, 1, 2, 1, 2]);
    }
}
