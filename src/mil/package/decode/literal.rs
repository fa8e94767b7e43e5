//! Constants: in the program or in a weight file.

use std::collections::HashMap;

use super::types;
use crate::package::check::DEEPEST;
use crate::package::error::Result;
use crate::package::schema::*;
use crate::package::weights::{BlobReader, WeightFiles};
use crate::package::wire::{Field, Message};
use crate::{Dim, Literal, LiteralData, TensorType, Type};
use anemeter_kernels::tensor::{AlignedBuf, Bytes, DType, shape};

/// The fewest bytes that a value takes, field tag and length included: a type and an immediate.
pub(super) const SMALLEST_VALUE: usize = 12;

/// Where constants come from.
pub(in crate::package) struct Sources<'w> {
    pub(in crate::package) blobs: BlobReader<'w>,
    /// Short immediates that were met: a program says the same few numbers thousands of times.
    immediates: HashMap<Box<[u8]>, Bytes>,
}

impl<'w> Sources<'w> {
    pub(in crate::package) fn new(weights: &'w WeightFiles) -> Sources<'w> {
        Sources { blobs: BlobReader::new(weights), immediates: HashMap::new() }
    }

    /// The bytes of an immediate, shared with an equal one that was met before if they are few.
    pub(in crate::package) fn immediate(&mut self, buffer: AlignedBuf) -> Bytes {
        const SHORT: usize = 64;
        if buffer.len() > SHORT {
            return Bytes::from(buffer);
        }
        if let Some(known) = self.immediates.get(&*buffer) {
            return known.clone();
        }
        let (key, bytes) = (Box::from(&*buffer), Bytes::from(buffer));
        self.immediates.insert(key, bytes.clone());
        bytes
    }
}

/// A `Value`; `depth` is how many values are around it.
pub(super) fn literal(field: &Field<'_>, sources: &mut Sources<'_>, depth: usize) -> Result<Literal> {
    let message = field.message(value::SCHEMA)?;
    fail_if!(depth > DEEPEST, message.error("values nest deeper than {DEEPEST} levels"));
    if !message.text(value::DOC_STRING)?.is_empty() {
        return Err(message.error("a value has a docString, which is not supported"));
    }
    let Some(ty) = message.get(value::TYPE) else { return Err(message.error("a value has no type")) };
    let ty = types::value_type(&ty, 0)?;
    let data = match (message.get(value::IMMEDIATE), message.get(value::BLOB_FILE)) {
        (Some(immediate), None) => immediate_data(&immediate, &ty, sources, depth)?,
        (None, Some(blob)) => blob_data(&blob, &ty, sources)?,
        (Some(_), Some(_)) => return Err(message.error("a value is both immediate and in a weight file")),
        (None, None) => return Err(message.error("a value is neither immediate nor in a weight file")),
    };
    Ok(Literal { ty, data })
}

fn blob_data(field: &Field<'_>, ty: &Type, sources: &mut Sources<'_>) -> Result<LiteralData> {
    let message = field.message(blob_file_value::SCHEMA)?;
    let Some(tensor) = ty.tensor() else {
        return Err(message.error(format!("a {ty} cannot be in a weight file")));
    };
    let elements = element_count(tensor).map_err(|text| message.error(text))?;
    let file = message.text(blob_file_value::FILE_NAME)?;
    let offset = message.uint64(blob_file_value::OFFSET)?;
    Ok(LiteralData::Blob(sources.blobs.read(file, offset, tensor, elements)?))
}

fn immediate_data(
    field: &Field<'_>,
    ty: &Type,
    sources: &mut Sources<'_>,
    depth: usize,
) -> Result<LiteralData> {
    let message = field.message(immediate_value::SCHEMA)?;
    let kind = match ty {
        Type::Tensor(_) => immediate_value::TENSOR,
        Type::Tuple(_) => immediate_value::TUPLE,
        Type::List(..) => immediate_value::LIST,
        Type::Dictionary(..) => immediate_value::DICTIONARY,
        Type::State(_) => return Err(message.error(format!("a {ty} cannot be a constant"))),
    };
    let others = immediate_value::SCHEMA.once.iter().any(|&n| n != kind && message.get(n).is_some());
    let Some(field) = message.get(kind).filter(|_| !others) else {
        return Err(message.error(format!("the value of a {ty} is of another kind than its type")));
    };
    match ty {
        Type::Tensor(tensor) => tensor_data(&field, tensor, sources),
        Type::Dictionary(key, value) => entries(&field, (key, value), sources, depth),
        _ => items(&field, ty, sources, depth),
    }
}

fn items(field: &Field<'_>, ty: &Type, sources: &mut Sources<'_>, depth: usize) -> Result<LiteralData> {
    let message = field.message(repeated::SCHEMA)?;
    let count = message.all(repeated::VALUES).count();
    let fits = match ty {
        Type::Tuple(types) => count == types.len(),
        Type::List(_, Dim::Fixed(length)) => count as u64 == *length,
        _ => true,
    };
    fail_if!(!fits, message.error("a {ty} has {count} values"));
    let mut items = message.room_for(repeated::VALUES, SMALLEST_VALUE);
    for (index, field) in message.all(repeated::VALUES).enumerate() {
        let item = literal(&field, sources, depth + 1)?;
        let expected = match ty {
            Type::Tuple(types) => types.get(index),
            Type::List(element, _) => Some(&**element),
            _ => None,
        };
        fail_if!(expected != Some(&item.ty), field.error("value {index} of a {ty} is a {}", item.ty));
        items.push(item);
    }
    Ok(LiteralData::Items(items))
}

fn entries(
    field: &Field<'_>,
    types: (&Type, &Type),
    sources: &mut Sources<'_>,
    depth: usize,
) -> Result<LiteralData> {
    let message = field.message(dictionary_value::SCHEMA)?;
    let mut entries = message.room_for(dictionary_value::VALUES, 2 * SMALLEST_VALUE);
    for field in message.all(dictionary_value::VALUES) {
        let pair = field.message(key_value_pair::SCHEMA)?;
        let (Some(key), Some(value)) = (pair.get(key_value_pair::KEY), pair.get(key_value_pair::VALUE))
        else {
            return Err(pair.error("a dictionary entry lacks its key or its value"));
        };
        let key = literal(&key, sources, depth + 1)?;
        let value = literal(&value, sources, depth + 1)?;
        if (&key.ty, &value.ty) != types {
            let (k, v) = types;
            return Err(pair.error(format!("a dict<{k}, {v}> has an entry of {} and {}", key.ty, value.ty)));
        }
        entries.push((key, value));
    }
    Ok(LiteralData::Entries(entries))
}

/// The elements of an immediate tensor, which must be in the one field that its type is kept in.
fn tensor_data(field: &Field<'_>, ty: &TensorType, sources: &mut Sources<'_>) -> Result<LiteralData> {
    let message = field.message(tensor_value::SCHEMA)?;
    let elements = element_count(ty).map_err(|text| message.error(text))?;
    let kind = immediate_field(ty.dtype);
    let others = tensor_value::SCHEMA.once.iter().any(|&n| n != kind && message.get(n).is_some());
    let values = match message.get(kind) {
        Some(values) if !others => values.message(repeated::SCHEMA)?,
        _ => {
            return Err(message.error(format!("the values of a {ty} are not in field {kind} of TensorValue")));
        }
    };
    let wrong_count = |found: usize| {
        values.error(format!("an immediate {ty} has {found} values, its shape has {elements}"))
    };
    match kind {
        tensor_value::STRINGS => {
            let count = values.all(repeated::VALUES).count();
            if count != elements {
                return Err(wrong_count(count));
            }
            let mut strings = Vec::with_capacity(count);
            for text in values.all(repeated::VALUES) {
                strings.push(text.text()?.to_owned());
            }
            Ok(LiteralData::Strings(strings))
        }
        tensor_value::BYTES => {
            let bytes = values.get(repeated::VALUES).map_or(Ok(&[][..]), |field| field.bytes())?;
            if Some(bytes.len()) != ty.dtype.byte_len(elements)
                || values.all(repeated::VALUES).nth(1).is_some()
            {
                return Err(values.error(format!("an immediate {ty} has {} bytes", bytes.len())));
            }
            Ok(LiteralData::Immediate(sources.immediate(AlignedBuf::from_slice(bytes))))
        }
        _ => {
            let buffer = numbers(&values, ty.dtype, elements)?.map_err(wrong_count)?;
            Ok(LiteralData::Immediate(sources.immediate(buffer)))
        }
    }
}

/// Elements that have a field of their own, or how many there are if that is the wrong number.
fn numbers(
    values: &Message<'_>,
    dtype: DType,
    elements: usize,
) -> Result<std::result::Result<AlignedBuf, usize>> {
    let size = dtype.bits() as usize / 8;
    // An element takes at least one byte of the file, so a larger count cannot be true.
    let mut buffer = AlignedBuf::zeroed(elements.min(values.byte_len()).saturating_mul(size));
    let mut found = 0usize;
    for field in values.all(repeated::VALUES) {
        let mut put = |bytes: &[u8]| {
            if let Some(place) = buffer.get_mut(found * size..(found + 1) * size) {
                place.copy_from_slice(bytes);
            }
            found += 1;
        };
        if dtype.is_float() {
            field.fixed_bytes(size)?.chunks_exact(size).for_each(put);
            continue;
        }
        field.each_varint(|value| {
            if !fits(value, dtype) {
                let value = value.cast_signed();
                return Err(field.error(format!("an immediate {dtype} is {value}, outside its range")));
            }
            put(&value.to_le_bytes()[..size]);
            Ok(())
        })?;
    }
    Ok(if found == elements { Ok(buffer) } else { Err(found) })
}

/// Whether a 64-bit integer is a value of the type.
fn fits(value: u64, dtype: DType) -> bool {
    let signed = value.cast_signed();
    match dtype {
        DType::Bool => value <= 1,
        DType::I16 => i16::try_from(signed).is_ok(),
        DType::U16 => u16::try_from(value).is_ok(),
        DType::I32 => i32::try_from(signed).is_ok(),
        _ => true,
    }
}

/// How many elements a constant of a type has.
pub(in crate::package) fn element_count(ty: &TensorType) -> std::result::Result<usize, String> {
    let Some(concrete) = ty.concrete() else {
        return Err(format!("a constant has the type {ty}, whose shape is not fixed"));
    };
    shape::element_count(&concrete)
        .filter(|&count| ty.dtype.byte_len(count).is_some())
        .ok_or_else(|| format!("a constant of type {ty} is too large to address"))
}
