//! `--calibration`: codes chosen by what the outputs of each layer lose on a text.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::error::ExportError;
use super::{Progress, Request, Source, rotation};
use crate::atomic::Staging;
use crate::bundle::{self, digest_text};
use crate::calibrate::{self, CalibrateError, Method, Quantized, Text};
use crate::compress::{self, Calibration, Plan, Solutions};
use crate::generate::Tokenizer;
use crate::lower;
use crate::model::{Decoder, rotate};
use crate::vocabulary::Rotate;

/// Tokens of a sequence, and how many sequences of a text are taken.
const SEQ_LEN: usize = 512;
const SEQUENCES: usize = 16;

/// Sequences of those that are held out where rotations are judged.
const JUDGED: usize = 2;

/// Tokens that statistics need at least, and those below which they say little.
const LEAST: usize = 2;
const FEW: usize = 1024;

/// Codes chosen on a text for a plan, and for which coordinates.
pub(super) struct Calibrated {
    pub(super) decoder: Decoder,
    pub(super) solutions: Solutions,
    pub(super) calibration: Calibration,
    pub(super) rotated: Option<bundle::Rotated>,
}

/// Chooses codes on a text for a plan.
pub(super) fn solve(
    request: &Request,
    source: &Source,
    text: &str,
    progress: &dyn Progress,
) -> Result<Calibrated, ExportError> {
    let plan = request.options.precision.as_ref();
    let Some(plan) = plan.filter(|plan| plan.is_solvable()) else {
        let asked = plan.map_or_else(|| "fp16".to_owned(), ToString::to_string);
        return Err(failed(&format!(
            "is for automatic precision, for int4 and int8, and for palettes, lut1 to lut8; the precision is {asked}"
        )));
    };
    check(request, source, plan)?;
    let sequences = sequences(source, text)?;
    let tokens: usize = sequences.iter().map(Vec::len).sum();
    let digest = digest_text(xxh3_128(text.as_bytes()));
    let wanted = request.options.rotate.unwrap_or_default();
    let turned = (wanted != Rotate::Off).then(|| rotate(&source.decoder));
    let judged = if wanted == Rotate::Auto { JUDGED } else { 0 };
    if judged > 0 && sequences.len() <= 2 * judged {
        let needed = 2 * judged * SEQ_LEN.min(source.decoder.max_positions);
        let message = format!(
            "is `auto`, which judges by a part of the calibration text: needs more than {needed} tokens, this one has {tokens}"
        );
        return Err(ExportError::option("rotate", message));
    }
    let (calibrated, held_out) = sequences.split_at(sequences.len() - judged);
    let calibration = Calibration { tokens: calibrated.iter().map(Vec::len).sum(), digest };
    let text = Text { calibration: calibrated, held_out };
    let run = |decoder: &Decoder, form: &str| {
        // Never committed: it goes when it is dropped, or with the next export if this one is killed. Codes stay mapped.
        let scratch = Staging::new(&request.output).map_err(|e| ExportError::io(&request.output, &e))?;
        let began = |step: &str| progress.began(&format!("{step}{form}"), None);
        calibrate::quantize(decoder, plan, &text, Method::default(), scratch.path(), &began).map_err(
            |error| match error {
                CalibrateError::Compress(error) => error.into(),
                error => failed(&error.to_string()),
            },
        )
    };
    let Some(turned) = turned else {
        let solutions = run(&source.decoder, "")?.solutions;
        return Ok(Calibrated { decoder: source.decoder.clone(), solutions, calibration, rotated: None });
    };
    let rotated = run(&turned.decoder, " with rotations")?;
    if judged == 0 {
        let described = rotation::describe(&turned, true, None);
        let (decoder, solutions) = (turned.decoder, rotated.solutions);
        return Ok(Calibrated { decoder, solutions, calibration, rotated: Some(described) });
    }
    let plain = run(&source.decoder, " without rotations")?;
    let lost = |found: &Quantized| found.held_out.map_or(f64::INFINITY, |held_out| held_out.divergence);
    let divergence = [lost(&plain), lost(&rotated)];
    if !divergence.iter().all(|nats| nats.is_finite()) {
        let [plain, rotated] = divergence;
        let message = format!(
            "the end of the text, which rotations are judged by, has a divergence of {plain} without them and {rotated} \
             with them: give another text, or `--rotate on` or `off`"
        );
        return Err(failed(&message));
    }
    let is_better = divergence[1] < divergence[0];
    let described = rotation::describe(&turned, is_better, Some(divergence));
    let (decoder, solutions) = match is_better {
        true => (turned.decoder, rotated.solutions),
        false => (source.decoder.clone(), plain.solutions),
    };
    Ok(Calibrated { decoder, solutions, calibration, rotated: Some(described) })
}

/// What a calibration leaves to be desired.
pub(super) fn remark(calibration: &Calibration) -> Option<String> {
    let Calibration { tokens, .. } = calibration;
    (*tokens < FEW).then(|| {
        format!(
            "the calibration text has only {tokens} tokens: {} make better use of it",
            SEQ_LEN * SEQUENCES
        )
    })
}

fn failed(message: &str) -> ExportError {
    ExportError::option("calibration", message)
}

/// Fails now if a weight cannot be stored as the plan says, and not after all codes are chosen. Nothing is encoded here.
fn check(request: &Request, source: &Source, plan: &Plan) -> Result<(), ExportError> {
    let resolved = request.options.resolve(&source.decoder)?;
    for chunk in lower::lower(&source.decoder, &resolved.options)? {
        compress::apply(chunk.model, plan)?;
    }
    Ok(())
}

/// The tokens of a text.
pub(super) fn tokens(source: &Source, text: &str) -> Result<Vec<u32>, String> {
    let json = source.checkpoint.tokenizer.as_deref();
    let json = json.ok_or_else(|| "needs a tokenizer, and the checkpoint has none".to_owned())?;
    let tokenizer = Tokenizer::from_bytes(json, Path::new("tokenizer.json"));
    tokenizer.and_then(|tokenizer| tokenizer.encode(text, true)).map_err(|e| e.to_string())
}

/// Sequences from all over a text, which may change its subject.
pub(super) fn spread(decoder: &Decoder, ids: &[u32], most: usize) -> Vec<Vec<u32>> {
    let all: Vec<&[u32]> = ids.chunks(SEQ_LEN.min(decoder.max_positions).max(1)).collect();
    let taken = most.min(all.len());
    (0..taken).map(|index| all[index * all.len() / taken].to_vec()).collect()
}

/// The tokens of a text, as sequences.
pub(super) fn sequences(source: &Source, text: &str) -> Result<Vec<Vec<u32>>, ExportError> {
    let ids = tokens(source, text).map_err(|why| failed(&why))?;
    if ids.len() < LEAST {
        return Err(failed(&format!("needs a text of {LEAST} tokens, this one has {}", ids.len())));
    }
    Ok(spread(&source.decoder, &ids, SEQUENCES))
}
