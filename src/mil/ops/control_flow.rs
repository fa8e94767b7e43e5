//! Constants, conditions and loops. The executor carries them out; here are their type rules.

use super::prelude::*;

pub(super) const OPS: &[OpDef] = &[
    executed(OpClass::Constant, "const", Ios15, infer_const).takes(&[Param::constant("val", ANY)]),
    executed(OpClass::Control, "cond", Ios15, infer_cond).takes(&[Param::value("pred", BOOL)]),
    executed(OpClass::Control, "while_loop", Ios15, infer_loop)
        .takes(&[Param::value("loop_vars", ANY).many()]),
];

fn infer_const(call: &Call<'_>) -> Result<Vec<Type>> {
    Ok(vec![call.any_ty("val")?.clone()])
}

fn infer_cond(call: &Call<'_>) -> Result<Vec<Type>> {
    check_predicate("`pred`", call.any_ty("pred")?)?;
    let (taken, other) = (call.block_outputs(0)?, call.block_outputs(1)?);
    merge_all(&taken, &other, ["the true branch", "the false branch"])
}

fn infer_loop(call: &Call<'_>) -> Result<Vec<Type>> {
    match &call.block_outputs(0)?[..] {
        [condition] => check_predicate("the loop's condition", condition)?,
        more => refuse!("the loop's condition yields {} values", more.len()),
    }
    let carried: Vec<Type> =
        (0..call.count("loop_vars")).map(|i| call.any_ty_at("loop_vars", i).clone()).collect();
    merge_all(&carried, &call.block_outputs(1)?, ["`loop_vars`", "the loop's body"])
}

/// A predicate is one boolean; frontends also make it a tensor with a single element.
fn check_predicate(what: &str, ty: &Type) -> Result {
    let single = |dim: &Dim| !matches!(dim, Dim::Fixed(size) if *size != 1);
    match ty.tensor() {
        Some(tensor) if tensor.dtype == DType::Bool && tensor.shape.iter().all(single) => Ok(()),
        _ => refuse!("{what} is a {ty}, not one boolean"),
    }
}

fn merge_all(a: &[Type], b: &[Type], sides: [&str; 2]) -> Result<Vec<Type>> {
    let [left, right] = sides;
    refuse_if!(a.len() != b.len(), "{left} gives {} values, {right} {}", a.len(), b.len());
    let pairs = a.iter().zip(b).enumerate();
    pairs
        .map(|(i, (a, b))| {
            merge(a, b).ok_or_else(|| op_error!("value {i} is a {a} in {left}, a {b} in {right}"))
        })
        .collect()
}

/// The type of a value that is of one type or the other: sizes that differ are unknown.
fn merge(a: &Type, b: &Type) -> Option<Type> {
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => merge_tensors(a, b).map(Type::Tensor),
        (Type::List(a, m), Type::List(b, n)) => {
            Some(Type::List(Box::new(merge(a, b)?), if m == n { *m } else { Dim::Unknown }))
        }
        (Type::Tuple(a), Type::Tuple(b)) if a.len() == b.len() => {
            let merged: Option<Vec<Type>> = a.iter().zip(b).map(|(a, b)| merge(a, b)).collect();
            merged.map(Type::Tuple)
        }
        (a, b) => (a == b).then(|| a.clone()),
    }
}

fn merge_tensors(a: &TensorType, b: &TensorType) -> Option<TensorType> {
    if a.dtype != b.dtype {
        return None;
    }
    let shape = match (a.rank(), b.rank()) {
        (Some(m), Some(n)) if m != n => return None,
        (Some(_), Some(_)) => {
            let dims = a.shape.iter().zip(&b.shape);
            dims.map(|(a, b)| if a == b { *a } else { Dim::Unknown }).collect()
        }
        _ => vec![Dim::Variadic],
    };
    Some(TensorType::new(a.dtype, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize]) -> Type {
        TensorType::fixed(DType::F32, shape).into()
    }

    fn boolean() -> Type {
        TensorType::fixed(DType::Bool, &[1]).into()
    }

    #[test]
    fn sizes_that_differ_between_branches_are_unknown() {
        let cond = |a: &[usize], b: &[usize]| {
            let blocks = [vec![floats(a)], vec![floats(b)]];
            let arguments = [("pred", boolean())];
            infer("cond", Ios15, &Typed { arguments: &arguments, blocks: &blocks, ..Typed::default() })
        };
        assert_eq!(cond(&[2, 3], &[2, 4]).unwrap()[0].to_string(), "tensor<fp32, [2, ?]>");
        refused(
            cond(&[2, 3], &[2]),
            "value 0 is a tensor<fp32, [2, 3]> in the true branch, a tensor<fp32, [2]> in the false branch",
        );
    }

    #[test]
    fn loops_keep_what_their_variables_and_the_body_share() {
        let list = |length| Type::List(Box::new(floats(&[2])), length);
        let arguments = [("loop_vars", floats(&[1])), ("loop_vars", list(Dim::Fixed(1)))];
        let body = vec![floats(&[2]), list(Dim::Unknown)];
        let blocks = [vec![boolean()], body.clone()];
        let typed = Typed { arguments: &arguments, blocks: &blocks, ..Typed::default() };
        let types = infer("while_loop", Ios15, &typed).unwrap();
        assert_eq!(types[0].to_string(), "tensor<fp32, [?]>");
        assert_eq!(types[1], list(Dim::Unknown));
        let blocks = [vec![floats(&[1])], body];
        let typed = Typed { arguments: &arguments, blocks: &blocks, ..Typed::default() };
        refused(
            infer("while_loop", Ios15, &typed),
            "the loop's condition is a tensor<fp32, [1]>, not one boolean",
        );
    }
}
