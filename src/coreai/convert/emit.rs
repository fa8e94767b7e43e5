//! What an emitter works with: an operation's arguments as aicode values, and the region that it extends.

use std::collections::HashMap;

use super::body::Body;
use super::error::{Refusal, Result, refuse};
use super::ops;
use super::types;
use super::weights::Weights;
use crate::program::{Type, ValueId};
use anemeter_kernels::tensor::DType;
use anemeter_mil::arguments::Source;
use anemeter_mil::graph::{Graph, Op};
use anemeter_mil::op::Call;
use anemeter_mil::{Literal, TensorType, ValueId as MilId};

/// A function at one of its shapes, and what of it is in aicode already.
pub(super) struct FunctionState<'a, 'm> {
    pub(super) graph: &'a Graph<'m>,
    pub(super) body: Body,
    pub(super) weights: &'a mut Weights,
    pub(super) values: HashMap<MilId, ValueId>,
    /// The last token of each state, by its handle.
    pub(super) tokens: HashMap<MilId, ValueId>,
}

/// One operation that is being emitted.
pub(super) struct Emit<'e, 'a, 'm> {
    pub(super) function: &'e mut FunctionState<'a, 'm>,
    pub(super) op: Op<'m>,
    pub(super) call: &'e Call<'e>,
}

impl<'m> FunctionState<'_, 'm> {
    /// Emits an operation and remembers its results.
    pub(super) fn emit(&mut self, op: &Op<'m>) -> Result<()> {
        let Some(emitter) = ops::find(op.kind()) else { refuse!("{}{}", ops::UNSUPPORTED, op.kind()) };
        let graph = self.graph;
        let results = graph.with_call(op, |call| emitter(&mut Emit { function: self, op: *op, call }));
        let results = results.map_err(|error| Refusal(error.to_string()))??;
        if results.len() != op.operation.outputs.len() {
            let (given, declared) = (results.len(), op.operation.outputs.len());
            refuse!("gives {given} values in aicode, {declared} are declared");
        }
        self.values.extend(op.operation.outputs.iter().copied().zip(results));
        Ok(())
    }

    /// A value of the function; constants become operations where they are first used.
    pub(super) fn value(&mut self, id: MilId) -> Result<ValueId> {
        if let Some(&value) = self.values.get(&id) {
            return Ok(value);
        }
        let producer = self.graph.producer(id);
        match producer {
            Some(op) if op.kind() == "const" => {
                let Some(literal) = op.operation.attribute("val") else { refuse!("a constant has no value") };
                let value = self.weights.literal(&mut self.body, literal)?;
                self.values.insert(id, value);
                Ok(value)
            }
            Some(op) if op.is_stored() => {
                self.emit(&op)?;
                self.values.get(&id).copied().ok_or_else(|| Refusal("a constant has no value".to_owned()))
            }
            _ => {
                let Some(tensor) = self.graph.tensor(id) else {
                    refuse!("`{}` is not defined before it is used", self.graph.name(id))
                };
                let literal = Literal::immediate(&tensor);
                let value = self.weights.literal(&mut self.body, &literal)?;
                self.values.insert(id, value);
                Ok(value)
            }
        }
    }
}

impl<'m> Emit<'_, '_, 'm> {
    /// The region that is extended.
    pub(super) fn body(&mut self) -> &mut Body {
        &mut self.function.body
    }

    /// The value bound to a parameter.
    pub(super) fn arg(&mut self, parameter: &str) -> Result<ValueId> {
        match self.opt_arg(parameter)? {
            Some(value) => Ok(value),
            None => refuse!("`{parameter}` is missing"),
        }
    }

    /// The value bound to a parameter that may be left out.
    pub(super) fn opt_arg(&mut self, parameter: &str) -> Result<Option<ValueId>> {
        let source = self.function.graph.source(&self.op, parameter);
        source.map(|source| self.source(source)).transpose()
    }

    /// The values bound to a parameter that takes a list.
    pub(super) fn args(&mut self, parameter: &str) -> Result<Vec<ValueId>> {
        let sources = self.function.graph.sources(&self.op, parameter);
        sources.into_iter().map(|source| self.source(source)).collect()
    }

    /// The value of the function that is bound to a parameter.
    pub(super) fn mil_id(&self, parameter: &str) -> Result<MilId> {
        match self.function.graph.arg(&self.op, parameter) {
            Some(id) => Ok(id),
            None => refuse!("`{parameter}` is no value of the function"),
        }
    }

    fn source(&mut self, source: Source<'m>) -> Result<ValueId> {
        match source {
            Source::Value(id) => self.function.value(id),
            Source::Literal(literal) => self.constant(literal),
        }
    }

    /// A constant.
    pub(super) fn constant(&mut self, literal: &Literal) -> Result<ValueId> {
        let FunctionState { weights, body, .. } = &mut *self.function;
        weights.literal(body, literal)
    }

    /// The bytes of a constant as elements of another type or under another shape.
    pub(super) fn shaped(&mut self, literal: &Literal, dtype: DType, dims: &[u64]) -> Result<ValueId> {
        let FunctionState { weights, body, .. } = &mut *self.function;
        weights.shaped(body, literal, dtype, dims)
    }

    /// The constant that is stored for a parameter.
    pub(super) fn stored(&self, parameter: &str) -> Result<&'m Literal> {
        let graph = self.function.graph;
        let literal = match graph.source(&self.op, parameter) {
            Some(Source::Literal(literal)) => Some(literal),
            Some(Source::Value(id)) => {
                graph.produced_by(id, &["const"]).and_then(|op| op.operation.attribute("val"))
            }
            None => None,
        };
        match literal {
            Some(literal) => Ok(literal),
            None => refuse!("`{parameter}` is not stored as it is"),
        }
    }

    /// The types of the results.
    pub(super) fn result_types(&self) -> Result<Vec<Type>> {
        let ids = &self.op.operation.outputs;
        ids.iter().map(|&id| types::tensor(self.mil_ty(id)?)).collect()
    }

    /// The type of the only result.
    pub(super) fn result_type(&self) -> Result<Type> {
        match &mut self.result_types()?[..] {
            [only] => Ok(std::mem::replace(only, Type::Token)),
            more => refuse!("has {} results", more.len()),
        }
    }

    /// The sizes of the only result.
    pub(super) fn result_dims(&self) -> Result<Vec<u64>> {
        match self.op.output() {
            Some(id) => types::dims(self.mil_ty(id)?),
            None => refuse!("has no result"),
        }
    }

    fn mil_ty(&self, id: MilId) -> Result<&TensorType> {
        match self.function.graph.ty(id) {
            Some(ty) => Ok(ty),
            None => refuse!("`{}` is no tensor", self.function.graph.name(id)),
        }
    }
}
