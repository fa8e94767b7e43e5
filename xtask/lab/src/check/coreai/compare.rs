//! Tensors of a case in files, and how two sets of them compare.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Verdict;
use anemeter::kernels::convert;
use anemeter::tensor::{DType, TensorView};

/// One tensor of a folder; its elements are in a file of the index.
#[derive(Serialize, Deserialize)]
struct Entry {
    kind: String,
    name: String,
    dtype: String,
    shape: Vec<usize>,
}

/// What Apple's runtime left of a case.
#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    tensors: Vec<Entry>,
}

/// numpy's name of an element type.
fn numpy_name(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::I32 => "int32",
        DType::I16 => "int16",
        DType::U16 => "uint16",
        DType::I8 => "int8",
        DType::U8 => "uint8",
        DType::Bool => "bool",
        other => bail!("no tensors of {other} are exchanged"),
    })
}

/// Writes tensors as `LABEL.json` and one file of elements each.
pub(super) fn write_tensors<'a>(
    folder: &Path,
    label: &str,
    tensors: impl IntoIterator<Item = (&'a str, &'a str, TensorView<'a>)>,
) -> Result<()> {
    let mut entries = Vec::new();
    for (index, (kind, name, view)) in tensors.into_iter().enumerate() {
        fs::write(folder.join(format!("{label}_{index}.bin")), view.bytes())?;
        entries.push(Entry {
            kind: kind.to_owned(),
            name: name.to_owned(),
            dtype: numpy_name(view.dtype())?.to_owned(),
            shape: view.shape().to_vec(),
        });
    }
    fs::write(folder.join(format!("{label}.json")), serde_json::to_string(&entries)?)?;
    Ok(())
}

fn floats(folder: &Path, label: &str, index: usize, entry: &Entry) -> Result<Vec<f32>> {
    let bytes = fs::read(folder.join(format!("{label}_{index}.bin")))?;
    let known =
        [DType::F32, DType::F16, DType::I32, DType::I16, DType::U16, DType::I8, DType::U8, DType::Bool];
    let dtype = known.into_iter().find(|&dtype| numpy_name(dtype).is_ok_and(|name| name == entry.dtype));
    let dtype = dtype.with_context(|| format!("{} is no known type", entry.dtype))?;
    if dtype == DType::Bool {
        return Ok(bytes.iter().map(|&byte| f32::from(u8::from(byte != 0))).collect());
    }
    let aligned = anemeter::tensor::AlignedBuf::from_slice(&bytes);
    let tensor = anemeter::tensor::Tensor::new(dtype, entry.shape.iter().copied().collect(), aligned.into())?;
    let view = tensor.view();
    let mut values = vec![0.0; view.len()];
    convert::to_f32(&view, 0..view.len(), &mut values);
    Ok(values)
}

/// Compares what both runtimes made of a case.
pub(super) fn compare(folder: &Path, tolerance: f32) -> Result<Verdict> {
    let Ok(text) = fs::read_to_string(folder.join("found.json")) else {
        return Ok(Verdict::Failed("Apple's process ended without a word".to_owned()));
    };
    let given: Given = serde_json::from_str(&text)?;
    if let Some(error) = given.error {
        return Ok(Verdict::Failed(error));
    }
    let expected: Vec<Entry> = serde_json::from_str(&fs::read_to_string(folder.join("expected.json"))?)?;
    for (index, wanted) in expected.iter().enumerate() {
        let position =
            given.tensors.iter().position(|entry| entry.kind == wanted.kind && entry.name == wanted.name);
        let Some(position) = position else {
            return Ok(Verdict::Differs(format!("`{}` is missing", wanted.name)));
        };
        let found = &given.tensors[position];
        if found.shape != wanted.shape || found.dtype != wanted.dtype {
            let (is, should) = ((&found.dtype, &found.shape), (&wanted.dtype, &wanted.shape));
            return Ok(Verdict::Differs(format!("`{}` is {is:?}, should be {should:?}", wanted.name)));
        }
        let (a, b) = (floats(folder, "found", position, found)?, floats(folder, "expected", index, wanted)?);
        if let Some(how) = difference(&a, &b, tolerance) {
            return Ok(Verdict::Differs(format!("`{}`: {how}", wanted.name)));
        }
    }
    Ok(Verdict::Same)
}

/// The worst element, if it is further off than the tolerance: absolute below one, relative above.
fn difference(found: &[f32], expected: &[f32], tolerance: f32) -> Option<String> {
    let off = |(&a, &b): (&f32, &f32)| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        _ if a == b => 0.0,
        (false, false) => (a - b).abs() / b.abs().max(1.0),
        _ => f32::INFINITY,
    };
    let errors: Vec<f32> = found.iter().zip(expected).map(off).collect();
    let (at, worst) = errors.iter().copied().enumerate().max_by(|x, y| x.1.total_cmp(&y.1))?;
    (worst > tolerance).then(|| {
        format!(
            "element {at} is {} on Apple's runtime and {} here (off by {worst:.2e})",
            found[at], expected[at]
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_absolute_below_one_and_relative_above() {
        assert_eq!(difference(&[0.1, 1000.0], &[0.100001, 1000.001], 1e-5), None);
        assert!(difference(&[0.1], &[0.2], 1e-5).is_some());
        assert!(difference(&[f32::NAN], &[0.2], 1e-5).is_some());
        assert_eq!(difference(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY], 1e-5), None);
    }
}
