//! Functions, blocks and operations.

use super::literal::{literal, value_type};
use super::{model_error, sorted_by_name};
use crate::package::check::DEEPEST;
use crate::package::error::{Result, quoted};
use crate::package::schema::*;
use crate::package::scope::Scope;
use crate::package::weights::BlobWriter;
use crate::package::wire::Writer;
use crate::{Argument, Binding, Block, Function, Literal, Operation, Program, Value, ValueId};

pub(super) fn program(out: &mut Writer, program: &Program, blobs: &mut BlobWriter<'_>) -> Result<()> {
    out.int64(program::VERSION, program.version);
    for function in sorted_by_name(&program.functions, |f| &f.name, "function")? {
        let encoded =
            out.entry(program::FUNCTIONS, &function.name, |out| encode_function(out, function, blobs));
        encoded.map_err(|e| e.in_function(&function.name))?;
    }
    attributes(out, program::ATTRIBUTES, &program.attributes, blobs)
}

fn encode_function(out: &mut Writer, function: &Function, blobs: &mut BlobWriter<'_>) -> Result<()> {
    let mut encoder = FunctionEncoder { function, scope: Scope::default(), blobs };
    encoder.definitions(out, function::INPUTS, &function.inputs)?;
    let opset = function.opset.key();
    out.text(function::OPSET, opset);
    out.entry(function::BLOCK_SPECIALIZATIONS, opset, |out| encoder.block(out, &function.body, 0))?;
    attributes(out, function::ATTRIBUTES, &function.attributes, blobs)
}

struct FunctionEncoder<'m, 'b, 's> {
    function: &'m Function,
    scope: Scope<'m>,
    blobs: &'b mut BlobWriter<'s>,
}

impl<'m> FunctionEncoder<'m, '_, '_> {
    fn block(&mut self, out: &mut Writer, block: &'m Block, depth: usize) -> Result<()> {
        fail_if!(depth > DEEPEST, model_error("blocks nest deeper than {DEEPEST} levels"));
        self.definitions(out, block::INPUTS, &block.inputs)?;
        // The outputs stand before the operations, yet name what those define.
        let mut operations = Writer::default();
        for (index, op) in block.operations.iter().enumerate() {
            let encoded = operations.message(block::OPERATIONS, |out| self.operation(out, op, depth));
            encoded.map_err(|e| e.in_op(index, &op.kind, op.name()))?;
        }
        for &id in &block.outputs {
            out.present_text(block::OUTPUTS, self.reference(id)?);
        }
        out.append(&operations);
        attributes(out, block::ATTRIBUTES, &block.attributes, self.blobs)
    }

    fn operation(&mut self, out: &mut Writer, op: &'m Operation, depth: usize) -> Result<()> {
        fail_if!(op.kind.is_empty(), model_error("has no type"));
        out.text(operation::TYPE, &op.kind);
        for argument in sorted_by_name(&op.inputs, |a| &a.parameter, "input")? {
            let encoded =
                out.entry(operation::INPUTS, &argument.parameter, |out| self.argument(out, argument));
            encoded.map_err(|e| e.at_tensor(&argument.parameter))?;
        }
        let mut blocks = Writer::default();
        for nested in &op.blocks {
            fail_if!(*nested == Block::default(), model_error("has an empty block"));
            self.scope.enter();
            let encoded = blocks.message(operation::BLOCKS, |out| self.block(out, nested, depth + 1));
            self.scope.leave();
            encoded?;
        }
        self.definitions(out, operation::OUTPUTS, &op.outputs)?;
        out.append(&blocks);
        attributes(out, operation::ATTRIBUTES, &op.attributes, self.blobs)
    }

    fn argument(&mut self, out: &mut Writer, argument: &Argument) -> Result<()> {
        for bound in &argument.bindings {
            out.message(argument::ARGUMENTS, |out| match bound {
                Binding::Value(id) => {
                    out.present_text(binding::NAME, self.reference(*id)?);
                    Ok(())
                }
                Binding::Literal(value) => literal(out, binding::VALUE, value, self.blobs, 0),
            })?;
        }
        Ok(())
    }

    fn definitions(&mut self, out: &mut Writer, field: u32, ids: &[ValueId]) -> Result<()> {
        for &id in ids {
            let Value { name, ty } = self.value(id)?;
            fail_if!(name.is_empty(), model_error("value {} has no name", id.index()));
            fail_if!(!self.scope.define(name, id), model_error("value {} is defined twice", quoted(name)));
            out.message(field, |out| {
                out.text(named_value_type::NAME, name);
                value_type(out, named_value_type::TYPE, ty, 0).map_err(|e| e.at_tensor(name))
            })?;
        }
        Ok(())
    }

    /// The name of a value, which must mean that value here.
    fn reference(&self, id: ValueId) -> Result<&'m str> {
        let name = &self.value(id)?.name;
        match self.scope.resolve(name) {
            Some(found) if found == id => Ok(name),
            Some(_) => Err(model_error(format!("value {} is hidden by another of its name", quoted(name)))),
            None => Err(model_error(format!("value {} is not defined before its use", quoted(name)))),
        }
    }

    fn value(&self, id: ValueId) -> Result<&'m Value> {
        let values = &self.function.values;
        values.get(id.index()).ok_or_else(|| {
            model_error(format!("value id {} is outside the table of {}", id.index(), values.len()))
        })
    }
}

fn attributes(
    out: &mut Writer,
    field: u32,
    attributes: &[(String, Literal)],
    blobs: &mut BlobWriter<'_>,
) -> Result<()> {
    for (name, value) in sorted_by_name(attributes, |(name, _)| name, "attribute")? {
        let encoded = out.message(field, |out| {
            out.present_text(entry::KEY, name);
            literal(out, entry::VALUE, value, blobs, 0)
        });
        encoded.map_err(|e| e.at_tensor(name))?;
    }
    Ok(())
}
