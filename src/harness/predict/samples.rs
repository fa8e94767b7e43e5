//! The inputs of predictions: from a file, or made up from the declared types.

use std::path::Path;

use super::config::RangeText;
use super::{PredictUse, at_shapes};
use crate::tensor_files::{self, NamedTensor, NamedTensors, TensorFileError, as_declared};
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_measure::report::{Case, InputShape};
use anemeter_mil::{FeatureType, Interface};
use anemeter_runtime::{SyntheticValues, synthetic_inputs_of};

/// The inputs of one prediction.
#[derive(Debug, Clone)]
pub(crate) struct Sample(pub(crate) Vec<NamedTensor>);

impl Sample {
    /// The shape of every input; of images height and width.
    pub(crate) fn shapes(&self, interface: &Interface) -> Vec<InputShape> {
        let shape = |(name, tensor): &NamedTensor| {
            let is_it = |ty: &FeatureType| matches!(ty, FeatureType::Image(_));
            let is_image = interface.inputs.iter().any(|of| of.name == *name && is_it(&of.ty));
            let sizes = if is_image { image_size(tensor) } else { tensor.shape() };
            InputShape { input: name.clone(), shape: sizes.iter().map(|&size| size as u64).collect() }
        };
        self.0.iter().map(shape).collect()
    }

    /// Bytes of its tensors.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, tensor)| tensor.bytes().len() as u64).sum()
    }
}

/// Height and width: pixels come row by row, other tensors as the program takes them.
fn image_size(tensor: &Tensor) -> &[usize] {
    match (tensor.dtype(), tensor.shape()) {
        (DType::U8, [size @ .., _]) if size.len() == 2 => size,
        (_, [_, _, size @ ..]) if size.len() == 2 => size,
        (_, other) => other,
    }
}

/// The samples of a file.
#[derive(Debug, Clone)]
pub(crate) struct InputSamples {
    file: NamedTensors,
}

impl InputSamples {
    pub(crate) fn read(path: &Path) -> Result<InputSamples, TensorFileError> {
        Ok(InputSamples { file: tensor_files::read_named(path)? })
    }

    pub(crate) fn digest(&self) -> &str {
        &self.file.digest
    }

    /// The samples of a function: one if tensors are named as its inputs, or those that are numbered.
    pub(crate) fn of(&self, interface: &Interface) -> Result<Vec<Sample>, String> {
        let mut inputs: Vec<(&str, Vec<NamedTensor>)> = Vec::new();
        for feature in &interface.inputs {
            let found = self.tensors(&feature.name, interface);
            match found.is_empty() {
                true if feature.optional => {}
                true => {
                    let name = feature.name.escape_debug();
                    return Err(format!("the file of inputs has neither `{name}` nor `{name}.0`"));
                }
                false => inputs.push((&feature.name, found)),
            }
        }
        let count = inputs.iter().map(|(_, tensors)| tensors.len()).max().unwrap_or(1);
        // A tensor of the input's own name is the same in every sample.
        let is_every = |name: &str| self.file.tensors.contains_key(name);
        let differs = |(name, tensors): &&(&str, Vec<NamedTensor>)| tensors.len() != count && !is_every(name);
        if let Some((name, tensors)) = inputs.iter().find(differs) {
            let (name, found) = (name.escape_debug(), tensors.len());
            return Err(format!(
                "the file of inputs has {count} samples, and `{name}` is in {found} of them"
            ));
        }
        let sample = |index: usize| {
            let of = |(_, tensors): &(&str, Vec<NamedTensor>)| tensors[index.min(tensors.len() - 1)].clone();
            let (tensors, _) = as_declared(Some(interface), inputs.iter().map(of).collect())?;
            Ok(Sample(tensors))
        };
        (0..count).map(sample).collect()
    }

    /// The tensors of an input: the one of its name, or else those that are numbered.
    fn tensors(&self, name: &str, interface: &Interface) -> Vec<NamedTensor> {
        let get = |key: &str| self.file.tensors.get(key).map(|tensor| (name.to_owned(), tensor.clone()));
        let is_input = |key: &str| interface.inputs.iter().any(|feature| feature.name == key);
        match get(name) {
            Some(tensor) => vec![tensor],
            None => (0..)
                .map(|number| format!("{name}.{number}"))
                .map_while(|key| get(&key).filter(|_| !is_input(&key)))
                .collect(),
        }
    }

    /// A tensor that is no sample of any input.
    pub(crate) fn unused(&self, interfaces: &[&Interface]) -> Option<&str> {
        let is_used = |key: &str| {
            let plain = key.rsplit_once('.').filter(|(_, number)| number.parse::<usize>().is_ok());
            let names = interfaces.iter().flat_map(|interface| &interface.inputs).map(|of| of.name.as_str());
            names.into_iter().any(|name| name == key || plain.is_some_and(|(plain, _)| plain == name))
        };
        self.file.tensors.keys().map(String::as_str).find(|key| !is_used(key))
    }
}

/// Bytes of what would be made up for a case; more than there are where they cannot be counted.
pub(crate) fn bytes_made_up(case: &Case, interface: &Interface) -> u64 {
    let bytes = |of: &InputShape| {
        let feature = interface.inputs.iter().find(|feature| feature.name == of.input);
        let (bits, channels) = match feature.map(|feature| &feature.ty) {
            Some(FeatureType::Array(array)) => (u64::from(array.dtype.bits()), 1),
            Some(FeatureType::Image(image)) => (8, image.color.channels()),
            _ => (0, 1),
        };
        let bits = of.shape.iter().fold(bits * channels, |bits, &size| bits.saturating_mul(size));
        bits.div_ceil(8)
    };
    case.shapes.iter().map(bytes).fold(0, u64::saturating_add)
}

