//! `band_part`: matrices with everything outside a band around the diagonal set to zero.

use crate::mil::op::domain::{FLOAT_INT_BOOL, INT};
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::mil::{Opset, Type};

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "band_part",
    since: Opset::Ios15,
    params: &[
        Param::value("x", FLOAT_INT_BOOL),
        Param::constant("lower", INT).or_int(-1),
        Param::constant("upper", INT).or_int(-1),
    ],
    infer,
    eval: Eval::Kernel(eval),
}];

fn infer(call: &Call<'_>) -> Result<Vec<Type>, OpError> {
    let x = call.ty("x")?;
    match x.rank() {
        Some(rank @ 0..2) => Err(OpError::new(format!("`x` has rank {rank}, not at least 2"))),
        _ => Ok(vec![x.clone().into()]),
    }
}

/// How many diagonals are kept on one side; all of them if the number is negative.
fn diagonals(call: &Call<'_>, name: &str) -> Result<usize, OpError> {
    Ok(usize::try_from(call.int(name)?).unwrap_or(usize::MAX))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    let (lower, upper) = (diagonals(call, "lower")?, diagonals(call, "upper")?);
    let &[.., rows, columns] = x.shape() else {
        return Err(OpError::new(format!("`x` has rank {}, not at least 2", x.rank())));
    };
    let out = outputs.tensor(0)?.bytes();
    if x.shape().contains(&0) {
        return Ok(());
    }
    let width = x.dtype().bits() as usize / 8;
    let lines = x.bytes().chunks_exact(columns * width).zip(out.chunks_exact_mut(columns * width));
    for (i, (line, out)) in lines.enumerate() {
        let row = i % rows;
        let start = row.saturating_sub(lower).min(columns);
        let end = row.saturating_add(upper).saturating_add(1).min(columns).max(start);
        let kept = start * width..end * width;
        out.fill(0);
        out[kept.clone()].copy_from_slice(&line[kept]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn keeps_the_band() {
        let x = Tensor::from_slice(&[1, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
        for (lower, upper, wanted) in [
            (0, -1, [1, 2, 3, 4, 0, 6, 7, 8, 0, 0, 11, 12]),
            (-1, 0, [1, 0, 0, 0, 5, 6, 0, 0, 9, 10, 11, 0]),
            (1, 0, [1, 0, 0, 0, 5, 6, 0, 0, 0, 10, 11, 0]),
            (-1, -1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ] {
            let bounds = [("lower", lower), ("upper", upper)].map(|(n, v)| (n, Tensor::scalar(v)));
            let out = run("band_part", Opset::Ios15, &[&[("x", x.clone())], &bounds[..]].concat()).unwrap();
            assert_eq!(out[0].view().slice::<i32>().unwrap(), wanted);
        }
        let error = run("band_part", Opset::Ios15, &[("x", Tensor::scalar(1))]).unwrap_err();
        assert_eq!(error.to_string(), "`x` has rank 0, not at least 2");
    }
}
