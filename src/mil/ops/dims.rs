//! Dimensions that may be unknown: what the type rules of data movement calculate with.

use smallvec::SmallVec;

use crate::op::{Call, Ints, Result};
use crate::{Dim, TensorType, Type};
use anemeter_kernels::tensor::DType::{self, I8, I16, I32};

/// What sizes and positions are given in from iOS 17 on.
pub(super) const SIGNED_INDEX: &[DType] = &[I8, I16, I32];

/// The type of a single output.
pub(super) fn one(dtype: DType, dims: Vec<Dim>) -> Vec<Type> {
    vec![TensorType::new(dtype, dims).into()]
}

/// The type of a single output of which not even the rank is known.
pub(super) fn unranked(dtype: DType) -> Vec<Type> {
    one(dtype, vec![Dim::Variadic])
}

/// The dimensions of a parameter whose rank must be `rank`; all unknown if its rank is.
pub(super) fn of_rank(name: &str, ty: &TensorType, rank: usize) -> Result<Vec<Dim>> {
    match ty.rank() {
        None => Ok(vec![Dim::Unknown; rank]),
        Some(found) if found == rank => Ok(ty.shape.clone()),
        Some(found) => refuse!("`{name}` has rank {found}, not {rank}"),
    }
}

/// The value of a parameter that must be a vector of `len` integers, if it is known now.
pub(super) fn vector(call: &Call<'_>, name: &str, len: usize) -> Result<Option<Ints>> {
    let ty = call.ty(name)?;
    // Predictions come through here, and must not allocate.
    let declared = match ty.rank() {
        Some(1) => ty.shape[0].size(),
        _ => of_rank(name, ty, 1)?[0].size(),
    };
    let known = call.known_ints(name)?;
    match known.as_ref().map(SmallVec::len).or(declared) {
        Some(found) if found != len => refuse!("`{name}` has {found} elements, not {len}"),
        _ => Ok(known),
    }
}

/// A size given by the program.
pub(super) fn size(name: &str, value: i64) -> Result<usize> {
    usize::try_from(value).map_err(|_| op_error!("`{name}` is {value}, which is not a size"))
}

/// A size given by the program that must not be zero.
pub(super) fn positive(name: &str, value: i64) -> Result<usize> {
    match size(name, value)? {
        0 => refuse!("`{name}` is 0"),
        size => Ok(size),
    }
}

/// `f` of a dimension, if it is known.
pub(super) fn map(dim: Dim, f: impl FnOnce(usize) -> Result<usize>) -> Result<Dim> {
    match dim.size() {
        Some(size) => f(size).map(Dim::from),
        None => Ok(Dim::Unknown),
    }
}

/// A product of sizes that must stay countable.
pub(super) fn times(a: usize, b: usize) -> Result<usize> {
    a.checked_mul(b).ok_or_else(|| op_error!("a dimension of {a} times {b} is too large"))
}

/// A sum of sizes that must stay countable.
pub(super) fn plus(a: usize, b: usize) -> Result<usize> {
    a.checked_add(b).ok_or_else(|| op_error!("a dimension of {a} plus {b} is too large"))
}

/// The product of some dimensions, known if all of them are.
pub(super) fn product(dims: &[Dim]) -> Result<Dim> {
    dims.iter().try_fold(Dim::Fixed(1), |total, &dim| match (total.size(), dim.size()) {
        (Some(total), Some(size)) => times(total, size).map(Dim::from),
        _ => Ok(Dim::Unknown),
    })
}

/// Two dimensions that must be the same: whichever is known.
pub(super) fn same(a: Dim, b: Dim) -> Option<Dim> {
    match (a.size(), b.size()) {
        (Some(x), Some(y)) if x != y => None,
        (Some(_), _) => Some(a),
        _ => Some(b),
    }
}
