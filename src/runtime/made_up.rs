//! Inputs that are made up for a function, the same every time.

use crate::kernels::convert::from_f32;
use crate::mil::{ArrayType, FeatureType, Interface};
use crate::tensor::{DType, Tensor};

/// Inputs of a function at its default shapes: numbers between -1 and 1, and small integers, zero where there is one
/// only, as for positions.
pub fn made_up_inputs(interface: &Interface) -> Result<Vec<(String, Tensor)>, String> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut inputs = Vec::new();
    for feature in &interface.inputs {
        let at = format!("input `{}` of `{}`", feature.name, interface.function);
        let FeatureType::Array(array) = &feature.ty else {
            return Err(format!("{at} is not a tensor; only functions of tensors can be compared"));
        };
        let made = tensor(array, &mut random).map_err(|why| format!("{at}: {why}"))?;
        inputs.push((feature.name.clone(), made));
    }
    Ok(inputs)
}

fn tensor(array: &ArrayType, random: &mut fastrand::Rng) -> Result<Tensor, String> {
    let sizes = array.shape.iter().map(|&size| usize::try_from(size));
    let shape: Vec<usize> = sizes.collect::<Result<_, _>>().map_err(|_| "is too large".to_owned())?;
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    let count = count.filter(|&count| count <= 1 << 30).ok_or("is too large")?;
    let made = match array.dtype {
        DType::F16 | DType::F32 => {
            let values: Vec<f32> = (0..count).map(|_| 2.0 * random.f32() - 1.0).collect();
            from_f32(array.dtype, &shape, &values)
        }
        DType::I32 => {
            let value = |_| if count == 1 { 0 } else { random.i32(0..4) };
            Tensor::from_slice(&shape, &(0..count).map(value).collect::<Vec<i32>>())
        }
        other => return Err(format!("no inputs of type {other} are made up")),
    };
    made.map_err(|error| error.to_string())
}
