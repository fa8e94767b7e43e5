//! The decoder's pieces as MIL.

use anemeter::mil::{Arg, Builder, Dim, Function, Literal, Opset, TensorType, Type, ValueId};
use anemeter::tensor::{DType, Tensor};
use half::f16;

use super::decoder::{CONTEXT, Decoder, HIDDEN, VOCABULARY};

/// A function of the decoder under construction.
pub(crate) struct Graph<'a> {
    function: Builder,
    decoder: &'a Decoder,
    /// Constants so far, which give them their names.
    constants: usize,
}

/// Positions of a piece, as vectors of one number each.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) begin: ValueId,
    pub(crate) end: ValueId,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(name: &str, decoder: &'a Decoder) -> Graph<'a> {
        Graph { function: Builder::new(name, Opset::Ios18), decoder, constants: 0 }
    }

    pub(crate) fn finish(self, outputs: &[ValueId]) -> Function {
        self.function.finish(outputs)
    }

    /// An input; a size of 0 is open.
    pub(crate) fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
        let dims = shape.iter().map(|&size| if size == 0 { Dim::Unknown } else { Dim::from(size) });
        self.function.input(name, TensorType::new(dtype, dims.collect()))
    }

    pub(crate) fn state(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.function.input(name, Type::State(TensorType::fixed(DType::F16, shape)))
    }

    pub(crate) fn op<const N: usize>(&mut self, kind: &str, arguments: [(&str, Arg); N]) -> ValueId {
        self.named("", kind, arguments)
    }

    pub(crate) fn named<const N: usize>(
        &mut self,
        name: &str,
        kind: &str,
        arguments: [(&str, Arg); N],
    ) -> ValueId {
        let op = arguments.into_iter().fold(self.function.op(kind), |op, (key, value)| op.arg(key, value));
        if name.is_empty() { op.push().unwrap() } else { op.named(name).push().unwrap() }
    }

    pub(crate) fn write(&mut self, state: ValueId, data: ValueId) {
        self.function.op("write_state").arg("input", state).arg("data", data).push_all().unwrap();
    }

    pub(crate) fn read(&mut self, state: ValueId) -> ValueId {
        self.op("read_state", [("input", state.into())])
    }

    /// A matrix of the decoder.
    fn weight(&mut self, values: &[f32]) -> ValueId {
        self.halves(&[values.len() / HIDDEN, HIDDEN], values)
    }

    pub(crate) fn halves(&mut self, shape: &[usize], values: &[f32]) -> ValueId {
        let values: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
        self.constant(Literal::blob(&Tensor::from_slice(shape, &values).unwrap()))
    }

    fn constant(&mut self, literal: Literal) -> ValueId {
        self.constants += 1;
        self.function.constant(&format!("constant_{}", self.constants), literal)
    }

    /// Token vectors `[1, n, hidden]`.
    pub(crate) fn embed(&mut self, name: &str, ids: ValueId) -> ValueId {
        let decoder = self.decoder;
        let table = self.weight(&decoder.table);
        self.named(name, "gather", [("x", table.into()), ("indices", ids.into()), ("axis", 0.into())])
    }

    /// Adds the vectors of positions from one to another.
    pub(crate) fn place_span(&mut self, x: ValueId, span: Span) -> ValueId {
        let decoder = self.decoder;
        let places = self.weight(&decoder.places);
        let begin = self.vector(&[span.begin.into(), [0].into()]);
        let end = self.vector(&[span.end.into(), [HIDDEN as i32].into()]);
        let rows =
            self.op("slice_by_index", [("x", places.into()), ("begin", begin.into()), ("end", end.into())]);
        self.op("add", [("x", x.into()), ("y", rows.into())])
    }

    /// Adds the vectors of given positions.
    pub(crate) fn place(&mut self, x: ValueId, positions: ValueId) -> ValueId {
        let decoder = self.decoder;
        let places = self.weight(&decoder.places);
        let rows =
            self.op("gather", [("x", places.into()), ("indices", positions.into()), ("axis", 0.into())]);
        self.op("add", [("x", x.into()), ("y", rows.into())])
    }

    /// Query, key or value of a layer, `[1, n, hidden]`.
    pub(crate) fn project(&mut self, x: ValueId, layer: usize, which: usize) -> ValueId {
        let decoder = self.decoder;
        let weight = self.weight(&decoder.layers[layer][which]);
        self.op("linear", [("x", x.into()), ("weight", weight.into())])
    }

    /// What a layer adds to `x`, with keys and values `[1, m, hidden]` and a mask `[1, n, m]`.
    pub(crate) fn attend(&mut self, x: ValueId, layer: usize, [keys, values, mask]: [ValueId; 3]) -> ValueId {
        let query = self.project(x, layer, 0);
        let scores =
            self.op("matmul", [("x", query.into()), ("y", keys.into()), ("transpose_y", true.into())]);
        let scores = self.op("add", [("x", scores.into()), ("y", mask.into())]);
        let weights = self.op("softmax", [("x", scores.into()), ("axis", (-1).into())]);
        let mixed = self.op("matmul", [("x", weights.into()), ("y", values.into())]);
        self.op("add", [("x", x.into()), ("y", mixed.into())])
    }

    /// Logits of tokens from one to another.
    pub(crate) fn logits(&mut self, name: &str, x: ValueId, tokens: std::ops::Range<usize>) -> ValueId {
        let decoder = self.decoder;
        let rows = &decoder.table[tokens.start * HIDDEN..tokens.end * HIDDEN];
        let weight = self.weight(rows);
        self.named(name, "linear", [("x", x.into()), ("weight", weight.into())])
    }

    pub(crate) fn all_logits(&mut self, x: ValueId) -> ValueId {
        self.logits("logits", x, 0..VOCABULARY)
    }

    /// A size of a value, as a vector of one number.
    pub(crate) fn size(&mut self, x: ValueId, axis: i32) -> ValueId {
        let shape = self.op("shape", [("x", x.into())]);
        self.op("slice_by_index", [("x", shape.into()), ("begin", [axis].into()), ("end", [axis + 1].into())])
    }

    /// Values one after the other along an axis.
    pub(crate) fn concat(&mut self, name: &str, values: &[ValueId], axis: i32) -> ValueId {
        let concat = self.function.op("concat").args("values", values);
        concat.arg("axis", axis).arg("interleave", false).named(name).push().unwrap()
    }

    /// Numbers one after the other.
    pub(crate) fn vector(&mut self, parts: &[Part]) -> ValueId {
        let parts: Vec<ValueId> = parts.iter().map(|part| self.part(part)).collect();
        let concat = self.function.op("concat").args("values", &parts);
        concat.arg("axis", 0).arg("interleave", false).push().unwrap()
    }

    fn part(&mut self, part: &Part) -> ValueId {
        match part {
            Part::Value(id) => *id,
            Part::Numbers(numbers) => {
                self.constant(Literal::immediate(&Tensor::from_slice(&[numbers.len()], numbers).unwrap()))
            }
        }
    }

    /// Some rows of a cache replaced, `begin` and `end` in all dimensions.
    pub(crate) fn update(&mut self, cache: ValueId, new: ValueId, begin: ValueId, end: ValueId) -> ValueId {
        self.op(
            "slice_update",
            [("x", cache.into()), ("update", new.into()), ("begin", begin.into()), ("end", end.into())],
        )
    }

    pub(crate) fn slice(&mut self, x: ValueId, begin: ValueId, end: ValueId) -> ValueId {
        self.op("slice_by_index", [("x", x.into()), ("begin", begin.into()), ("end", end.into())])
    }

    pub(crate) fn squeeze(&mut self, x: ValueId, axes: &[i32]) -> ValueId {
        self.op("squeeze", [("x", x.into()), ("axes", axes.into())])
    }

    pub(crate) fn expand(&mut self, x: ValueId, axes: &[i32]) -> ValueId {
        self.op("expand_dims", [("x", x.into()), ("axes", axes.into())])
    }

    /// A causal mask `[1, n, n]` for a length that is known when it runs.
    pub(crate) fn causal(&mut self, length: ValueId) -> ValueId {
        let hidden = |at: usize| if at % CONTEXT > at / CONTEXT { f32::NEG_INFINITY } else { 0.0 };
        let values: Vec<f32> = (0..CONTEXT * CONTEXT).map(hidden).collect();
        let mask = self.halves(&[1, CONTEXT, CONTEXT], &values);
        let begin = self.vector(&[vec![0, 0, 0].into()]);
        let end = self.vector(&[vec![1].into(), length.into(), length.into()]);
        self.slice(mask, begin, end)
    }
}

/// A part of a vector of numbers.
pub(crate) enum Part {
    Value(ValueId),
    Numbers(Vec<i32>),
}

impl From<ValueId> for Part {
    fn from(id: ValueId) -> Part {
        Part::Value(id)
    }
}

impl From<Vec<i32>> for Part {
    fn from(numbers: Vec<i32>) -> Part {
        Part::Numbers(numbers)
    }
}

impl<const N: usize> From<[i32; N]> for Part {
    fn from(numbers: [i32; N]) -> Part {
        Part::Numbers(numbers.to_vec())
    }
}
