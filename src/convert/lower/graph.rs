//! A function under construction in the words of a transformer: named operations, weights, inputs whose shapes
//! are enumerated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use half::f16;

use super::enumerated::Enumerated;
use super::error::{LowerError, Result};
use super::weights::{WeightRequest, Weights};
use crate::model::{Linear, Weight};
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{Arg, BuildError, Builder, Function, Literal, Opset, Pending, TensorType, Type, ValueId};

/// Tensors are (batch, channels, 1, sequence) unless a name says otherwise.
pub(super) const CHANNELS: usize = 1;
pub(super) const SEQUENCE: usize = 3;

/// A function under construction.
pub(super) struct Graph<'w> {
    builder: Builder,
    weights: &'w mut Weights,
    name: String,
    /// Lengths that flexible inputs pair by.
    lengths: Vec<usize>,
    enumerated: Enumerated,
    used: BTreeSet<String>,
    /// Where the next operations belong, such as `layers_3_attention`.
    scope: String,
    window: Option<Window>,
    /// Constants that several parts of the function use.
    shared: BTreeMap<String, ValueId>,
}

/// The constants of a 1x1 convolution, one set per function.
#[derive(Clone, Copy)]
struct Window {
    ones: ValueId,
    valid: ValueId,
    zeros: ValueId,
    groups: ValueId,
}

/// A finished function and the shapes its inputs may have.
pub(super) struct Finished {
    pub(super) function: Function,
    pub(super) shapes: Enumerated,
}

impl<'w> Graph<'w> {
    pub(super) fn new(name: &str, opset: Opset, lengths: &[usize], weights: &'w mut Weights) -> Graph<'w> {
        Graph {
            builder: Builder::new(name, opset),
            weights,
            name: name.to_owned(),
            lengths: lengths.to_vec(),
            enumerated: Enumerated::default(),
            used: BTreeSet::new(),
            scope: String::new(),
            window: None,
            shared: BTreeMap::new(),
        }
    }

    /// Adds an input whose shape may depend on the length.
    pub(super) fn input(&mut self, name: &str, dtype: DType, shape: impl Fn(usize) -> [usize; 4]) -> ValueId {
        self.flexible(name, dtype, |length| shape(length).to_vec())
    }

    /// Adds an int32 matrix.
    pub(super) fn ids(&mut self, name: &str, shape: impl Fn(usize) -> [usize; 2]) -> ValueId {
        self.flexible(name, DType::I32, |length| shape(length).to_vec())
    }

    /// Adds an int32 vector of one element.
    pub(super) fn index(&mut self, name: &str) -> ValueId {
        self.flexible(name, DType::I32, |_| vec![1])
    }

    /// Adds a state.
    pub(super) fn state(&mut self, name: &str, shape: &[usize]) -> ValueId {
        self.used.insert(name.to_owned());
        self.builder.input(name, Type::State(TensorType::fixed(DType::F16, shape)))
    }

    /// Adds an input of one shape.
    pub(super) fn fixed(&mut self, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
        self.flexible(name, dtype, |_| shape.to_vec())
    }

    /// Adds a constant that is no weight of the model.
    pub(super) fn constant(&mut self, label: &str, literal: Literal) -> ValueId {
        let name = self.unique(label);
        self.builder.constant(&name, literal)
    }

    /// Adds an input of any rank whose shape may depend on the length.
    pub(super) fn flexible(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl Fn(usize) -> Vec<usize>,
    ) -> ValueId {
        let dims = self.enumerated.add(name, self.lengths.iter().map(|&length| shape(length)).collect());
        self.used.insert(name.to_owned());
        self.builder.input(name, TensorType::new(dtype, dims))
    }

    /// Builds a part of the model under its name.
    pub(super) fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = self.scope.clone();
        if !self.scope.is_empty() {
            self.scope.push('_');
        }
        self.scope.push_str(part);
        let built = build(self);
        self.scope = outer;
        built
    }

    /// Where the next operations belong.
    pub(super) fn scope(&self) -> &str {
        &self.scope
    }

    /// A label within the scope.
    pub(super) fn place(&self, label: &str) -> String {
        if self.scope.is_empty() { label.to_owned() } else { format!("{}_{label}", self.scope) }
    }

    fn unique(&mut self, label: &str) -> String {
        let name = self.place(label);
        let mut candidate = name.clone();
        let mut count = 1;
        while !self.used.insert(candidate.clone()) {
            count += 1;
            candidate = format!("{name}_{count}");
        }
        candidate
    }

