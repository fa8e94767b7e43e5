//! Types and constants.

use super::model_error;
use crate::package::check::{DEEPEST, HIGHEST_RANK};
use crate::package::error::{ErrorKind, PackageError, Result};
use crate::package::schema::*;
use crate::package::weights::{BlobWriter, FILE, PREFIX};
use crate::package::wire::Writer;
use crate::{Dim, Literal, LiteralData, TensorType, Type};
use anemeter_kernels::tensor::{DType, shape};

/// A `ValueType` field; `depth` is how many types are around it.
pub(super) fn value_type(out: &mut Writer, field: u32, ty: &Type, depth: usize) -> Result<()> {
    fail_if!(depth > DEEPEST, model_error("types nest deeper than {DEEPEST} levels"));
    out.message(field, |out| match ty {
        Type::Tensor(tensor) => tensor_type(out, value_type::TENSOR, tensor),
        Type::List(element, length) => out.message(value_type::LIST, |out| {
            value_type(out, list_type::TYPE, element, depth + 1)?;
            dim(out, list_type::LENGTH, *length);
            Ok(())
        }),
        Type::Tuple(types) => out.message(value_type::TUPLE, |out| {
            types.iter().try_for_each(|ty| value_type(out, tuple_type::TYPES, ty, depth + 1))
        }),
        Type::Dictionary(key, value) => out.message(value_type::DICTIONARY, |out| {
            value_type(out, dictionary_type::KEY, key, depth + 1)?;
            value_type(out, dictionary_type::VALUE, value, depth + 1)
        }),
        Type::State(tensor) => out.message(value_type::STATE, |out| {
            out.message(state_type::WRAPPED_TYPE, |out| tensor_type(out, value_type::TENSOR, tensor))
        }),
    })
}

fn tensor_type(out: &mut Writer, field: u32, tensor: &TensorType) -> Result<()> {
    let rank = tensor.shape.len();
    if rank > HIGHEST_RANK {
        let text = format!("a tensor type has {rank} dimensions; at most {HIGHEST_RANK} are supported");
        return Err(model_error(text));
    }
    out.message(field, |out| {
        out.int64(tensor_type::DATA_TYPE, dtype_number(tensor.dtype).into());
        out.uint64(tensor_type::RANK, rank as u64);
        tensor.shape.iter().for_each(|&size| dim(out, tensor_type::DIMENSIONS, size));
    });
    Ok(())
}

fn dim(out: &mut Writer, field: u32, size: Dim) {
    out.message(field, |out| match size {
        Dim::Fixed(size) => {
            out.message(dimension::CONSTANT, |out| out.uint64(constant_dimension::SIZE, size));
        }
        Dim::Unknown | Dim::Variadic => out.message(dimension::UNKNOWN, |out| {
            out.boolean(unknown_dimension::VARIADIC, size == Dim::Variadic);
        }),
    });
}

/// A `Value` field; `depth` is how many values are around it.
pub(super) fn literal(
    out: &mut Writer,
    field: u32,
    literal: &Literal,
    blobs: &mut BlobWriter<'_>,
    depth: usize,
) -> Result<()> {
    fail_if!(depth > DEEPEST, model_error("values nest deeper than {DEEPEST} levels"));
    let Literal { ty, data } = literal;
    out.message(field, |out| {
        value_type(out, value::TYPE, ty, 0)?;
        match (ty, data) {
            (Type::Tensor(tensor), LiteralData::Blob(_) | LiteralData::Stream(_)) => {
                let offset = store(tensor, data, blobs)?;
                out.message(value::BLOB_FILE, |out| {
                    out.text(blob_file_value::FILE_NAME, &format!("{PREFIX}{FILE}"));
                    out.uint64(blob_file_value::OFFSET, offset);
                });
                Ok(())
            }
            _ => out.message(value::IMMEDIATE, |out| immediate(out, literal, blobs, depth)),
        }
    })
}

/// Puts a constant into the weight file.
fn store(ty: &TensorType, data: &LiteralData, blobs: &mut BlobWriter<'_>) -> Result<u64> {
    fail_if!(blob_code(ty.dtype).is_none(), model_error("a {ty} cannot be in a weight file"));
    let elements = element_count(ty)?;
    let found = match data {
        LiteralData::Blob(bytes) => bytes.len() as u64,
        LiteralData::Stream(payload) => payload.byte_len(),
        _ => 0,
    };
    if ty.dtype.byte_len(elements).map(|len| len as u64) != Some(found) {
        return Err(model_error(format!("a constant of type {ty} has {found} bytes")));
    }
    let stored = match data {
        LiteralData::Stream(payload) => blobs.put_stream(ty.dtype, elements, &**payload),
        LiteralData::Blob(bytes) => blobs.put(ty.dtype, elements, bytes),
        _ => return Err(model_error(format!("a {ty} has no bytes"))),
    };
    stored.map_err(|e| match e.kind() {
        // What is wrong is in the weight, not in the file that it was to go to.
        std::io::ErrorKind::InvalidData => model_error(e.to_string()),
        _ => PackageError::new(ErrorKind::Io, format!("cannot write {FILE}: {e}")),
    })
}

