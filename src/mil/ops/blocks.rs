//! A tensor divided into equal blocks, each with its own scale or palette.

use std::ops::Range;

use super::prelude::*;

/// How the elements of a tensor map to blocks. Blocks are numbered row-major.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// Dimensions of the tensor before the last one that is divided.
    outer: Shape,
    /// Per outer dimension, elements per block and distance between neighbouring blocks.
    sizes: Shape,
    strides: Shape,
    /// Blocks along the last divided dimension.
    across: usize,
    /// Consecutive elements that share a block.
    run: usize,
}

impl Blocks {
    /// `counts` blocks per dimension of `shape`; each must divide its dimension.
    pub(super) fn new(shape: &[usize], counts: &[usize]) -> Result<Blocks> {
        if shape.len() != counts.len() {
            refuse!("{counts:?} blocks cannot divide a tensor of shape {shape:?}");
        }
        for (axis, (&dim, &count)) in shape.iter().zip(counts).enumerate() {
            if count == 0 || dim % count != 0 {
                refuse!("dimension {axis} of size {dim} cannot be divided into {count} blocks");
            }
        }
        let too_large = || op_error!("a tensor of shape {shape:?} is too large to address");
        shape::element_count(shape).ok_or_else(too_large)?;
        let last = counts.iter().rposition(|&count| count > 1).unwrap_or(0);
        let across = counts.get(last).copied().unwrap_or(1);
        let inner = shape::element_count(&shape[last..]).ok_or_else(too_large)?;
        Ok(Blocks {
            outer: shape[..last].into(),
            sizes: shape[..last].iter().zip(counts).map(|(&dim, &count)| dim / count).collect(),
            strides: shape::strides(counts)[..last].into(),
            across,
            run: inner / across,
        })
    }

    /// Calls `f(block, elements)` for the parts of a row-major range that lie in one block, in order.
    pub(super) fn for_each_run(&self, range: Range<usize>, mut f: impl FnMut(usize, Range<usize>)) {
        let mut at = range.start;
        while at < range.end {
            let (row, mut column) = (at / self.run / self.across, at / self.run % self.across);
            let first = self.first_block(row);
            while at < range.end && column < self.across {
                let end = ((row * self.across + column + 1) * self.run).min(range.end);
                f(first + column, at..end);
                at = end;
                column += 1;
            }
        }
    }

    /// For a matrix of `columns` columns: how many rows share blocks, and how many elements of a row are in a block.
    /// `None` if blocks are no such rectangles, numbered along the rows.
    pub(super) fn of_rows(&self, columns: usize) -> Option<(usize, usize)> {
        match self.outer.len() {
            _ if columns == 0 => None,
            0 if self.run.is_multiple_of(columns) => Some((self.run / columns, columns)),
            1 if self.across * self.run == columns => Some((self.sizes[0], self.run)),
            _ => None,
        }
    }

    fn first_block(&self, mut row: usize) -> usize {
        let mut block = 0;
        for axis in (0..self.outer.len()).rev() {
            block += row % self.outer[axis] / self.sizes[axis] * self.strides[axis];
            row /= self.outer[axis];
        }
        block
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn blocks_of_rows_are_rectangles() {
        let of_rows =
            |shape: &[usize], counts: &[usize], columns| Blocks::new(shape, counts).unwrap().of_rows(columns);
        assert_eq!(of_rows(&[6, 64, 1, 1], &[6, 1, 1, 1], 64), Some((1, 64)));
        assert_eq!(of_rows(&[6, 64], &[1, 1], 64), Some((6, 64)));
        assert_eq!(of_rows(&[6, 64, 1, 1], &[2, 1, 1, 1], 64), Some((3, 64)));
        assert_eq!(of_rows(&[6, 64, 1, 1], &[6, 2, 1, 1], 64), Some((1, 32)));
        assert_eq!(of_rows(&[6, 64], &[3, 2], 64), Some((2, 32)));
        assert_eq!(of_rows(&[6, 8, 8], &[6, 4, 1], 64), Some((1, 16)));
        assert_eq!(of_rows(&[6, 8, 8], &[6, 2, 2], 64), None);
        assert_eq!(of_rows(&[6, 64], &[6, 1], 32), Some((2, 32)));
        assert_eq!(of_rows(&[6, 64], &[6, 1], 48), None);
    }

    use super::*;

    fn block_of_each(shape: &[usize], counts: &[usize]) -> Vec<usize> {
        let total = shape.iter().product();
        let mut found = Vec::new();
        Blocks::new(shape, counts).unwrap().for_each_run(0..total, |block, run| {
            assert_eq!(run.start, found.len());
            found.extend(run.map(|_| block));
        });
        found
    }

    #[test]
    fn elements_find_their_block() {
        assert_eq!(block_of_each(&[2, 4], &[2, 2]), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(block_of_each(&[4, 2], &[2, 1]), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(block_of_each(&[4, 2], &[2, 2]), [0, 1, 0, 1, 2, 3, 2, 3]);
        assert_eq!(block_of_each(&[2, 3], &[1, 1]), [0; 6]);
        assert_eq!(block_of_each(&[2, 2, 2], &[1, 2, 1]), [0, 0, 1, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn a_range_may_start_and_end_inside_a_block() {
        let mut runs = Vec::new();
        let blocks = Blocks::new(&[2, 6], &[1, 2]).unwrap();
        blocks.for_each_run(4..8, |block, run| runs.push((block, run)));
        assert_eq!(runs, [(1, 4..6), (0, 6..8)]);
    }

    #[test]
    fn blocks_must_divide_the_dimensions() {
        assert!(Blocks::new(&[4], &[3]).is_err());
        assert!(Blocks::new(&[4], &[0]).is_err());
        assert!(Blocks::new(&[4, 4], &[4]).is_err());
        assert!(Blocks::new(&[0, 4], &[1, 2]).is_ok());
    }
}
