//! Packages against outputs that any framework computed: inputs and expected outputs from a safetensors file.
//!
//! A tensor belongs to the input or output of its name. Samples after the first are numbered: `image.0`, `image.1`. Where
//! an input and an output share a name, `in.` and `out.` before it say which is meant.

use std::sync::Arc;

use serde::Serialize;

use super::trace::{TensorDivergence, divergence};
use crate::tensor_files::{NamedTensor, NamedTensors, as_declared};
use anemeter_base::vocabulary::StateUse;
use anemeter_kernels::convert::{to_f32, to_ints};
use anemeter_kernels::tensor::{Tensor, TensorView};
use anemeter_mil::Interface;
use anemeter_runtime::{LoadedModel, Session};

/// How outputs are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceOptions {
    /// The most that an element may be off, as a share of the largest magnitude that is expected.
    pub tolerance: f64,
    /// What a sample finds in the states of its package.
    pub states: StateUse,
}

/// An output of one sample against what was expected.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReferenceOutput {
    /// The package.
    pub package: String,
    /// The function.
    pub function: String,
    /// The number of the sample.
    pub sample: usize,
    /// How far it is off.
    #[serde(flatten)]
    pub divergence: TensorDivergence,
    /// The largest difference of an element as a share of the largest magnitude that is expected; absent if something is
    /// not finite.
    pub max_rel: Option<f64>,
    /// Whether that is within the tolerance.
    pub passed: bool,
}

/// Every output that the file expects.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReferenceReport {
    /// Format and version.
    pub schema: &'static str,
    /// Digest of the file.
    pub digest: String,
    /// Samples that were run.
    pub samples: usize,
    /// The most that an element may be off.
    pub tolerance: f64,
    /// The outputs, sample by sample.
    pub outputs: Vec<ReferenceOutput>,
    /// What was changed about inputs to make them what functions take.
    pub notes: Vec<String>,
    /// Whether all outputs are within the tolerance.
    pub passed: bool,
}

/// Format and version of the report.
const SCHEMA: &str = "anemeter.verify-reference/1";

/// Runs every function that the file has inputs and outputs of. An error says why none is comparable.
pub fn compare_with_reference(
    packages: &[(String, Arc<dyn LoadedModel>)],
    file: &NamedTensors,
    options: &ReferenceOptions,
) -> Result<ReferenceReport, String> {
    let (mut outputs, mut notes, mut samples) = (Vec::new(), Vec::new(), 0);
    let mut missing = Vec::new();
    for (package, loaded) in packages {
        for interface in loaded.model().interfaces() {
            let expected = Expected::of(interface, file);
            if let Some(problem) = expected.problem() {
                missing.push(format!("`{}` of {package}: {problem}", interface.function));
                continue;
            }
            samples += expected.samples;
            let mut session = Arc::clone(loaded).session();
            for sample in 0..expected.samples {
                if options.states == StateUse::Fresh && sample > 0 {
                    session = Arc::clone(loaded).session();
                }
                notes.extend(expected.predict(&mut *session, sample)?);
                for (name, tensor) in expected.outputs(sample) {
                    let judged = judge(&*session, (interface, name), tensor, options.tolerance)?;
                    outputs.push(ReferenceOutput { package: package.clone(), sample, ..judged });
                }
            }
        }
    }
    if outputs.is_empty() {
        return Err(format!("fits no function: {}", missing.join("; ")));
    }
    notes.sort();
    notes.dedup();
    let passed = outputs.iter().all(|output| output.passed);
    let (digest, tolerance) = (file.digest.clone(), options.tolerance);
    Ok(ReferenceReport { schema: SCHEMA, digest, samples, tolerance, outputs, notes, passed })
}

/// What the file has for a function.
struct Expected<'a> {
    interface: &'a Interface,
    /// Tensors of each input and output, one for all samples or one for each.
    inputs: Vec<(&'a str, Vec<&'a Tensor>)>,
    outputs: Vec<(&'a str, Vec<&'a Tensor>)>,
    /// An input that must be given and is not.
    missing: Option<&'a str>,
    samples: usize,
}