/// The samples that a case takes turns with.
pub(crate) fn of_case(
    case: &Case,
    interface: &Interface,
    given: Option<&InputSamples>,
    (wanted, seed): (&PredictUse, u64),
) -> Result<Vec<Sample>, String> {
    match given {
        Some(given) => {
            let samples = given.of(interface)?;
            Ok(samples.into_iter().filter(|sample| sample.shapes(interface) == case.shapes).collect())
        }
        None => {
            let range = |input: &str| {
                let RangeText { low, end } = wanted.ranges.get(input)?;
                Some(*low..*end)
            };
            let values = SyntheticValues { seed, range: &range };
            let made = synthetic_inputs_of(&at_shapes(interface, &case.shapes), &values);
            Ok(vec![Sample(made.map_err(|error| error.to_string())?)])
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use anemeter_mil::{ArrayType, ColorSpace, Feature, Flexibility, ImageSizes, ImageType};

    fn interface(names: &[&str]) -> Interface {
        let array = ArrayType {
            dtype: DType::F32,
            shape: vec![2],
            flexibility: Flexibility::Ranges(vec![(1, Some(9))]),
            default: None,
        };
        let feature = |name: &&str| Feature {
            name: (*name).to_owned(),
            description: String::new(),
            ty: FeatureType::Array(array.clone()),
            optional: false,
        };
        Interface { inputs: names.iter().map(feature).collect(), ..Interface::default() }
    }

    fn samples(tensors: &[(&str, &[f32])]) -> InputSamples {
        let tensor = |(name, values): &(&str, &[f32])| {
            ((*name).to_owned(), Tensor::from_slice(&[values.len()], values).unwrap())
        };
        InputSamples {
            file: NamedTensors {
                tensors: tensors.iter().map(tensor).collect(),
                digest: "xxh3:00".to_owned(),
            },
        }
    }

    #[test]
    fn samples_are_one_by_name_or_several_by_number() {
        let one = samples(&[("x", &[1.0, 2.0]), ("y", &[3.0])]);
        assert_eq!(one.of(&interface(&["x", "y"])).unwrap().len(), 1);
        let many = samples(&[("x.0", &[1.0]), ("x.1", &[1.0, 2.0]), ("y", &[3.0])]);
        let found = many.of(&interface(&["x", "y"])).unwrap();
        let shapes: Vec<Vec<u64>> =
            found.iter().map(|sample| sample.shapes(&Interface::default())[0].shape.clone()).collect();
        assert_eq!(shapes, [[1], [2]]);
        assert_eq!(found[1].0[1].1.shape(), [1], "what is given once is given each time");
    }

    #[test]
    fn an_input_whose_name_looks_numbered_is_itself() {
        let file = samples(&[("x", &[1.0]), ("x.0", &[2.0, 3.0])]);
        let found = file.of(&interface(&["x", "x.0"])).unwrap();
        assert_eq!((found.len(), found[0].0[1].1.shape()), (1, &[2][..]));
    }

    #[test]
    fn images_are_height_and_width_as_pixels_and_as_tensors() {
        let mut interface = interface(&["image"]);
        let sizes = ImageSizes::Enumerated(vec![(6, 4), (12, 8)]);
        interface.inputs[0].ty =
            FeatureType::Image(ImageType { width: 6, height: 4, color: ColorSpace::Rgb, sizes });
        for tensor in [
            Tensor::from_slice(&[8, 12, 3], &[0u8; 8 * 12 * 3]).unwrap(),
            Tensor::from_slice(&[1, 3, 8, 12], &[0f32; 8 * 12 * 3]).unwrap(),
        ] {
            let shapes = Sample(vec![("image".to_owned(), tensor)]).shapes(&interface);
            assert_eq!(shapes[0].shape, [8, 12]);
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let file = samples(&[("x.0", &[1.0]), ("x.1", &[1.0]), ("y.0", &[1.0]), ("z", &[1.0])]);
        let wanted = interface(&["x", "y"]);
        assert_eq!(
            file.of(&wanted).map(|_| ()).unwrap_err(),
            "the file of inputs has 2 samples, and `y` is in 1 of them"
        );
        let missing = file.of(&interface(&["w"])).map(|_| ()).unwrap_err();
        assert_eq!(missing, "the file of inputs has neither `w` nor `w.0`");
        assert_eq!(file.unused(&[&wanted]), Some("z"));
        assert_eq!(file.unused(&[&interface(&["x", "y", "z"])]), None);
    }

    #[test]
    fn a_file_that_is_none_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let error = InputSamples::read(&path).unwrap_err().to_string();
        assert!(error.contains("a.safetensors: "), "{error}");
        anemeter_base::atomic::write_file(&path, b"no tensors").unwrap();
        assert!(InputSamples::read(&path).unwrap_err().to_string().contains("not a safetensors file"));
        let values = [1.0f32];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &bytes).unwrap();
        let stored = safetensors::serialize([("x", view)], None::<HashMap<String, String>>).unwrap();
        anemeter_base::atomic::write_file(&path, &stored).unwrap();
        let read = InputSamples::read(&path).unwrap();
        assert_eq!(read.of(&interface(&["x"])).unwrap().len(), 1);
        assert!(read.digest().starts_with("xxh3:"));
    }
}
