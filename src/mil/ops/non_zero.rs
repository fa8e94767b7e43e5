//! `non_zero`: where a tensor is not zero.

use super::prelude::*;

pub(super) const OPS: &[OpDef] =
    &[define(OpClass::Movement, "non_zero", Ios15, infer, eval).takes(&[Param::value("x", FLOAT_INT_BOOL)])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let found = match call.known("x") {
        Some(x) => {
            let mut count = 0;
            each(&x, |_| count += 1)?;
            Dim::from(count)
        }
        None => Dim::Unknown,
    };
    let rank = call.ty("x")?.rank().map_or(Dim::Unknown, Dim::from);
    Ok(dims::one(DType::I32, vec![found, rank]))
}

/// Calls `f` with the position of each element that is not zero, in order.
fn each(x: &TensorView<'_>, f: impl FnMut(usize)) -> Result {
    fn positions<T: Copy>(values: &[T], is_set: impl Fn(T) -> bool, f: impl FnMut(usize)) {
        values.iter().enumerate().filter(|&(_, &value)| is_set(value)).map(|(i, _)| i).for_each(f);
    }
    match x.dtype() {
        DType::F32 => positions(x.slice::<f32>()?, |value| value != 0.0, f),
        DType::F16 => positions(x.slice::<f16>()?, |value| value != f16::ZERO, f),
        DType::I32 => positions(x.slice::<i32>()?, |value| value != 0, f),
        _ => positions(x.bools()?, |value| value != 0, f),
    }
    Ok(())
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let mut count = 0;
    each(&x, |_| count += 1)?;
    let out = outputs.resize(0, &[count, x.rank()])?.slice::<i32>()?;
    done_if!(x.rank() == 0);
    let mut rows = out.chunks_exact_mut(x.rank());
    each(&x, |mut position| {
        let Some(row) = rows.next() else { return };
        for (out, &size) in row.iter_mut().zip(x.shape()).rev() {
            *out = (position % size) as i32;
            position /= size;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_one_row_of_indices_per_element() {
        let x = tensor(&[2, 3], &[0.0f32, -0.0, 1.0, f32::NAN, 0.0, -1.0]);
        gives::<i32>(run("non_zero", Ios15, &[("x", x)]), &[3, 2], &[0, 2, 1, 0, 1, 2]);
        let x = bools(&[2], &[false, false]);
        assert_eq!(run("non_zero", Ios15, &[("x", x)]).unwrap()[0].shape(), [0, 1]);
    }
}
