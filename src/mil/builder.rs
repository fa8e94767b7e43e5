//! Building functions: each operation is typed as it is pushed, so a mistake shows where it is made.
//!
//! ```
//! use anemeter_mil::{Builder, Opset, TensorType};
//! use anemeter_kernels::tensor::DType;
//!
//! let mut main = Builder::new("main", Opset::Ios18);
//! let x = main.input("x", TensorType::fixed(DType::F16, &[1, 8]));
//! let y = main.op("softmax").arg("x", x).arg("axis", -1).named("y").push()?;
//! let function = main.finish(&[y]);
//! assert_eq!(function.value(y).ty.to_string(), "tensor<fp16, [1, 8]>");
//! # Ok::<(), anemeter_mil::BuildError>(())
//! ```

use half::f16;

use super::arguments::Arguments;
use super::op::{Call, Default, KnownValue, OpDef, Presence};
use super::propagate::{FactBindings, Facts, check_types};
use super::{Argument, Binding, Block, Function, Literal, Operation, Opset, TensorType, Type, ValueId, ops};
use anemeter_kernels::tensor::{DType, Tensor};

/// An operation that cannot be pushed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("build `{name}` = {kind}: {message}")]
pub struct BuildError {
    /// The operation's kind.
    pub kind: String,
    /// The name it was to have.
    pub name: String,
    /// What is wrong.
    pub message: String,
}

/// A function under construction.
pub struct Builder {
    function: Function,
    facts: Facts,
    blocks: Vec<Block>,
}

impl Builder {
    /// Begins a function without inputs and operations.
    pub fn new(name: &str, opset: Opset) -> Builder {
        Builder {
            function: Function::new(name, opset),
            facts: Facts { types: Vec::new(), known: Vec::new() },
            blocks: vec![Block::default()],
        }
    }

    /// Adds an input of the function.
    pub fn input(&mut self, name: &str, ty: impl Into<Type>) -> ValueId {
        let id = self.define(name, ty.into(), None);
        self.function.inputs.push(id);
        id
    }

    /// Adds a constant of any size; large ones should be [`Literal::blob`].
    pub fn constant(&mut self, name: &str, literal: Literal) -> ValueId {
        let known = literal.tensor().map(KnownValue::Tensor);
        let id = self.define(name, literal.ty.clone(), known);
        let attributes = vec![("name".to_owned(), Literal::text(name)), ("val".to_owned(), literal)];
        self.push(Operation {
            kind: "const".to_owned(),
            outputs: vec![id],
            attributes,
            ..Operation::default()
        });
        id
    }

    /// Begins an operation; [`Pending::push`] adds it.
    pub fn op(&mut self, kind: &str) -> Pending<'_> {
        let name = format!("{kind}_{}", self.function.values.len());
        Pending {
            builder: self,
            kind: kind.to_owned(),
            name,
            arguments: Vec::new(),
            blocks: Vec::new(),
            outputs: None,
        }
    }

    /// Builds a nested block of control flow; `body` receives its inputs and returns what it yields.
    pub fn block(
        &mut self,
        inputs: &[(&str, Type)],
        body: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, BuildError>,
    ) -> Result<Block, BuildError> {
        let ids: Vec<ValueId> = inputs.iter().map(|(name, ty)| self.define(name, ty.clone(), None)).collect();
        self.blocks.push(Block { inputs: ids.clone(), ..Block::default() });
        let outputs = body(self, &ids);
        let mut block = self.blocks.pop().expect("it was pushed above");
        block.outputs = outputs?;
        Ok(block)
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &Type {
        &self.facts.types[id.index()]
    }

    /// Completes the function with its outputs.
    pub fn finish(mut self, outputs: &[ValueId]) -> Function {
        self.function.body = self.blocks.pop().expect("a builder begins with the body");
        self.function.body.outputs = outputs.to_vec();
        self.function
    }

    fn define(&mut self, name: &str, ty: Type, known: Option<KnownValue>) -> ValueId {
        self.facts.types.push(ty.clone());
        self.facts.known.push(known);
        self.function.add_value(name, ty)
    }

    fn push(&mut self, operation: Operation) {
        if let Some(block) = self.blocks.last_mut() {
            block.operations.push(operation);
        }
    }
}

/// An argument: a value, or a constant that gets an operation of its own.
pub enum Arg {
    /// A value defined earlier.
    Value(ValueId),
    /// A constant of the program.
    Constant(Literal),
}

