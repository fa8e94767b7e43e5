//! Programs, functions, blocks and operations.
//!
//! ```text
//! program   = "program" "(" version ")" attributes? "{" function* "}"
//! attributes = "[" (name "=" value),* "]"
//! function  = "func" name "<" opset ">" inputs attributes? body ";"
//! inputs    = "(" (type name),* ")"
//! body      = "{" operation* "}" "->" "(" name,* ")"
//! operation = ((type name),+ "=")? kind "(" (parameter "=" argument),* ")" attributes? block* ";"
//! argument  = name | value | "(" (name | value),* ")"
//! block     = (inputs attributes?)? body
//! ```
//!
//! Version 1.0 writes a scalar as `tensor<int32, []>(1)`, version 1.3 (iOS 18) as `int32(1)`; both are read in either.
//! Values are numbered as the protobuf reader numbers them.

use std::collections::HashSet;

use super::lexer::{Lexer, Token};
use super::types;
use super::value::Values;
use crate::package::check::{self, DEEPEST};
use crate::package::decode::Sources;
use crate::package::error::{ErrorKind, PackageError, Result, quoted};
use crate::package::scope::Scope;
use crate::{Argument, Binding, Block, Function, Literal, Operation, Opset, Program, Type, Value, ValueId};

/// What the compiler notes at a function with flexible shapes. The description of the model has the same shapes, and a
/// package has no place for it.
const FLEXIBLE_SHAPES: &str = "FlexibleShapeInformation";

type Attributes = Vec<(String, Literal)>;

/// The program in the bytes of a text.
pub(super) fn program(text: &[u8], sources: &mut Sources<'_>) -> Result<Program> {
    let lexer = &mut Lexer::new(text)?;
    let values = &mut Values::new(sources, lexer.byte_len());
    lexer.keyword("program")?;
    lexer.expect("(")?;
    let version = version(lexer)?;
    lexer.expect(")")?;
    let attributes = attributes(lexer, values)?;
    lexer.expect("{")?;
    let (mut functions, mut names) = (Vec::new(), HashSet::new());
    while !lexer.takes("}")? {
        lexer.keyword("func")?;
        let place = lexer.place();
        let name = lexer.name("the name of a function")?;
        if !names.insert(name) {
            return Err(lexer.error_at(place, format!("function {} occurs twice", quoted(name))));
        }
        functions.push(function(lexer, values, name).map_err(|e| e.in_function(name))?);
    }
    if lexer.peek() != Token::End {
        return Err(lexer.unexpected("the end of the text"));
    }
    functions.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(Program { version, functions, attributes })
}

/// The version of the format; what comes after the point only concerns how scalars are written.
fn version(lexer: &mut Lexer<'_>) -> Result<i64> {
    let place = lexer.place();
    let parts = match lexer.peek() {
        Token::Number(text) => text.split_once('.'),
        _ => None,
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let version = parts.filter(|(_, minor)| is_number(minor)).and_then(|(major, _)| major.parse().ok());
    let Some(version) = version else { return Err(lexer.unexpected("a version such as `1.0`")) };
    lexer.take()?;
    check::program_version(version)
        .map_err(|text| lexer.locate(place, PackageError::new(ErrorKind::Unsupported, text)))?;
    Ok(version)
}

/// Attributes in brackets, if they come next.
fn attributes(lexer: &mut Lexer<'_>, values: &mut Values<'_, '_>) -> Result<Attributes> {
    let place = lexer.place();
    if !lexer.takes("[")? {
        return Ok(Vec::new());
    }
    let mut attributes = lexer.list("]", |lexer| {
        let name = lexer.name("the name of an attribute")?;
        lexer.expect("=")?;
        let value = match name == FLEXIBLE_SHAPES {
            true => values.with_open_shapes(lexer),
            false => values.value(lexer),
        };
        Ok((name.to_owned(), value.map_err(|e| e.at_tensor(name))?))
    })?;
    attributes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    if let Some(name) = check::repeated(attributes.iter().map(|(name, _)| &**name)) {
        return Err(lexer.error_at(place, format!("attribute {} occurs twice", quoted(name))));
    }
    attributes.retain(|(name, _)| name != FLEXIBLE_SHAPES);
    Ok(attributes)
}

/// Everything after the name of a function.
fn function(lexer: &mut Lexer<'_>, values: &mut Values<'_, '_>, name: &str) -> Result<Function> {
    let reader = FunctionReader { table: Vec::new(), scope: Scope::default(), values };
    let function = reader.function(lexer, name)?;
    lexer.expect(";")?;
    Ok(function)
}

struct FunctionReader<'a, 'b, 's, 'w> {
    table: Vec<Value>,
    scope: Scope<'a>,
    values: &'b mut Values<'s, 'w>,
}

/// A value that is declared: its type, its name, and where that is.
struct Declared<'a> {
    ty: Type,
    name: &'a str,
    place: usize,
}

