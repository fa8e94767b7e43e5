//! safetensors: any number of tensors by name, and texts beside them.

use std::collections::BTreeMap;

use ::safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{Content, Document, Format, FormatError, Result};
use anemeter_kernels::tensor::{Bytes, DType, Tensor};

pub(super) const FORMAT: Format = Format { ending: "safetensors", holds_texts: true, decode, encode };

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

fn decode(bytes: &[u8]) -> Result<Content> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|e| FormatError::new(format!("not a safetensors file: {e}")))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let dtype = TYPES.iter().find(|(_, theirs)| *theirs == view.dtype()).map(|(ours, _)| *ours);
        let unknown = || FormatError::new(format!("has type {:?}, which no model takes", view.dtype()));
        let dtype = dtype.ok_or_else(|| unknown().about(name))?;
        let tensor = Tensor::new(dtype, view.shape().into(), Bytes::from(view.data().to_vec()))
            .map_err(|e| FormatError::new(e.to_string()).about(name))?;
        tensors.insert(name.to_owned(), tensor);
    }
    Ok(Content::Named(tensors))
}

fn encode(document: &Document<'_>) -> Result<Vec<u8>> {
    let mut views = Vec::new();
    for (name, view) in &document.tensors {
        let dtype = TYPES.iter().find(|(ours, _)| *ours == view.dtype()).map(|(_, theirs)| *theirs);
        let unknown = || FormatError::new(format!("is {}, which safetensors cannot hold", view.dtype()));
        let dtype = dtype.ok_or_else(|| unknown().about(name))?;
        let view = TensorView::new(dtype, view.shape().to_vec(), view.bytes());
        views.push((name, view.map_err(|e| FormatError::new(e.to_string()).about(name))?));
    }
    ::safetensors::serialize(views, document.texts.clone()).map_err(|e| FormatError::new(e.to_string()))
}