impl<'a> Expected<'a> {
    fn of(interface: &'a Interface, file: &'a NamedTensors) -> Expected<'a> {
        let is_input = |name: &str| interface.inputs.iter().any(|feature| feature.name == name);
        let inputs = interface.inputs.iter();
        let inputs = inputs.map(|f| (f.name.as_str(), tensors(file, "in.", &f.name, true)));
        let outputs = interface.outputs.iter();
        let outputs = outputs.map(|f| (f.name.as_str(), tensors(file, "out.", &f.name, !is_input(&f.name))));
        let inputs: Vec<_> = inputs.collect();
        let optional = |name: &str| interface.inputs.iter().any(|f| f.name == name && f.optional);
        let missing = inputs.iter().find(|(name, found)| found.is_empty() && !optional(name));
        let missing = missing.map(|(name, _)| *name);
        let outputs: Vec<_> = outputs.filter(|(_, found)| !found.is_empty()).collect();
        let counts = inputs.iter().chain(&outputs).map(|(_, found)| found.len());
        let samples = counts.max().unwrap_or(0);
        Expected { interface, inputs, outputs, missing, samples }
    }

    /// Why it cannot be compared, if it cannot.
    fn problem(&self) -> Option<String> {
        if let Some(name) = self.missing {
            return Some(format!("has no tensor `{name}` or `{name}.0` for its input"));
        }
        if self.outputs.is_empty() {
            return Some("has no tensor of the name of an output".to_owned());
        }
        let mut counted = self.inputs.iter().chain(&self.outputs);
        let odd = counted.find(|(_, found)| ![0, 1, self.samples].contains(&found.len()));
        odd.map(|(name, found)| {
            format!("has {} tensors of `{name}` and {} of another", found.len(), self.samples)
        })
    }

    fn outputs(&self, sample: usize) -> impl Iterator<Item = (&'a str, &'a Tensor)> + '_ {
        self.outputs.iter().map(move |(name, found)| (*name, found[sample.min(found.len() - 1)]))
    }

    /// Predicts a sample; gives what was changed about its inputs.
    fn predict(&self, session: &mut dyn Session, sample: usize) -> Result<Vec<String>, String> {
        let given = self.inputs.iter().filter(|(_, found)| !found.is_empty());
        let given: Vec<NamedTensor> = given
            .map(|(name, found)| ((*name).to_owned(), found[sample.min(found.len() - 1)].clone()))
            .collect();
        let (inputs, notes) = as_declared(Some(self.interface), given)?;
        let views: Vec<(&str, TensorView<'_>)> =
            inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        let function = &self.interface.function;
        session.predict(function, &views).map_err(|e| format!("sample {sample} of `{function}`: {e}"))?;
        Ok(notes)
    }
}

/// The tensors of a name: the one of the name itself, or those that are numbered.
fn tensors<'a>(file: &'a NamedTensors, prefix: &str, name: &str, plain: bool) -> Vec<&'a Tensor> {
    let names = [Some(format!("{prefix}{name}")), plain.then(|| name.to_owned())];
    for name in names.into_iter().flatten() {
        if let Some(tensor) = file.tensors.get(&name) {
            return vec![tensor];
        }
        let numbered: Vec<&Tensor> =
            (0..).map_while(|number| file.tensors.get(&format!("{name}.{number}"))).collect();
        if !numbered.is_empty() {
            return numbered;
        }
    }
    Vec::new()
}

/// An output of the last prediction against what is expected.
fn judge(
    session: &dyn Session,
    (interface, name): (&Interface, &str),
    expected: &Tensor,
    tolerance: f64,
) -> Result<ReferenceOutput, String> {
    let function = &interface.function;
    let found = session.output(name);
    let found = found.ok_or_else(|| format!("`{function}` gives no tensor `{name}` to compare"))?;
    if found.shape() != expected.shape() {
        let (is, wanted) = (found.shape(), expected.shape());
        return Err(format!("`{function}` gives `{name}` with the shape {is:?}, expected {wanted:?}"));
    }
    let (found, expected) = (values(&found)?, values(&expected.view())?);
    let largest = expected.iter().map(|x| f64::from(x.abs())).fold(0.0, f64::max);
    let divergence = divergence(name, &found, &expected);
    let max_rel = divergence.max_abs.map(|off| match (off == 0.0, largest == 0.0) {
        (true, _) => 0.0,
        (false, true) => f64::INFINITY,
        (false, false) => off / largest,
    });
    let passed = max_rel.is_some_and(|off| off <= tolerance);
    let (package, function) = (String::new(), function.clone());
    Ok(ReferenceOutput { package, function, sample: 0, divergence, max_rel, passed })
}

