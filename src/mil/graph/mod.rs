//! A function as analyses look at it: at one of its shapes, with all that can be known of every value.
//!
//! A [`Graph`] has the operations of a function and its nested blocks in order, the types that a choice of input
//! shapes implies, the constants, and who defines and who uses each value.

mod names;
mod shapes;
mod stored;

pub use names::{generic, layer_in};

use crate::arguments::{Arguments, Source};
use crate::op::{Call, KnownValue, Numerics, OpClass, OpDef};
use crate::propagate::{self, FactBindings, Facts, Options};
use crate::{Block, Function, Interface, Literal, Model, Operation, Opset, TensorType, Type, ValueId, ops};
use anemeter_kernels::convert;
use anemeter_kernels::tensor::{Shape, Tensor};

/// Results of constant operations that are larger are not computed.
const FOLD_BYTES: usize = 1 << 16;
/// Lists of integers that are longer are no parameters.
const LONGEST_LIST: usize = 64;

/// Why an operation cannot be read as its definition says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no definition of its type.
    #[error("unknown operation {0}")]
    Unknown(String),
    /// Its arguments do not fit the definition.
    #[error("{0}")]
    Arguments(String),
}

/// A function at one of its shapes.
pub struct Graph<'m> {
    /// The function.
    pub function: &'m Function,
    /// What its users see of it.
    pub interface: Option<&'m Interface>,
    /// The choice of shapes, from 0.
    pub shape_index: usize,
    /// How the choice differs from others, such as `hidden [1, 64, 1, 512]`; nothing where there is one shape only.
    pub shape_label: Option<String>,
    ops: Vec<Op<'m>>,
    facts: Facts,
    producers: Vec<Option<usize>>,
    consumers: Vec<Vec<usize>>,
}

/// An operation and its place in the function.
#[derive(Clone, Copy)]
pub struct Op<'m> {
    /// Its place among all operations of the function, nested ones included.
    pub index: usize,
    /// The operation.
    pub operation: &'m Operation,
    /// Its definition, of a later opset where the function's does not have it.
    pub def: Option<&'static OpDef>,
}

impl<'m> Op<'m> {
    /// The operation's type, such as `conv`.
    pub fn kind(&self) -> &'m str {
        &self.operation.kind
    }

    /// What kind of work it is.
    pub fn class(&self) -> Option<OpClass> {
        self.def.map(|def| def.class)
    }

    /// Whether it is a constant or a compressed weight.
    pub fn is_stored(&self) -> bool {
        matches!(self.class(), Some(OpClass::Constant))
    }

    /// The values it takes, constants of the program included.
    pub fn values(&self) -> impl Iterator<Item = ValueId> + 'm {
        let bindings = self.operation.inputs.iter().flat_map(|argument| &argument.bindings);
        bindings.filter_map(|binding| match Source::from(binding) {
            Source::Value(id) => Some(id),
            Source::Literal(_) => None,
        })
    }

    /// The first output, which most operations have alone.
    pub fn output(&self) -> Option<ValueId> {
        self.operation.outputs.first().copied()
    }
}

/// Every function of a model at each of its shapes, the default one first.
pub fn graphs(model: &Model) -> impl Iterator<Item = Graph<'_>> {
    model.program.functions.iter().flat_map(|function| {
        let interface = model.interface(&function.name);
        (0..shapes::count(interface)).map(move |shape| Graph::new(function, interface, shape))
    })
}