impl<'a> FunctionReader<'a, '_, '_, '_> {
    fn function(mut self, lexer: &mut Lexer<'a>, name: &str) -> Result<Function> {
        lexer.expect("<")?;
        let place = lexer.place();
        let key = lexer.name("an opset")?;
        let Some(opset) = Opset::from_name(key) else {
            let known: Vec<_> = Opset::all().map(Opset::name).collect();
            let text = format!("is written in opset {}; supported are {}", quoted(key), known.join(", "));
            return Err(lexer.locate(place, PackageError::new(ErrorKind::Unsupported, text)));
        };
        lexer.expect(">")?;
        lexer.expect("(")?;
        let inputs = self.inputs(lexer, "function input")?;
        let attributes = attributes(lexer, self.values)?;
        let body = self.body(lexer, 0)?;
        let mut values = self.table;
        values.shrink_to_fit();
        Ok(Function { name: name.to_owned(), opset, values, inputs, body, attributes })
    }

    /// Declared inputs up to the closing parenthesis.
    fn inputs(&mut self, lexer: &mut Lexer<'a>, what: &str) -> Result<Vec<ValueId>> {
        lexer.list(")", |lexer| {
            let ty = types::value_type(lexer)?;
            let place = lexer.place();
            let name = lexer.name(&format!("the name of a {what}"))?;
            self.define(lexer, Declared { ty, name, place }, what)
        })
    }

    fn define(&mut self, lexer: &Lexer<'a>, declared: Declared<'a>, what: &str) -> Result<ValueId> {
        let Declared { ty, name, place } = declared;
        let id = ValueId::new(self.table.len());
        if !self.scope.define(name, id) {
            return Err(lexer.error_at(place, format!("{what} {} is defined twice", quoted(name))));
        }
        self.table.push(Value { name: name.to_owned(), ty });
        Ok(id)
    }

    fn resolve(&self, lexer: &mut Lexer<'a>, what: &str) -> Result<ValueId> {
        let place = lexer.place();
        let name = lexer.name(&format!("the name of a {what}"))?;
        self.scope.resolve(name).ok_or_else(|| {
            lexer.error_at(place, format!("{what} {} is not defined before its use", quoted(name)))
        })
    }

    /// Operations in braces and what they yield.
    fn body(&mut self, lexer: &mut Lexer<'a>, depth: usize) -> Result<Block> {
        if depth > DEEPEST {
            return Err(lexer.error_at(lexer.place(), format!("blocks nest deeper than {DEEPEST} levels")));
        }
        lexer.expect("{")?;
        let mut operations = Vec::new();
        while !lexer.takes("}")? {
            operations.push(self.operation(lexer, operations.len(), depth)?);
        }
        operations.shrink_to_fit();
        lexer.expect("->")?;
        lexer.expect("(")?;
        let outputs = lexer.list(")", |lexer| self.resolve(lexer, "block output"))?;
        Ok(Block { operations, outputs, ..Block::default() })
    }

    fn operation(&mut self, lexer: &mut Lexer<'a>, index: usize, depth: usize) -> Result<Operation> {
        let (kind, outputs) = results(lexer).map_err(|e| e.in_op(index, "", ""))?;
        let mut operation = Operation { kind: kind.to_owned(), ..Operation::default() };
        match self.call(lexer, outputs, &mut operation, depth) {
            Ok(()) => Ok(operation),
            Err(error) => Err(error.in_op(index, kind, operation.name())),
        }
    }

    /// Everything after the kind of an operation.
    fn call(
        &mut self,
        lexer: &mut Lexer<'a>,
        outputs: Vec<Declared<'a>>,
        operation: &mut Operation,
        depth: usize,
    ) -> Result<()> {
        let place = lexer.place();
        lexer.expect("(")?;
        operation.inputs = lexer.list(")", |lexer| self.argument(lexer))?;
        operation.inputs.sort_unstable_by(|a, b| a.parameter.cmp(&b.parameter));
        if let Some(name) = check::repeated(operation.inputs.iter().map(|a| &*a.parameter)) {
            return Err(lexer.error_at(place, format!("input {} occurs twice", quoted(name))));
        }
        operation.attributes = attributes(lexer, self.values)?;
        while !lexer.takes(";")? {
            if !matches!(lexer.peek(), Token::Mark("(" | "{")) {
                return Err(lexer.unexpected("`;` or a block"));
            }
            self.scope.enter();
            let nested = self.block(lexer, depth + 1);
            self.scope.leave();
            operation.blocks.push(nested?);
        }
        // Values are numbered as in the protobuf, where those of nested blocks come before the outputs around them.
        operation.outputs.reserve_exact(outputs.len());
        for declared in outputs {
            operation.outputs.push(self.define(lexer, declared, "output")?);
        }
        Ok(())
    }

    fn block(&mut self, lexer: &mut Lexer<'a>, depth: usize) -> Result<Block> {
        let (inputs, attributes) = match lexer.takes("(")? {
            true => (self.inputs(lexer, "block input")?, attributes(lexer, self.values)?),
            false => (Vec::new(), Vec::new()),
        };
        Ok(Block { inputs, attributes, ..self.body(lexer, depth)? })
    }

    fn argument(&mut self, lexer: &mut Lexer<'a>) -> Result<Argument> {
        let parameter = lexer.name("the name of a parameter")?;
        lexer.expect("=")?;
        let bindings = match lexer.takes("(")? {
            true => lexer.list(")", |lexer| self.binding(lexer)),
            false => self.binding(lexer).map(|binding| vec![binding]),
        };
        let bindings = bindings.map_err(|e| e.at_tensor(parameter))?;
        Ok(Argument { parameter: parameter.to_owned(), bindings })
    }

    /// A name, or a constant: its type goes on with `<` or `(`.
    fn binding(&mut self, lexer: &mut Lexer<'a>) -> Result<Binding> {
        let place = lexer.place();
        let name = lexer.name("the name of a value, or a constant")?;
        if matches!(lexer.peek(), Token::Mark("<" | "(")) {
            let ty = types::starting_with(lexer, name, place)?;
            return self.values.of_type(lexer, &ty).map(Binding::Literal);
        }
        let id = self.scope.resolve(name).ok_or_else(|| {
            lexer.error_at(place, format!("binding {} is not defined before its use", quoted(name)))
        })?;
        Ok(Binding::Value(id))
    }
}

/// What an operation defines, and its kind: `TYPE NAME, .. = KIND`, or `KIND` alone where it defines nothing.
fn results<'a>(lexer: &mut Lexer<'a>) -> Result<(&'a str, Vec<Declared<'a>>)> {
    let mut place = lexer.place();
    let mut word = lexer.name("an operation or `}`")?;
    if lexer.peek() == Token::Mark("(") {
        return Ok((word, Vec::new()));
    }
    let mut outputs = Vec::new();
    loop {
        let ty = types::starting_with(lexer, word, place)?;
        let at = lexer.place();
        let name = lexer.name("the name of an output")?;
        outputs.push(Declared { ty, name, place: at });
        if lexer.takes("=")? {
            return Ok((lexer.name("the kind of an operation")?, outputs));
        }
        if !lexer.takes(",")? {
            return Err(lexer.unexpected("`,` or `=`"));
        }
        place = lexer.place();
        word = lexer.name("a type")?;
    }
}
