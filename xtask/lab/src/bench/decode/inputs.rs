//! Inputs of a function that cost what real ones cost: numbers of ordinary size, every key visible.

use anemeter::mil::{ArrayType, FeatureType, Flexibility, Interface};
use anemeter::tensor::{DType, Shape, Tensor};
use anyhow::{Context, Result, bail};

/// Inputs of a function at the enumerated shapes of index `at`.
pub(crate) fn make(interface: &Interface, at: usize) -> Result<Vec<(String, Tensor)>> {
    let mut inputs = Vec::new();
    for feature in &interface.inputs {
        let FeatureType::Array(array) = &feature.ty else { continue };
        let shape = shape(array, at).with_context(|| format!("`{}` has no shape {at}", feature.name))?;
        inputs.push((feature.name.clone(), tensor(&feature.name, array.dtype, &shape)?));
    }
    Ok(inputs)
}

fn shape(array: &ArrayType, at: usize) -> Option<Shape> {
    let dims = match &array.flexibility {
        Flexibility::Enumerated(shapes) => shapes.get(at)?,
        _ => &array.shape,
    };
    dims.iter().map(|&dim| usize::try_from(dim).ok()).collect()
}

fn tensor(name: &str, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let count = shape.iter().product();
    match dtype {
        DType::I32 => Ok(Tensor::from_slice(shape, &vec![7i32; count])?),
        DType::F16 => {
            let values: Vec<f32> = match shape {
                [.., queries, keys] if name.starts_with("mask") => causal_mask(*queries, *keys),
                _ => (0..count).map(|i| value(name, i, count)).collect(),
            };
            Ok(anemeter::kernels::convert::from_f32(dtype, shape, &values)?)
        }
        _ => bail!("`{name}` is {dtype}, which the functions of a decoder do not take"),
    }
}

fn value(name: &str, i: usize, count: usize) -> f32 {
    let noise = ((i as u32).wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 24) as f32;
    match name {
        "select" => f32::from(u8::from(i + 1 == count)),
        _ => noise - 0.5,
    }
}

/// The last query sees every key, each one before it a key less.
fn causal_mask(queries: usize, keys: usize) -> Vec<f32> {
    let hidden = |i: usize| i % keys + queries > i / keys + keys;
    (0..queries * keys).map(|i| if hidden(i) { -1e4 } else { 0.0 }).collect()
}
