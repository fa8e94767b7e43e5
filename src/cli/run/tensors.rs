//! Tensors in safetensors files.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView as SafeView};

use crate::cli::output::{warn, write_file};
use crate::cli::{Failure, Result};
use crate::kernels::convert::{from_f32, to_f32};
use crate::mil::{FeatureType, Model};
use crate::runtime::Session;
use crate::tensor::{Bytes, DType, Tensor, TensorError, TensorView};

type Named = (String, Tensor);

/// Types that both sides have.
const TYPES: &[(DType, Dtype)] = &[
    (DType::Bool, Dtype::BOOL),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
];

/// Reads every tensor of a file, in name order.
pub(super) fn read(path: &Path) -> Result<Vec<Named>> {
    let bad = |problem: String| Failure::at(path, problem);
    let file = File::open(path).map_err(|e| Failure::at(path, e))?;
    let bytes = Bytes::map(&file).map_err(|e| Failure::at(path, e))?;
    let tensors =
        SafeTensors::deserialize(&bytes).map_err(|e| bad(format!("not a safetensors file: {e}")))?;
    let mut found = BTreeMap::new();
    for (name, view) in tensors.iter() {
        let dtype = TYPES.iter().find(|(_, theirs)| *theirs == view.dtype()).map(|(ours, _)| *ours);
        let dtype = dtype
            .ok_or_else(|| bad(format!("`{name}` has type {:?}, which no model takes", view.dtype())))?;
        let data = Bytes::from(view.data().to_vec());
        let tensor =
            Tensor::new(dtype, view.shape().into(), data).map_err(|e| bad(format!("`{name}`: {e}")))?;
        found.insert(name.to_owned(), tensor);
    }
    Ok(found.into_iter().collect())
}

/// Inputs as the function declares them. As Core ML does with an `MLMultiArray`, floating point values and integers are converted
/// to the floating point type of the input, and `int64`, which arrays of Python have, to `int32`; anything else is left for the
/// runtime to refuse.
pub(super) fn as_declared(model: &Model, function: &str, inputs: Vec<Named>) -> Result<Vec<Named>> {
    let features = model.interface(function).map_or(&[][..], |interface| &interface.inputs);
    let convert = |(name, tensor): Named| {
        let declared =
            features.iter().find(|feature| feature.name == name).and_then(|feature| match &feature.ty {
                FeatureType::Array(array) => Some(array.dtype),
                _ => None,
            });
        let given = tensor.dtype();
        match declared {
            Some(DType::I32) if given == DType::I64 => {
                let tensor = narrowed(&tensor)
                    .map_err(|problem| Failure::bad_input(format!("input `{name}`: {problem}")))?;
                warn(format_args!("note: input {name}: int64 values converted to int32"));
                Ok((name, tensor))
            }
            Some(dtype)
                if dtype != given
                    && dtype.is_float()
                    && (given.is_float() || matches!(given, DType::I32 | DType::I64)) =>
            {
                let (tensor, overflowed) = converted(&tensor, dtype)
                    .map_err(|e| Failure::bad_input(format!("input `{name}`: {e}")))?;
                let lost = match overflowed {
                    0 => String::new(),
                    n => format!(", {n} beyond its range became infinite"),
                };
                warn(format_args!("note: input {name}: {given} values converted to {dtype}{lost}"));
                Ok((name, tensor))
            }
            _ => Ok((name, tensor)),
        }
    };
    inputs.into_iter().map(convert).collect()
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

/// Writes the outputs of the last prediction. A string is in the metadata, since no tensor holds it.
pub(super) fn write_outputs(
    path: &Path,
    model: &Model,
    function: &str,
    session: &dyn Session,
    metadata: Option<HashMap<String, String>>,
) -> Result<()> {
    let interface = model.interface(function);
    let names = interface.iter().flat_map(|i| &i.outputs).map(|f| f.name.as_str());
    let views = names.filter_map(|name| Some((name.to_owned(), session.output(name)?)));
    write(path, views.filter(|(_, view)| view.dtype() != DType::String).collect(), metadata)
}

/// Writes every state.
pub(super) fn write_states(path: &Path, session: &dyn Session) -> Result<()> {
    let names = session.state_names();
    let views = names.iter().filter_map(|name| Some((name.clone(), session.state(name)?)));
    write(path, views.collect(), None)
}

/// A model may list an output twice; a file holds it once.
fn write(
    path: &Path,
    tensors: BTreeMap<String, TensorView<'_>>,
    metadata: Option<HashMap<String, String>>,
) -> Result<()> {
    let bad = |problem: String| Failure::at(path, problem);
    let mut views = Vec::new();
    for (name, view) in tensors {
        let dtype = TYPES.iter().find(|(ours, _)| *ours == view.dtype()).map(|(_, theirs)| *theirs);
        let dtype = dtype
            .ok_or_else(|| bad(format!("`{name}` is {}, which safetensors cannot hold", view.dtype())))?;
        let view = SafeView::new(dtype, view.shape().to_vec(), view.bytes());
        views.push((name.clone(), view.map_err(|e| bad(format!("`{name}`: {e}")))?));
    }
    let bytes = safetensors::serialize(views, metadata).map_err(|e| bad(e.to_string()))?;
    write_file(path, &bytes)
}
