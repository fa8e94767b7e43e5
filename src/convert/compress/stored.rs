//! Weights that a program holds compressed already: they stay as they are, and are counted.

use super::log::TensorLog;
use super::weight::Identity;
use anemeter_mil::{Binding, Function, Literal, LiteralData, Operation};

/// A weight that came compressed.
#[derive(Debug, Clone)]
pub(super) struct StoredWeight {
    name: String,
    shape: Vec<usize>,
    /// How it is stored: the operation that gives it, without `constexpr_`.
    form: String,
    bytes: u64,
}

impl StoredWeight {
    /// What an operation gives that decompresses constants of the weight file, and which they are.
    pub(super) fn of(function: &Function, op: &Operation) -> Option<(Identity, StoredWeight)> {
        let form = op.kind.strip_prefix("constexpr_")?.to_owned();
        let value = function.value(*op.outputs.first()?);
        let shape = value.ty.tensor()?.concrete()?.to_vec();
        let identity = literals(op).find_map(Identity::of)?;
        let bytes = literals(op).map(file_bytes).sum();
        Some((identity, StoredWeight { name: value.name.clone(), shape, form, bytes }))
    }

    /// Makes it the weight that another operation gives, which decompresses this one further.
    pub(super) fn becomes(&mut self, outer: StoredWeight) {
        *self = StoredWeight { bytes: self.bytes + outer.bytes, ..outer };
    }

    pub(super) fn log(&self) -> TensorLog {
        let elements = self.shape.iter().product::<usize>().max(1);
        TensorLog {
            name: self.name.clone(),
            shape: self.shape.clone(),
            precision: self.form.clone(),
            bits: self.bytes as f64 * 8.0 / elements as f64,
            bytes_before: self.bytes,
            bytes_after: self.bytes,
            snr_db: None,
            cosine: 1.0,
            weighted: false,
        }
    }
}

/// Constants that an operation is given in place or as attributes.
fn literals(op: &Operation) -> impl Iterator<Item = &Literal> {
    let bindings = op.inputs.iter().flat_map(|argument| &argument.bindings);
    let in_place = bindings.filter_map(|binding| match binding {
        Binding::Literal(literal) => Some(literal),
        Binding::Value(_) => None,
    });
    in_place.chain(op.attributes.iter().map(|(_, literal)| literal))
}

fn file_bytes(literal: &Literal) -> u64 {
    match &literal.data {
        LiteralData::Blob(bytes) => bytes.len() as u64,
        LiteralData::Stream(payload) => payload.byte_len(),
        _ => 0,
    }
}
