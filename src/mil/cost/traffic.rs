//! Bytes that one operation reads and writes: compulsory traffic, as if each operation began with an empty cache.

use super::Operands;
use crate::op::{OpClass, OpDef};

/// Bytes of weights as stored, and of other tensors, where all results take `written` bytes.
pub(super) fn of(def: &OpDef, operands: &impl Operands, written: u64) -> (u64, u64) {
    match def.class {
        OpClass::Constant | OpClass::View | OpClass::Metadata | OpClass::State | OpClass::Control => (0, 0),
        OpClass::Slice(_) | OpClass::Lookup => part(def, operands, written),
        OpClass::Update => {
            let update = argument(def, operands, "update").map_or(0, |param| operands.bytes(param, 0));
            (0, update.saturating_mul(2))
        }
        OpClass::Movement
        | OpClass::Transposition(_)
        | OpClass::Elementwise
        | OpClass::Reduction(_)
        | OpClass::Product(_) => everything(def, operands, written),
    }
}

fn everything(def: &OpDef, operands: &impl Operands, written: u64) -> (u64, u64) {
    let (mut weights, mut others) = (0u64, written);
    for param in 0..def.params.len() {
        for index in 0..operands.count(param) {
            let is_float = operands.ty(param, index).tensor().is_some_and(|ty| ty.dtype.is_float());
            match operands.stored_bytes(param, index) {
                Some(stored) if is_float => weights = weights.saturating_add(stored),
                Some(_) => {}
                None => others = others.saturating_add(operands.bytes(param, index)),
            }
        }
    }
    (weights, others)
}

/// Rows of a table that is a weight are read as they are stored.
fn part(def: &OpDef, operands: &impl Operands, written: u64) -> (u64, u64) {
    let table = argument(def, operands, "x").and_then(|x| Some((operands.stored_bytes(x, 0)?, x)));
    let Some((stored, x)) = table else { return (0, written.saturating_mul(2)) };
    let whole = operands.bytes(x, 0).max(1);
    let read = u128::from(stored) * u128::from(written) / u128::from(whole);
    (u64::try_from(read).unwrap_or(u64::MAX), written)
}

/// The index of a parameter that something is bound to.
fn argument(def: &OpDef, operands: &impl Operands, name: &str) -> Option<usize> {
    def.params.iter().position(|param| param.name == name).filter(|&param| operands.count(param) > 0)
}
