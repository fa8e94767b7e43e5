//! Inputs that are made up for a function, the same every time.

use std::ops::Range;

use half::bf16;

use anemeter_kernels::convert::from_f32;
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{ArrayType, ColorSpace, FeatureType, Flexibility, ImageType, Interface};

/// What inputs that are made up hold, in words.
pub const SYNTHETIC_VALUES: &str =
    "floats from -1 to 1, integers from 0 to 3 (0 where there is one), pixels from 0 to 255, seed 1";

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

/// Which values are made up.
pub struct SyntheticValues<'a> {
    /// Seed of all of them.
    pub seed: u64,
    /// The integers of an input, where they are not to be small.
    pub range: &'a dyn Fn(&str) -> Option<Range<i32>>,
}

/// Inputs of a function at its default shapes: numbers between -1 and 1, pixels, and small integers, zero where there is
/// one only, as for positions. [`SYNTHETIC_VALUES`] says so to people.
pub fn synthetic_inputs(interface: &Interface) -> Result<Vec<(String, Tensor)>, SyntheticInputError> {
    synthetic_inputs_of(interface, &SyntheticValues { seed: 1, range: &|_| None })
}

/// The same with another seed, and with integers of other ranges.
pub fn synthetic_inputs_of(
    interface: &Interface,
    values: &SyntheticValues<'_>,
) -> Result<Vec<(String, Tensor)>, SyntheticInputError> {
    let mut random = fastrand::Rng::with_seed(values.seed);
    let mut inputs = Vec::new();
    for feature in &interface.inputs {
        let made = match &feature.ty {
            FeatureType::Array(array) => tensor(array, (values.range)(&feature.name).as_ref(), &mut random),
            FeatureType::Image(image) => pixels(image, &mut random),
            _ => Err("is neither a tensor nor an image, which alone can be made up".to_owned()),
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

/// The shape that an input has unless another is asked for: of ranges without a default their lower ends.
fn default_shape(array: &ArrayType) -> Vec<u64> {
    match &array.flexibility {
        _ if !array.shape.is_empty() => array.shape.clone(),
        Flexibility::Fixed => Vec::new(),
        Flexibility::Enumerated(shapes) => shapes.first().cloned().unwrap_or_default(),
        Flexibility::Ranges(ranges) => ranges.iter().map(|&(low, _)| low.max(1)).collect(),
    }
}

/// The sizes and the number of elements of a shape, if so many can be made.
fn sized(shape: &[u64]) -> Result<(Vec<usize>, usize), String> {
    let too_large = || format!("has the shape {shape:?}, which is too large to be made up");
    let sizes = shape.iter().map(|&size| usize::try_from(size));
    let sizes: Vec<usize> = sizes.collect::<Result<_, _>>().map_err(|_| too_large())?;
    let count = sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    let count = count.filter(|&count| count <= 1 << 30).ok_or_else(too_large)?;
    Ok((sizes, count))
}

/// 8-bit pixels, row by row.
fn pixels(image: &ImageType, random: &mut fastrand::Rng) -> Result<Tensor, String> {
    let channels: &[u64] = match image.color {
        ColorSpace::Rgb | ColorSpace::Bgr => &[3],
        ColorSpace::Grayscale | ColorSpace::GrayscaleFloat16 => &[],
    };
    let (shape, count) = sized(&[&[image.height, image.width], channels].concat())?;
    let bytes: Vec<u8> = (0..count).map(|_| random.u8(..)).collect();
    Tensor::from_slice(&shape, &bytes).map_err(|error| error.to_string())
}

fn tensor(
    array: &ArrayType,
    range: Option<&Range<i32>>,
    random: &mut fastrand::Rng,
) -> Result<Tensor, String> {
    let (shape, count) = sized(&default_shape(array))?;
    let made = match array.dtype {
        DType::F16 | DType::F32 => {
            let values: Vec<f32> = (0..count).map(|_| 2.0 * random.f32() - 1.0).collect();
            from_f32(array.dtype, &shape, &values)
        }
        DType::BF16 => {
            let values = (0..count).map(|_| bf16::from_f32(2.0 * random.f32() - 1.0));
            Tensor::from_slice(&shape, &values.collect::<Vec<bf16>>())
        }
        dtype if dtype.is_int() && !dtype.is_sub_byte() => {
            let mut value = |_| match range {
                Some(range) => random.i32(range.clone()),
                None if count == 1 => 0,
                None => random.i32(0..4),
            };
            let bytes = (0..count).flat_map(|at| {
                let value = i64::from(value(at)).to_le_bytes();
                value.into_iter().take(dtype.bits() as usize / 8)
            });
            Tensor::new(dtype, shape.as_slice().into(), bytes.collect::<Vec<u8>>().into())
        }
        other => return Err(format!("is of type {other}, which is not made up")),
    };
    made.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_mil::{Feature, ImageSizes};

    fn made(ty: FeatureType) -> Result<Tensor, String> {
        let feature = Feature { name: "x".to_owned(), description: String::new(), ty, optional: false };
        let interface = Interface { inputs: vec![feature], ..Interface::default() };
        let made = synthetic_inputs(&interface).map_err(|error| error.problem)?;
        Ok(made[0].1.clone())
    }

    fn array(dtype: DType, shape: &[u64], flexibility: Flexibility) -> FeatureType {
        FeatureType::Array(ArrayType { dtype, shape: shape.to_vec(), flexibility, default: None })
    }

    #[test]
    fn shapes_are_the_default_ones_and_values_those_that_are_told() {
        let ranges = || Flexibility::Ranges(vec![(1, Some(4)), (0, None), (8, Some(8))]);
        assert_eq!(made(array(DType::F16, &[2, 5, 8], ranges())).unwrap().shape(), [2, 5, 8]);
        assert_eq!(made(array(DType::F16, &[], ranges())).unwrap().shape(), [1, 1, 8]);
        let shapes = Flexibility::Enumerated(vec![vec![1, 64], vec![1, 128]]);
        let ids = made(array(DType::I32, &[], shapes)).unwrap();
        assert_eq!(ids.shape(), [1, 64]);
        assert!(ids.view().slice::<i32>().unwrap().iter().all(|id| (0..4).contains(id)));
        let floats = made(array(DType::F32, &[1000], Flexibility::Fixed)).unwrap();
        assert!(floats.view().slice::<f32>().unwrap().iter().all(|x| (-1.0..=1.0).contains(x)));
        assert_eq!(made(array(DType::F32, &[1000], Flexibility::Fixed)).unwrap().bytes(), floats.bytes());
        let image = ImageType { width: 4, height: 2, color: ColorSpace::Bgr, sizes: ImageSizes::Fixed };
        assert_eq!(made(FeatureType::Image(image)).unwrap().shape(), [2, 4, 3]);
        let bytes = made(array(DType::U16, &[1, 300], Flexibility::Fixed)).unwrap();
        assert!(bytes.view().slice::<u16>().unwrap().iter().all(|id| (0..4).contains(id)));
        let wide = made(array(DType::BF16, &[100], Flexibility::Fixed)).unwrap();
        assert!(wide.view().slice::<bf16>().unwrap().iter().all(|x| (-1.0..=1.0).contains(&x.to_f32())));
    }

    #[test]
    fn integers_are_within_the_range_that_is_asked_for() {
        let ty = array(DType::I32, &[1, 500], Flexibility::Fixed);
        let feature = |name: &str, ty: FeatureType| Feature {
            name: name.to_owned(),
            description: String::new(),
            ty,
            optional: false,
        };
        let inputs = vec![feature("ids", ty.clone()), feature("mask", ty)];
        let interface = Interface { inputs, ..Interface::default() };
        let range = |name: &str| (name == "ids").then_some(100..30_000);
        let made = |seed| synthetic_inputs_of(&interface, &SyntheticValues { seed, range: &range }).unwrap();
        let values = |made: &(String, Tensor)| made.1.view().slice::<i32>().unwrap().to_vec();
        let (first, other) = (made(1), made(2));
        assert!(values(&first[0]).iter().all(|id| (100..30_000).contains(id)));
        assert!(values(&first[0]).iter().any(|id| *id > 10_000));
        assert!(values(&first[1]).iter().all(|id| (0..4).contains(id)));
        assert_ne!(values(&first[0]), values(&other[0]));
    }

    #[test]
    fn what_cannot_be_made_up_is_told() {
        let large = made(array(DType::F32, &[1 << 40, 1 << 40], Flexibility::Fixed)).unwrap_err();
        assert!(large.contains("too large to be made up"), "{large}");
        assert!(made(FeatureType::Text).unwrap_err().contains("neither a tensor nor an image"));
    }
}
