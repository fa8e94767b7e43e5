//! The operands of an operation of a graph.

use super::Operands;
use crate::arguments::{Arguments, Source};
use crate::graph::Graph;
use crate::op::{ArgValue, Bindings};
use crate::propagate::FactBindings;
use crate::{TensorType, Type};
use anemeter_kernels::tensor::shape;

pub(super) struct GraphOperands<'a> {
    graph: &'a Graph<'a>,
    arguments: &'a Arguments<'a>,
    bindings: FactBindings<'a>,
}

impl<'a> GraphOperands<'a> {
    pub(super) fn new(graph: &'a Graph<'a>, arguments: &'a Arguments<'a>) -> GraphOperands<'a> {
        let bindings = FactBindings::new(arguments, graph.facts(), &[]);
        GraphOperands { graph, arguments, bindings }
    }
}

/// Bytes of a tensor in memory; 0 where its size is unknown.
pub fn tensor_bytes(ty: &TensorType) -> u64 {
    let elements = ty.concrete().and_then(|dims| shape::element_count(&dims));
    elements.and_then(|n| ty.dtype.byte_len(n)).map_or(0, |n| n as u64)
}

impl Bindings for GraphOperands<'_> {
    fn count(&self, param: usize) -> usize {
        self.bindings.count(param)
    }

    fn ty(&self, param: usize, index: usize) -> &Type {
        self.bindings.ty(param, index)
    }

    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>> {
        self.bindings.value(param, index)
    }
}

impl Operands for GraphOperands<'_> {
    fn bytes(&self, param: usize, index: usize) -> u64 {
        match self.arguments.of(param)[index] {
            Source::Value(id) => self.graph.ty(id).map_or(0, tensor_bytes),
            Source::Literal(_) => 0,
        }
    }

    /// Constants written in place are part of the program, not of the weight file.
    fn stored_bytes(&self, param: usize, index: usize) -> Option<u64> {
        match self.arguments.of(param)[index] {
            Source::Value(id) => self.graph.is_constant(id).then(|| self.graph.stored_bytes(id)),
            Source::Literal(_) => Some(0),
        }
    }
}
