//! Types side by side: what was declared, what was inferred, what covers both.

use super::{Dim, TensorType, Type};

/// Takes the declared size where the inferred one is unknown.
pub(super) fn refine(inferred: &Type, declared: &Type) -> Type {
    match (inferred, declared) {
        (Type::Tensor(ty), Type::Tensor(declared)) if ty.rank().is_none() => {
            TensorType::new(ty.dtype, declared.shape.clone()).into()
        }
        (Type::Tensor(ty), Type::Tensor(declared)) if ty.shape.len() == declared.shape.len() => {
            let pick = |(a, b): (&Dim, &Dim)| if *a == Dim::Unknown { *b } else { *a };
            TensorType::new(ty.dtype, ty.shape.iter().zip(&declared.shape).map(pick).collect()).into()
        }
        (inferred, _) => inferred.clone(),
    }
}

/// A value is planned at a fixed size only if the type rule says so, whatever the program declares.
pub(super) fn is_concrete(ty: &Type) -> bool {
    ty.tensor().is_none_or(|ty| ty.concrete().is_some())
}

/// The narrowest type that covers both.
pub(super) fn generalise(a: &Type, b: &Type) -> Type {
    let dim = |a: Dim, b: Dim| if a == b { a } else { Dim::Unknown };
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) if a.shape.len() == b.shape.len() => {
            TensorType::new(a.dtype, a.shape.iter().zip(&b.shape).map(|(&a, &b)| dim(a, b)).collect()).into()
        }
        (Type::Tensor(a), Type::Tensor(_)) => TensorType::new(a.dtype, vec![Dim::Variadic]).into(),
        (Type::List(a, n), Type::List(b, m)) => Type::List(Box::new(generalise(a, b)), dim(*n, *m)),
        _ => a.clone(),
    }
}

/// Whether a declared type can be the type that was inferred: no known size contradicts another.
pub(super) fn agrees(declared: &Type, inferred: &Type) -> bool {
    let dims_agree = |a: Dim, b: Dim| !matches!((a, b), (Dim::Fixed(a), Dim::Fixed(b)) if a != b);
    match (declared, inferred) {
        (Type::Tensor(a), Type::Tensor(b)) | (Type::State(a), Type::State(b)) => {
            let ranks = a.rank().is_none() || b.rank().is_none();
            a.dtype == b.dtype
                && (ranks
                    || a.shape.len() == b.shape.len()
                        && a.shape.iter().zip(&b.shape).all(|(&a, &b)| dims_agree(a, b)))
        }
        (Type::List(a, n), Type::List(b, m)) => agrees(a, b) && dims_agree(*n, *m),
        (a, b) => a == b,
    }
}
