//! `--foreign`: packages that others published, predicted in both numerics, against expected values that come with them,
//! and compiled models against the packages that they were compiled from.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anemeter::kernels::convert::to_f32;
use anemeter::mil::op::Numerics;
use anemeter::package::Package;
use anemeter::runtime::{self, LoadOptions, Runtime, synthetic_inputs};
use anemeter::tensor::{DType, Tensor, TensorView};
use anyhow::{Context, Result, anyhow, bail, ensure};
use safetensors::tensor::{Dtype, SafeTensors};
use xtask::outcome::Outcome;
use xtask::project::Project;

use super::corpus::folders;

/// How far an output may be from what is expected: the root mean square of the difference, relative to that of the values.
///
/// Expected values are rounded to fp16 after each operation. `fast` rounds where tensors are stored, at most as often;
/// `fp16-exact` rounds after every addition of a sum as well. The limits are round numbers above what was found, 8 and 64
/// units of fp16 (2^-11), and not derived from the networks: docs/conformance.md has the figures.
const LIMITS: [(Numerics, f64); 2] = [(Numerics::Fast, 1.0 / 256.0), (Numerics::Fp16Exact, 1.0 / 32.0)];

/// What is refused, by the end of its name, and what the message must say.
const REFUSED: [(&str, &str); 1] = [("lfs_pointer.mlpackage", "is a Git LFS pointer")];

type Tensors = BTreeMap<String, Tensor>;

/// Predicts every sample in both numerics and opens what must be refused.
pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    let folder = project.shared.join("samples-foreign");
    if !folder.is_dir() {
        return Ok(Outcome::not_checked("published packages", "the samples are not beside the repository"));
    }
    let samples = folders(&folder, |path| path.is_dir())?;
    let (mut predicted, mut compiled, mut refused, mut faults) = (0, 0, 0, 0);
    for sample in samples.iter().take(limit.unwrap_or(usize::MAX)) {
        let outcome = match REFUSED.iter().find(|(ending, _)| sample.to_string_lossy().ends_with(ending)) {
            Some((_, says)) => is_refused(sample, says).map(|()| refused += 1),
            None if sample.extension().is_some_and(|ending| ending == "mlmodelc") => {
                predict_compiled(sample).map(|()| compiled += 1)
            }
            None => predict(sample).map(|()| predicted += 1),
        };
        if let Err(error) = outcome {
            faults += 1;
            println!("{}: {error:#}", sample.file_name().unwrap_or_default().to_string_lossy());
        }
    }
    let text = format!(
        "{predicted} published packages as expected in both numerics, {compiled} compiled models as their packages to \
         the byte, {refused} refused"
    );
    ensure!(predicted + faults > 0, "{} holds no packages", folder.display());
    ensure!(faults == 0, "{text}; {faults} are not");
    Ok(Outcome::Checked(text))
}

fn is_refused(sample: &Path, says: &str) -> Result<()> {
    match Package::open(sample) {
        Ok(_) => bail!("is not refused"),
        Err(error) if error.to_string().contains(says) => Ok(()),
        Err(error) => bail!("is refused otherwise: {error}"),
    }
}

