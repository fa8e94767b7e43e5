//! `range_1d`: numbers from a start up to an end, a step apart.

use super::prelude::*;
use anemeter_kernels::convert::round_f16;

pub(super) const OPS: &[OpDef] = &[define(OpClass::Movement, "range_1d", Ios15, infer, eval).takes(&[
    Param::value("end", FLOAT_INT).group('T'),
    Param::value("start", FLOAT_INT).group('T'),
    Param::value("step", FLOAT_INT).group('T'),
])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let start = call.ty("start")?;
    for name in ["end", "step"] {
        let other = call.ty(name)?;
        if other.dtype != start.dtype {
            let (found, wanted) = (other.dtype, start.dtype);
            refuse!("`{name}` is {found}, `start` is {wanted}");
        }
    }
    let known = ["start", "end", "step"].iter().all(|name| call.known(name).is_some());
    let length = if known { Dim::from(length(call, start.dtype)?) } else { Dim::Unknown };
    Ok(dims::one(start.dtype, vec![length]))
}

/// How many numbers there are; rounded at each step as the type of the numbers is.
fn length(call: &Call<'_>, dtype: DType) -> Result<usize> {
    if dtype == DType::I32 {
        let (start, end, step) = (call.int("start")?, call.int("end")?, call.int("step")?);
        let distance = if step < 0 { start - end } else { end - start };
        return match step.unsigned_abs() {
            0 => Err(OpError::new("`step` is 0")),
            step => Ok(distance.max(0).unsigned_abs().div_ceil(step) as usize),
        };
    }
    let (start, end, step) = (call.float("start")?, call.float("end")?, call.float("step")?);
    let round = |value: f32| if dtype == DType::F16 { round_f16(value) } else { value };
    let length = round(round(end - start) / step).ceil();
    if step == 0.0 || !length.is_finite() {
        refuse!("a range from {start} to {end} in steps of {step} has no length");
    }
    Ok(length.max(0.0) as usize)
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let dtype = call.ty("start")?.dtype;
    let out = outputs.resize(0, &[length(call, dtype)?])?;
    if dtype == DType::I32 {
        let (start, step) = (call.int("start")?, call.int("step")?);
        for (i, out) in (0i64..).zip(out.slice::<i32>()?) {
            *out = (start + i * step) as i32;
        }
        return Ok(());
    }
    let (start, step) = (call.float("start")?, call.float("step")?);
    let at = |i: usize| start + i as f32 * step;
    match dtype {
        DType::F16 => {
            out.slice::<f16>()?.iter_mut().enumerate().for_each(|(i, out)| *out = f16::from_f32(at(i)));
        }
        _ => out.slice::<f32>()?.iter_mut().enumerate().for_each(|(i, out)| *out = at(i)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range<T: Element>(start: T, end: T, step: T) -> Result<Vec<T>, String> {
        let args = [("start", start), ("end", end), ("step", step)].map(|(n, v)| (n, Tensor::scalar(v)));
        let out = run("range_1d", Ios15, &args).map_err(|error| error.to_string())?;
        Ok(out[0].view().slice::<T>().unwrap().to_vec())
    }

    #[test]
    fn the_end_is_exclusive() {
        assert_eq!(range(5, 11, 2).unwrap(), [5, 7, 9]);
        assert_eq!(range(5, 0, -3).unwrap(), [5, 2]);
        assert!(range(5, 5, 1).unwrap().is_empty());
        assert!(range(5, 0, 1).unwrap().is_empty());
        assert_eq!(range(0.5f32, 2.0, 0.5).unwrap(), [0.5, 1.0, 1.5]);
        assert_eq!(range(0.0f32, 0.3, 0.1).unwrap().len(), 3);
        assert_eq!(range(-0.1f32, -0.7, -0.07).unwrap().len(), 9);
        assert_eq!(range(f16::ONE, f16::from_f32(4.0), f16::ONE).unwrap().len(), 3);
    }

    #[test]
    fn a_range_has_a_finite_length() {
        refused(range(0, 1, 0), "`step` is 0");
        refused(range(0.0f32, 1.0, 0.0), "a range from 0 to 1 in steps of 0 has no length");
        assert!(range(i32::MIN, i32::MAX, i32::MAX).unwrap().len() == 3);
    }
}
