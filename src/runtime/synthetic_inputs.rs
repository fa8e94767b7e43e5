//! Inputs that are made up for a function, the same every time.

use anemeter_kernels::convert::from_f32;
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{ArrayType, FeatureType, Interface};

/// Why no input can be made up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("input `{input}` of `{function}` {problem}")]
pub struct SyntheticInputError {
    /// The input.
    pub input: String,
    /// Its function.
    pub function: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Inputs of a function at its default shapes: numbers between -1 and 1, and small integers, zero where there is one
/// only, as for positions.
pub fn synthetic_inputs(interface: &Interface) -> Result<Vec<(String, Tensor)>, SyntheticInputError> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut inputs = Vec::new();
    for feature in &interface.inputs {
        let made = match &feature.ty {
            FeatureType::Array(array) => tensor(array, &mut random),
            _ => Err("is not a tensor; only functions of tensors can be compared".to_owned()),
        };
        let made = made.map_err(|problem| SyntheticInputError {
            input: feature.name.clone(),
            function: interface.function.clone(),
            problem,
        });
        inputs.push((feature.name.clone(), made?));
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
        other => return Err(format!("is of type {other}, which is not made up")),
    };
    made.map_err(|error| error.to_string())
}
