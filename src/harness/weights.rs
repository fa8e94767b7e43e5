//! Bytes of weights that one decoded token reads.

use std::collections::BTreeSet;

use crate::bundle::KvForm;
use crate::mil::{Binding, Block, Function, LiteralData, Model, ValueId};

/// Bytes of all constants that the decoding function of a model reads whole, as they are stored. Tables that are
/// only looked up do not count; constants that several operations share count once. `None` if there is no
/// such function.
pub(super) fn bytes_per_token(model: &Model, form: KvForm, shape: usize) -> Option<u64> {
    let name = match form {
        KvForm::Io => "decode".to_owned(),
        KvForm::State => format!("decode_c{shape}"),
        KvForm::None => "main".to_owned(),
    };
    Some(function_bytes(model.program.function(&name)?))
}

fn function_bytes(function: &Function) -> u64 {
    let mut read: BTreeSet<ValueId> = function.body.outputs.iter().copied().collect();
    mark_read(&function.body, &mut read);
    let mut counted = BTreeSet::new();
    count(&function.body, &read, &mut counted);
    counted.iter().map(|(_, length)| *length as u64).sum()
}

/// Marks what operations read whole, from the last to the first: what decompresses reads only if its result
/// is read, and a gather does not read its table.
fn mark_read(block: &Block, read: &mut BTreeSet<ValueId>) {
    read.extend(&block.outputs);
    for operation in block.operations.iter().rev() {
        operation.blocks.iter().for_each(|inner| mark_read(inner, read));
        let decompresses = operation.kind.starts_with("constexpr_");
        if decompresses && !operation.outputs.iter().any(|output| read.contains(output)) {
            continue;
        }
        let gathers = operation.kind.starts_with("gather");
        let whole = operation.inputs.iter().filter(|argument| !(gathers && argument.parameter == "x"));
        read.extend(whole.flat_map(|argument| &argument.bindings).filter_map(|binding| match binding {
            Binding::Value(id) => Some(*id),
            Binding::Literal(_) => None,
        }));
    }
}

fn count(block: &Block, read: &BTreeSet<ValueId>, counted: &mut BTreeSet<(usize, usize)>) {
    for operation in &block.operations {
        operation.blocks.iter().for_each(|inner| count(inner, read, counted));
        let is_read = operation.outputs.iter().any(|output| read.contains(output));
        // Constants are operations or, where something decompresses them, attributes or arguments of one.
        let literals = operation.attributes.iter().map(|(_, literal)| literal);
        let arguments = operation.inputs.iter().flat_map(|argument| &argument.bindings);
        let bound = arguments.filter_map(|binding| match binding {
            Binding::Literal(literal) => Some(literal),
            Binding::Value(_) => None,
        });
        let is_source = operation.kind == "const" || operation.kind.starts_with("constexpr_");
        for literal in literals.chain(bound).filter(|_| is_read || !is_source) {
            if let LiteralData::Blob(bytes) = &literal.data {
                counted.insert((bytes.as_ptr().addr(), bytes.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mil::{Builder, Literal, Opset, TensorType};
    use crate::tensor::{DType, Tensor};

    fn blob(elements: usize, shape: &[usize]) -> Literal {
        Literal::blob(&Tensor::from_slice(shape, &vec![0.5f32; elements]).unwrap())
    }

    #[test]
    fn tables_that_are_looked_up_do_not_count_and_shared_weights_count_once() {
        let mut decode = Builder::new("decode", Opset::Ios18);
        let ids = decode.input("ids", TensorType::fixed(DType::I32, &[1]));
        let table = decode.constant("table", blob(64 * 32, &[64, 32]));
        let weight = decode.constant("weight", blob(32 * 32, &[32, 32]));
        let bias = decode.constant("bias", blob(32, &[32]));
        let rows = decode.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
        let mut x = rows;
        for _ in 0..2 {
            x = decode.op("linear").arg("x", x).arg("weight", weight).arg("bias", bias).push().unwrap();
        }
        let model = Model::multi(vec![decode.finish(&[x])]);
        assert_eq!(bytes_per_token(&model, KvForm::Io, 0), Some(4 * (32 * 32 + 32)));
        assert_eq!(bytes_per_token(&model, KvForm::State, 512), None);
    }

    #[test]
    fn a_table_that_is_the_head_too_counts() {
        let mut main = Builder::new("main", Opset::Ios18);
        let ids = main.input("ids", TensorType::fixed(DType::I32, &[1]));
        let table = main.constant("table", blob(64 * 32, &[64, 32]));
        let rows = main.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
        let logits = main.op("linear").arg("x", rows).arg("weight", table).push().unwrap();
        let model = Model::single(main.finish(&[logits]));
        assert_eq!(bytes_per_token(&model, KvForm::None, 0), Some(4 * 64 * 32));
    }
}
