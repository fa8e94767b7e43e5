//! Bytes of constants as a package stores them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Binding, Literal, LiteralData, Operation};

/// The constants of an operation, by parameter: written in place or as attributes, its name aside.
pub(super) fn literals(op: &Operation) -> impl Iterator<Item = (&str, &Literal)> {
    let bound = op.inputs.iter().flat_map(|argument| {
        argument.bindings.iter().filter_map(|binding| match binding {
            Binding::Literal(literal) => Some((argument.parameter.as_str(), literal)),
            Binding::Value(_) => None,
        })
    });
    let attributes = op.attributes.iter().map(|(name, literal)| (name.as_str(), literal));
    bound.chain(attributes.filter(|(name, _)| *name != "name"))
}

pub(super) fn byte_len(literal: &Literal) -> u64 {
    match &literal.data {
        LiteralData::Immediate(bytes) | LiteralData::Blob(bytes) => bytes.len() as u64,
        LiteralData::Stream(payload) => payload.byte_len(),
        LiteralData::Strings(_) | LiteralData::Items(_) | LiteralData::Entries(_) => 0,
    }
}

/// Bytes of the constants that are kept in the weight file, those that share memory once.
pub(super) fn total<'a>(literals: impl Iterator<Item = (&'a str, &'a Literal)>) -> u64 {
    let mut seen = BTreeSet::new();
    let distinct = literals.filter(|(_, literal)| match &literal.data {
        LiteralData::Blob(bytes) => seen.insert((bytes.as_ptr() as usize, bytes.len())),
        LiteralData::Stream(payload) => seen.insert((Arc::as_ptr(payload).cast::<u8>() as usize, 0)),
        _ => false,
    });
    distinct.fold(0, |sum, (_, literal)| sum.saturating_add(byte_len(literal)))
}