macro_rules! arguments {
    ($($value:ident: $ty:ty => $argument:expr;)*) => {
        $(impl From<$ty> for Arg {
            fn from($value: $ty) -> Arg {
                $argument
            }
        })*
    };
}

arguments! {
    id: ValueId => Arg::Value(id);
    literal: Literal => Arg::Constant(literal);
    tensor: &Tensor => Arg::Constant(Literal::immediate(tensor));
    value: i32 => Arg::from(&Tensor::scalar(value));
    value: f32 => Arg::from(&Tensor::scalar(value));
    value: f16 => Arg::from(&Tensor::scalar(value));
    value: bool => Arg::from(&Tensor::from_bool(value));
    text: &str => Arg::Constant(Literal::text(text));
}

impl From<&[i32]> for Arg {
    fn from(values: &[i32]) -> Arg {
        let bytes = anemeter_kernels::tensor::AlignedBuf::from_slice(bytemuck::cast_slice(values));
        Arg::Constant(Literal {
            ty: TensorType::fixed(DType::I32, &[values.len()]).into(),
            data: super::LiteralData::Immediate(bytes.into()),
        })
    }
}

impl<const N: usize> From<[i32; N]> for Arg {
    fn from(values: [i32; N]) -> Arg {
        Arg::from(&values[..])
    }
}

/// An operation whose arguments are being given.
pub struct Pending<'b> {
    builder: &'b mut Builder,
    kind: String,
    name: String,
    arguments: Vec<(String, Vec<Arg>)>,
    blocks: Vec<Block>,
    outputs: Option<Vec<String>>,
}

