//! `--precision auto`: bits for each layer, by what the model loses when that layer alone is compressed.
//!
//! The model is exported once as it is, a layer to a package. Then each layer is compressed by each candidate, the whole
//! is given a text, and the divergence of its logits from those of the uncompressed model is what the candidate costs.

use std::path::Path;
use std::sync::Arc;

use super::error::ExportError;
use super::{Progress, Request, Source, trial};
use crate::atomic::Staging;
use crate::bundle::{Bundle, Chunk, LayerSensitivity, Sensitivity};
use crate::compress::{self, Candidate, Choice, Plan, Precision, Rule};
use crate::generate::{Driver, GenerateError, SystemClock};
use crate::harness::BUILT_IN_TEXT;
use crate::mil::verify::verify_rewritten;
use crate::package::{self, Package, WriteOptions};
use crate::runtime::LoadedModel;
use crate::stats::kl_divergence;
use crate::vocabulary::KvForm;

/// What a layer may become, narrowest first.
const CANDIDATES: &[&str] = &["lut3:group=16", "lut4:group=16", "lut6:group=16", "int8"];
/// Tokens of text that are given at once, and how many more are compared one after the other.
const PROMPT: usize = 64;
const COMPARED: usize = 48;

/// Bits to spend, and the text that decides where.
#[derive(Debug, Clone, PartialEq)]
pub struct Automatic {
    /// Bits per element of all weights together.
    pub target_bits: f64,
    /// Text to compare on; one that comes with the program if there is none.
    pub calibration: Option<String>,
}

/// A part of the model that gets one precision.
struct PrecisionGroup {
    name: String,
    /// The package it is in.
    chunk: usize,
    /// The names of its weights.
    pattern: String,
}

/// Measures what each layer can do without, and chooses.
pub(super) fn choose(
    request: &Request,
    source: &Source,
    wanted: &Automatic,
    progress: &dyn Progress,
) -> Result<(Plan, Sensitivity), ExportError> {
    // Never committed: it goes when it is dropped, or with the next export if this one is killed.
    let scratch = Staging::new(&request.output).map_err(|e| ExportError::io(&request.output, &e))?;
    let length = (PROMPT + COMPARED).next_power_of_two();
    let bundle = trial::export_layers(request, source, (scratch.path(), length), progress)?;
    let probe = SensitivityProbe::new(&bundle, wanted)?;
    let parts = parts(&bundle, source.decoder.head.tied);
    let candidates: Vec<Precision> = CANDIDATES.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let mut choices = Vec::with_capacity(parts.len());
    for part in &parts {
        progress.began(&format!("sensitivity of {}", part.name), None);
        choices.push(probe.choice(part, &candidates, scratch.path())?);
    }
    let chosen = compress::choose(&choices, wanted.target_bits)?;
    let rules = parts.iter().zip(&choices).zip(&chosen).map(|((part, choice), &chosen)| Rule {
        pattern: part.pattern.clone(),
        precision: choice.candidates[chosen].precision,
    });
    let plan = Plan { default: Precision::Keep, rules: rules.collect() };
    Ok((plan, table(wanted.target_bits, &choices, &chosen)))
}

/// What kept the measurement from being made.
fn failed(message: &str) -> ExportError {
    ExportError::option("precision", format!("auto: {message}"))
}

fn parts(bundle: &Bundle, tied: bool) -> Vec<PrecisionGroup> {
    let chunks = &bundle.manifest().chunks;
    let layer = |(chunk, described): (usize, &Chunk)| {
        let layer = described.first_layer;
        PrecisionGroup { name: format!("layer {layer}"), chunk, pattern: format!("layers_{layer}_*_weight") }
    };
    let part = |name: &str, chunk, pattern: &str| PrecisionGroup {
        name: name.to_owned(),
        chunk,
        pattern: pattern.to_owned(),
    };
    let last = chunks.len() - 1;
    let ends = match tied {
        true => vec![part("embedding and head", last, "embedding_weight*")],
        false => vec![part("embedding", 0, "embedding_weight*"), part("head", last, "head_weight*")],
    };
    chunks.iter().enumerate().map(layer).chain(ends).collect()
}

/// The model as it is, with the logits that it gives.
struct SensitivityProbe<'a> {
    bundle: &'a Bundle,
    packages: Vec<Package>,
    loaded: Vec<Arc<dyn LoadedModel>>,
    ids: Vec<u32>,
    logits: Vec<Vec<f32>>,
}

