//! `--precision auto`: bits for each layer, by what the model loses when that layer alone is compressed.
//!
//! The model is exported once as it is, a layer to a package, and given a text. Then each layer is compressed by each
//! candidate, the model runs again from that layer on, and the divergence of its logits from those of the uncompressed
//! model is what the candidate costs.

use std::path::Path;

use super::error::ExportError;
use super::layers::Layers;
use super::{Progress, Request, Source, trial};
use crate::atomic::Staging;
use crate::bundle::{Bundle, Chunk, LayerSensitivity, Sensitivity};
use crate::compress::{self, Candidate, Choice, Log, Plan, Precision, Rule};
use crate::harness::BUILT_IN_TEXT;
use crate::mil::verify::verify_rewritten;
use crate::package::{self, Package, WriteOptions};

/// What a layer may become, narrowest first.
const CANDIDATES: &[&str] = &["lut3:group=16", "lut4:group=16", "lut6:group=16", "int8"];
/// Positions at the end of the text whose logits are compared.
pub(super) const COMPARED: usize = 64;

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
    /// The layers, or the head, that it is in.
    places: Vec<usize>,
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
    let bundle = trial::export_layers(request, source, (scratch.path(), Automatic::TOKENS), progress)?;
    let text = wanted.calibration.as_deref().unwrap_or(BUILT_IN_TEXT);
    let ids = trial::tokens(&bundle, text, Automatic::TOKENS, failed)?;
    let text = (&ids[..Automatic::TOKENS], COMPARED);
    let mut layers = Layers::new((&bundle, source), scratch.path(), text, failed)?;
    let parts = parts(&bundle, layers.head(), source.decoder.head.tied);
    let candidates: Vec<Precision> = CANDIDATES.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let mut choices = Vec::with_capacity(parts.len());
    for part in &parts {
        progress.began(&format!("sensitivity of {}", part.name), None);
        choices.push(choice(&mut layers, part, &candidates, scratch.path())?);
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

fn parts(bundle: &Bundle, head: usize, tied: bool) -> Vec<PrecisionGroup> {
    let layer = |(place, described): (usize, &Chunk)| {
        let layer = described.first_layer;
        PrecisionGroup {
            name: format!("layer {layer}"),
            places: vec![place],
            pattern: format!("layers_{layer}_*_weight"),
        }
    };
    let part = |name: &str, places: &[usize], pattern: &str| PrecisionGroup {
        name: name.to_owned(),
        places: places.to_vec(),
        pattern: pattern.to_owned(),
    };
    let ends = match tied {
        true => vec![part("embedding and head", &[0, head], "embedding_weight*")],
        false => vec![part("embedding", &[0], "embedding_weight*"), part("head", &[head], "head_weight*")],
    };
    bundle.manifest().chunks.iter().enumerate().map(layer).chain(ends).collect()
}

/// What a part costs and loses at each precision.
fn choice(
    layers: &mut Layers,
    part: &PrecisionGroup,
    candidates: &[Precision],
    scratch: &Path,
) -> Result<Choice, ExportError> {
    let mut choice = Choice { name: part.name.clone(), elements: 0, candidates: Vec::new() };
    for &precision in candidates {
        let (packages, log) = compressed(layers, part, precision, scratch)?;
        let tensors = log.tensors.iter().filter(|tensor| !["fp16", "fp32"].contains(&&*tensor.precision));
        let (elements, bytes) = tensors.fold((0, 0), |(elements, bytes), tensor| {
            (elements + tensor.shape.iter().product::<usize>() as u64, bytes + tensor.bytes_after)
        });
        choice.elements = elements;
        choice.candidates.push(Candidate { precision, bytes, loss: layers.divergence(&packages)? });
    }
    Ok(choice)
}

/// The packages of a part with its weights at a precision, and the log of the last: weights that several have are the same.
fn compressed(
    layers: &Layers,
    part: &PrecisionGroup,
    precision: Precision,
    scratch: &Path,
) -> Result<(Vec<(usize, Package)>, Log), ExportError> {
    let rules = vec![Rule { pattern: part.pattern.clone(), precision }];
    let plan = Plan { default: Precision::Keep, rules };
    let (mut packages, mut log) = (Vec::new(), Log::default());
    for &place in &part.places {
        let original = layers.package(place).model();
        let (model, compression) = compress::apply(original.clone(), &plan)?;
        let path = scratch.join(format!("candidate-{place}.mlpackage"));
        let options = WriteOptions { overwrite: true, staged: true };
        package::write(&verify_rewritten(original, model)?, &path, options)?;
        log = compression.log().map_err(|e| ExportError::io(&path, &e))?;
        packages.push((place, Package::open(&path)?));
    }
    Ok((packages, log))
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
    /// Tokens of the text that are used, from its beginning.
    pub const TOKENS: usize = 128;

    /// Bits for all weights, if that can be reached at all.
    pub fn new(target_bits: f64, calibration: Option<String>) -> Result<Automatic, ExportError> {
        match (1.0..=16.0).contains(&target_bits) {
            true => Ok(Automatic { target_bits, calibration }),
            false => Err(ExportError::option("target_bits", format!("is {target_bits}, not from 1 to 16"))),
        }
    }
}
