//! Functions, blocks and operations.

use super::literal::{self, Sources};
use super::types;
use crate::package::check::{self, DEEPEST};
use crate::package::error::{ErrorKind, PackageError, Result, quoted};
use crate::package::schema::*;
use crate::package::scope::Scope;
use crate::package::wire::{Field, Message};
use crate::{Argument, Binding, Block, Function, Literal, Operation, Opset, Program, Value, ValueId};

/// The fewest bytes of an operation, a nested block, an argument or a binding, its tag and length included.
const SMALLEST_MESSAGE: usize = 5;
/// The fewest bytes of a name, its tag and length included.
const SMALLEST_NAME: usize = 3;

/// The fewest bytes of an attribute, its tag and length included.
const SMALLEST_ATTRIBUTE: usize = SMALLEST_NAME + literal::SMALLEST_VALUE;

pub(super) fn program(field: &Field<'_>, sources: &mut Sources<'_>) -> Result<Program> {
    let message = field.message(program::SCHEMA)?;
    let version = message.int64(program::VERSION)?;
    check::program_version(version).map_err(|text| PackageError::new(ErrorKind::Unsupported, text))?;
    if !message.text(program::DOC_STRING)?.is_empty() {
        return Err(message.error("the program has a docString, which is not supported"));
    }
    let mut functions = Vec::new();
    for field in message.all(program::FUNCTIONS) {
        let (name, value) = map_entry(&field)?;
        functions.push(decode_function(name, &value, sources).map_err(|e| e.in_function(name))?);
    }
    functions.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    no_duplicates(&message, functions.iter().map(|f| &*f.name), "function")?;
    Ok(Program { version, functions, attributes: attributes(&message, program::ATTRIBUTES, sources)? })
}

fn decode_function(name: &str, field: &Field<'_>, sources: &mut Sources<'_>) -> Result<Function> {
    let message = field.message(function::SCHEMA)?;
    let key = message.text(function::OPSET)?;
    let Some(opset) = Opset::from_key(key) else {
        let known: Vec<_> = Opset::all().map(Opset::key).collect();
        let text = format!("is written in opset {}; supported are {}", quoted(key), known.join(", "));
        return Err(PackageError::new(ErrorKind::Unsupported, text));
    };
    let mut decoder = FunctionDecoder { values: Vec::new(), scope: Scope::default(), sources };
    let inputs = decoder.named_values(&message, function::INPUTS, "function input")?;
    let mut body = None;
    for field in message.all(function::BLOCK_SPECIALIZATIONS) {
        let (specialization, value) = map_entry(&field)?;
        if specialization != key || body.is_some() {
            let text = format!("has a block for opset {} besides its own, {key}", quoted(specialization));
            return Err(PackageError::new(ErrorKind::Unsupported, text)
                .with_help("keep only the block of the function's own opset"));
        }
        body = Some(value);
    }
    let Some(body) = body else { return Err(message.error(format!("has no block for its opset, {key}"))) };
    let body = decoder.block(&body, 0)?;
    let mut values = decoder.values;
    values.shrink_to_fit();
    let attributes = attributes(&message, function::ATTRIBUTES, sources)?;
    Ok(Function { name: name.to_owned(), opset, values, inputs, body, attributes })
}

struct FunctionDecoder<'a, 'b, 'w> {
    values: Vec<Value>,
    scope: Scope<'a>,
    sources: &'b mut Sources<'w>,
}

impl<'a> FunctionDecoder<'a, '_, '_> {
    /// The outputs come before the operations in the file, yet name what those define.
    fn block(&mut self, field: &Field<'a>, depth: usize) -> Result<Block> {
        let message = field.message(block::SCHEMA)?;
        fail_if!(depth > DEEPEST, message.error("blocks nest deeper than {DEEPEST} levels"));
        let inputs = self.named_values(&message, block::INPUTS, "block input")?;
        let mut operations = message.room_for(block::OPERATIONS, SMALLEST_MESSAGE);
        for (index, field) in message.all(block::OPERATIONS).enumerate() {
            operations.push(self.operation(&field, index, depth)?);
        }
        let outputs =
            message.each(block::OUTPUTS, SMALLEST_NAME, |field| self.resolve(field, "block output"))?;
        let attributes = attributes(&message, block::ATTRIBUTES, self.sources)?;
        Ok(Block { inputs, operations, outputs, attributes })
    }

    fn operation(&mut self, field: &Field<'a>, index: usize, depth: usize) -> Result<Operation> {
        let message = field.message(operation::SCHEMA).map_err(|e| e.in_op(index, "", ""))?;
        let kind = message.text(operation::TYPE).map_err(|e| e.in_op(index, "", ""))?;
        if kind.is_empty() {
            return Err(message.error("has no type").in_op(index, "", ""));
        }
        let attributes = attributes(&message, operation::ATTRIBUTES, self.sources)
            .map_err(|e| e.in_op(index, kind, ""))?;
        let mut decoded = Operation { kind: kind.to_owned(), attributes, ..Operation::default() };
        match self.operation_body(&message, &mut decoded, depth) {
            Ok(()) => Ok(decoded),
            Err(error) => Err(error.in_op(index, kind, decoded.name())),
        }
    }

