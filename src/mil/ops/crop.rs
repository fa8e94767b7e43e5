//! `crop`: the last two dimensions without their borders.

use super::prelude::*;

pub(super) const OPS: &[OpDef] = &[define(OpClass::Movement, "crop", Ios15, infer, eval).takes(&[
    Param::value("x", FLOAT),
    Param::constant("crop_height", INT),
    Param::constant("crop_width", INT),
])];

/// How much is cut off at the start and at the end.
fn border(call: &Call<'_>, name: &str) -> Result<[u64; 2]> {
    let given = call.ints(name)?;
    match given[..] {
        [start, end] if start >= 0 && end >= 0 => Ok([start.unsigned_abs(), end.unsigned_abs()]),
        _ => refuse!("`{name}` is {given:?}, should be two numbers that are not negative"),
    }
}

fn cropped(call: &Call<'_>, name: &str, dim: Dim) -> Result<Dim> {
    let [start, end] = border(call, name)?;
    let Dim::Fixed(size) = dim else { return Ok(dim) };
    size.checked_sub(start)
        .and_then(|rest| rest.checked_sub(end))
        .map(Dim::Fixed)
        .ok_or_else(|| op_error!("`{name}` is [{start}, {end}], more than a size of {size}"))
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    let mut dims = x.shape.clone();
    match (x.rank(), &mut dims[..]) {
        (None, _) => {}
        (Some(_), [_, .., height, width]) => {
            *height = cropped(call, "crop_height", *height)?;
            *width = cropped(call, "crop_width", *width)?;
        }
        (Some(rank), _) => refuse!("`x` has rank {rank}, should have at least 3"),
    }
    Ok(dims::one(x.dtype, dims))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, out) = (call.tensor("x")?, outputs.tensor(0)?);
    done_if!(shape::element_count(out.shape()) == Some(0));
    let (&[.., height, width], &[.., rows, columns]) = (x.shape(), out.shape()) else {
        refuse!("`x` has rank {}, should have at least 3", x.rank())
    };
    let ([top, _], [left, _]) = (border(call, "crop_height")?, border(call, "crop_width")?);
    let (top, left) = (top as usize, left as usize);
    let size = (x.dtype().bits() / 8) as usize;
    for (i, row) in out.bytes().chunks_exact_mut(columns * size).enumerate() {
        let start = ((i / rows * height + top + i % rows) * width + left) * size;
        row.copy_from_slice(&x.bytes()[start..start + columns * size]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(x: &[usize], height: &[i32], width: &[i32]) -> [(&'static str, Tensor); 3] {
        let values: Vec<f32> = (0..x.iter().product::<usize>()).map(|i| i as f32).collect();
        [
            ("x", tensor(x, &values)),
            ("crop_height", tensor(&[height.len()], height)),
            ("crop_width", tensor(&[width.len()], width)),
        ]
    }

    #[test]
    fn borders_are_cut_off_every_plane() {
        let out = run("crop", Ios15, &args(&[2, 3, 3], &[1, 1], &[0, 1]));
        gives::<f32>(out, &[2, 1, 2], &[3.0, 4.0, 12.0, 13.0]);
    }

    #[test]
    fn bad_borders_are_named() {
        for (height, message) in [
            (&[2, 2][..], "`crop_height` is [2, 2], more than a size of 3"),
            (&[0, -1], "`crop_height` is [0, -1], should be two numbers that are not negative"),
            (&[1], "`crop_height` is [1], should be two numbers that are not negative"),
        ] {
            refused(run("crop", Ios15, &args(&[1, 3, 3], height, &[0, 0])), message);
        }
    }
}
