//! The part of a tensor that `begin`, `end`, `stride` and the masks of `slice_by_index` and `slice_update`
//! select, by the rules of Python slices.

use std::ops::Range;

use smallvec::SmallVec;

use super::prelude::*;
use anemeter_kernels::copy::StridedCopy;

/// The parameters that select, after `x` and what else comes first.
pub(super) const fn params(index: &'static [DType]) -> [Param; 6] {
    [
        Param::value("begin", index).group('U'),
        Param::value("end", index).group('U'),
        Param::constant("stride", index).group('U').optional(),
        Param::constant("begin_mask", BOOL).optional(),
        Param::constant("end_mask", BOOL).optional(),
        Param::constant("squeeze_mask", BOOL).optional(),
    ]
}

/// What a call says about the part, one entry per dimension.
pub(super) struct Bounds {
    begin: Option<Ints>,
    end: Option<Ints>,
    stride: Ints,
    begin_mask: Mask,
    end_mask: Mask,
    squeeze_mask: Mask,
}

type Mask = SmallVec<[bool; 8]>;

/// The part of one dimension: from `start`, `len` elements `step` apart; squeezed out if it is an index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The first element.
    pub start: usize,
    /// From one element to the next; backwards if it is negative.
    pub step: isize,
    /// How many elements.
    pub len: usize,
    /// Whether the dimension is dropped.
    pub squeezed: bool,
}

impl Bounds {
    pub(super) fn read(call: &Call<'_>, rank: usize) -> Result<Bounds> {
        let stride = if call.has("stride") { call.ints("stride")? } else { Ints::from_elem(1, rank) };
        refuse_if!(stride.len() != rank, "`stride` has {} elements, not {rank}", stride.len());
        refuse_if!(stride.contains(&0), "`stride` contains 0");
        Ok(Bounds {
            begin: dims::vector(call, "begin", rank)?,
            end: dims::vector(call, "end", rank)?,
            stride,
            begin_mask: mask(call, "begin_mask", rank)?,
            end_mask: mask(call, "end_mask", rank)?,
            squeeze_mask: mask(call, "squeeze_mask", rank)?,
        })
    }

    fn begin(&self, axis: usize) -> Bound {
        Bound::new(self.begin_mask[axis], self.begin.as_ref().map(|begin| begin[axis]))
    }

    fn end(&self, axis: usize) -> Bound {
        Bound::new(self.end_mask[axis], self.end.as_ref().map(|end| end[axis]))
    }

    /// The dimensions of the selected part, as far as they are known.
    pub(super) fn dims(&self, x: &[Dim]) -> Result<Vec<Dim>> {
        let mut dims = Vec::with_capacity(x.len());
        for (axis, &dim) in x.iter().enumerate() {
            match (dim.size(), self.begin(axis), self.end(axis)) {
                (Some(size), Bound::At(_) | Bound::Open, Bound::At(_) | Bound::Open) => {
                    let span = self.span(axis, size)?;
                    dims.extend((!span.squeezed).then(|| Dim::from(span.len)));
                }
                _ if self.squeeze_mask[axis] => {}
                (Some(1), ..) => dims.push(Dim::Fixed(1)),
                (_, begin, end) => dims.push(unsized_part(dim, begin, end, self.stride[axis])),
            }
        }
        Ok(dims)
    }

    /// The part of each dimension of a tensor of shape `x`; the bounds must be known.
    pub(super) fn spans(&self, x: &[usize]) -> Result<Vec<Span>> {
        x.iter().enumerate().map(|(axis, &size)| self.span(axis, size)).collect()
    }

