//! The tensors of a safetensors file.

use ::safetensors::tensor::{Dtype, SafeTensors};
use serde::de::IgnoredAny;

use super::error::{CheckpointError, Result};
use super::files::Mapped;
use super::unique::Unique;
use super::{Encoding, Stored};
use anemeter_kernels::tensor::{DType, Shape};

/// Bytes before the header: its length.
const PREFIX: usize = 8;

/// The tensors of a file, by name.
pub(super) fn read(file: &Mapped) -> Result<Vec<(String, Stored)>> {
    let (header, metadata) = SafeTensors::read_metadata(&file.bytes)
        .map_err(|e| file.error(format!("is not a valid safetensors file: {e}")))?;
    let data = PREFIX + header;
    serde_json::from_slice::<Unique<IgnoredAny>>(&file.bytes[PREFIX..data])
        .map_err(|e| file.error(format!("header: {e}")))?;
    let names = metadata.offset_keys();
    names
        .into_iter()
        .filter_map(|name| metadata.info(&name).map(|info| (name, info)))
        .map(|(name, info)| {
            let (start, end) = info.data_offsets;
            let error = |message: String| CheckpointError::new(message).at_tensor(&name).in_file(&file.path);
            let dtype = element_type(info.dtype)
                .ok_or_else(|| error(format!("elements of type {} are not supported", info.dtype)))?;
            let bytes = file
                .bytes
                .slice(data + start..data + end)
                .ok_or_else(|| error(format!("its bytes {start}..{end} are outside the file")))?;
            let shape = Shape::from_slice(&info.shape);
            Ok((name, Stored { shape, encoding: Encoding::Plain(dtype), bytes, shard: 0 }))
        })
        .collect()
}

/// The element type of the same meaning, if its elements can be read as numbers.
fn element_type(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        _ => return None,
    })
}
