//! A case under construction: a function of one operation with random inputs.

use anyhow::Result;
use fastrand::Rng;

use anemeter::mil::{Builder, Function, Opset, Pending, TensorType, Type, ValueId};
use anemeter::tensor::{DType, Tensor};

/// A function of one operation, what it is given, and how exact it has to be.
pub(super) struct Case {
    pub(super) op: String,
    /// What tells it from others of the operation.
    pub(super) name: String,
    pub(super) function: Function,
    pub(super) inputs: Vec<(String, Tensor)>,
    pub(super) states: Vec<(String, Tensor)>,
    pub(super) tolerance: f32,
}

/// A case under construction.
pub(super) struct Making<'r> {
    pub(super) rng: &'r mut Rng,
    pub(super) builder: Builder,
    inputs: Vec<(String, Tensor)>,
    states: Vec<(String, Tensor)>,
    name: String,
}

/// The tolerance of what is rounded a few times in fp32.
pub(super) const CLOSE: f32 = 2e-5;
/// The tolerance of sums of a few hundred fp32 products.
pub(super) const SUMS: f32 = 1e-4;

impl<'r> Making<'r> {
    pub(super) fn new(rng: &'r mut Rng) -> Making<'r> {
        let builder = Builder::new("main", Opset::Ios18);
        Making { rng, builder, inputs: Vec::new(), states: Vec::new(), name: String::new() }
    }

    /// Makes it a function of another opset.
    pub(super) fn of(&mut self, opset: Opset) {
        self.builder = Builder::new("main", opset);
    }

    /// A random shape of so many axes, with sizes up to `most`.
    pub(super) fn shape(&mut self, rank: usize, most: usize) -> Vec<usize> {
        (0..rank).map(|_| self.rng.usize(1..=most)).collect()
    }

    /// Random numbers.
    pub(super) fn floats(&mut self, shape: &[usize], range: (f32, f32)) -> Result<Tensor> {
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| range.0 + self.rng.f32() * (range.1 - range.0)).collect();
        Ok(Tensor::from_slice(shape, &values)?)
    }

    /// Random integers.
    pub(super) fn ints(&mut self, shape: &[usize], range: std::ops::Range<i32>) -> Result<Tensor> {
        let count = shape.iter().product();
        let values: Vec<i32> = (0..count).map(|_| self.rng.i32(range.clone())).collect();
        Ok(Tensor::from_slice(shape, &values)?)
    }

    /// Random booleans. None can be an input, so that they are made of numbers.
    pub(super) fn bools(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        let numbers = self.ints(shape, 0..2)?;
        let numbers = self.given(name, numbers);
        Ok(self
            .builder
            .op("cast")
            .arg("x", numbers)
            .arg("dtype", "bool")
            .named(&format!("{name}_flags"))
            .push()?)
    }

    /// An input that holds a tensor.
    pub(super) fn given(&mut self, name: &str, tensor: Tensor) -> ValueId {
        let id = self.builder.input(name, TensorType::fixed(tensor.dtype(), tensor.shape()));
        self.name.push_str(&format!(
            "{}{name}{:?}",
            if self.name.is_empty() { "" } else { " " },
            tensor.shape()
        ));
        self.inputs.push((name.to_owned(), tensor));
        id
    }

    /// An input of random numbers.
    pub(super) fn input(&mut self, name: &str, shape: &[usize], range: (f32, f32)) -> Result<ValueId> {
        let tensor = self.floats(shape, range)?;
        Ok(self.given(name, tensor))
    }

    /// A state that holds random numbers.
    pub(super) fn state(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        let tensor = self.floats(shape, (-1.0, 1.0))?;
        self.states.push((name.to_owned(), tensor));
        Ok(self.builder.input(name, Type::State(TensorType::fixed(DType::F32, shape))))
    }

    /// Adds to what tells the case from others.
    pub(super) fn note(&mut self, text: &str) {
        self.name.push_str(&format!(" {text}"));
    }

    /// Ends with an operation whose results are the outputs.
    pub(super) fn done(
        mut self,
        op: &str,
        tolerance: f32,
        give: impl FnOnce(Pending<'_>) -> Pending<'_>,
    ) -> Result<Case> {
        let mut outputs = give(self.builder.op(op).named("out")).push_all()?;
        for output in &mut outputs {
            // No boolean can be an output.
            if self.builder.ty(*output).tensor().is_some_and(|ty| ty.dtype == DType::Bool) {
                let numbers =
                    self.builder.op("cast").arg("x", *output).arg("dtype", "int32").named("numbers");
                *output = numbers.push()?;
            }
        }
        Ok(self.end(op, tolerance, &outputs))
    }

    /// Ends with these outputs.
    pub(super) fn end(self, op: &str, tolerance: f32, outputs: &[ValueId]) -> Case {
        let Making { builder, inputs, states, name, .. } = self;
        Case { op: op.to_owned(), name, function: builder.finish(outputs), inputs, states, tolerance }
    }
}
