//! Addressing by index: which run of a tensor each index points at. Gathering copies from these runs to rows
//! in order; scattering combines rows into them.

use crate::tensor::Shape;

/// How a tensor of indices addresses a tensor of data. Runs of data correspond to rows: equally long runs, one
/// after the other, of the gathered result or of the updates to scatter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the layouts say it")]
pub enum Addressing {
    /// Data `[batch, outer, size, inner]`, indices `[batch, count]`, rows `[batch, outer, count, inner]`.
    Slices { batch: usize, outer: usize, size: usize, count: usize, inner: usize },
    /// Data `[outer, size, inner]`, indices and rows `[outer, count, inner]`, one element each.
    Elements { outer: usize, size: usize, count: usize, inner: usize },
    /// Data `[batch, sizes.., inner]`, indices `[batch, count, sizes.len()]`, rows `[batch, count, inner]`.
    Points { batch: usize, sizes: Shape, count: usize, inner: usize },
}

impl Addressing {
    /// Elements of one run.
    pub fn run(&self) -> usize {
        match self {
            Addressing::Slices { inner, .. } | Addressing::Points { inner, .. } => *inner,
            Addressing::Elements { .. } => 1,
        }
    }

    /// Calls `visit(first element in the data, first element in the rows)` for every run, in row order.
    /// `resolve(i, size)` gives the `i`-th index, which must be below `size`.
    pub fn visit<E>(
        &self,
        resolve: impl Fn(usize, usize) -> Result<usize, E>,
        mut visit: impl FnMut(usize, usize),
    ) -> Result<(), E> {
        match *self {
            Addressing::Slices { batch, outer, size, count, inner } => {
                for block in 0..batch * outer {
                    let first = block / outer * count;
                    for i in 0..count {
                        let index = resolve(first + i, size)?;
                        visit((block * size + index) * inner, (block * count + i) * inner);
                    }
                }
            }
            Addressing::Elements { outer, size, count, inner } => {
                for block in 0..outer {
                    for i in 0..count * inner {
                        let row = block * count * inner + i;
                        let index = resolve(row, size)?;
                        visit((block * size + index) * inner + i % inner, row);
                    }
                }
            }
            Addressing::Points { batch, ref sizes, count, inner } => {
                for row in 0..batch * count {
                    let mut run = row / count;
                    for (axis, &size) in sizes.iter().enumerate() {
                        run = run * size + resolve(row * sizes.len() + axis, size)?;
                    }
                    visit(run * inner, row * inner);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(addressing: &Addressing, indices: &[usize]) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let resolve = |i: usize, size: usize| if indices[i] < size { Ok(indices[i]) } else { Err(i) };
        addressing.visit(resolve, |data, row| pairs.push((data, row))).unwrap();
        pairs
    }

    #[test]
    fn slices_take_their_own_batch_of_indices() {
        let slices = Addressing::Slices { batch: 2, outer: 1, size: 3, count: 2, inner: 4 };
        assert_eq!(pairs(&slices, &[2, 0, 1, 1]), [(8, 0), (0, 4), (16, 8), (16, 12)]);
        let outer = Addressing::Slices { batch: 1, outer: 2, size: 3, count: 1, inner: 1 };
        assert_eq!(pairs(&outer, &[2]), [(2, 0), (5, 1)]);
    }

    #[test]
    fn elements_keep_their_place_in_the_other_dimensions() {
        let elements = Addressing::Elements { outer: 2, size: 3, count: 1, inner: 2 };
        assert_eq!(pairs(&elements, &[0, 2, 1, 1]), [(0, 0), (5, 1), (8, 2), (9, 3)]);
    }

    #[test]
    fn points_are_coordinates() {
        let points = Addressing::Points { batch: 1, sizes: [2, 3].into_iter().collect(), count: 2, inner: 5 };
        assert_eq!(pairs(&points, &[0, 1, 1, 2]), [(5, 0), (25, 5)]);
        let none = Addressing::Points { batch: 2, sizes: Shape::new(), count: 2, inner: 3 };
        assert_eq!(pairs(&none, &[]), [(0, 0), (0, 3), (3, 6), (3, 9)]);
    }

    #[test]
    fn empty_dimensions_visit_nothing() {
        for addressing in [
            Addressing::Slices { batch: 3, outer: 0, size: 3, count: 1, inner: 1 },
            Addressing::Elements { outer: 1, size: 3, count: 2, inner: 0 },
            Addressing::Points { batch: 0, sizes: Shape::new(), count: 0, inner: 0 },
        ] {
            assert_eq!(pairs(&addressing, &[]), []);
        }
    }
}
