//! Two packages without a checkpoint: the tensors that both compute under one name, given the same inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::watch::{Keep, TensorsToKeep, Watch, WatchedTensors};
use super::{relative_error, watched};
use crate::generate::Driver;
use crate::verify::VerifyError;
use crate::verify::metrics::NonFinite;
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::{Tensor, TensorView};
use anemeter_measure::stats::cosine;
use anemeter_mil::graph::{Graph, layer_in};
use anemeter_mil::{ArrayType, FeatureType, Interface, Model};
use anemeter_runtime::{LoadedModel, synthetic_inputs};

/// Elements of a tensor that are compared each time it is computed.
const SAMPLE: usize = 4096;

/// A tensor of one package against that of the same name in another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorDivergence {
    /// The tensor.
    pub tensor: String,
    /// The layer that its name speaks of.
    pub layer: Option<u32>,
    /// Elements compared; of large tensors an even sample.
    pub elements: usize,
    /// Length of the difference over the length of the other package's tensor; absent if something is not finite.
    pub error: Option<f64>,
    /// Cosine of the angle between both; absent if something is not finite.
    pub cosine: Option<f64>,
    /// Largest difference of an element; absent if something is not finite.
    pub max_abs: Option<f64>,
    /// Elements that are NaN or infinite.
    pub not_finite: usize,
}

/// A function of two packages, given the same inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackageComparison {
    /// The function.
    pub function: String,
    /// Outputs that both have, in order.
    pub outputs: Vec<TensorDivergence>,
    /// Tensors that both compute under one name and shape, in the order of the first package.
    pub tensors: Vec<TensorDivergence>,
}

/// Runs the same sequence through two bundles and compares the tensors that share names, in the first's order.
pub fn compare_bundles(
    (a, models_a): (&mut Driver, &[&Model]),
    (b, models_b): (&mut Driver, &[&Model]),
    run: (&[u32], usize, usize),
) -> Result<Vec<TensorDivergence>, String> {
    let shared: BTreeSet<&str> = names(models_a).intersection(&names(models_b)).copied().collect();
    let wanted = wanted(&shared);
    let seen = |driver: &mut Driver, chunks: usize| {
        watched(driver, &vec![wanted.clone(); chunks], run).map(|(seen, _)| seen)
    };
    Ok(divergences(&seen(a, models_a.len())?, &seen(b, models_b.len())?))
}

/// Runs every function that two packages share on pseudo-random inputs, the same for both and every time.
pub fn compare_packages(
    a: &Arc<dyn LoadedModel>,
    b: &Arc<dyn LoadedModel>,
) -> Result<Vec<PackageComparison>, VerifyError> {
    let shared: BTreeSet<&str> = names(&[a.model()]).intersection(&names(&[b.model()])).copied().collect();
    let wanted = wanted(&shared);
    let mut comparisons = Vec::new();
    for interface in a.model().interfaces() {
        let Some(other) = b.model().interface(&interface.function) else { continue };
        let inputs = inputs(interface, other).map_err(VerifyError::Packages)?;
        let (outputs_a, seen_a) = predict(a, interface, &inputs, &wanted).map_err(VerifyError::Packages)?;
        let (outputs_b, seen_b) = predict(b, interface, &inputs, &wanted).map_err(VerifyError::Packages)?;
        let outputs = outputs_a.iter().filter_map(|(name, found)| {
            let expected = outputs_b.get(name)?;
            (expected.len() == found.len()).then(|| divergence(name, found, expected))
        });
        comparisons.push(PackageComparison {
            function: interface.function.clone(),
            outputs: outputs.collect(),
            tensors: divergences(&[seen_a], &[seen_b]),
        });
    }
    match comparisons.is_empty() {
        true => Err(VerifyError::Nothing("the packages have no function in common")),
        false => Ok(comparisons),
    }
}

fn names<'m>(models: &[&'m Model]) -> BTreeSet<&'m str> {
    let functions = models.iter().flat_map(|model| {
        model
            .program
            .functions
            .iter()
            .map(|function| Graph::new(function, model.interface(&function.name), 0))
    });
    let named = |graph: Graph<'m>| -> Vec<&'m str> {
        graph.runtime_ops().filter_map(|op| op.output()).map(|id| graph.name(id)).collect()
    };
    functions.flat_map(named).collect()
}

fn wanted(shared: &BTreeSet<&str>) -> TensorsToKeep {
    Arc::new(shared.iter().map(|&name| (name.to_owned(), Keep::Sample(SAMPLE))).collect())
}

/// Tensors that both have seen equally often and in the same sizes.
fn divergences(a: &[WatchedTensors], b: &[WatchedTensors]) -> Vec<TensorDivergence> {
    let mut found = Vec::new();
    for seen in a {
        for range in &seen.ranges {
            let name = &range.tensor;
            let others = b.iter().find_map(|seen| seen.kept.get(name));
            let (Some(ours), Some(others)) = (seen.kept.get(name), others) else { continue };
            if ours.iter().map(Vec::len).eq(others.iter().map(Vec::len)) {
                found.push(divergence(name, &ours.concat(), &others.concat()));
            }
        }
    }
    found
}

