//! The types of values.

use crate::package::check::{DEEPEST, HIGHEST_RANK};
use crate::package::error::Result;
use crate::package::schema::*;
use crate::package::wire::Field;
use crate::{Dim, TensorType, Type};

/// The fewest bytes of a type in a tuple, its tag and length included.
const SMALLEST_TYPE: usize = 4;

/// A `ValueType`; `depth` is how many types are around it.
pub(super) fn value_type(field: &Field<'_>, depth: usize) -> Result<Type> {
    let message = field.message(value_type::SCHEMA)?;
    fail_if!(depth > DEEPEST, message.error("types nest deeper than {DEEPEST} levels"));
    let inner = |field: Option<Field<'_>>, what: &str| match field {
        Some(field) => value_type(&field, depth + 1).map(Box::new),
        None => Err(message.error(format!("{what} has no type"))),
    };
    let mut found = value_type::SCHEMA.once.iter().filter_map(|&n| Some((n, message.get(n)?)));
    let (Some((kind, field)), None) = (found.next(), found.next()) else {
        return Err(message.error("a value type must have exactly one kind"));
    };
    match kind {
        value_type::TENSOR => Ok(Type::Tensor(tensor(&field)?)),
        value_type::LIST => {
            let list = field.message(list_type::SCHEMA)?;
            let Some(length) = list.get(list_type::LENGTH) else {
                return Err(list.error("a list type has no length"));
            };
            Ok(Type::List(inner(list.get(list_type::TYPE), "a list element")?, dim(&length)?))
        }
        value_type::TUPLE => {
            let tuple = field.message(tuple_type::SCHEMA)?;
            let element = |element: &Field<'_>| value_type(element, depth + 1);
            Ok(Type::Tuple(tuple.each(tuple_type::TYPES, SMALLEST_TYPE, element)?))
        }
        value_type::DICTIONARY => {
            let dictionary = field.message(dictionary_type::SCHEMA)?;
            let key = inner(dictionary.get(dictionary_type::KEY), "a dictionary key")?;
            let value = inner(dictionary.get(dictionary_type::VALUE), "a dictionary value")?;
            Ok(Type::Dictionary(key, value))
        }
        _ => {
            let state = field.message(state_type::SCHEMA)?;
            match *inner(state.get(state_type::WRAPPED_TYPE), "a state")? {
                Type::Tensor(tensor) => Ok(Type::State(tensor)),
                other => Err(state.error(format!("a state wraps {other}, expected a tensor"))),
            }
        }
    }
}

fn tensor(field: &Field<'_>) -> Result<TensorType> {
    let message = field.message(tensor_type::SCHEMA)?;
    let number = message.int32(tensor_type::DATA_TYPE)?;
    let Some(dtype) = dtype(number) else {
        return Err(message.error(format!("a tensor type has the unknown data type {number}")));
    };
    if message.get(tensor_type::ATTRIBUTES).is_some() {
        return Err(message.error("a tensor type has attributes, which are not supported"));
    }
    let rank = message.int64(tensor_type::RANK)?;
    let count = message.all(tensor_type::DIMENSIONS).count();
    if count > HIGHEST_RANK {
        return Err(message
            .error(format!("a tensor type has {count} dimensions; at most {HIGHEST_RANK} are supported")));
    }
    if usize::try_from(rank) != Ok(count) {
        return Err(message.error(format!("a tensor type of rank {rank} has {count} dimensions")));
    }
    let shape = message.all(tensor_type::DIMENSIONS).map(|field| dim(&field)).collect::<Result<_>>()?;
    Ok(TensorType { dtype, shape })
}

fn dim(field: &Field<'_>) -> Result<Dim> {
    let message = field.message(dimension::SCHEMA)?;
    match (message.get(dimension::CONSTANT), message.get(dimension::UNKNOWN)) {
        (Some(constant), None) => {
            let constant = constant.message(constant_dimension::SCHEMA)?;
            Ok(Dim::Fixed(constant.uint64(constant_dimension::SIZE)?))
        }
        (None, Some(unknown)) => {
            let unknown = unknown.message(unknown_dimension::SCHEMA)?;
            let variadic = unknown.boolean(unknown_dimension::VARIADIC)?;
            Ok(if variadic { Dim::Variadic } else { Dim::Unknown })
        }
        _ => Err(message.error("a dimension must be either constant or unknown")),
    }
}
