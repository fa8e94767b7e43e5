//! How far the rounding of fp16 may take the outputs of a network: its twin in fp32, with noise of the size of rounding
//! errors behind every operation, is run several times.
//!
//! With `u` half of the spacing of numbers of a type (2^-11 for fp16), rounding one number is off by at most `u`, `u / sqrt(3)` as a
//! root mean square. A sum of `n` products that is rounded after every addition is off by that of all partial sums, of which
//! the `k`-th is `sqrt(k / n)` of the whole where signs are random; that makes `sqrt(n / 2)` roundings of the whole, and the
//! products are rounded too, which makes another:
//!
//! ```text
//! noise(n) = u / sqrt(3) x sqrt(n / 2 + 1) x the root mean square of the operation's output (along its last axis)
//! ```
//!
//! What a network makes of such errors is its own: a number between zero and one that comes out of a sum of terms that cancel
//! each other amplifies them, a memory carries them along. So nothing is assumed of that; the twin shows it.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};

use anemeter::cost::Cost;
use anemeter::graph::Graph;
use anemeter::kernels::convert::to_f32;
use anemeter::mil::widen::widened;
use anemeter::mil::{Argument, Binding, Literal, Model, Operation, ValueId};
use anemeter::package::Package;
use anemeter::runtime::{self, LoadOptions, Observer, OpExecution};
use anemeter::tensor::{DType, Tensor};
use anyhow::{Context, Result};

use super::foreign::{Tensors, distance};

/// Times the twin is run: the size of an error is known within a fifth then.
const DRAWS: u64 = 16;
/// How many times the size of an error may be found: an error of a normal distribution is larger once in 16,000 times.
const MOST_SIZES: f64 = 4.0;

/// Where a network rounds: an output of an operation.
struct Site {
    output: ValueId,
    /// How many terms each element is the sum of.
    terms: f64,
    /// Half of the spacing of the numbers of its type, relative to them.
    unit: f64,
    /// The root mean square of what is around each element, and the shape.
    sizes: Vec<f32>,
    shape: Vec<usize>,
}

/// How often sums are rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sums {
    /// When they are finished.
    Once,
    /// After every addition.
    EveryTime,
}

/// A network whose rounding is simulated.
pub(super) struct Rounding {
    twin: Model,
    function: String,
    inputs: Tensors,
    sites: Vec<Site>,
    /// Outputs without any rounding to fp16.
    truth: Tensors,
}

impl Rounding {
    /// Of a package at its default function, with such inputs.
    pub(super) fn of(package: &Package, inputs: &Tensors) -> Result<Rounding> {
        let model = package.model();
        let function = model.default_function().to_owned();
        let inputs: Tensors = inputs.iter().map(|(name, tensor)| (name.clone(), in_f32(tensor))).collect();
        let twin = widened(model.clone());
        let mut rounding = Rounding { twin, function, inputs, sites: Vec::new(), truth: Tensors::new() };
        let (truth, seen) = rounding.run(rounding.twin.clone())?;
        rounding.truth = truth;
        let body = model.program.functions.iter().find(|one| one.name == rounding.function);
        let graph = Graph::new(body.context("no default function")?, model.interface(&rounding.function), 0);
        rounding.sites = sites(&graph, &seen);
        Ok(rounding)
    }

    /// The most that each output may be off one whose numbers were rounded once after each operation, relative to its size.
    pub(super) fn limits(&self, sums: Sums) -> Result<BTreeMap<String, f64>> {
        // The expected values were rounded as well.
        let (own, expected) = (self.sizes(sums)?, self.sizes(Sums::Once)?);
        let limit = |(name, own): (String, f64)| {
            let expected = expected.get(&name).copied().unwrap_or(0.0);
            (name, MOST_SIZES * own.hypot(expected))
        };
        Ok(own.into_iter().map(limit).collect())
    }

    /// How far noise takes each output from the truth: a root mean square over several draws.
    fn sizes(&self, sums: Sums) -> Result<BTreeMap<String, f64>> {
        let mut squares: BTreeMap<String, f64> = BTreeMap::new();
        for seed in 0..DRAWS {
            let (noisy, _) = self.run(self.with_noise(sums, seed))?;
            for (name, found) in noisy {
                let off = distance(&found.view(), &self.truth[&name].view())?;
                *squares.entry(name).or_default() += off * off / DRAWS as f64;
            }
        }
        Ok(squares.into_iter().map(|(name, square)| (name, square.sqrt())).collect())
    }