/// How far a tensor is from what is expected.
pub(in crate::verify) fn divergence(name: &str, found: &[f32], expected: &[f32]) -> TensorDivergence {
    let lost = NonFinite::of(found);
    let error = relative_error(expected, found);
    let differences = found.iter().zip(expected).map(|(&f, &e)| (f64::from(f) - f64::from(e)).abs());
    TensorDivergence {
        tensor: name.to_owned(),
        layer: layer_in(name),
        elements: found.len(),
        error,
        cosine: error.map(|_| cosine(expected, found)),
        max_abs: error.map(|_| differences.fold(0.0, f64::max)),
        not_finite: lost.nan + lost.inf,
    }
}

type Outputs = BTreeMap<String, Vec<f32>>;

fn predict(
    loaded: &Arc<dyn LoadedModel>,
    interface: &Interface,
    inputs: &[(String, Tensor)],
    wanted: &TensorsToKeep,
) -> Result<(Outputs, WatchedTensors), String> {
    let mut session = loaded.clone().session();
    session.observe(Some(Box::new(Watch::new(wanted.clone()))));
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
    let function = &interface.function;
    session.predict(function, &views).map_err(|error| format!("`{function}`: {error}"))?;
    let seen = session.observe(None).and_then(Watch::take);
    let seen = seen.ok_or("the runtime does not show what it computes")?;
    let mut outputs = Outputs::new();
    for feature in &interface.outputs {
        let Some(view) = session.output(&feature.name).filter(|view| view.dtype().is_float()) else {
            continue;
        };
        let mut values = vec![0.0; view.len()];
        to_f32(&view, 0..view.len(), &mut values);
        outputs.insert(feature.name.clone(), values);
    }
    Ok((outputs, seen))
}

/// Made-up inputs that both packages take.
fn inputs(interface: &Interface, other: &Interface) -> Result<Vec<(String, Tensor)>, String> {
    for feature in &interface.inputs {
        let at = format!("input `{}` of `{}`", feature.name, interface.function);
        let twin = other.inputs.iter().find(|twin| twin.name == feature.name);
        let twin = twin.ok_or_else(|| format!("the other package has no {at}"))?;
        let (FeatureType::Array(array), FeatureType::Array(twin)) = (&feature.ty, &twin.ty) else {
            return Err(format!("{at} is not a tensor; only functions of tensors can be compared"));
        };
        if (&array.shape, array.dtype) != (&twin.shape, twin.dtype) {
            let ArrayType { dtype, shape, .. } = twin;
            let (own, own_shape) = (array.dtype, &array.shape);
            return Err(format!("{at} is {own} {own_shape:?}, the other package's is {dtype} {shape:?}"));
        }
    }
    synthetic_inputs(interface).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::package::{Package, WriteOptions, write};
    use anemeter_mil::verify::verify;
    use anemeter_mil::{Builder, Literal, Opset, TensorType};
    use anemeter_runtime::{LoadOptions, Runtime};

    /// `relu(x + w)` and `relu(x + w) * w` under names that both share.
    fn loaded(weight: f32, folder: &std::path::Path) -> Arc<dyn LoadedModel> {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F16, &[1, 4]));
        let weights = [half::f16::from_f32(weight); 4];
        let w = main.constant("w", Literal::blob(&Tensor::from_slice(&[1, 4], &weights).unwrap()));
        let sum = main.op("add").arg("x", x).arg("y", half::f16::ONE).named("layers_0_sum").push().unwrap();
        let out = main.op("mul").arg("x", sum).arg("y", w).named("layers_1_out").push().unwrap();
        let model = verify(Model::single(main.finish(&[out]))).unwrap();
        let path = folder.join(format!("{weight}.mlpackage"));
        write(&model, &path, WriteOptions::default()).unwrap();
        anemeter_runtime::cpu().load(&Package::open(&path).unwrap(), &LoadOptions::default()).unwrap()
    }

    #[test]
    fn the_tensor_that_differs_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (loaded(1.0, folder.path()), loaded(2.0, folder.path()));
        let same = compare_packages(&one, &one).unwrap();
        assert!(same[0].tensors.iter().chain(&same[0].outputs).all(|tensor| tensor.error == Some(0.0)));
        let found = &compare_packages(&two, &one).unwrap()[0];
        let errors: Vec<_> = found.tensors.iter().map(|t| (t.tensor.as_str(), t.layer, t.error)).collect();
        assert_eq!(errors, [("layers_0_sum", Some(0), Some(0.0)), ("layers_1_out", Some(1), Some(1.0))]);
        assert_eq!((found.outputs[0].error, found.outputs[0].cosine), (Some(1.0), Some(1.0)));
    }
}