    /// The part of a dimension of a known size; the bounds must be known.
    fn span(&self, axis: usize, size: usize) -> Result<Span> {
        let (begin, end) = (self.begin(axis), self.end(axis));
        if self.squeeze_mask[axis] {
            let index = if begin == Bound::Open { 0 } else { begin.value("begin")? };
            let start = shape::axis(index, size).ok_or_else(|| {
                op_error!("`begin` is {index} for dimension {axis}, which has {size} elements")
            })?;
            return Ok(Span { start, step: 1, len: 1, squeezed: true });
        }
        let step = self.stride[axis];
        let size = i64::try_from(size).map_err(|_| op_error!("{size} elements are too many"))?;
        // Positions run over low..=high; backwards, that is from the last element to before the first.
        let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
        let clamp = |at: i64| (if at < 0 { at.saturating_add(size) } else { at }).clamp(low, high);
        let (first, last) = if step > 0 { (low, high) } else { (high, low) };
        let start = if begin == Bound::Open { first } else { clamp(begin.value("begin")?) };
        let stop = if end == Bound::Open { last } else { clamp(end.value("end")?) };
        let distance = if step > 0 { stop - start } else { start - stop };
        let len = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) as usize;
        let start = if len == 0 { 0 } else { start.unsigned_abs() as usize };
        Ok(Span { start, step: step as isize, len, squeezed: false })
    }

    /// The shape of the selected part of a tensor of shape `x`.
    pub(super) fn shape(&self, x: &[usize]) -> Result<Shape> {
        let spans = x.iter().enumerate().map(|(axis, &size)| self.span(axis, size));
        let kept = spans.filter(|span| !matches!(span, Ok(Span { squeezed: true, .. })));
        kept.map(|span| Ok(span?.len)).collect()
    }

    /// The first selected element of a tensor of shape `x`, if the selected ones follow each other in it.
    pub(super) fn first_of_run(&self, x: &[usize]) -> Option<usize> {
        let spans: Vec<Span> =
            (0..x.len()).map(|axis| self.span(axis, x[axis]).ok()).collect::<Option<_>>()?;
        let partial = spans.iter().zip(x).rposition(|(span, &size)| span.len != size).unwrap_or(0);
        let outer_single = spans[..partial].iter().all(|span| span.len == 1);
        let forward = spans.iter().all(|span| span.len > 0 && (span.step == 1 || span.len == 1));
        let starts = spans.iter().zip(shape::strides(x)).map(|(span, stride)| span.start * stride);
        (outer_single && forward).then(|| starts.sum())
    }

    /// What is selected of one dimension of a tensor of shape `x`, if it is a run of it and all of every other.
    pub(super) fn run_of(&self, axis: usize, x: &[usize]) -> Option<Range<usize>> {
        let spans: Vec<Span> =
            (0..x.len()).map(|axis| self.span(axis, x[axis]).ok()).collect::<Option<_>>()?;
        let forward = spans.iter().all(|span| span.step == 1 && !span.squeezed);
        let whole = (0..x.len()).all(|other| other == axis || spans[other].len == x[other]);
        let Span { start, len, .. } = *spans.get(axis)?;
        (forward && whole).then_some(start..start + len)
    }

    /// The copy of the selected part of a tensor of shape `x` into a contiguous tensor, or the other way.
    pub(super) fn copy(&self, x: &[usize], direction: Direction) -> Result<StridedCopy> {
        let (outer, inner) = (shape::strides(x), shape::strides(&self.shape(x)?));
        let spans = |axis: usize| self.span(axis, x[axis]);
        let mut start = 0;
        for (axis, stride) in outer.iter().enumerate() {
            start += spans(axis)?.start * stride;
        }
        let mut copy = match direction {
            Direction::OutOf => StridedCopy::new(start, 0),
            Direction::Into => StridedCopy::new(0, start),
        };
        let mut inner = inner.into_iter();
        for (axis, &stride) in outer.iter().enumerate() {
            let span = spans(axis)?;
            let whole = stride.cast_signed().saturating_mul(span.step);
            let part = if span.squeezed { 0 } else { inner.next().unwrap_or(0).cast_signed() };
            match direction {
                Direction::OutOf => copy.push(span.len, whole, part),
                Direction::Into => copy.push(span.len, part, whole),
            }
        }
        Ok(copy)
    }
}

/// Which way the selected part is copied.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    OutOf,
    Into,
}

/// One end of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    /// As far as the dimension goes.
    Open,
    At(i64),
    /// Computed by the program and not known yet.
    Later,
}

impl Bound {
    fn new(masked: bool, value: Option<i64>) -> Bound {
        match (masked, value) {
            (true, _) => Bound::Open,
            (false, Some(value)) => Bound::At(value),
            (false, None) => Bound::Later,
        }
    }

    fn value(self, name: &str) -> Result<i64> {
        match self {
            Bound::At(value) => Ok(value),
            Bound::Open | Bound::Later => refuse!("`{name}` is not known"),
        }
    }
}

/// The size of a part of a dimension that is unknown or whose bounds are.
fn unsized_part(dim: Dim, begin: Bound, end: Bound, step: i64) -> Dim {
    match (begin, end) {
        (Bound::Open, Bound::Open) if step.abs() == 1 => dim,
        (Bound::At(-1), Bound::Open) if step > 0 => Dim::Fixed(1),
        (Bound::At(0), Bound::Open) if step < 0 => Dim::Fixed(1),
        (Bound::At(begin), Bound::At(end)) if (begin < 0) == (end < 0) && (begin < 0) == (step < 0) => {
            let distance = if step > 0 { end.saturating_sub(begin) } else { begin.saturating_sub(end) };
            match distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) {
                few @ (0 | 1) => Dim::Fixed(few),
                _ => Dim::Unknown,
            }
        }
        _ => Dim::Unknown,
    }
}

