//! What gathering and scattering have in common: index operands, what an index means, agreement of shapes.

use super::prelude::*;
use anemeter_kernels::gather::Addressing;

/// The operand `indices`.
///
/// A negative index counts from the end, and one outside its dimension stands for the nearest valid one; MIL
/// leaves the latter undefined, and from iOS 17 on also the former. With `validate_indices` every index
/// outside `0..size` is an error.
pub(super) struct Indices<'a> {
    view: TensorView<'a>,
    validate: bool,
}

impl<'a> Indices<'a> {
    /// The operand of a call.
    pub(super) fn of(call: &Call<'a>) -> Result<Indices<'a>> {
        let validate = call.opset() >= Ios17 && call.bool("validate_indices")?;
        Ok(Indices { view: call.tensor("indices")?, validate })
    }

    pub(super) fn shape(&self) -> &'a [usize] {
        self.view.shape()
    }

    /// The `i`-th index as a position in a dimension of `size`.
    pub(super) fn resolve(&self, i: usize, size: usize) -> Result<usize> {
        let index = match self.view.dtype() {
            DType::I32 => i64::from(self.view.slice::<i32>()?[i]),
            DType::I16 => i64::from(self.view.slice::<i16>()?[i]),
            DType::U16 => i64::from(self.view.slice::<u16>()?[i]),
            DType::I8 => i64::from(self.view.slice::<i8>()?[i]),
            _ => i64::from(self.view.slice::<u8>()?[i]),
        };
        position(index, size, self.validate)
            .ok_or_else(|| op_error!("`indices` holds {index}, outside a dimension of {size}"))
    }
}

fn position(index: i64, size: usize, validate: bool) -> Option<usize> {
    let end = i64::try_from(size).ok()?;
    let inside = (0..end).contains(&index);
    if !inside && (validate || end == 0) {
        return None;
    }
    let from_start = if index < 0 { index + end } else { index };
    usize::try_from(from_start.clamp(0, end - 1)).ok()
}

/// Indices of any shape into the dimension `axis`, after dimensions that indices and data share.
pub(super) fn slices(shape: &[usize], axis: usize, batch_dims: usize, indices: &[usize]) -> Addressing {
    Addressing::Slices {
        batch: shape[..batch_dims].iter().product(),
        outer: shape[batch_dims..axis].iter().product(),
        size: shape[axis],
        count: indices[batch_dims..].iter().product(),
        inner: shape[axis + 1..].iter().product(),
    }
}

/// Indices of the data's rank into the dimension `axis`.
pub(super) fn elements(shape: &[usize], axis: usize, indices: &[usize]) -> Addressing {
    Addressing::Elements {
        outer: shape[..axis].iter().product(),
        size: shape[axis],
        count: indices[axis],
        inner: shape[axis + 1..].iter().product(),
    }
}

/// Indices whose last dimension holds coordinates.
pub(super) fn points(shape: &[usize], batch_dims: usize, indices: &[usize]) -> Addressing {
    let (depth, rows) = indices.split_last().map_or((0, indices), |(&depth, rows)| (depth, rows));
    Addressing::Points {
        batch: shape[..batch_dims].iter().product(),
        sizes: shape[batch_dims..batch_dims + depth].into(),
        count: rows[batch_dims..].iter().product(),
        inner: shape[batch_dims + depth..].iter().product(),
    }
}

/// How many coordinates the last dimension of `indices` holds, if that is known, at most `limit`.
pub(super) fn depth(indices: &[Dim], limit: usize) -> Result<Option<usize>> {
    match indices.last() {
        None => Err(OpError::new("`indices` is a scalar, its last dimension should hold coordinates")),
        Some(Dim::Fixed(depth)) if *depth > limit as u64 => refuse!(
            "`indices` holds {depth} coordinates per point, the tensor has only {limit} dimensions for them"
        ),
        Some(depth) => Ok(depth.size()),
    }
}

/// Fails unless two lists of dimensions can be the same.
pub(super) fn agree(name: &str, found: &[Dim], wanted: &[Dim]) -> Result {
    let differ = |(a, b): (&Dim, &Dim)| matches!((a, b), (Dim::Fixed(a), Dim::Fixed(b)) if a != b);
    let same_rank = found.len() == wanted.len();
    if found.contains(&Dim::Variadic)
        || wanted.contains(&Dim::Variadic)
        || same_rank && !found.iter().zip(wanted).any(differ)
    {
        return Ok(());
    }
    let text = |dims: &[Dim]| dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
    Err(op_error!("`{name}` is [{}], should be [{}]", text(found), text(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_wrap_and_clamp_unless_validated() {
        for (index, size, lenient, validated) in [
            (2, 3, Some(2), Some(2)),
            (-1, 3, Some(2), None),
            (-4, 3, Some(0), None),
            (3, 3, Some(2), None),
            (0, 0, None, None),
        ] {
            assert_eq!(position(index, size, false), lenient, "{index} of {size}");
            assert_eq!(position(index, size, true), validated, "{index} of {size}");
        }
    }
}
