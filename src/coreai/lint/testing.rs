//! Smallest programs.

use crate::{Attribute, Dim, Graph, Op, Port, Program, Region, Scalar, Type, ValueId, verify};

/// A smallest program.
pub(super) type Example = fn() -> Program;

/// A tensor type of a known shape.
pub(super) fn fixed(dims: &[u64], element: Scalar) -> Type {
    Type::Tensor { dims: dims.iter().map(|&size| Dim::Fixed(size)).collect(), element, constraints: None }
}

/// A program of one graph in the making. Values are numbered from 0 as they come; inputs first, as in the format, once it is
/// finished.
#[derive(Default)]
pub(super) struct Draft {
    /// Inputs and results by number.
    values: Vec<(Option<String>, Type)>,
    ops: Vec<(Op, Vec<usize>)>,
}

impl Draft {
    pub(super) fn new() -> Draft {
        Draft::default()
    }

    pub(super) fn input(&mut self, name: &str, ty: Type) -> usize {
        self.values.push((Some(name.to_owned()), ty));
        self.values.len() - 1
    }

    /// A constant whose elements are all the same.
    pub(super) fn splat(&mut self, ty: Type, element: &[u8]) -> usize {
        let value = Attribute::DenseElements { is_splat: true, bytes: element.to_vec() };
        let id = self.op("primitive.constant_v1", &[], ty);
        if let Some((op, _)) = self.ops.last_mut() {
            op.properties = vec![Some(value)];
        }
        id
    }

    pub(super) fn op(&mut self, name: &'static str, operands: &[usize], result: Type) -> usize {
        self.ops(name, operands, &[result])
    }

    /// An operation of several results, of which the number of the first is given.
    pub(super) fn ops(&mut self, name: &'static str, operands: &[usize], results: &[Type]) -> usize {
        let op = Op {
            name: name.into(),
            properties: Vec::new(),
            operands: Vec::new(),
            results: results.to_vec(),
            regions: Vec::new(),
        };
        self.ops.push((op, operands.to_vec()));
        let first = self.values.len();
        self.values.extend(results.iter().map(|ty| (None, ty.clone())));
        first
    }

    /// The program, which gives one value.
    pub(super) fn finish(self, output: usize) -> Program {
        let (inputs, results): (Vec<_>, Vec<_>) =
            (0..self.values.len()).partition(|&id| self.values[id].0.is_some());
        let order: Vec<_> = inputs.iter().chain(&results).copied().collect();
        let number = |id: usize| ValueId(order.iter().position(|&other| other == id).unwrap() as u32);
        let mut ops = Vec::new();
        for (mut op, operands) in self.ops {
            op.operands = operands.into_iter().map(number).collect();
            ops.push(op);
        }
        ops.push(Op {
            name: "dataflow.output_v1".into(),
            properties: Vec::new(),
            operands: vec![number(output)],
            results: Vec::new(),
            regions: Vec::new(),
        });
        let port = |id: &usize| {
            let (name, ty) = self.values[*id].clone();
            Port { name: name.unwrap_or_else(|| "y".to_owned()), ty }
        };
        let inputs: Vec<_> = inputs.iter().map(port).collect();
        let graph = Graph {
            name: "main".to_owned(),
            outputs: vec![port(&output)],
            is_private: false,
            no_inline: false,
            externalize: false,
            composite: None,
            params: Attribute::Array(Vec::new()),
            body: Region { arguments: inputs.iter().map(|port| port.ty.clone()).collect(), ops },
            inputs,
        };
        let program = Program { version: 20_260_409, graphs: vec![graph] };
        verify(&program).unwrap();
        program
    }
}
