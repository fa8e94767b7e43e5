//! Broadcasting of types, and iteration over broadcast operands.

use smallvec::{SmallVec, smallvec};

use crate::op::Result;
use crate::{Dim, TensorType};
use anemeter_kernels::tensor::{Shape, shape};

/// The broadcast of two lists of dimensions. An unknown size against a known one other than 1 must be equal
/// to it or 1, so the known one stands.
pub(super) fn dims(a: &TensorType, b: &TensorType) -> Result<Vec<Dim>> {
    if a.rank().is_none() || b.rank().is_none() {
        return Ok(vec![Dim::Variadic]);
    }
    let rank = a.shape.len().max(b.shape.len());
    let dim = |s: &[Dim], i: usize| if i + s.len() < rank { Dim::Fixed(1) } else { s[i + s.len() - rank] };
    (0..rank)
        .map(|i| match (dim(&a.shape, i), dim(&b.shape, i)) {
            (Dim::Fixed(1), other) | (other, Dim::Fixed(1)) => Ok(other),
            (Dim::Fixed(x), Dim::Fixed(y)) if x == y => Ok(Dim::Fixed(x)),
            (Dim::Fixed(x), Dim::Fixed(y)) => {
                refuse!("shapes {a} and {b} do not broadcast: {x} against {y} in dimension {i} of {rank}")
            }
            (Dim::Fixed(x), _) | (_, Dim::Fixed(x)) => Ok(Dim::Fixed(x)),
            _ => Ok(Dim::Unknown),
        })
        .collect()
}

/// Consecutive elements of a broadcast of `N` operands.
pub(super) struct Run<const N: usize> {
    /// Offset of the first element in each operand.
    pub(super) operands: [usize; N],
    /// Offset of the first element in the output.
    pub(super) output: usize,
    /// How many elements there are.
    pub(super) len: usize,
    /// Distance between elements in each operand, 0 or 1.
    pub(super) steps: [usize; N],
}

/// Calls `f(offset in a, offset in b, offset in output, run, step in a, step in b)` for each innermost run
/// of the broadcast of two shapes; steps are 0 or 1.
pub(super) fn runs(
    a: &[usize],
    b: &[usize],
    out: &[usize],
    mut f: impl FnMut(usize, usize, usize, usize, usize, usize),
) {
    runs_of([a, b], out, |run| {
        f(run.operands[0], run.operands[1], run.output, run.len, run.steps[0], run.steps[1]);
    });
}

/// Calls `f` for each run of the broadcast of several shapes to `out`, in memory order. Runs are as long as
/// the operands' layouts allow.
pub(super) fn runs_of<const N: usize>(shapes: [&[usize]; N], out: &[usize], mut f: impl FnMut(Run<N>)) {
    if shape::element_count(out) == Some(0) {
        return;
    }
    let dims = merged_dims(shapes, out);
    let Some((inner, outer)) = dims.split_last() else {
        return f(Run { operands: [0; N], output: 0, len: 1, steps: [0; N] });
    };
    let mut index: Shape = smallvec![0; outer.len()];
    let (mut operands, mut output) = ([0; N], 0);
    loop {
        f(Run { operands, output, len: inner.size, steps: inner.strides });
        output += inner.size;
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            let dim = &outer[axis];
            index[axis] += 1;
            for (at, stride) in operands.iter_mut().zip(dim.strides) {
                *at += stride;
            }
            if index[axis] < dim.size {
                break;
            }
            for (at, stride) in operands.iter_mut().zip(dim.strides) {
                *at -= stride * dim.size;
            }
            index[axis] = 0;
        }
    }
}

struct MergedDim<const N: usize> {
    size: usize,
    strides: [usize; N],
}

/// The dimensions of `out` with the operands' strides: those of size 1 left out, neighbours merged where
/// every operand is contiguous across them.
fn merged_dims<const N: usize>(shapes: [&[usize]; N], out: &[usize]) -> SmallVec<[MergedDim<N>; 6]> {
    let strides = shapes.map(|shape| shape::broadcast_strides(shape, out));
    let mut dims: SmallVec<[MergedDim<N>; 6]> = SmallVec::new();
    for (axis, &size) in out.iter().enumerate().filter(|&(_, &size)| size != 1) {
        let inner = std::array::from_fn(|operand| strides[operand][axis]);
        match dims.last_mut() {
            Some(last) if last.strides == inner.map(|stride| stride * size) => {
                last.size *= size;
                last.strides = inner;
            }
            _ => dims.push(MergedDim { size, strides: inner }),
        }
    }
    dims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_dimensions_make_one_run() {
        let runs = |shapes: [&[usize]; 2], out: &[usize]| {
            let mut seen = Vec::new();
            runs_of(shapes, out, |run| seen.push((run.operands, run.output, run.len, run.steps)));
            seen
        };
        assert_eq!(runs([&[2, 1, 3], &[2, 1, 3]], &[2, 1, 3]), [([0, 0], 0, 6, [1, 1])]);
        assert_eq!(
            runs([&[2, 1, 3], &[4, 1]], &[2, 4, 3])[3..5],
            [([0, 3], 9, 3, [1, 0]), ([3, 0], 12, 3, [1, 0])]
        );
        assert_eq!(runs([&[], &[1]], &[1]), [([0, 0], 0, 1, [0, 0])]);
        assert_eq!(runs([&[0, 2], &[2]], &[0, 2]), []);
    }
}
