//! Readable MIL: a stable text for people and snapshots, close to what Apple's tools print.
//!
//! Constants of up to 16 elements are written out; larger ones are named by type and size.

use std::fmt::{self, Write};

use super::{Argument, Binding, Block, Function, Literal, LiteralData, Operation, Program, ValueId};
use anemeter_base::text::visible;
use anemeter_kernels::convert;
use anemeter_kernels::tensor::DType;

/// Constants up to this many elements are written out.
const SHOWN_ELEMENTS: usize = 16;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program({}.0)", self.version)?;
        for (name, value) in &self.attributes {
            writeln!(f, "[{} = {value}]", visible(name))?;
        }
        writeln!(f, "{{")?;
        for function in &self.functions {
            write!(f, "{function}")?;
        }
        writeln!(f, "}}")
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    func {}<{}>(", visible(&self.name), self.opset)?;
        for (i, &input) in self.inputs.iter().enumerate() {
            let value = self.value(input);
            write!(f, "{}{} {}", if i > 0 { ", " } else { "" }, value.ty, visible(&value.name))?;
        }
        writeln!(f, ") {{")?;
        write_block(f, self, &self.body, 2)?;
        writeln!(f, "    }} -> ({});", Names(self, &self.body.outputs))
    }
}

fn write_block(out: &mut dyn Write, function: &Function, block: &Block, depth: usize) -> fmt::Result {
    for operation in &block.operations {
        write_operation(out, function, operation, depth)?;
    }
    Ok(())
}

fn write_operation(out: &mut dyn Write, function: &Function, op: &Operation, depth: usize) -> fmt::Result {
    let indent = "    ".repeat(depth);
    out.write_str(&indent)?;
    for (i, &id) in op.outputs.iter().enumerate() {
        let value = function.value(id);
        write!(out, "{}{} {}", if i > 0 { ", " } else { "" }, value.ty, visible(&value.name))?;
    }
    if !op.outputs.is_empty() {
        out.write_str(" = ")?;
    }
    write!(out, "{}(", visible(&op.kind))?;
    for (i, argument) in op.inputs.iter().enumerate() {
        out.write_str(if i > 0 { ", " } else { "" })?;
        write_argument(out, function, argument)?;
    }
    out.write_str(")")?;
    let is_named_after_output = op.outputs.first().is_some_and(|&id| function.value(id).name == op.name());
    let attributes: Vec<_> =
        op.attributes.iter().filter(|(name, _)| !(is_named_after_output && name == "name")).collect();
    for (i, (name, value)) in attributes.iter().enumerate() {
        write!(out, "{}{} = {value}", if i > 0 { ", " } else { "[" }, visible(name))?;
    }
    out.write_str(if attributes.is_empty() { "" } else { "]" })?;
    for block in &op.blocks {
        writeln!(out, " ({}) {{", Names(function, &block.inputs))?;
        write_block(out, function, block, depth + 1)?;
        write!(out, "{indent}}} -> ({})", Names(function, &block.outputs))?;
    }
    out.write_str(";\n")
}

fn write_argument(out: &mut dyn Write, function: &Function, argument: &Argument) -> fmt::Result {
    write!(out, "{} = ", visible(&argument.parameter))?;
    let list = argument.bindings.len() != 1;
    out.write_str(if list { "(" } else { "" })?;
    for (i, binding) in argument.bindings.iter().enumerate() {
        out.write_str(if i > 0 { ", " } else { "" })?;
        match binding {
            Binding::Value(id) => out.write_str(&visible(&function.value(*id).name))?,
            Binding::Literal(literal) => write!(out, "{literal}")?,
        }
    }
    out.write_str(if list { ")" } else { "" })
}

/// The names of values, separated by commas.
struct Names<'a>(&'a Function, &'a [ValueId]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &id) in self.1.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, visible(&self.0.value(id).name))?;
        }
        Ok(())
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.data {
            LiteralData::Strings(strings) if strings.len() == 1 => write!(f, "{:?}", strings[0]),
            LiteralData::Strings(strings) => write!(f, "{}({strings:?})", self.ty),
            LiteralData::Immediate(bytes) if self.is_shown() => {
                write!(f, "{}({})", self.ty, Elements(self, bytes))
            }
            LiteralData::Immediate(bytes) => write!(f, "{}(<{} bytes>)", self.ty, bytes.len()),
            LiteralData::Blob(bytes) => write!(f, "{}(<weight file, {} bytes>)", self.ty, bytes.len()),
            LiteralData::Stream(payload) => {
                write!(f, "{}(<weight file, {} bytes>)", self.ty, payload.byte_len())
            }
            LiteralData::Items(items) => {
                write!(f, "{}(", self.ty)?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            LiteralData::Entries(entries) => {
                write!(f, "{}({{", self.ty)?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("})")
            }
        }
    }
}

impl Literal {
    fn is_shown(&self) -> bool {
        let elements =
            self.ty.tensor().and_then(|ty| anemeter_kernels::tensor::shape::element_count(&ty.concrete()?));
        elements.is_some_and(|n| n <= SHOWN_ELEMENTS)
    }
}

/// The elements of an immediate constant.
struct Elements<'a>(&'a Literal, &'a [u8]);

impl fmt::Display for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tensor) = self.0.tensor() else { return write!(f, "<{} bytes>", self.1.len()) };
        let view = tensor.view();
        let list = view.rank() > 0;
        f.write_str(if list { "[" } else { "" })?;
        for i in 0..view.len() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            let mut value = [0.0];
            convert::to_f32(&view, i..i + 1, &mut value);
            match view.dtype() {
                DType::Bool => write!(f, "{}", value[0] != 0.0)?,
                dtype if dtype.is_int() && dtype.bits() > 16 => {
                    let wide = convert::to_ints(&view).map_err(|_| fmt::Error)?;
                    write!(f, "{}", wide[i])?;
                }
                _ => write!(f, "{}", value[0])?,
            }
        }
        f.write_str(if list { "]" } else { "" })
    }
}
