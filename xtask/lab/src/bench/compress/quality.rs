//! How near the weights of two compressed packages are to the original.

use std::collections::BTreeMap;
use std::path::Path;

use anemeter::mil::op::{KnownValue, Numerics, Weight};
use anemeter::mil::propagate::{Facts, Options, propagate};
use anemeter::mil::{Binding, Function};
use anemeter::package::Package;
use anyhow::{Context, Result, ensure};

/// Elements that are compared at a time.
const STEP: usize = 1 << 16;
/// Decibels that may be due to the order of a sum.
const ALLOWANCE: f64 = 1e-3;

/// Signal to noise of each weight: its name, ours and theirs.
pub(super) struct Comparison {
    pub(super) weights: Vec<(String, f64, f64)>,
}

impl Comparison {
    pub(super) fn mean_ours(&self) -> f64 {
        self.weights.iter().map(|weight| weight.1).sum::<f64>() / self.weights.len() as f64
    }

    pub(super) fn mean_theirs(&self) -> f64 {
        self.weights.iter().map(|weight| weight.2).sum::<f64>() / self.weights.len() as f64
    }

    /// Weights that are farther from the original than theirs.
    pub(super) fn worse(&self) -> Vec<&(String, f64, f64)> {
        self.weights.iter().filter(|weight| weight.1 < weight.2 - ALLOWANCE).collect()
    }

    /// Whether no weight is worse, nor all of them together.
    pub(super) fn is_no_worse(&self) -> bool {
        self.worse().is_empty() && self.mean_ours() >= self.mean_theirs() - ALLOWANCE
    }

    /// The gain of the weights that gain least and most.
    pub(super) fn text(&self, kind: &str) -> String {
        let gains = || self.weights.iter().map(|(name, ours, theirs)| (ours - theirs, name));
        let by_gain = |a: &(f64, &String), b: &(f64, &String)| a.0.total_cmp(&b.0);
        match (gains().min_by(by_gain), gains().max_by(by_gain)) {
            (Some(least), Some(most)) => format!(
                "{kind}: SNR is {:.3} dB better at least (`{}`), {:.3} dB at most (`{}`)",
                least.0, least.1, most.0, most.1
            ),
            _ => format!("{kind}: no weights"),
        }
    }
}

/// Compares both packages with the original, weight by weight.
pub(super) fn compare(original: &Path, ours: &Path, theirs: &Path) -> Result<Comparison> {
    let packages = [original, ours, theirs].map(Package::open);
    let [original, ours, theirs] = packages.each_ref().map(|package| match package {
        Ok(package) => Weights::of(package),
        Err(error) => Err(anyhow::anyhow!("{error}")),
    });
    let (original, ours, theirs) = (original?, ours?, theirs?);
    let mut weights = Vec::new();
    for place in original.places.keys() {
        let (Some(a), Some(b)) = (ours.compressed(place), theirs.compressed(place)) else { continue };
        let plain = original.weight(place).context("the original has the weight")?;
        weights.push((place.clone(), snr(&plain, &a)?, snr(&plain, &b)?));
    }
    ensure!(!weights.is_empty(), "the packages have no compressed weight in common");
    Ok(Comparison { weights })
}

/// Weights by the operation and parameter they are given to: names of constants differ.
struct Weights {
    facts: Facts,
    places: BTreeMap<String, usize>,
}

impl Weights {
    fn of(package: &Package) -> Result<Weights> {
        let function = package.model().program.functions.first().context("the package has no function")?;
        let inputs: Vec<_> = function.inputs.iter().map(|&id| (id, function.value(id).ty.clone())).collect();
        let options = Options { fold_bytes: 0, trust_declared: true, numerics: Numerics::Fast };
        let (facts, _) = propagate(function, &inputs, options);
        Ok(Weights { facts, places: places(function) })
    }

    fn weight(&self, place: &str) -> Option<Weight<'_>> {
        match self.facts.known[*self.places.get(place)?].as_ref()? {
            KnownValue::Tensor(tensor) => Some(Weight::Dense(tensor.view())),
            KnownValue::Packed(packed) => Some(Weight::Packed(&**packed)),
        }
    }

    fn compressed(&self, place: &str) -> Option<Weight<'_>> {
        self.weight(place).filter(|weight| matches!(weight, Weight::Packed(_)))
    }
}

fn places(function: &Function) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    for op in &function.body.operations {
        let Some(&output) = op.outputs.first() else { continue };
        for argument in op.inputs.iter().filter(|_| !op.kind.starts_with("constexpr_")) {
            if let [Binding::Value(id)] = argument.bindings[..] {
                let place = format!("{}.{}", function.value(output).name, argument.parameter);
                places.insert(place, id.index());
            }
        }
    }
    places
}

fn snr(original: &Weight<'_>, compressed: &Weight<'_>) -> Result<f64> {
    ensure!(original.shape() == compressed.shape(), "a weight has another shape than before");
    let count: usize = original.shape().iter().product();
    let (mut a, mut b) = (vec![0.0; STEP], vec![0.0; STEP]);
    let (mut signal, mut noise) = (0.0, 0.0);
    for start in (0..count).step_by(STEP) {
        let end = count.min(start + STEP);
        original.read(start..end, &mut a);
        compressed.read(start..end, &mut b);
        for (&x, &y) in a[..end - start].iter().zip(&b) {
            signal += f64::from(x).powi(2);
            noise += (f64::from(x) - f64::from(y)).powi(2);
        }
    }
    Ok(10.0 * (signal / noise.max(f64::MIN_POSITIVE)).log10())
}
