//! `--architectures`: small checkpoints of every architecture, lowered in every form, against transformers.

use std::fs;
use std::path::Path;

use anemeter::checkpoint;
use anemeter::mil::op::Numerics;
use anemeter::model;
use anemeter::{lower::Options, vocabulary::KvForm};
use anyhow::{Context, Result, ensure};
use safetensors::{Dtype, SafeTensors};

use super::corpus;
use super::validator::Validator;
use crate::tiny_checkpoints;
use host::Host;
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};

#[path = "../../../../../tests/it/lower/host.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "a part of the integration tests")]
mod host;

const WHAT: &str = "architectures";
const FORMS: [KvForm; 3] = [KvForm::Io, KvForm::State, KvForm::None];
/// The least likeness of the logits of a position.
const REQUIRED_COSINE: f64 = 0.9999;

/// A sequence and the logits of each of its positions.
struct Sequence {
    ids: Vec<i32>,
    logits: Vec<Vec<f32>>,
}

/// How like the logits were.
struct Agreement {
    positions: usize,
    worst: f64,
}

/// Lowers, writes, validates and executes every checkpoint.
pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    let Some(checkpoints) = tiny_checkpoints::make(project)? else {
        return Ok(Outcome::not_checked(WHAT, "there is no python3"));
    };
    let output = project.target.join("conformance/architectures");
    make_empty(&output)?;
    let mut folders = corpus::folders(&checkpoints, Path::is_dir)?;
    folders.truncate(limit.unwrap_or(usize::MAX));
    let (mut packages, mut positions, mut worst, mut failed) = (Vec::new(), 0, 1.0f64, 0);
    for folder in &folders {
        let name = folder.file_name().and_then(|name| name.to_str()).context("a checkpoint has no name")?;
        match compare(folder, &output.join(name)) {
            Ok(agreement) => {
                println!(
                    "{name:<22} {:>4} positions, least cosine {:.7}",
                    agreement.positions, agreement.worst
                );
                positions += agreement.positions;
                worst = worst.min(agreement.worst);
                packages.push(output.join(name).join("model.mlpackage"));
            }
            Err(error) => {
                eprintln!("{name}: {error:#}");
                failed += 1;
            }
        }
    }
    let text = format!("{} checkpoints, {positions} positions, least cosine {worst:.7}", folders.len());
    ensure!(failed == 0, "{failed} of {text}");
    let Some(validator) = Validator::find(project)? else {
        return Ok(Outcome::not_checked(WHAT, &format!("{text}, but there is no validator of packages")));
    };
    validator.accepts(&packages)?;
    Ok(Outcome::Checked(format!("{text}, all packages valid")))
}

fn compare(folder: &Path, output: &Path) -> Result<Agreement> {
    fs::create_dir_all(output)?;
    let checkpoint = checkpoint::open(folder)?;
    let decoder = model::build(&checkpoint)?;
    let sequences = sequences(&folder.join("reference.safetensors"))?;
    let options = Options {
        kv: FORMS.into(),
        seq_lens: vec![48, 8, 24],
        contexts: vec![48, 16],
        query: 8,
        ..Options::default()
    };
    let mut host = Host::new(&decoder, &options, Numerics::Fast, output);
    let mut agreement = Agreement { positions: 0, worst: 1.0 };
    for Sequence { ids, logits } in &sequences {
        for form in FORMS {
            // Without a cache every position is a prediction of its own, so that all of them are seen.
            let prompt = if form == KvForm::None { 1 } else { ids.len().div_ceil(2) };
            let found = host.generate(form, ids, prompt);
            ensure!(found.len() == ids.len() + 1 - prompt, "{form:?} gave {} predictions", found.len());
            for (position, found) in (prompt - 1..).zip(&found) {
                let cosine = cosine(found, &logits[position])?;
                agreement.positions += 1;
                agreement.worst = agreement.worst.min(cosine);
                ensure!(
                    cosine >= REQUIRED_COSINE,
                    "{form:?}: position {position} of {} has cosine {cosine}, at least {REQUIRED_COSINE} is required",
                    ids.len()
                );
            }
        }
    }
    Ok(agreement)
}

/// The sequences of a reference, `ids.N` with `logits.N`.
fn sequences(path: &Path) -> Result<Vec<Sequence>> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let file = SafeTensors::deserialize(&bytes).with_context(|| format!("read {}", path.display()))?;
    let words = |name: &str, dtype: Dtype| -> Result<Vec<[u8; 4]>> {
        let tensor = file.tensor(name)?;
        ensure!(tensor.dtype() == dtype, "`{name}` is {:?}, expected {dtype:?}", tensor.dtype());
        Ok(tensor.data().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]).collect())
    };
    let mut sequences = Vec::new();
    while file.tensor(&format!("ids.{}", sequences.len())).is_ok() {
        let ids = words(&format!("ids.{}", sequences.len()), Dtype::I32)?;
        let ids: Vec<i32> = ids.into_iter().map(i32::from_le_bytes).collect();
        let logits = words(&format!("logits.{}", sequences.len()), Dtype::F32)?;
        let logits: Vec<f32> = logits.into_iter().map(f32::from_le_bytes).collect();
        ensure!(
            !ids.is_empty() && logits.len().is_multiple_of(ids.len()),
            "a sequence has logits for other positions"
        );
        let logits = logits.chunks_exact(logits.len() / ids.len()).map(<[f32]>::to_vec).collect();
        sequences.push(Sequence { ids, logits });
    }
    ensure!(!sequences.is_empty(), "{} has no sequence", path.display());
    Ok(sequences)
}

fn cosine(a: &[f32], b: &[f32]) -> Result<f64> {
    ensure!(a.len() == b.len(), "{} logits, expected {}", a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    Ok(dot(a, b) / (dot(a, a) * dot(b, b)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeness_is_of_direction_and_length() {
        assert!((cosine(&[1.0, 2.0], &[2.0, 4.0]).unwrap() - 1.0).abs() < 1e-12);
        assert!(cosine(&[1.0, 0.0], &[0.0, 1.0]).unwrap().abs() < 1e-12);
        assert!(cosine(&[f32::NAN], &[1.0]).unwrap().is_nan());
        assert!(cosine(&[1.0], &[1.0, 2.0]).is_err());
    }
}