impl Pending<'_> {
    /// Gives one argument; a repeated parameter makes a list.
    pub fn arg(mut self, parameter: &str, value: impl Into<Arg>) -> Self {
        match self.arguments.iter_mut().find(|(name, _)| name == parameter) {
            Some((_, list)) => list.push(value.into()),
            None => self.arguments.push((parameter.to_owned(), vec![value.into()])),
        }
        self
    }

    /// Gives a list of values.
    pub fn args(self, parameter: &str, values: &[ValueId]) -> Self {
        values.iter().fold(self, |pending, &value| pending.arg(parameter, value))
    }

    /// Adds a nested block.
    pub fn nested(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// Names the operation and its output.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Names the outputs of an operation that has several.
    pub fn outputs(mut self, names: &[&str]) -> Self {
        self.outputs = Some(names.iter().map(|&n| n.to_owned()).collect());
        self
    }

    /// Pushes an operation with one output.
    pub fn push(self) -> Result<ValueId, BuildError> {
        let (kind, name) = (self.kind.clone(), self.name.clone());
        match self.push_all()?[..] {
            [only] => Ok(only),
            ref more => {
                let message = format!("has {} outputs, name them with `outputs`", more.len());
                Err(BuildError { kind, name, message })
            }
        }
    }

    /// Adds the operation and gives all its outputs.
    pub fn push_all(mut self) -> Result<Vec<ValueId>, BuildError> {
        let opset = self.builder.function.opset;
        let def = ops::find(&self.kind, opset)
            .ok_or_else(|| self.error(format!("no such operation in {opset}")))?;
        self.write_defaults(def);
        let inputs = self.bind();
        let attributes = vec![("name".to_owned(), Literal::text(&self.name))];
        let blocks = std::mem::take(&mut self.blocks);
        let mut op =
            Operation { kind: self.kind.clone(), inputs, blocks, attributes, ..Operation::default() };
        let types = self.infer(def, &op)?;
        let names = match &self.outputs {
            Some(names) if names.len() == types.len() => names.clone(),
            Some(names) => return Err(self.error(format!("{} outputs, {} names", types.len(), names.len()))),
            None if types.len() == 1 => vec![self.name.clone()],
            None => (0..types.len()).map(|i| format!("{}_{i}", self.name)).collect(),
        };
        op.outputs = names.iter().zip(types).map(|(name, ty)| self.builder.define(name, ty, None)).collect();
        let outputs = op.outputs.clone();
        self.builder.push(op);
        Ok(outputs)
    }

    fn error(&self, message: impl Into<String>) -> BuildError {
        BuildError { kind: self.kind.clone(), name: self.name.clone(), message: message.into() }
    }

    fn infer(&self, def: &'static OpDef, op: &Operation) -> Result<Vec<Type>, BuildError> {
        let (arguments, problems) = Arguments::resolve(op, def);
        if let Some(problem) = problems.into_iter().next() {
            return Err(self.error(problem));
        }
        let yielded = |block: &Block| block.outputs.iter().map(|&id| self.builder.ty(id).clone()).collect();
        let blocks: Vec<Vec<Type>> = op.blocks.iter().map(yielded).collect();
        let bindings = FactBindings::new(&arguments, &self.builder.facts, &blocks);
        let count = self.outputs.as_ref().map_or(1, Vec::len);
        let call = Call::new(def, self.builder.function.opset, count, &bindings);
        check_types(def, &bindings).and_then(|()| (def.infer)(&call)).map_err(|e| self.error(e.to_string()))
    }

    /// Core ML asks for parameters with defaults to be written out.
    fn write_defaults(&mut self, def: &OpDef) {
        for param in def.params {
            let Presence::Default(default) = param.presence else { continue };
            if self.arguments.iter().any(|(name, _)| name == param.name) {
                continue;
            }
            let arg = match default {
                Default::Int(value) => Arg::from(value),
                Default::Bool(value) => Arg::from(value),
                Default::Text(value) => Arg::from(value),
                Default::Float(value) => match self.float_type(def, param.group) {
                    DType::F16 => Arg::from(f16::from_f32(value)),
                    _ => Arg::from(value),
                },
            };
            self.arguments.push((param.name.to_owned(), vec![arg]));
        }
    }

    /// The float type that a default of a group has to have.
    fn float_type(&self, def: &OpDef, group: Option<char>) -> DType {
        let in_group = |name: &str| def.params.iter().any(|p| p.name == name && p.group == group);
        let dtype = |arg: &Arg| match arg {
            Arg::Value(id) => self.builder.ty(*id).tensor().map(|ty| ty.dtype),
            Arg::Constant(literal) => literal.ty.tensor().map(|ty| ty.dtype),
        };
        self.arguments
            .iter()
            .filter(|(name, _)| group.is_some() && in_group(name))
            .find_map(|(_, args)| args.first().and_then(dtype))
            .unwrap_or(DType::F32)
    }

    /// Turns constants into operations and sorts arguments by parameter.
    fn bind(&mut self) -> Vec<Argument> {
        let mut inputs = Vec::new();
        for (parameter, args) in std::mem::take(&mut self.arguments) {
            let several = args.len() > 1;
            let bindings = args.into_iter().enumerate().map(|(i, arg)| match arg {
                Arg::Value(id) => Binding::Value(id),
                Arg::Constant(literal) if self.kind.starts_with("constexpr_") => Binding::Literal(literal),
                Arg::Constant(literal) => {
                    let suffix = if several { format!("{parameter}{i}_0") } else { format!("{parameter}_0") };
                    let name = format!("{}_{suffix}", self.name);
                    Binding::Value(self.builder.constant(&name, literal))
                }
            });
            let bindings = bindings.collect();
            inputs.push(Argument { parameter, bindings });
        }
        inputs.sort_by(|a, b| a.parameter.cmp(&b.parameter));
        inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_inferred_as_operations_are_pushed() {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::new(DType::F16, vec![1usize.into(), super::super::Dim::Unknown]));
        let y = main.op("add").arg("x", x).arg("y", f16::ONE).named("y").push().unwrap();
        let z = main.op("softmax").arg("x", y).named("z").push().unwrap();
        let function = main.finish(&[z]);
        insta::assert_snapshot!(function, @r#"
            func main<ios18>(tensor<fp16, [1, ?]> x) {
                tensor<fp16, []> y_y_0 = const()[val = tensor<fp16, []>(1)];
                tensor<fp16, [1, ?]> y = add(x = x, y = y_y_0);
                tensor<int32, []> z_axis_0 = const()[val = tensor<int32, []>(-1)];
                tensor<fp16, [1, ?]> z = softmax(axis = z_axis_0, x = y);
            } -> (z);
        "#);
    }

    #[test]
    fn mistakes_are_named_where_they_are_made() {
        let mut main = Builder::new("main", Opset::Ios15);
        let x = main.input("x", TensorType::fixed(DType::F32, &[2]));
        let i = main.input("i", TensorType::fixed(DType::I32, &[2]));
        let mixed = main.op("add").arg("x", x).arg("y", i).named("sum").push().unwrap_err();
        assert_eq!(
            mixed.to_string(),
            "build `sum` = add: `y` is int32 and `x` is fp32; they must be the same"
        );
        let unknown = main.op("ad").push().unwrap_err();
        assert!(unknown.to_string().ends_with("no such operation in ios15"));
        let missing = main.op("add").arg("x", x).push().unwrap_err();
        assert_eq!(missing.message, "`y` is missing");
    }
}