impl<'a> SensitivityProbe<'a> {
    fn new(bundle: &'a Bundle, wanted: &Automatic) -> Result<SensitivityProbe<'a>, ExportError> {
        let text = wanted.calibration.as_deref().unwrap_or(BUILT_IN_TEXT);
        let mut ids = trial::tokens(bundle, text, PROMPT + COMPARED, failed)?;
        ids.truncate(PROMPT + COMPARED);
        let packages = trial::packages(bundle)?;
        let loaded = packages.iter().map(|package| trial::load(package, failed)).collect::<Result<_, _>>()?;
        let mut probe = SensitivityProbe { bundle, packages, loaded, ids, logits: Vec::new() };
        probe.logits = probe.logits_with(None)?;
        Ok(probe)
    }

    fn choice(
        &self,
        part: &PrecisionGroup,
        candidates: &[Precision],
        scratch: &Path,
    ) -> Result<Choice, ExportError> {
        let mut choice = Choice { name: part.name.clone(), elements: 0, candidates: Vec::new() };
        for &precision in candidates {
            let (candidate, elements) = self.candidate(part, precision, scratch)?;
            choice.candidates.push(candidate);
            choice.elements = elements;
        }
        Ok(choice)
    }

    /// What one part costs and loses at one precision.
    fn candidate(
        &self,
        part: &PrecisionGroup,
        precision: Precision,
        scratch: &Path,
    ) -> Result<(Candidate, u64), ExportError> {
        let rules = vec![Rule { pattern: part.pattern.clone(), precision }];
        let original = self.packages[part.chunk].model();
        let plan = Plan { default: Precision::Keep, rules };
        let (model, compression) = compress::apply(original.clone(), &plan)?;
        let path = scratch.join("candidate.mlpackage");
        let options = WriteOptions { overwrite: true, staged: true };
        package::write(&verify_rewritten(original, model)?, &path, options)?;
        let log = compression.log().map_err(|e| ExportError::io(&path, &e))?;
        let loaded = trial::load(&Package::open(&path)?, failed)?;
        let found = self.logits_with(Some((part.chunk, loaded)))?;
        let divergence =
            self.logits.iter().zip(&found).map(|(reference, found)| kl_divergence(reference, found));
        let compressed =
            log.tensors.iter().filter(|tensor| tensor.precision != "fp16" && tensor.precision != "fp32");
        let (mut bytes, mut elements) = (0, 0);
        for tensor in compressed {
            bytes += tensor.bytes_after;
            elements += tensor.shape.iter().product::<usize>() as u64;
        }
        let loss = divergence.sum::<f64>() / self.logits.len() as f64;
        Ok((Candidate { precision, bytes, loss }, elements))
    }

    /// Logits of the compared positions, with one package in another's place.
    fn logits_with(
        &self,
        other: Option<(usize, Arc<dyn LoadedModel>)>,
    ) -> Result<Vec<Vec<f32>>, ExportError> {
        let mut loaded = self.loaded.clone();
        if let Some((chunk, other)) = other {
            loaded[chunk] = other;
        }
        let sessions = loaded.into_iter().map(LoadedModel::session).collect();
        let clock = Arc::new(SystemClock::default());
        let failed = |e: GenerateError| failed(&e.to_string());
        let mut driver = Driver::new(self.bundle, sessions, Some(KvForm::Io), clock).map_err(failed)?;
        let mut logits = Vec::with_capacity(COMPARED);
        let mut keep = |_: usize, found: &[f32]| {
            logits.push(found.to_vec());
            Ok(())
        };
        driver.teacher_force(&self.ids, PROMPT, None, &mut keep).map_err(failed)?;
        Ok(logits)
    }
}

fn table(target_bits: f64, choices: &[Choice], chosen: &[usize]) -> Sensitivity {
    let layers = choices.iter().zip(chosen).map(|(choice, &chosen)| LayerSensitivity {
        name: choice.name.clone(),
        elements: choice.elements,
        chosen: choice.candidates[chosen].precision.to_string(),
        bits: choice.candidates[chosen].bytes as f64 * 8.0 / choice.elements.max(1) as f64,
        divergence: choice.candidates.iter().map(|c| (c.precision.to_string(), c.loss)).collect(),
    });
    Sensitivity { target_bits, positions: COMPARED, layers: layers.collect() }
}

impl Automatic {
    /// Bits for all weights, if that can be reached at all.
    pub fn new(target_bits: f64, calibration: Option<String>) -> Result<Automatic, ExportError> {
        match (1.0..=16.0).contains(&target_bits) {
            true => Ok(Automatic { target_bits, calibration }),
            false => Err(ExportError::option("target_bits", format!("is {target_bits}, not from 1 to 16"))),
        }
    }
}