/// Predicts a sample in each numerics; every problem is in the error.
fn predict(sample: &Path) -> Result<()> {
    let (inputs, expected) = (
        read(&sample.with_extension("in.safetensors"))?,
        read(&sample.with_extension("expected.safetensors"))?,
    );
    let package = Package::open(sample)?;
    let mut problems = Vec::new();
    for (numerics, limit) in LIMITS {
        let loaded = runtime::cpu().load(&package, &LoadOptions { numerics, ..LoadOptions::default() })?;
        let function = loaded.model().default_function().to_owned();
        let mut session = loaded.session();
        let views: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        session.predict(&function, &views)?;
        for (name, expected) in &expected {
            let error = match session.output(name) {
                Some(found) => distance(&found, &expected.view())?,
                None => bail!("gives no output `{name}`"),
            };
            if error.is_nan() || error > limit {
                problems
                    .push(format!("`{name}` is off by {error:.1e} in {numerics:?}, allowed is {limit:.1e}"));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    Ok(())
}

/// Predicts a compiled model and the package of the same name, whose outputs must be the same to the byte. One without a
/// package is only run.
fn predict_compiled(sample: &Path) -> Result<()> {
    let compiled = Package::open(sample)?;
    let original = sample.with_extension("mlpackage");
    let interface =
        compiled.model().interface(compiled.model().default_function()).context("no interface")?;
    let inputs: Tensors = match original.is_dir() {
        true => read(&sample.with_extension("in.safetensors"))?,
        false => synthetic_inputs(interface)?.into_iter().collect(),
    };
    for (numerics, _) in LIMITS {
        let found = outputs(&compiled, &inputs, numerics)?;
        ensure!(!found.is_empty(), "gives no outputs");
        if original.is_dir() {
            let expected = outputs(&Package::open(&original)?, &inputs, numerics)?;
            ensure!(found == expected, "gives other outputs than its package in {numerics:?}");
        }
    }
    Ok(())
}

/// The bytes of every output, by name.
fn outputs(package: &Package, inputs: &Tensors, numerics: Numerics) -> Result<BTreeMap<String, Vec<u8>>> {
    let loaded = runtime::cpu().load(package, &LoadOptions { numerics, ..LoadOptions::default() })?;
    let function = loaded.model().default_function().to_owned();
    let interface = package.model().interface(&function).context("no interface")?;
    let mut session = loaded.session();
    let views: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
    session.predict(&function, &views)?;
    let bytes = interface.outputs.iter().map(|output| {
        let view = session.output(&output.name).with_context(|| format!("gives no `{}`", output.name))?;
        Ok((output.name.clone(), view.bytes().to_vec()))
    });
    bytes.collect()
}

/// The root mean square of the difference, relative to that of what is expected.
fn distance(found: &TensorView<'_>, expected: &TensorView<'_>) -> Result<f64> {
    ensure!(found.shape() == expected.shape(), "has shape {:?}, not {:?}", found.shape(), expected.shape());
    let floats = |view: &TensorView<'_>| {
        let mut values = vec![0.0; view.len()];
        to_f32(view, 0..view.len(), &mut values);
        values
    };
    let (found, expected) = (floats(found), floats(expected));
    let differences = found.iter().zip(&expected).map(|(&a, &b)| f64::from(a) - f64::from(b));
    let size = sum_of_squares(expected.iter().map(|&value| value.into()));
    Ok((sum_of_squares(differences) / size.max(f64::MIN_POSITIVE)).sqrt())
}

fn sum_of_squares(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum()
}

fn read(path: &Path) -> Result<Tensors> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let named = tensors.iter().map(|(name, view)| {
        let dtype = match view.dtype() {
            Dtype::F16 => DType::F16,
            Dtype::F32 => DType::F32,
            Dtype::I32 => DType::I32,
            other => bail!("{}: `{name}` is {other:?}", path.display()),
        };
        Ok((name.to_owned(), Tensor::new(dtype, view.shape().into(), view.data().to_vec().into())?))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_relative_and_never_hide_what_is_no_number() {
        let tensor = |values: &[f32]| Tensor::from_slice(&[values.len()], values).unwrap();
        let off = |found: &[f32], expected: &[f32]| {
            distance(&tensor(found).view(), &tensor(expected).view()).unwrap()
        };
        assert_eq!(off(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert!((off(&[3.0, 4.5], &[3.0, 4.0]) - 0.1).abs() < 1e-12);
        assert!(off(&[f32::NAN, 4.0], &[3.0, 4.0]).is_nan());
        assert!(distance(&tensor(&[1.0]).view(), &tensor(&[1.0, 2.0]).view()).is_err());
    }
}
