//! `slice_update`: a tensor with a part of it replaced.

use super::dims::SIGNED_INDEX;
use super::prelude::*;
use super::slice_bounds::{self, Bounds, Direction};

pub(super) const OPS: &[OpDef] =
    &[define(OpClass::Update, "slice_update", Ios18, infer, eval).takes(&params())];

const fn params() -> [Param; 8] {
    let x = Param::value("x", MOVABLE_17).group('T');
    let update = Param::value("update", MOVABLE_17).group('T');
    let [begin, end, stride, begin_mask, end_mask, squeeze_mask] = slice_bounds::params(SIGNED_INDEX);
    [x, update, begin, end, stride, begin_mask, end_mask, squeeze_mask]
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, update) = (call.ty("x")?, call.ty("update")?);
    refuse_if!(update.rank() == Some(0), "`update` has rank 0");
    if let Some(rank) = x.rank() {
        let part = Bounds::read(call, rank)?.dims(&x.shape)?;
        let fits = update.rank().is_none_or(|rank| rank == part.len())
            && part.iter().zip(&update.shape).all(|(&a, &b)| dims::same(a, b).is_some());
        if !fits {
            let part = TensorType::new(x.dtype, part);
            refuse!("`update` is {update}, the part to be replaced is {part}");
        }
    }
    Ok(vec![x.clone().into()])
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let out = outputs.tensor(0)?.bytes();
    out.copy_from_slice(x.bytes());
    in_place(call, x.shape(), out)
}

/// Replaces the part in the elements of `x`, of which only the shape is taken from the call.
pub fn in_place(call: &Call<'_>, x: &[usize], elements: &mut [u8]) -> Result {
    let update = call.tensor("update")?;
    let bounds = Bounds::read(call, x.len())?;
    let part = bounds.shape(x)?;
    if part[..] != *update.shape() {
        let found = update.shape();
        refuse!("`update` has shape {found:?}, the part to be replaced {part:?}");
    }
    if !part.contains(&0) {
        bounds.copy(x, Direction::Into)?.run(update.dtype(), update.bytes(), elements);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(shape: &[usize], begin: [i32; 2], end: [i32; 2], stride: [i32; 2]) -> Result<Vec<i32>, String> {
        let values: Vec<i32> = (1..=i32::try_from(shape.iter().product::<usize>()).unwrap()).collect();
        let args = [
            ("x", tensor(&[2, 3], &[0i32; 6])),
            ("update", tensor(shape, &values)),
            ("begin", tensor(&[2], &begin)),
            ("end", tensor(&[2], &end)),
            ("stride", tensor(&[2], &stride)),
        ];
        let out = run("slice_update", Ios18, &args).map_err(|error| error.to_string())?;
        Ok(out[0].view().slice::<i32>().unwrap().to_vec())
    }

    #[test]
    fn replaces_the_part_alone() {
        assert_eq!(update(&[1, 2], [1, 0], [2, 3], [1, 2]).unwrap(), [0, 0, 0, 1, 0, 2]);
        assert_eq!(update(&[2, 2], [-1, -1], [-3, 0], [-1, -1]).unwrap(), [0, 4, 3, 0, 2, 1]);
        assert_eq!(update(&[0, 3], [1, 0], [1, 3], [1, 1]).unwrap(), [0; 6]);
    }

    #[test]
    fn the_update_has_the_shape_of_the_part() {
        refused(
            update(&[1, 3], [1, 0], [2, 2], [1, 1]),
            "`update` is tensor<int32, [1, 3]>, the part to be replaced is tensor<int32, [1, 2]>",
        );
    }
}