    fn operation_body(&mut self, message: &Message<'a>, decoded: &mut Operation, depth: usize) -> Result<()> {
        decoded.inputs = self.arguments(message)?;
        decoded.blocks = message.room_for(operation::BLOCKS, SMALLEST_MESSAGE);
        for field in message.all(operation::BLOCKS) {
            fail_if!(field.bytes()?.is_empty(), field.error("has an empty block"));
            self.scope.enter();
            let nested = self.block(&field, depth + 1);
            self.scope.leave();
            decoded.blocks.push(nested?);
        }
        decoded.outputs = self.named_values(message, operation::OUTPUTS, "output")?;
        Ok(())
    }

    fn arguments(&mut self, message: &Message<'a>) -> Result<Vec<Argument>> {
        let mut arguments = message.each(operation::INPUTS, SMALLEST_MESSAGE, |field| {
            let (parameter, value) = map_entry(field)?;
            let bindings = self.bindings(&value).map_err(|e| e.at_tensor(parameter))?;
            Ok(Argument { parameter: parameter.to_owned(), bindings })
        })?;
        arguments.sort_unstable_by(|a, b| a.parameter.cmp(&b.parameter));
        no_duplicates(message, arguments.iter().map(|a| &*a.parameter), "input")?;
        Ok(arguments)
    }

    fn bindings(&mut self, field: &Field<'a>) -> Result<Vec<Binding>> {
        let message = field.message(argument::SCHEMA)?;
        message.each(argument::ARGUMENTS, SMALLEST_MESSAGE, |field| {
            let one = field.message(binding::SCHEMA)?;
            match (one.get(binding::NAME), one.get(binding::VALUE)) {
                (Some(name), None) => self.resolve(&name, "binding").map(Binding::Value),
                (None, Some(value)) => literal::literal(&value, self.sources, 0).map(Binding::Literal),
                _ => Err(one.error("a binding must be either a name or a value")),
            }
        })
    }

    fn resolve(&self, field: &Field<'_>, what: &str) -> Result<ValueId> {
        let name = field.text()?;
        self.scope
            .resolve(name)
            .ok_or_else(|| field.error(format!("{what} {} is not defined before its use", quoted(name))))
    }

    fn named_values(&mut self, message: &Message<'a>, number: u32, what: &str) -> Result<Vec<ValueId>> {
        let mut ids = message.room_for(number, SMALLEST_MESSAGE);
        for field in message.all(number) {
            let named = field.message(named_value_type::SCHEMA)?;
            let name = named.text(named_value_type::NAME)?;
            fail_if!(name.is_empty(), named.error("{what} {} has no name", ids.len()));
            let Some(ty) = named.get(named_value_type::TYPE) else {
                return Err(named.error(format!("{what} {} has no type", quoted(name))));
            };
            let ty = types::value_type(&ty, 0).map_err(|e| e.at_tensor(name))?;
            let id = ValueId::new(self.values.len());
            fail_if!(!self.scope.define(name, id), named.error("{what} {} is defined twice", quoted(name)));
            self.values.push(Value { name: name.to_owned(), ty });
            ids.push(id);
        }
        Ok(ids)
    }
}

/// The key and the value of a map entry; keys must not be empty.
fn map_entry<'a>(field: &Field<'a>) -> Result<(&'a str, Field<'a>)> {
    let message = field.message(entry::SCHEMA)?;
    match message.text(entry::KEY)? {
        "" => Err(message.error("a map entry has no key")),
        key => Ok((key, message.get_or_empty(entry::VALUE))),
    }
}

fn attributes(
    message: &Message<'_>,
    number: u32,
    sources: &mut Sources<'_>,
) -> Result<Vec<(String, Literal)>> {
    let mut attributes: Vec<(String, Literal)> = message.room_for(number, SMALLEST_ATTRIBUTE);
    for field in message.all(number) {
        let (name, value) = map_entry(&field)?;
        let literal = literal::literal(&value, sources, 0).map_err(|e| e.at_tensor(name))?;
        attributes.push((name.to_owned(), literal));
    }
    attributes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    no_duplicates(message, attributes.iter().map(|a| &*a.0), "attribute")?;
    Ok(attributes)
}

/// Checks sorted names.
fn no_duplicates<'n>(message: &Message<'_>, names: impl Iterator<Item = &'n str>, what: &str) -> Result<()> {
    match check::repeated(names) {
        Some(name) => Err(message.error(format!("{what} {} occurs twice", quoted(name)))),
        None => Ok(()),
    }
}
