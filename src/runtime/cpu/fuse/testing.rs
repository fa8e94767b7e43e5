//! Running small functions, for the tests of patterns.

use std::any::Any;
use std::sync::{Arc, Mutex};

use half::f16;

use crate::{CpuRuntime, LoadOptions, Observer, OpExecution};
use anemeter_kernels::tensor::Tensor;
use anemeter_mil::{Arg, Builder, Function, Model, ValueId};

pub(super) fn halves(shape: &[usize], value: impl Fn(usize) -> f32) -> Tensor {
    let values: Vec<f16> = (0..shape.iter().product()).map(|i| f16::from_f32(value(i))).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// The norm of channels as an export writes it, and an intermediate value of it.
pub(super) fn push_norm(f: &mut Builder, x: ValueId, channels: usize, root: Option<f32>) -> [ValueId; 2] {
    let weight = halves(&[1, channels, 1, 1], |i| 0.5 + (i % 5) as f32 / 4.0);
    let mut op = |kind: &str, args: Vec<(&str, Arg)>| -> ValueId {
        args.into_iter().fold(f.op(kind), |op, (name, arg)| op.arg(name, arg)).push().unwrap()
    };
    let reduce = |x: ValueId| vec![("x", x.into()), ("axes", [1].into()), ("keep_dims", true.into())];
    let magnitude = op("abs", vec![("x", x.into())]);
    let largest = op("reduce_max", reduce(magnitude));
    let divisor = op("maximum", vec![("x", largest.into()), ("y", f16::from_f32(1.0 / 256.0).into())]);
    let factor = op("real_div", vec![("x", f16::ONE.into()), ("y", divisor.into())]);
    let scaled = op("mul", vec![("x", x.into()), ("y", factor.into())]);
    let squares = op("mul", vec![("x", scaled.into()), ("y", scaled.into())]);
    let mut variance = op("reduce_mean", reduce(squares));
    if let Some(root) = root {
        let root = op("mul", vec![("x", factor.into()), ("y", f16::from_f32(root).into())]);
        let square = op("mul", vec![("x", root.into()), ("y", root.into())]);
        variance = op("add", vec![("x", variance.into()), ("y", square.into())]);
    }
    let inverse = op("rsqrt", vec![("x", variance.into()), ("epsilon", f16::from_bits(1).into())]);
    let normal = op("mul", vec![("x", scaled.into()), ("y", inverse.into())]);
    [op("mul", vec![("x", normal.into()), ("y", (&weight).into())]), scaled]
}

/// The first output of a function of `x`, and the kinds of the steps executed.
pub(super) fn executed(function: Function, x: &Tensor) -> (Vec<f32>, Vec<String>) {
    executed_with(function, &[("x", x)])
}

/// The same for any inputs.
pub(super) fn executed_with(function: Function, inputs: &[(&str, &Tensor)]) -> (Vec<f32>, Vec<String>) {
    let (values, steps) = counted_with(function, inputs);
    (values, steps.into_iter().map(|(kind, _)| kind).collect())
}

/// The same with the operations that each step is said to take.
pub(super) fn counted_with(
    function: Function,
    inputs: &[(&str, &Tensor)],
) -> (Vec<f32>, Vec<(String, usize)>) {
    let output = function.value(function.body.outputs[0]).name.clone();
    let loaded = CpuRuntime.load_model(Model::single(function), &LoadOptions::default()).unwrap();
    let mut session = loaded.session();
    let kinds = Arc::new(Mutex::new(Vec::new()));
    session.observe(Some(Box::new(Kinds(kinds.clone()))));
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
    session.predict("main", &inputs).unwrap();
    let found = session.output(&output).unwrap();
    let values = found.slice::<f16>().unwrap().iter().map(|x| x.to_f32()).collect();
    let kinds = kinds.lock().unwrap().clone();
    (values, kinds)
}

pub(super) fn sum(steps: &[(String, usize)]) -> usize {
    steps.iter().map(|(_, flops)| flops).sum()
}

struct Kinds(Arc<Mutex<Vec<(String, usize)>>>);

impl Observer for Kinds {
    fn executed(&mut self, step: &OpExecution<'_>) {
        self.0.lock().unwrap().push((step.kind.to_owned(), step.flops));
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
