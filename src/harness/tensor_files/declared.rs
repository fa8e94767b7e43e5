//! Inputs as a function declares them.

use anemeter_kernels::convert::{from_f32, to_f32};
use anemeter_kernels::tensor::{DType, Tensor, TensorError};
use anemeter_mil::{FeatureType, Interface};

/// A tensor and its name.
pub type NamedTensor = (String, Tensor);

/// Inputs as the function declares them, and what was changed to make them so. As Core ML does with an `MLMultiArray`,
/// floating point values and integers are converted to the floating point type of the input, and `int64`, which arrays of
/// Python have, to `int32`; anything else is left for the runtime to refuse.
pub fn as_declared(
    interface: Option<&Interface>,
    inputs: Vec<NamedTensor>,
) -> Result<(Vec<NamedTensor>, Vec<String>), String> {
    let features = interface.map_or(&[][..], |interface| &interface.inputs);
    let mut notes = Vec::new();
    let mut convert = |(name, tensor): NamedTensor| {
        let declared =
            features.iter().find(|feature| feature.name == name).and_then(|feature| match &feature.ty {
                FeatureType::Array(array) => Some(array.dtype),
                _ => None,
            });
        let given = tensor.dtype();
        match declared {
            Some(DType::I32) if given == DType::I64 => {
                let tensor = narrowed(&tensor).map_err(|problem| format!("input `{name}`: {problem}"))?;
                notes.push(format!("input {name}: int64 values converted to int32"));
                Ok((name, tensor))
            }
            Some(dtype)
                if dtype != given
                    && dtype.is_float()
                    && (given.is_float() || matches!(given, DType::I32 | DType::I64)) =>
            {
                let (tensor, overflowed) =
                    converted(&tensor, dtype).map_err(|e| format!("input `{name}`: {e}"))?;
                let lost = match overflowed {
                    0 => String::new(),
                    n => format!(", {n} beyond its range became infinite"),
                };
                notes.push(format!("input {name}: {given} values converted to {dtype}{lost}"));
                Ok((name, tensor))
            }
            _ => Ok((name, tensor)),
        }
    };
    let inputs = inputs.into_iter().map(&mut convert).collect::<Result<_, String>>()?;
    Ok((inputs, notes))
}

/// An `int64` tensor as `int32`, if every value fits.
fn narrowed(tensor: &Tensor) -> Result<Tensor, String> {
    let view = tensor.view();
    let narrow = |&wide: &i64| {
        i32::try_from(wide).map_err(|_| format!("holds {wide}, which is beyond int32, the type of the input"))
    };
    let values = view.slice::<i64>().map_err(|error| error.to_string())?;
    let values: Vec<i32> = values.iter().map(narrow).collect::<Result<_, _>>()?;
    Tensor::from_slice(tensor.shape(), &values).map_err(|error| error.to_string())
}

/// A tensor in another floating point type, and how many of its finite values are infinite there.
fn converted(tensor: &Tensor, dtype: DType) -> Result<(Tensor, usize), TensorError> {
    let mut values = vec![0.0; tensor.view().len()];
    let count = values.len();
    to_f32(&tensor.view(), 0..count, &mut values);
    let converted = from_f32(dtype, tensor.shape(), &values)?;
    let mut back = vec![0.0; count];
    to_f32(&converted.view(), 0..count, &mut back);
    let overflowed =
        values.iter().zip(&back).filter(|(from, to)| from.is_finite() && to.is_infinite()).count();
    Ok((converted, overflowed))
}
