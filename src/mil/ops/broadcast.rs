//! Broadcasting of types, and iteration over broadcast operands.

use crate::mil::op::OpError;
use crate::mil::{Dim, TensorType};
use crate::tensor::{Shape, shape};

/// The broadcast of two lists of dimensions. An unknown size against a known one other than 1 must be equal
/// to it or 1, so the known one stands.
pub(super) fn dims(a: &TensorType, b: &TensorType) -> Result<Vec<Dim>, OpError> {
    if a.rank().is_none() || b.rank().is_none() {
        return Ok(vec![Dim::Variadic]);
    }
    let rank = a.shape.len().max(b.shape.len());
    let dim = |s: &[Dim], i: usize| if i + s.len() < rank { Dim::Fixed(1) } else { s[i + s.len() - rank] };
    (0..rank)
        .map(|i| match (dim(&a.shape, i), dim(&b.shape, i)) {
            (Dim::Fixed(1), other) | (other, Dim::Fixed(1)) => Ok(other),
            (Dim::Fixed(x), Dim::Fixed(y)) if x == y => Ok(Dim::Fixed(x)),
            (Dim::Fixed(x), Dim::Fixed(y)) => Err(OpError::new(format!(
                "shapes {a} and {b} do not broadcast: {x} against {y} in dimension {i} of {rank}"
            ))),
            (Dim::Fixed(x), _) | (_, Dim::Fixed(x)) => Ok(Dim::Fixed(x)),
            _ => Ok(Dim::Unknown),
        })
        .collect()
}

/// Calls `f(offset in a, offset in b, offset in output, run, step in a, step in b)` for each innermost run
/// of the broadcast of two shapes; steps are 0 or 1.
pub(super) fn runs(
    a: &[usize],
    b: &[usize],
    out: &[usize],
    mut f: impl FnMut(usize, usize, usize, usize, usize, usize),
) {
    let Some((&run, outer)) = out.split_last() else {
        return f(0, 0, 0, 1, 0, 0);
    };
    if shape::element_count(out) == Some(0) {
        return;
    }
    let (sa, sb) = (shape::broadcast_strides(a, out), shape::broadcast_strides(b, out));
    let last = outer.len();
    let mut index: Shape = smallvec::smallvec![0; outer.len()];
    let (mut at_a, mut at_b, mut at) = (0, 0, 0);
    loop {
        f(at_a, at_b, at, run, sa[last], sb[last]);
        at += run;
        let mut axis = last;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            at_a += sa[axis];
            at_b += sb[axis];
            if index[axis] < outer[axis] {
                break;
            }
            at_a -= sa[axis] * outer[axis];
            at_b -= sb[axis] * outer[axis];
            index[axis] = 0;
        }
    }
}
