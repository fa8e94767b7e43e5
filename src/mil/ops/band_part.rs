//! `band_part`: matrices with everything outside a band around the diagonal set to zero.

use super::prelude::*;

pub(super) const OPS: &[OpDef] = &[define(OpClass::Movement, "band_part", Ios15, infer, eval).takes(&[
    Param::value("x", FLOAT_INT_BOOL),
    Param::constant("lower", INT).or_int(-1),
    Param::constant("upper", INT).or_int(-1),
])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    match x.rank() {
        Some(rank @ 0..2) => refuse!("`x` has rank {rank}, not at least 2"),
        _ => Ok(vec![x.clone().into()]),
    }
}

/// How many diagonals are kept on one side; all of them if the number is negative.
fn diagonals(call: &Call<'_>, name: &str) -> Result<usize> {
    Ok(usize::try_from(call.int(name)?).unwrap_or(usize::MAX))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let (lower, upper) = (diagonals(call, "lower")?, diagonals(call, "upper")?);
    let &[.., rows, columns] = x.shape() else { refuse!("`x` has rank {}, not at least 2", x.rank()) };
    let out = outputs.tensor(0)?.bytes();
    done_if!(x.shape().contains(&0));
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
    use super::*;

    #[test]
    fn keeps_the_band() {
        let x = tensor(&[1, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        for (lower, upper, wanted) in [
            (0, -1, [1, 2, 3, 4, 0, 6, 7, 8, 0, 0, 11, 12]),
            (-1, 0, [1, 0, 0, 0, 5, 6, 0, 0, 9, 10, 11, 0]),
            (1, 0, [1, 0, 0, 0, 5, 6, 0, 0, 0, 10, 11, 0]),
            (-1, -1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ] {
            let bounds = [("lower", lower), ("upper", upper)].map(|(n, v)| (n, Tensor::scalar(v)));
            let out = run("band_part", Ios15, &[&[("x", x.clone())], &bounds[..]].concat()).unwrap();
            assert_eq!(out[0].view().slice::<i32>().unwrap(), wanted);
        }
        refused(run("band_part", Ios15, &[("x", Tensor::scalar(1))]), "`x` has rank 0, not at least 2");
    }
}