impl<'m> Graph<'m> {
    /// A function at one choice of its shapes.
    pub fn new(function: &'m Function, interface: Option<&'m Interface>, shape_index: usize) -> Graph<'m> {
        let inputs = shapes::inputs(function, interface, shape_index);
        let options = Options { fold_bytes: FOLD_BYTES, trust_declared: false, numerics: Numerics::Fast };
        let (facts, _) = propagate::propagate(function, &inputs, options);
        let mut ops = Vec::new();
        collect(&function.body, function.opset, &mut ops);
        let mut producers = vec![None; function.values.len()];
        let mut consumers = vec![Vec::new(); function.values.len()];
        for op in &ops {
            op.operation.outputs.iter().for_each(|id| producers[id.index()] = Some(op.index));
            op.values().for_each(|id| consumers[id.index()].push(op.index));
        }
        let shape_label = shapes::label(interface, shape_index);
        Graph { function, interface, shape_index, shape_label, ops, facts, producers, consumers }
    }

    /// What is known of every value.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Every operation, in order.
    pub fn ops(&self) -> &[Op<'m>] {
        &self.ops
    }

    /// Operations that a prediction carries out: neither constants nor results of constants.
    pub fn runtime_ops(&self) -> impl Iterator<Item = Op<'m>> + '_ {
        self.ops.iter().copied().filter(|op| !self.is_folded(op))
    }

    fn is_folded(&self, op: &Op<'m>) -> bool {
        let outputs = &op.operation.outputs;
        op.is_stored() || (!outputs.is_empty() && outputs.iter().all(|&id| self.is_constant(id)))
    }

    /// Whether a value is the same in every prediction.
    pub fn is_constant(&self, id: ValueId) -> bool {
        self.facts.known[id.index()].is_some() || self.producer(id).is_some_and(|op| op.is_stored())
    }

    /// The operation that defines a value.
    pub fn producer(&self, id: ValueId) -> Option<Op<'m>> {
        self.producers[id.index()].map(|index| self.ops[index])
    }

    /// The operation that defines a value, if it is of one of these kinds.
    pub fn produced_by(&self, id: ValueId, kinds: &[&str]) -> Option<Op<'m>> {
        self.producer(id).filter(|op| kinds.contains(&op.kind()))
    }

    /// The value that another is only a different arrangement of, through operations of these kinds.
    pub fn arranged_from(&self, mut id: ValueId, kinds: &[&str]) -> ValueId {
        while let Some(op) = self.produced_by(id, kinds)
            && let Some(source) = self.arg(&op, "x")
        {
            id = source;
        }
        id
    }

    /// The operations that use a value.
    pub fn consumers(&self, id: ValueId) -> impl Iterator<Item = Op<'m>> + '_ {
        self.consumers[id.index()].iter().map(|&index| self.ops[index])
    }

    /// Whether a value is an output of the function.
    pub fn is_output(&self, id: ValueId) -> bool {
        self.function.body.outputs.contains(&id)
    }

    /// A value's name.
    pub fn name(&self, id: ValueId) -> &'m str {
        &self.function.value(id).name
    }

    /// An operation's name, or that of its first output where it has none.
    pub fn op_name(&self, op: &Op<'m>) -> &'m str {
        match op.operation.name() {
            "" => op.output().map_or("", |id| self.name(id)),
            name => name,
        }
    }

    /// The layer of the model that an operation belongs to, as its name or that of a weight says.
    pub fn layer(&self, op: &Op<'m>) -> Option<u32> {
        let own = layer_in(self.op_name(op)).or_else(|| op.output().and_then(|id| layer_in(self.name(id))));
        own.or_else(|| op.values().filter(|&id| self.is_constant(id)).find_map(|id| layer_in(self.name(id))))
    }

    /// The type of a value.
    pub fn any_ty(&self, id: ValueId) -> &Type {
        &self.facts.types[id.index()]
    }

    /// The type of a tensor.
    pub fn ty(&self, id: ValueId) -> Option<&TensorType> {
        self.any_ty(id).tensor()
    }

    /// The sizes of a tensor, if all are known.
    pub fn dims(&self, id: ValueId) -> Option<Shape> {
        self.ty(id)?.concrete()
    }

    /// What is bound to a parameter, or an attribute of that name.
    pub fn source(&self, op: &Op<'m>, parameter: &str) -> Option<Source<'m>> {
        let bound = op.operation.input(parameter).and_then(|argument| argument.bindings.first());
        let attribute = || op.operation.attribute(parameter).map(Source::Literal);
        bound.map(Source::from).or_else(attribute)
    }

    /// Everything that is bound to a parameter that takes a list.
    pub fn sources(&self, op: &Op<'m>, parameter: &str) -> Vec<Source<'m>> {
        match op.operation.input(parameter) {
            Some(argument) => argument.bindings.iter().map(Source::from).collect(),
            None => op.operation.attribute(parameter).map(Source::Literal).into_iter().collect(),
        }
    }

    /// Reads the arguments of an operation as its definition does at this shape, defaults included; an operation that
    /// does not fit its definition is told why.
    pub fn with_call<R>(&self, op: &Op<'m>, read: impl FnOnce(&Call<'_>) -> R) -> Result<R, CallError> {
        let kind = op.kind();
        let def = op.def.ok_or_else(|| CallError::Unknown(kind.to_owned()))?;
        let (arguments, problems) = Arguments::resolve(op.operation, def);
        if let Some(problem) = problems.into_iter().next() {
            return Err(CallError::Arguments(problem));
        }
        let bindings = FactBindings::new(&arguments, &self.facts, &[]);
        Ok(read(&Call::new(def, self.function.opset, op.operation.outputs.len(), &bindings)))
    }

    /// The value bound to a parameter.
    pub fn arg(&self, op: &Op<'m>, parameter: &str) -> Option<ValueId> {
        match self.source(op, parameter)? {
            Source::Value(id) => Some(id),
            Source::Literal(_) => None,
        }
    }

    /// The type of what is bound to a parameter.
    pub fn arg_ty(&self, op: &Op<'m>, parameter: &str) -> Option<&TensorType> {
        match self.source(op, parameter)? {
            Source::Value(id) => self.ty(id),
            Source::Literal(literal) => literal.ty.tensor(),
        }
    }

    /// The sizes of what is bound to a parameter, if all are known.
    pub fn arg_dims(&self, op: &Op<'m>, parameter: &str) -> Option<Shape> {
        self.arg_ty(op, parameter)?.concrete()
    }

    /// The constant bound to a parameter, where it is plain and at hand.
    pub fn constant(&self, op: &Op<'m>, parameter: &str) -> Option<Tensor> {
        match self.source(op, parameter)? {
            Source::Value(id) => self.tensor(id),
            Source::Literal(literal) => literal.tensor(),
        }
    }

    /// A value's elements, where it is a plain constant at hand.
    pub fn tensor(&self, id: ValueId) -> Option<Tensor> {
        match self.facts.known[id.index()].as_ref()? {
            KnownValue::Tensor(tensor) => Some(tensor.clone()),
            KnownValue::Packed(_) => None,
        }
    }

    /// A constant list of integers.
    pub fn ints(&self, op: &Op<'m>, parameter: &str) -> Option<Vec<i64>> {
        let tensor = self.constant(op, parameter)?;
        let view = tensor.view();
        (view.len() <= LONGEST_LIST).then(|| convert::to_ints(&view).ok().map(|ints| ints.to_vec()))?
    }

    /// A constant integer.
    pub fn int(&self, op: &Op<'m>, parameter: &str) -> Option<i64> {
        self.ints(op, parameter)?.first().copied()
    }

    /// A constant number.
    pub fn number(&self, id: ValueId) -> Option<f32> {
        let tensor = self.tensor(id)?;
        let mut value = [0.0];
        let is_one = tensor.dtype().is_float() && tensor.view().len() == 1;
        is_one.then(|| convert::to_f32(&tensor.view(), 0..1, &mut value))?;
        Some(value[0])
    }

    /// A constant boolean.
    pub fn flag(&self, op: &Op<'m>, parameter: &str) -> Option<bool> {
        self.constant(op, parameter)?.view().bools().ok()?.first().map(|&byte| byte != 0)
    }

    /// Constants written in place or in a constant operation, of this operation and no other.
    pub fn literals(op: &Op<'m>) -> impl Iterator<Item = (&'m str, &'m Literal)> {
        stored::literals(op.operation)
    }

    /// Bytes that a constant takes in the package, compressed as it is. Results of constants take none.
    pub fn stored_bytes(&self, id: ValueId) -> u64 {
        let parts = self.stored_parts(id);
        parts.iter().map(|literal| stored::byte_len(literal)).sum()
    }

    /// The stored constants that a constant value is made of.
    pub fn stored_parts(&self, id: ValueId) -> Vec<&'m Literal> {
        let mut parts = Vec::new();
        let mut waiting = vec![id];
        while let Some(id) = waiting.pop() {
            let Some(op) = self.producer(id).filter(Op::is_stored) else { continue };
            parts.extend(stored::literals(op.operation).map(|(_, literal)| literal));
            waiting.extend(op.values());
        }
        parts
    }

    /// Bytes of the function's constants in the weight file, shared ones once.
    pub fn weight_bytes(&self) -> u64 {
        stored::total(self.ops.iter().filter(|op| op.is_stored()).flat_map(Graph::literals))
    }
}

