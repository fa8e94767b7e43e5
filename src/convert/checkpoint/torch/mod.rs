//! PyTorch state dicts: a zip archive of a pickle and the bytes of its tensors.

mod pickle;

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::{CheckpointError, Result, quoted};
use super::files::Mapped;
use super::{Encoding, Stored};
use anemeter_base::zip::{self, Method};
use anemeter_kernels::tensor::{DType, shape};
use pickle::{Machine, Tensor, Value};

/// Longest pickle that is read: a thousand tensors take a few hundred kilobytes.
const LONGEST_PICKLE: usize = 64 << 20;

/// Storage types by their name in PyTorch.
const STORAGES: &[(&str, DType)] = &[
    ("FloatStorage", DType::F32),
    ("HalfStorage", DType::F16),
    ("BFloat16Storage", DType::BF16),
    ("DoubleStorage", DType::F64),
    ("LongStorage", DType::I64),
    ("IntStorage", DType::I32),
    ("ShortStorage", DType::I16),
    ("CharStorage", DType::I8),
    ("ByteStorage", DType::U8),
    ("BoolStorage", DType::Bool),
];

/// Where training scripts keep the state dict among other things.
const NESTED: &[&str] = &["state_dict", "model_state_dict", "model", "module"];

/// Whether a file is a zip archive.
pub(super) fn is_one(file: &Mapped) -> bool {
    file.bytes.starts_with(b"PK\x03\x04")
}

/// Whether a file is a bare pickle, as PyTorch wrote before version 1.6.
pub(super) fn is_legacy(file: &Mapped) -> bool {
    file.bytes.starts_with(b"\x80\x02")
}

/// The tensors of a file, by name.
pub(super) fn read(file: &Mapped) -> Result<Vec<(String, Stored)>> {
    read_archive(file).map_err(|e| e.in_file(&file.path))
}

fn read_archive(file: &Mapped) -> Result<Vec<(String, Stored)>> {
    let mut entries = BTreeMap::new();
    for (name, entry) in zip::entries(&file.bytes)? {
        if entry.method != Method::Stored {
            return Err(CheckpointError::new(format!("zip entry {} is compressed", quoted(name))));
        }
        entries.insert(name, entry.content);
    }
    let mut pickles = entries.keys().filter_map(|name| name.strip_suffix("data.pkl"));
    let (Some(folder), None) = (pickles.next(), pickles.next()) else {
        return Err(CheckpointError::new(
            "is a zip archive, but not one with the `data.pkl` of a state dict",
        ));
    };
    let content =
        |name: &str| entries.get(format!("{folder}{name}").as_str()).map(|at| &file.bytes[at.clone()]);
    if content("byteorder").is_some_and(|order| order != b"little") {
        return Err(CheckpointError::new("is a big-endian state dict; only little-endian ones are read"));
    }
    let pickle = content("data.pkl").unwrap_or_default();
    if pickle.len() > LONGEST_PICKLE {
        let message = format!("has a pickle of {} bytes, at most {LONGEST_PICKLE} are read", pickle.len());
        return Err(CheckpointError::new(message));
    }
    let (result, machine) = pickle::run(pickle)?;
    let archive = Archive { file, folder, entries: &entries };
    state_dict(result, &machine)?
        .into_iter()
        .map(|(name, tensor)| {
            let stored = archive.locate(tensor).map_err(|e| e.at_tensor(name))?;
            Ok((name.to_owned(), stored))
        })
        .collect()
}

/// The named tensors of the dictionary that has some.
fn state_dict<'a, 'm>(result: Value<'a>, machine: &'m Machine<'a>) -> Result<Vec<(&'a str, &'m Tensor<'a>)>> {
    let Value::Dict(top) = result else {
        return Err(CheckpointError::new("does not hold a dictionary of tensors"));
    };
    let named = |dict: usize| -> Vec<_> {
        let entry = |&(key, value): &(Value<'a>, Value<'a>)| match (key, value) {
            (Value::Text(name), Value::Tensor(tensor)) => Some((name, &machine.tensors[tensor])),
            _ => None,
        };
        machine.dicts[dict].iter().filter_map(entry).collect()
    };
    let nested = machine.dicts[top].iter().filter_map(|&(key, value)| match (key, value) {
        (Value::Text(name), Value::Dict(dict)) if NESTED.contains(&name) => Some(dict),
        _ => None,
    });
    [top].into_iter().chain(nested).map(named).find(|tensors| !tensors.is_empty()).ok_or_else(|| {
        CheckpointError::new("does not hold a dictionary of tensors")
            .with_help(format!("tensors are looked for at the top and in {}", NESTED.join(", ")))
    })
}

struct Archive<'a> {
    file: &'a Mapped,
    folder: &'a str,
    entries: &'a BTreeMap<&'a str, Range<usize>>,
}

impl Archive<'_> {
    fn locate(&self, tensor: &Tensor<'_>) -> Result<Stored> {
        let Some(&(_, dtype)) = STORAGES.iter().find(|row| row.0 == tensor.kind) else {
            let message = format!("elements of a {} are not supported", quoted(tensor.kind));
            return Err(CheckpointError::new(message));
        };
        if !is_contiguous(tensor) {
            let message = format!("of shape {:?} has the strides {:?}", tensor.shape, tensor.strides);
            return Err(CheckpointError::new(format!("{message}; only contiguous tensors are read"))
                .with_help("call `.contiguous()` on it before saving"));
        }
        let name = format!("{}data/{}", self.folder, tensor.key);
        let Some(entry) = self.entries.get(name.as_str()) else {
            return Err(CheckpointError::new(format!("its storage {} is not in the file", quoted(&name))));
        };
        let range = || {
            let len = dtype.byte_len(shape::element_count(&tensor.shape)?)?;
            let start = entry.start.checked_add(dtype.byte_len(tensor.offset)?)?;
            Some(start..start.checked_add(len)?).filter(|range| range.end <= entry.end)
        };
        let bytes = range().and_then(|range| self.file.bytes.slice(range)).ok_or_else(|| {
            let Tensor { shape, offset, .. } = tensor;
            let message = format!("{dtype} of shape {shape:?} from element {offset} on");
            CheckpointError::new(format!("{message} does not fit its storage of {} bytes", entry.len()))
        })?;
        Ok(Stored { shape: tensor.shape[..].into(), encoding: Encoding::Plain(dtype), bytes, shard: 0 })
    }
}

/// Whether the elements are in row-major order without gaps; strides of single elements do not matter.
fn is_contiguous(tensor: &Tensor<'_>) -> bool {
    let expected = shape::strides(&tensor.shape);
    let mut dims = tensor.shape.iter().zip(&tensor.strides).zip(expected);
    let is_empty = tensor.shape.contains(&0);
    tensor.shape.len() == tensor.strides.len()
        && (is_empty || dims.all(|((&dim, &stride), expected)| dim == 1 || stride == expected))
}

#[cfg(test)]
mod tests;
