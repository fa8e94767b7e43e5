//! A graph with what rules ask of it: which operation gives a value, and what its type is.

use crate::{Attribute, Dim, Graph, Op, Scalar, Type, ValueId};

/// A graph, and its values by number.
pub(super) struct GraphView<'p> {
    pub(super) graph: &'p Graph,
    values: Vec<Value<'p>>,
}

/// A value: its type, and the operation that gives it if it is no argument.
struct Value<'p> {
    ty: &'p Type,
    op: Option<OpView<'p>>,
}

/// An operation, its place among those of its graph, and the number of its first result.
#[derive(Clone, Copy)]
pub(super) struct OpView<'p> {
    pub(super) op: &'p Op,
    pub(super) index: usize,
    pub(super) first: usize,
}

impl<'p> GraphView<'p> {
    pub(super) fn new(graph: &'p Graph) -> GraphView<'p> {
        let mut values: Vec<_> = graph.body.arguments.iter().map(|ty| Value { ty, op: None }).collect();
        for (index, op) in graph.body.ops.iter().enumerate() {
            let view = OpView { op, index, first: values.len() };
            values.extend(op.results.iter().map(|ty| Value { ty, op: Some(view) }));
        }
        GraphView { graph, values }
    }

    /// Its operations, without those of decompositions, which are not carried out.
    pub(super) fn ops(&self) -> impl Iterator<Item = OpView<'p>> + '_ {
        let mut first = self.graph.body.arguments.len();
        self.graph.body.ops.iter().enumerate().map(move |(index, op)| {
            let view = OpView { op, index, first };
            first += op.results.len();
            view
        })
    }

    /// Its operations of a name, without its version.
    pub(super) fn ops_named(&self, name: &'static str) -> impl Iterator<Item = OpView<'p>> + '_ {
        self.ops().filter(move |op| op.base_name() == name)
    }

    /// The type of an operand.
    pub(super) fn operand_type(&self, op: &OpView<'p>, index: usize) -> Option<&'p Type> {
        Some(self.value(op.operand(index)?)?.ty)
    }

    /// The shape of an operand.
    pub(super) fn operand_dims(&self, op: &OpView<'p>, index: usize) -> Option<&'p [Dim]> {
        dims(self.operand_type(op, index)?)
    }

    /// The operation that gives an operand.
    pub(super) fn producer(&self, op: &OpView<'p>, index: usize) -> Option<OpView<'p>> {
        self.value(op.operand(index)?)?.op
    }

    /// The argument that an operand is.
    pub(super) fn argument(&self, op: &OpView<'p>, index: usize) -> Option<usize> {
        let id = op.operand(index)?.0 as usize;
        (id < self.graph.inputs.len()).then_some(id)
    }

    /// Whether a value is known before the program runs: a constant, or computed from constants only.
    pub(super) fn is_constant(&self, op: &OpView<'p>, index: usize) -> bool {
        let Some(id) = op.operand(index) else { return false };
        let mut open = vec![id];
        let mut seen = std::collections::HashSet::new();
        while let Some(id) = open.pop() {
            match self.value(id).and_then(|value| value.op) {
                None => return false,
                Some(op) if seen.insert(op.index) => open.extend(&op.op.operands),
                Some(_) => {}
            }
        }
        true
    }

    fn value(&self, id: ValueId) -> Option<&Value<'p>> {
        self.values.get(id.0 as usize)
    }
}

impl<'p> OpView<'p> {
    /// Its name without its version.
    pub(super) fn base_name(&self) -> &'p str {
        let name: &'p str = &self.op.name;
        match name.rsplit_once("_v") {
            Some((base, version)) if version.bytes().all(|digit| digit.is_ascii_digit()) => base,
            _ => name,
        }
    }

    fn operand(&self, index: usize) -> Option<ValueId> {
        self.op.operands.get(index).copied()
    }

    /// The element type and the value of a constant.
    pub(super) fn constant(&self) -> Option<(Scalar, &'p Attribute)> {
        match (&self.op.results[..], self.op.properties.first()) {
            ([Type::Tensor { element, .. }], Some(Some(value)))
                if self.base_name() == "primitive.constant" =>
            {
                Some((*element, value))
            }
            _ => None,
        }
    }
}

/// The shape of a tensor or of a state.
pub(super) fn dims(ty: &Type) -> Option<&[Dim]> {
    match ty {
        Type::Tensor { dims, .. } => Some(dims),
        Type::Handle(inner) => dims(inner),
        _ => None,
    }
}

/// The element type of a tensor or of a state.
pub(super) fn element(ty: &Type) -> Option<Scalar> {
    match ty {
        Type::Tensor { element, .. } => Some(*element),
        Type::Handle(inner) => element(inner),
        _ => None,
    }
}