fn mask(call: &Call<'_>, name: &str, rank: usize) -> Result<Mask> {
    let Some(given) = call.opt_tensor(name)? else { return Ok(Mask::from_elem(false, rank)) };
    let mask: Mask = given.bools()?.iter().map(|&flag| flag != 0).collect();
    match mask.len() {
        found if found == rank => Ok(mask),
        found => refuse!("`{name}` has {found} elements, not {rank}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(begin: Bound, end: Bound, step: i64) -> Bounds {
        let known = |bound| match bound {
            Bound::At(value) => Some(Ints::from_elem(value, 1)),
            Bound::Open => Some(Ints::from_elem(77, 1)),
            Bound::Later => None,
        };
        Bounds {
            begin: known(begin),
            end: known(end),
            stride: Ints::from_elem(step, 1),
            begin_mask: Mask::from_elem(begin == Bound::Open, 1),
            end_mask: Mask::from_elem(end == Bound::Open, 1),
            squeeze_mask: Mask::from_elem(false, 1),
        }
    }

    #[test]
    fn spans_are_those_of_python() {
        use Bound::{At, Open};
        for (begin, end, step, size, wanted) in [
            (At(1), At(4), 1, 5, (1, 3)),
            (At(-3), At(-1), 1, 5, (2, 2)),
            (At(-9), At(99), 2, 5, (0, 3)),
            (At(4), At(2), 1, 5, (0, 0)),
            (At(-1), At(0), -2, 5, (4, 2)),
            (At(-1), At(-9), -1, 5, (4, 5)),
            (At(99), At(-99), -3, 5, (4, 2)),
            (Open, Open, -1, 5, (4, 5)),
            (Open, Open, i64::from(i32::MIN), 5, (4, 1)),
            (At(-1), At(-2), -1, 1, (0, 1)),
            (Open, At(i64::from(i32::MAX)), 1, 0, (0, 0)),
            (At(0), Open, -1, 0, (0, 0)),
        ] {
            let span = bounds(begin, end, step).span(0, size).unwrap();
            assert_eq!((span.start, span.len), wanted, "[{begin:?}:{end:?}:{step}] of {size}");
        }
    }

    #[test]
    fn a_run_is_forward_and_of_one_dimension() {
        use Bound::{At, Open};
        assert_eq!(bounds(At(1), At(-1), 1).run_of(0, &[5]), Some(1..4));
        assert_eq!(bounds(At(1), At(-1), 2).run_of(0, &[5]), None);
        assert_eq!(bounds(Open, Open, -1).run_of(0, &[5]), None);
        let each = |value: i64, count| Some(Ints::from_elem(value, count));
        let two = Bounds {
            begin: each(1, 2),
            end: each(3, 2),
            stride: Ints::from_elem(1, 2),
            begin_mask: Mask::from_slice(&[true, false]),
            end_mask: Mask::from_slice(&[true, false]),
            squeeze_mask: Mask::from_elem(false, 2),
        };
        assert_eq!(two.run_of(1, &[4, 5]), Some(1..3));
        assert_eq!(two.run_of(0, &[4, 5]), None);
    }

    #[test]
    fn some_sizes_are_known_without_the_dimension() {
        use Bound::{At, Later, Open};
        for (begin, end, step, dim, wanted) in [
            (At(4), At(4), 1, Dim::Unknown, Dim::Fixed(0)),
            (At(2), At(3), 1, Dim::Unknown, Dim::Fixed(1)),
            (At(-3), At(-4), -1, Dim::Unknown, Dim::Fixed(1)),
            (At(0), At(4), 1, Dim::Unknown, Dim::Unknown),
            (At(12), At(-9), 1, Dim::Unknown, Dim::Unknown),
            (At(-1), Open, 2, Dim::Unknown, Dim::Fixed(1)),
            (At(0), Open, -2, Dim::Unknown, Dim::Fixed(1)),
            (Open, Open, -1, Dim::Unknown, Dim::Unknown),
            (Later, Open, 1, Dim::Fixed(5), Dim::Unknown),
            (Later, Later, 1, Dim::Fixed(1), Dim::Fixed(1)),
            (Open, Open, 2, Dim::Fixed(5), Dim::Fixed(3)),
        ] {
            let dims = bounds(begin, end, step).dims(&[dim]).unwrap();
            assert_eq!(dims, [wanted], "[{begin:?}:{end:?}:{step}] of {dim}");
        }
    }
}
