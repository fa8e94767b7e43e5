//! `--precision auto`: bits for each layer, by what the model loses when that layer alone is compressed.
//!
//! A text goes through the checkpoint once, layer by layer, with every layer at every candidate
//! ([`calibrate::sensitivities`]); the divergence of the logits from those of the uncompressed model is what a candidate costs.

use super::error::ExportError;
use super::{Progress, Request, Source, calibration};
use crate::atomic::Staging;
use crate::bundle::{LayerSensitivity, Sensitivity};
use crate::calibrate::{self, Part, Probe};
use crate::compress::{self, Candidate, Choice, Plan, Precision, Rule};
use crate::harness::BUILT_IN_TEXT;
use crate::model::Decoder;

/// What a layer may become, narrowest first.
const CANDIDATES: &[&str] = &["lut3:group=16", "lut4:group=16", "lut6:group=16", "int8"];
/// Positions at the end of the text whose logits are compared.
pub(super) const COMPARED: usize = 64;
/// Sequences of a calibration text that the candidates' codes are chosen by.
const SEQUENCES: usize = 4;

/// Bits to spend, and the text that decides where.
#[derive(Debug, Clone, PartialEq)]
pub struct Automatic {
    /// What all weights together may take.
    pub budget: Budget,
    /// Text to compare on; one that comes with the program if there is none.
    pub calibration: Option<String>,
}

/// What all weights together may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// Bits per element.
    Bits(f64),
    /// Megabytes, with what stays as it is.
    Megabytes(f64),
}

/// Measures what each layer can do without, and chooses.
pub(super) fn choose(
    request: &Request,
    source: &Source,
    decoder: &Decoder,
    wanted: &Automatic,
    progress: &dyn Progress,
) -> Result<(Plan, Sensitivity), ExportError> {
    // Never committed: it goes when it is dropped, or with the next export if this one is killed.
    let scratch = Staging::new(&request.output).map_err(|e| ExportError::io(&request.output, &e))?;
    let text = wanted.calibration.as_deref().unwrap_or(BUILT_IN_TEXT);
    let ids = calibration::tokens(source, text).map_err(|why| failed(&why))?;
    if ids.len() < Automatic::TOKENS {
        let (needed, found) = (Automatic::TOKENS, ids.len());
        return Err(failed(&format!("needs a text of {needed} tokens, this one has {found}")));
    }
    let sequences = match &wanted.calibration {
        Some(_) => calibration::spread(decoder, &ids[Automatic::TOKENS..], SEQUENCES),
        None => Vec::new(),
    };
    let probe = Probe { tokens: &ids[..Automatic::TOKENS], compared: COMPARED, calibration: &sequences };
    let candidates: Vec<Precision> = CANDIDATES.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let began = |step: &str| progress.began(step, None);
    let parts = calibrate::sensitivities(decoder, &candidates, &probe, scratch.path(), &began)
        .map_err(|e| failed(&e.to_string()))?;
    let choices: Vec<Choice> = parts.iter().map(|part| choice(part, &candidates)).collect();
    let bits = wanted.budget.bits(decoder, &choices)?;
    let chosen = compress::choose(&choices, bits)?;
    let rules = parts.iter().zip(&choices).zip(&chosen).map(|((part, choice), &chosen)| Rule {
        pattern: part.pattern.clone(),
        precision: choice.candidates[chosen].precision,
    });
    let plan = Plan { default: Precision::Keep, rules: rules.collect() };
    Ok((plan, table(bits, &choices, &chosen)))
}

/// What a choice leaves to be desired.
pub(super) fn remarks(decoder: &Decoder, sensitivity: &Sensitivity) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(inputs) = &decoder.per_layer {
        let elements = inputs.table.element_count() + inputs.projection.weight.element_count();
        remarks.push(format!(
            "`--precision auto` chooses for layers, embedding and head: per_layer_embedding_weight and \
             per_layer_projection_weight stay fp16, {:.1} MB",
            2.0 * elements as f64 / 1e6
        ));
    }
    let layers = &sensitivity.layers;
    let widest = CANDIDATES.last().copied().unwrap_or_default();
    let elements: f64 = layers.iter().map(|layer| layer.elements as f64).sum();
    let spent =
        layers.iter().map(|layer| layer.bits * layer.elements as f64).sum::<f64>() / elements.max(1.0);
    if sensitivity.target_bits > spent + 0.5 && layers.iter().all(|layer| layer.chosen.starts_with(widest)) {
        remarks.push(format!(
            "{widest} is the widest form that `--precision auto` chooses: weights have {spent:.2} bits on average, where \
             {:.2} were allowed; --precision fp16 has more",
            sensitivity.target_bits
        ));
    }
    remarks
}

/// What kept the measurement from being made.
fn failed(message: &str) -> ExportError {
    ExportError::option("precision", format!("auto: {message}"))
}

/// What a part costs and loses at each precision.
fn choice(part: &Part, candidates: &[Precision]) -> Choice {
    let bytes = |precision: Precision| part.weights.iter().map(|&shape| precision.bytes(shape)).sum();
    let candidates = candidates.iter().zip(&part.losses);
    Choice {
        name: part.name.clone(),
        elements: part.weights.iter().map(|[rows, columns]| (rows * columns) as u64).sum(),
        candidates: candidates
            .map(|(&precision, &loss)| Candidate { precision, bytes: bytes(precision), loss })
            .collect(),
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

impl Budget {
    /// Bits per element of what is compressed.
    fn bits(self, decoder: &Decoder, choices: &[Choice]) -> Result<f64, ExportError> {
        let megabytes = match self {
            Budget::Bits(bits) => return Ok(bits),
            Budget::Megabytes(megabytes) => megabytes,
        };
        let elements: u64 = choices.iter().map(|choice| choice.elements).sum();
        let kept = 2 * super::describe::architecture(decoder).parameters.saturating_sub(elements);
        let left = megabytes * 1e6 - kept as f64;
        if left <= 0.0 {
            let (kept, what) = (kept as f64 / 1e6, "what is not compressed");
            return Err(ExportError::option(
                "target_mb",
                format!("is {megabytes}, and {what} takes {kept:.1} MB alone"),
            ));
        }
        Ok((left * 8.0 / elements.max(1) as f64).min(16.0))
    }
}

impl Automatic {
    /// Tokens of the text that are compared on, from its beginning.
    pub const TOKENS: usize = 128;

    /// A budget for all weights, if that can be reached at all.
    pub fn new(budget: Budget, calibration: Option<String>) -> Result<Automatic, ExportError> {
        match budget {
            Budget::Bits(bits) if !(1.0..=16.0).contains(&bits) => {
                Err(ExportError::option("target_bits", format!("is {bits}, not from 1 to 16")))
            }
            Budget::Megabytes(megabytes) if !(megabytes > 0.0 && megabytes.is_finite()) => {
                Err(ExportError::option("target_mb", format!("is {megabytes}, not a size")))
            }
            _ => Ok(Automatic { budget, calibration }),
        }
    }
}