    /// Adds an operation of one result.
    pub(super) fn push(
        &mut self,
        kind: &str,
        label: &str,
        give: impl FnOnce(Pending<'_>) -> Pending<'_>,
    ) -> Result {
        let name = self.unique(label);
        let pushed = give(self.builder.op(kind).named(&name)).push();
        pushed.map_err(|source| self.refused(source))
    }

    fn refused(&self, source: BuildError) -> LowerError {
        LowerError::Build { function: self.name.clone(), source }
    }

    /// `kind(x)`.
    pub(super) fn unary(&mut self, kind: &str, label: &str, x: ValueId) -> Result {
        self.push(kind, label, |op| op.arg("x", x))
    }

    /// `kind(x, y)`.
    pub(super) fn binary(&mut self, kind: &str, label: &str, x: impl Into<Arg>, y: impl Into<Arg>) -> Result {
        self.push(kind, label, |op| op.arg("x", x).arg("y", y))
    }

    /// `x` times a number.
    pub(super) fn scaled(&mut self, label: &str, x: ValueId, factor: f32) -> Result {
        if factor == 1.0 {
            return Ok(x);
        }
        let half = f16::from_f32(factor);
        if !half.is_finite() || (half == f16::ZERO && factor != 0.0) {
            let at = self.place(label);
            return Err(LowerError::model(&at, format!("fp16 has no number near the factor {factor}")));
        }
        self.binary("mul", label, x, half)
    }

    /// `x` with every element brought between two bounds.
    pub(super) fn clip(&mut self, label: &str, x: ValueId, bounds: Range<f32>) -> Result {
        let (low, high) = (f16::from_f32(bounds.start), f16::from_f32(bounds.end));
        self.push("clip", label, |op| op.arg("x", x).arg("alpha", low).arg("beta", high))
    }

    /// `1 / sqrt(x + epsilon)` in fp32.
    pub(super) fn rsqrt_f32(&mut self, label: &str, x: ValueId, epsilon: f32) -> Result {
        self.push("rsqrt", label, |op| op.arg("x", x).arg("epsilon", epsilon))
    }

    /// `1 / sqrt(x + epsilon)`.
    pub(super) fn rsqrt(&mut self, label: &str, x: ValueId, epsilon: f16) -> Result {
        self.push("rsqrt", label, |op| op.arg("x", x).arg("epsilon", epsilon))
    }

    /// Zeros after the last element of an axis of a rank 4 tensor of fp32.
    pub(super) fn zeros_after(&mut self, label: &str, x: ValueId, axis: usize, zeros: usize) -> Result {
        let mut pad = [0; 8];
        pad[2 * axis + 1] = int(zeros);
        self.push("pad", label, |op| {
            op.arg("x", x).arg("pad", pad).arg("mode", "constant").arg("constant_val", 0.0f32)
        })
    }

    /// A reduction that keeps the axis.
    pub(super) fn reduce(&mut self, kind: &str, label: &str, x: ValueId, axis: usize) -> Result {
        self.push(kind, label, |op| op.arg("x", x).arg("axes", [int(axis)]).arg("keep_dims", true))
    }

    /// Softmax along the last axis.
    pub(super) fn softmax(&mut self, label: &str, x: ValueId) -> Result {
        self.push("softmax", label, |op| op.arg("x", x).arg("axis", -1))
    }

    /// The exact Gaussian error linear unit.
    pub(super) fn gelu(&mut self, label: &str, x: ValueId) -> Result {
        self.push("gelu", label, |op| op.arg("x", x).arg("mode", "EXACT"))
    }

    /// The matrix product of the last two axes, either side transposed or not.
    pub(super) fn matmul(
        &mut self,
        label: &str,
        (x, transpose_x): (ValueId, bool),
        (y, transpose_y): (ValueId, bool),
    ) -> Result {
        self.push("matmul", label, |op| {
            op.arg("x", x).arg("y", y).arg("transpose_x", transpose_x).arg("transpose_y", transpose_y)
        })
    }

    /// The same elements in another shape; no size is the sequence's.
    pub(super) fn reshape<const N: usize>(
        &mut self,
        label: &str,
        x: ValueId,
        shape: [Option<usize>; N],
    ) -> Result {
        let shape = shape.map(|size| size.map_or(-1, int));
        self.push("reshape", label, |op| op.arg("x", x).arg("shape", shape))
    }

    /// Axes in another order.
    pub(super) fn transpose<const N: usize>(&mut self, label: &str, x: ValueId, order: [i32; N]) -> Result {
        self.push("transpose", label, |op| op.arg("x", x).arg("perm", order))
    }

    /// An axis of size one.
    pub(super) fn expand(&mut self, label: &str, x: ValueId, axis: usize) -> Result {
        self.push("expand_dims", label, |op| op.arg("x", x).arg("axes", [int(axis)]))
    }

    /// A range of one axis of a rank 4 tensor.
    pub(super) fn slice(&mut self, label: &str, x: ValueId, axis: usize, range: Range<usize>) -> Result {
        let (mut begin, mut end) = ([0; 4], [0; 4]);
        (begin[axis], end[axis]) = (int(range.start), int(range.end));
        let mut open = [true; 4];
        open[axis] = false;
        let open = self.bools(&open)?;
        self.push("slice_by_index", label, |op| {
            op.arg("x", x).arg("begin", begin).arg("end", end).arg("begin_mask", &open).arg("end_mask", &open)
        })
    }

    /// The end of the last axis of a rank 4 tensor, or all but its end.
    pub(super) fn split_last(&mut self, x: ValueId, tail: usize) -> Result<(ValueId, ValueId)> {
        let (at, all) = (self.bools(&[true, true, true, false])?, self.bools(&[true; 4])?);
        let edge = [0, 0, 0, -int(tail)];
        let head = self.push("slice_by_index", "past", |op| {
            op.arg("x", x).arg("begin", [0; 4]).arg("end", edge).arg("begin_mask", &all).arg("end_mask", &at)
        })?;
        let tail = self.push("slice_by_index", "own", |op| {
            op.arg("x", x).arg("begin", edge).arg("end", [0; 4]).arg("begin_mask", &at).arg("end_mask", &all)
        })?;
        Ok((head, tail))
    }

    fn bools(&self, values: &[bool]) -> Result<Tensor> {
        Tensor::from_bools(&[values.len()], values)
            .map_err(|e| LowerError::model(&self.scope, format!("mask of a slice: {e}")))
    }

    /// Values one after the other along an axis.
    pub(super) fn concat(&mut self, label: &str, values: &[ValueId], axis: usize) -> Result {
        match values {
            [only] => Ok(*only),
            _ => self.push("concat", label, |op| op.args("values", values).arg("axis", int(axis))),
        }
    }

    /// Integers one after the other, some of them computed.
    pub(super) fn indices(&mut self, label: &str, parts: [Arg; 3]) -> Result {
        self.push("concat", label, |op| {
            parts.into_iter().fold(op.arg("axis", 0), |op, p| op.arg("values", p))
        })
    }

    /// Rows of a table.
    pub(super) fn gather(&mut self, label: &str, table: ValueId, ids: ValueId) -> Result {
        self.push("gather", label, |op| op.arg("x", table).arg("indices", ids).arg("axis", 0))
    }

    /// The content of a state.
    pub(super) fn read_state(&mut self, label: &str, state: ValueId) -> Result {
        self.push("read_state", label, |op| op.arg("input", state))
    }

    /// Replaces the content of a state.
    pub(super) fn write_state(&mut self, state: ValueId, data: ValueId) -> Result<()> {
        let name = self.unique("write");
        let pushed = self.builder.op("write_state").named(&name).arg("input", state).arg("data", data);
        pushed.push_all().map(drop).map_err(|source| self.refused(source))
    }

    /// A rank 4 tensor with a part of its first and third axis replaced.
    pub(super) fn slice_update(
        &mut self,
        label: &str,
        (x, update): (ValueId, ValueId),
        (begin, end): (ValueId, ValueId),
    ) -> Result {
        let open = self.bools(&[false, true, false, true])?;
        self.push("slice_update", label, |op| {
            let op = op.arg("x", x).arg("update", update).arg("begin", begin).arg("end", end);
            op.arg("begin_mask", &open).arg("end_mask", &open)
        })
    }

    /// A weight of the model as a constant.
    pub(super) fn weight(&mut self, wanted: &WeightRequest<'_>) -> Result {
        let literal = self.weights.literal(wanted)?;
        let name = format!("{}_{}_{}", wanted.at, wanted.rows.start, wanted.rows.end);
        let name = if wanted.rows.len() == wanted.expected[0] { wanted.at.to_owned() } else { name };
        let scope = std::mem::take(&mut self.scope);
        let name = self.unique(&name);
        self.scope = scope;
        Ok(self.builder.constant(&name, literal))
    }

    /// A whole weight as a constant of another shape.
    pub(super) fn whole(
        &mut self,
        label: &str,
        weight: &Weight,
        expected: &[usize],
        shape: &[usize],
    ) -> Result {
        let at = self.place(label);
        self.weight(&WeightRequest { at: &at, weight, expected, rows: 0..expected[0], shape })
    }

    /// A linear map as a 1x1 convolution.
    pub(super) fn linear(
        &mut self,
        label: &str,
        x: ValueId,
        linear: &Linear,
        (out, into): (usize, usize),
    ) -> Result {
        self.within(label, |graph| {
            let weight = graph.whole("weight", &linear.weight, &[out, into], &[out, into, 1, 1])?;
            let bias = match &linear.bias {
                Some(bias) => Some(graph.whole("bias", bias, &[out], &[out])?),
                None => None,
            };
            graph.conv("out", x, weight, bias)
        })
    }

    /// A convolution of each channel with its own `[channels, 1, 1, kernel]`, over so many zeros before the first token.
    pub(super) fn depthwise(
        &mut self,
        label: &str,
        x: ValueId,
        (weight, bias): (ValueId, Option<ValueId>),
        (channels, zeros): (usize, usize),
    ) -> Result {
        let Window { ones, valid, zeros: no_pad, .. } = self.window();
        self.push("conv", label, |op| {
            let op = op.arg("x", x).arg("weight", weight).arg("strides", ones);
            let op = match zeros {
                0 => op.arg("pad_type", valid).arg("pad", no_pad),
                zeros => op.arg("pad_type", "custom").arg("pad", [0, 0, int(zeros), 0]),
            };
            let op = op.arg("dilations", ones).arg("groups", int(channels));
            match bias {
                Some(bias) => op.arg("bias", bias),
                None => op,
            }
        })
    }

    /// The same numbers as another type.
    pub(super) fn cast(&mut self, label: &str, x: ValueId, dtype: &str) -> Result {
        self.push("cast", label, |op| op.arg("x", x).arg("dtype", dtype))
    }

    /// A 1x1 convolution.
    pub(super) fn conv(&mut self, label: &str, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Result {
        let Window { ones, valid, zeros, groups } = self.window();
        self.push("conv", label, |op| {
            let op = op.arg("x", x).arg("weight", weight).arg("strides", ones).arg("pad_type", valid);
            let op = op.arg("pad", zeros).arg("dilations", ones).arg("groups", groups);
            match bias {
                Some(bias) => op.arg("bias", bias),
                None => op,
            }
        })
    }

    /// A constant that is made once, whatever asks for it.
    pub(super) fn shared_constant(&mut self, name: &str, tensor: &Tensor) -> ValueId {
        if let Some(&known) = self.shared.get(name) {
            return known;
        }
        self.used.insert(name.to_owned());
        let id = self.builder.constant(name, Literal::immediate(tensor));
        self.shared.insert(name.to_owned(), id);
        id
    }

    fn window(&mut self) -> Window {
        let Graph { builder, window, .. } = self;
        *window.get_or_insert_with(|| {
            let mut constant = |name: &str, value: Arg| match value {
                Arg::Value(id) => id,
                Arg::Constant(literal) => builder.constant(name, literal),
            };
            Window {
                ones: constant("window_ones", [1, 1].into()),
                valid: constant("window_pad_type", "valid".into()),
                zeros: constant("window_pad", [0; 4].into()),
                groups: constant("window_groups", 1.into()),
            }
        })
    }

    /// Ends the function; outputs get the names its users see.
    pub(super) fn finish(self, outputs: &[(String, ValueId)]) -> Finished {
        let ids: Vec<ValueId> = outputs.iter().map(|&(_, id)| id).collect();
        let mut function = self.builder.finish(&ids);
        for (name, id) in outputs {
            function.values[id.index()].name.clone_from(name);
        }
        Finished { function, shapes: self.enumerated }
    }
}

/// A size as MIL writes it. Sizes that matter come from tensors in memory or were checked before.
fn int(size: usize) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}