    /// The outputs of a twin, and what its operations gave, by the name of their first output.
    fn run(&self, model: Model) -> Result<(Tensors, HashMap<String, Vec<Vec<f32>>>)> {
        let outputs: Vec<String> = {
            let interface = model.interface(&self.function).context("no interface")?;
            interface.outputs.iter().map(|output| output.name.clone()).collect()
        };
        let options = LoadOptions { fuse: false, ..LoadOptions::default() };
        let loaded = runtime::cpu().load_model(model, &options)?;
        let mut session = loaded.session();
        session.observe(Some(Box::new(Seen::default())));
        let views: Vec<_> = self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        session.predict(&self.function, &views)?;
        let seen = session.observe(None).and_then(|seen| seen.into_any().downcast::<Seen>().ok());
        let mut found = Tensors::new();
        for name in outputs {
            let view = session.output(&name).with_context(|| format!("gives no `{name}`"))?;
            let tensor = Tensor::new(view.dtype(), view.shape().into(), view.bytes().to_vec().into())?;
            found.insert(name, tensor);
        }
        Ok((found, seen.context("nobody has watched")?.0))
    }

    /// The twin with something added to what is rounded.
    fn with_noise(&self, sums: Sums, seed: u64) -> Model {
        let mut model = self.twin.clone();
        let mut random = fastrand::Rng::with_seed(seed);
        let function = model.program.functions.iter_mut().find(|one| one.name == self.function);
        let function = function.expect("the twin has the functions of its model");
        let mut sites: HashMap<ValueId, &Site> = self.sites.iter().map(|site| (site.output, site)).collect();
        let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
        let operations = std::mem::take(&mut function.body.operations);
        for mut operation in operations {
            rename(&mut operation, &renamed);
            let outputs = operation.outputs.clone();
            function.body.operations.push(operation);
            for output in outputs {
                let Some(site) = sites.remove(&output) else { continue };
                let value = &mut function.values[output.index()];
                let name = std::mem::replace(&mut value.name, format!("exact_{}", output.index()));
                let ty = value.ty.clone();
                let noisy = function.add_value(&name, ty);
                function.body.operations.push(add(output, &site.noise(sums, &mut random), noisy));
                renamed.insert(output, noisy);
            }
        }
        for output in &mut function.body.outputs {
            *output = renamed.get(output).copied().unwrap_or(*output);
        }
        model
    }
}

impl Site {
    fn noise(&self, sums: Sums, random: &mut fastrand::Rng) -> Tensor {
        let roundings =
            if sums == Sums::EveryTime && self.terms > 1.0 { self.terms / 2.0 + 1.0 } else { 1.0 };
        let share = self.unit / 3f64.sqrt() * roundings.sqrt();
        let noise: Vec<f32> =
            self.sizes.iter().map(|&size| (f64::from(size) * share * normal(random)) as f32).collect();
        Tensor::from_slice(&self.shape, &noise).expect("there is a size for each element")
    }
}

/// Where a program rounds, given what its operations give: behind arithmetic. What only moves numbers is exact.
fn sites(graph: &Graph<'_>, seen: &HashMap<String, Vec<Vec<f32>>>) -> Vec<Site> {
    let mut sites = Vec::new();
    for op in graph.runtime_ops() {
        let flops = Cost::of(graph, &op).flops;
        let first = op.output().map(|id| graph.name(id)).unwrap_or_default();
        let Some(outputs) = seen.get(first).filter(|_| flops > 0) else { continue };
        let elements = outputs.first().map_or(1, Vec::len).max(1);
        for (&output, values) in op.operation.outputs.iter().zip(outputs) {
            let unit = match graph.ty(output).map(|ty| ty.dtype) {
                Some(DType::F16) => 2f64.powi(-11),
                Some(DType::F32) => 2f64.powi(-24),
                _ => continue,
            };
            let Some(shape) = graph.dims(output) else { continue };
            // A multiply-add is two operations.
            let terms = (flops as f64 / elements as f64 / 2.0).max(1.0);
            let sizes = sizes(values, shape.last().copied().unwrap_or(1));
            sites.push(Site { output, terms, unit, sizes, shape: shape.to_vec() });
        }
    }
    sites
}

/// The root mean square of the row of each element; of all where rows have one element.
fn sizes(values: &[f32], row: usize) -> Vec<f32> {
    let row = if row > 1 { row } else { values.len().max(1) };
    let size = |row: &[f32]| {
        let square: f64 = row.iter().map(|&value| f64::from(value).powi(2)).sum();
        vec![(square / row.len() as f64).sqrt() as f32; row.len()]
    };
    values.chunks(row).flat_map(size).collect()
}