/// Any numbers as f32.
fn values(view: &TensorView<'_>) -> Result<Vec<f32>, String> {
    if view.dtype().is_float() {
        let mut values = vec![0.0; view.len()];
        to_f32(view, 0..view.len(), &mut values);
        return Ok(values);
    }
    let whole = to_ints(view).map_err(|error| error.to_string())?;
    Ok(whole.iter().map(|&value| value as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Model, Opset, TensorType, Type};
    use anemeter_runtime::{LoadOptions, cpu};

    /// `y = x + s`, and `s` becomes `y`.
    fn package() -> Vec<(String, Arc<dyn LoadedModel>)> {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F16, &[2]));
        let state = main.input("s", Type::State(TensorType::fixed(DType::F16, &[2])));
        let old = main.op("read_state").arg("input", state).push().unwrap();
        let y = main.op("add").arg("x", x).arg("y", old).named("y").push().unwrap();
        main.op("write_state").arg("input", state).arg("data", y).push_all().unwrap();
        let model = Model::single(main.finish(&[y]));
        vec![("a.mlpackage".to_owned(), cpu().load_model(model, &LoadOptions::default()).unwrap())]
    }

    fn file(tensors: &[(&str, [f32; 2])]) -> NamedTensors {
        let tensor = |values: &[f32; 2]| Tensor::from_slice(&[2], values).unwrap();
        let tensors = tensors.iter().map(|(name, values)| ((*name).to_owned(), tensor(values)));
        NamedTensors { tensors: tensors.collect(), digest: "xxh3:0".to_owned() }
    }

    fn compare(file: &NamedTensors, states: StateUse) -> Result<ReferenceReport, String> {
        compare_with_reference(&package(), file, &ReferenceOptions { tolerance: 0.01, states })
    }

    #[test]
    fn samples_are_numbered_and_states_are_fresh_or_kept() {
        let tensors = [("x.0", [1.0, 2.0]), ("y.0", [1.0, 2.0]), ("x.1", [1.0, 0.0]), ("y.1", [2.0, 2.0])];
        let kept = compare(&file(&tensors), StateUse::Kept).unwrap();
        assert!(kept.passed && kept.samples == 2 && kept.outputs.len() == 2);
        assert_eq!(kept.notes, ["input x: fp32 values converted to fp16"]);
        let fresh = compare(&file(&tensors), StateUse::Fresh).unwrap();
        let judged: Vec<_> = fresh.outputs.iter().map(|output| (output.sample, output.passed)).collect();
        assert_eq!((judged, fresh.passed), (vec![(0, true), (1, false)], false));
        assert_eq!(fresh.outputs[1].max_rel, Some(1.0));
    }

    #[test]
    fn files_that_do_not_fit_are_told_why() {
        let problem = |tensors: &[(&str, [f32; 2])]| compare(&file(tensors), StateUse::Fresh).unwrap_err();
        let none = "fits no function: `main` of a.mlpackage: has no tensor";
        assert_eq!(problem(&[("y", [0.0; 2])]), format!("{none} `x` or `x.0` for its input"));
        assert_eq!(problem(&[("in.x", [0.0; 2])]), format!("{none} of the name of an output"));
        let mut uneven = file(&[("x", [0.0; 2])]);
        uneven.tensors.insert("out.y".to_owned(), Tensor::from_slice(&[1], &[0.0f32]).unwrap());
        let error = compare(&uneven, StateUse::Fresh).unwrap_err();
        assert_eq!(error, "`main` gives `y` with the shape [2], expected [1]");
    }
}