fn immediate(out: &mut Writer, literal: &Literal, blobs: &mut BlobWriter<'_>, depth: usize) -> Result<()> {
    match (&literal.ty, &literal.data) {
        (Type::Tensor(ty), LiteralData::Immediate(bytes)) => {
            out.message(immediate_value::TENSOR, |out| numbers(out, ty, bytes))
        }
        (Type::Tensor(ty), LiteralData::Strings(strings)) if ty.dtype == DType::String => {
            if strings.len() != element_count(ty)? {
                return Err(model_error(format!("a constant of type {ty} has {} strings", strings.len())));
            }
            out.message(immediate_value::TENSOR, |out| {
                out.message(tensor_value::STRINGS, |out| {
                    strings.iter().for_each(|text| out.present_text(repeated::VALUES, text));
                });
            });
            Ok(())
        }
        (Type::Tuple(types), LiteralData::Items(items)) => {
            let expected = types.iter().map(Some).chain(std::iter::repeat(None));
            check_items(literal, items, expected, types.len() as u64)?;
            out.message(immediate_value::TUPLE, |out| values(out, items, blobs, depth))
        }
        (Type::List(element, length), LiteralData::Items(items)) => {
            let length = if let Dim::Fixed(length) = length { *length } else { items.len() as u64 };
            check_items(literal, items, std::iter::repeat(Some(&**element)), length)?;
            out.message(immediate_value::LIST, |out| values(out, items, blobs, depth))
        }
        (Type::Dictionary(key, value), LiteralData::Entries(entries)) => {
            if entries.iter().any(|(k, v)| k.ty != **key || v.ty != **value) {
                return Err(model_error(format!("a {} has entries of other types", literal.ty)));
            }
            out.message(immediate_value::DICTIONARY, |out| pairs(out, entries, blobs, depth))
        }
        (ty, _) => Err(model_error(format!("the value of a {ty} is of another kind than its type"))),
    }
}

fn check_items<'m>(
    literal: &Literal,
    items: &[Literal],
    expected: impl Iterator<Item = Option<&'m Type>>,
    length: u64,
) -> Result<()> {
    if items.len() as u64 != length || items.iter().zip(expected).any(|(item, ty)| Some(&item.ty) != ty) {
        return Err(model_error(format!("the values of a {} do not have its types", literal.ty)));
    }
    Ok(())
}

fn values(out: &mut Writer, items: &[Literal], blobs: &mut BlobWriter<'_>, depth: usize) -> Result<()> {
    items.iter().try_for_each(|item| literal(out, repeated::VALUES, item, blobs, depth + 1))
}

fn pairs(
    out: &mut Writer,
    entries: &[(Literal, Literal)],
    blobs: &mut BlobWriter<'_>,
    depth: usize,
) -> Result<()> {
    entries.iter().try_for_each(|(key, value)| {
        out.message(dictionary_value::VALUES, |out| {
            literal(out, key_value_pair::KEY, key, blobs, depth + 1)?;
            literal(out, key_value_pair::VALUE, value, blobs, depth + 1)
        })
    })
}

/// The elements of a tensor in the one field that its type is kept in.
fn numbers(out: &mut Writer, ty: &TensorType, bytes: &[u8]) -> Result<()> {
    let elements = element_count(ty)?;
    let kind = immediate_field(ty.dtype);
    if ty.dtype.byte_len(elements) != Some(bytes.len()) || kind == tensor_value::STRINGS {
        return Err(model_error(format!("a constant of type {ty} has {} bytes", bytes.len())));
    }
    if ty.dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
        return Err(model_error(format!("a constant of type {ty} has values other than 0 and 1")));
    }
    out.message(kind, |out| match kind {
        tensor_value::BYTES | tensor_value::FLOATS | tensor_value::DOUBLES => {
            out.bytes(repeated::VALUES, bytes);
        }
        _ => {
            let size = ty.dtype.bits() as usize / 8;
            let signed = matches!(ty.dtype, DType::I16 | DType::I32);
            out.packed(repeated::VALUES, bytes.chunks_exact(size).map(|element| extended(element, signed)));
        }
    });
    Ok(())
}

/// A little-endian integer of up to eight bytes as 64 bits.
fn extended(element: &[u8], signed: bool) -> u64 {
    let negative = signed && element.last().is_some_and(|&high| high >= 0x80);
    let mut bytes = [if negative { 0xff } else { 0 }; 8];
    bytes[..element.len()].copy_from_slice(element);
    u64::from_le_bytes(bytes)
}

fn element_count(ty: &TensorType) -> Result<usize> {
    let concrete = ty.concrete().and_then(|concrete| shape::element_count(&concrete));
    concrete.ok_or_else(|| model_error(format!("a constant has the type {ty}, whose size is not known")))
}