/// A number of the normal distribution (Box and Muller 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// Has an operation take values by their new ids.
fn rename(operation: &mut Operation, renamed: &HashMap<ValueId, ValueId>) {
    for binding in operation.inputs.iter_mut().flat_map(|argument| &mut argument.bindings) {
        if let Binding::Value(id) = binding {
            *id = renamed.get(id).copied().unwrap_or(*id);
        }
    }
}

fn add(value: ValueId, noise: &Tensor, sum: ValueId) -> Operation {
    let argument =
        |parameter: &str, binding| Argument { parameter: parameter.to_owned(), bindings: vec![binding] };
    let inputs = vec![
        argument("x", Binding::Value(value)),
        argument("y", Binding::Literal(Literal::immediate(noise))),
    ];
    Operation { kind: "add".to_owned(), inputs, outputs: vec![sum], ..Operation::default() }
}

fn in_f32(tensor: &Tensor) -> Tensor {
    if tensor.dtype() != DType::F16 {
        return tensor.clone();
    }
    let view = tensor.view();
    let mut values = vec![0.0; view.len()];
    to_f32(&view, 0..view.len(), &mut values);
    Tensor::from_slice(view.shape(), &values).expect("there are as many as before")
}

/// What operations gave, by the name of their first output.
#[derive(Default)]
struct Seen(HashMap<String, Vec<Vec<f32>>>);

impl Observer for Seen {
    fn executed(&mut self, step: &OpExecution<'_>) {
        let floats = step.outputs.iter().map(|view| {
            let mut values = vec![0.0; view.len()];
            if view.dtype() == DType::F32 {
                to_f32(view, 0..view.len(), &mut values);
            }
            values
        });
        self.0.insert(step.name.to_owned(), floats.collect());
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use anemeter::mil::op::Numerics;
    use anemeter::mil::verify::verify;
    use anemeter::mil::{Builder, Opset, TensorType};
    use anemeter::package::{WriteOptions, write};
    use half::f16;

    use super::*;

    /// A sum of products with a positive mean, and its square root.
    fn package(folder: &std::path::Path, terms: usize) -> Package {
        let mut random = fastrand::Rng::with_seed(3);
        let weights: Vec<f16> = (0..8 * terms).map(|_| f16::from_f32(random.f32() - 0.4)).collect();
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F16, &[1, terms]));
        let weights = main.constant("w", Literal::blob(&Tensor::from_slice(&[8, terms], &weights).unwrap()));
        let y = main.op("linear").arg("x", x).arg("weight", weights).named("y").push().unwrap();
        let square = main.op("mul").arg("x", y).arg("y", y).named("square").push().unwrap();
        let model = Model::single(main.finish(&[square]));
        let path = folder.join("sum.mlpackage");
        write(&verify(model).unwrap(), &path, WriteOptions { overwrite: true, ..WriteOptions::default() })
            .unwrap();
        Package::open(path).unwrap()
    }

    #[test]
    fn longer_sums_may_be_further_off_and_what_a_runtime_rounds_is_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut limits = Vec::new();
        for terms in [16, 1024] {
            let package = package(folder.path(), terms);
            let mut random = fastrand::Rng::with_seed(4);
            let x: Vec<f16> = (0..terms).map(|_| f16::from_f32(random.f32() - 0.3)).collect();
            let inputs: Tensors =
                [("x".to_owned(), Tensor::from_slice(&[1, terms], &x).unwrap())].into_iter().collect();
            let rounding = Rounding::of(&package, &inputs).unwrap();
            let [once, every_time] =
                [Sums::Once, Sums::EveryTime].map(|sums| rounding.limits(sums).unwrap()["square"]);
            assert!((1e-3..8e-3).contains(&once) && every_time > 1.5 * once, "{once} {every_time}");
            for (numerics, limit) in [(Numerics::Fast, once), (Numerics::Fp16Exact, every_time)] {
                let options = LoadOptions { numerics, ..LoadOptions::default() };
                let loaded = runtime::cpu().load_model(package.model().clone(), &options).unwrap();
                let mut session = loaded.session();
                session.predict("main", &[("x", inputs["x"].view())]).unwrap();
                let found = in_f32_view(&session.output("square").unwrap());
                let off = distance(&found.view(), &rounding.truth["square"].view()).unwrap();
                assert!(off <= limit, "{numerics:?}: {off}, {limit}");
            }
            limits.push(every_time);
        }
        assert!(limits[1] > 4.0 * limits[0], "{limits:?}");
    }

    fn in_f32_view(view: &anemeter::tensor::TensorView<'_>) -> Tensor {
        in_f32(&Tensor::new(view.dtype(), view.shape().into(), view.bytes().to_vec().into()).unwrap())
    }
}
