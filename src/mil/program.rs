//! The program as plain data.

use super::{Literal, Opset, Type};

/// A whole ML program.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Version of the program format; 1 so far.
    pub version: i64,
    /// Functions by name, in name order.
    pub functions: Vec<Function>,
    /// Attributes such as `buildInfo`, in name order.
    pub attributes: Vec<(String, Literal)>,
}

impl Program {
    /// The function of the given name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }
}

/// A function: typed inputs and a block of operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The opset it is written in.
    pub opset: Opset,
    /// Every value of the function and its nested blocks; [`ValueId`]s index it.
    pub values: Vec<Value>,
    /// Inputs, states included, in file order.
    pub inputs: Vec<ValueId>,
    /// The operations and the outputs.
    pub body: Block,
    /// Further attributes, in name order.
    pub attributes: Vec<(String, Literal)>,
}

impl Function {
    /// An empty function.
    pub fn new(name: &str, opset: Opset) -> Function {
        Function {
            name: name.to_owned(),
            opset,
            values: Vec::new(),
            inputs: Vec::new(),
            body: Block::default(),
            attributes: Vec::new(),
        }
    }

    /// The value behind an id of this function.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// Adds a value to the table.
    pub fn add_value(&mut self, name: &str, ty: Type) -> ValueId {
        self.values.push(Value { name: name.to_owned(), ty });
        ValueId::new(self.values.len() - 1)
    }
}

/// Index of a value in its function's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

impl ValueId {
    /// The id of table entry `index`.
    ///
    /// # Panics
    /// If a function has more than 2³² values, which no readable file can hold.
    pub fn new(index: usize) -> ValueId {
        ValueId(u32::try_from(index).expect("fewer than 2^32 values"))
    }

    /// Its index in the function's table of values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A named, typed value: a function or block input, or an output of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Its name, unique in the scope it is defined in.
    pub name: String,
    /// Its declared type.
    pub ty: Type,
}

/// Operations in execution order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Block {
    /// Values the enclosing operation provides; empty for a function's own block.
    pub inputs: Vec<ValueId>,
    /// Operations in the order in which they run.
    pub operations: Vec<Operation>,
    /// What the block yields.
    pub outputs: Vec<ValueId>,
    /// Further attributes, in name order.
    pub attributes: Vec<(String, Literal)>,
}

/// One operation of a block.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Operation {
    /// The operation's type, such as `conv`.
    pub kind: String,
    /// Arguments, in parameter name order.
    pub inputs: Vec<Argument>,
    /// The values it defines.
    pub outputs: Vec<ValueId>,
    /// Nested blocks of control flow.
    pub blocks: Vec<Block>,
    /// Attributes such as `name` and a constant's `val`, in name order.
    pub attributes: Vec<(String, Literal)>,
}

impl Operation {
    /// The argument bound to a parameter.
    pub fn input(&self, parameter: &str) -> Option<&Argument> {
        self.inputs.iter().find(|a| a.parameter == parameter)
    }

    /// The attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&Literal> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The operation's own name, or nothing where the file gives none.
    pub fn name(&self) -> &str {
        self.attribute("name").and_then(Literal::as_text).unwrap_or("")
    }
}

/// What is bound to one parameter: one binding, or several where the parameter takes a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// The parameter's name.
    pub parameter: String,
    /// Values or constants that are bound to it.
    pub bindings: Vec<Binding>,
}

/// A value or a constant given to a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Binding {
    /// A value defined earlier.
    Value(ValueId),
    /// A constant in place.
    Literal(Literal),
}
