//! Concrete shapes: element counts that cannot overflow, strides, axes and broadcasting.

use smallvec::{SmallVec, smallvec};

/// A concrete shape or a list of strides, outermost dimension first; not on the heap for any rank MIL allows.
pub type Shape = SmallVec<[usize; 6]>;

/// The number of elements, or `None` if it does not fit `usize`.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    // No elements, even if the product of the other sizes overflows.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// Row-major strides in elements.
pub fn strides(shape: &[usize]) -> Shape {
    let mut strides: Shape = smallvec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// A possibly negative axis as an index below `rank`.
pub fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    (0..rank).contains(&axis).then(|| axis.unsigned_abs() as usize)
}

/// The numpy broadcast of two shapes.
pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let dim = |s: &[usize], i: usize| if i + s.len() < rank { 1 } else { s[i + s.len() - rank] };
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Strides with which a tensor of `shape` is read as if it had the (broadcast) shape `to`.
pub fn broadcast_strides(shape: &[usize], to: &[usize]) -> Shape {
    let own = strides(shape);
    let missing = to.len() - shape.len();
    (0..to.len()).map(|i| if i < missing || shape[i - missing] == 1 { 0 } else { own[i - missing] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_do_not_wrap() {
        assert_eq!(element_count(&[usize::MAX, 2]), None);
        assert_eq!(element_count(&[usize::MAX, 2, 0]), Some(0));
        assert_eq!(element_count(&[]), Some(1));
    }

    #[test]
    fn axes_wrap_from_the_end() {
        assert_eq!(axis(-1, 3), Some(2));
        assert_eq!(axis(3, 3), None);
        assert_eq!(axis(-4, 3), None);
    }

    #[test]
    fn broadcasting_follows_numpy() {
        assert_eq!(broadcast(&[2, 1, 3], &[4, 1]), Some(smallvec![2, 4, 3]));
        assert_eq!(broadcast(&[2], &[3]), None);
        assert_eq!(broadcast_strides(&[4, 1], &[2, 4, 3])[..], [0, 1, 0]);
    }
}