fn collect<'m>(block: &'m Block, opset: Opset, ops: &mut Vec<Op<'m>>) {
    for operation in &block.operations {
        operation.blocks.iter().for_each(|block| collect(block, opset, ops));
        let def = ops::find_or_later(&operation.kind, opset);
        ops.push(Op { index: ops.len(), operation, def });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Dim};
    use anemeter_kernels::tensor::DType;
    use half::f16;

    fn model() -> Model {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown]));
        let weight = Tensor::from_slice(&[4, 4], &[f16::ONE; 16]).unwrap();
        let weight = main.constant("layers_7_weight", Literal::blob(&weight));
        let two = main.op("add").arg("x", f16::ONE).arg("y", f16::ONE).named("two").push().unwrap();
        let y = main.op("mul").arg("x", x).arg("y", two).named("y").push().unwrap();
        let z = main.op("matmul").arg("x", y).arg("y", weight).named("z").push();
        let z = z.unwrap();
        let mut model = Model::single(main.finish(&[z]));
        model.interface_mut("main").unwrap().enumerate("x", &[vec![1, 4]]);
        model
    }

    #[test]
    fn types_follow_the_chosen_shape_and_constants_are_known() {
        let model = model();
        let graph = graphs(&model).next().unwrap();
        let kinds: Vec<_> = graph.runtime_ops().map(|op| op.kind()).collect();
        assert_eq!(kinds, ["mul", "matmul"], "`two` is a result of constants");
        let product = graph.runtime_ops().last().unwrap();
        assert_eq!(graph.dims(product.output().unwrap()).unwrap()[..], [1, 4]);
        assert_eq!(graph.layer(&product), Some(7));
        let weight = graph.arg(&product, "y").unwrap();
        assert_eq!((graph.stored_bytes(weight), graph.weight_bytes()), (32, 32));
        assert!(graph.is_output(product.output().unwrap()));
        assert_eq!(graph.number(graph.arg(&graph.runtime_ops().next().unwrap(), "y").unwrap()), Some(2.0));
    }
}
