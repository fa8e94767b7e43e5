//! `--calibration`: codes chosen by what the outputs of each layer lose on a text.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::error::ExportError;
use super::{Progress, Request, Source};
use crate::atomic::Staging;
use crate::bundle::digest_text;
use crate::calibrate;
use crate::compress::{self, Calibration, Plan, Solutions};
use crate::generate::Tokenizer;
use crate::lower;

/// Tokens of a sequence, and how many sequences of a text are taken.
const SEQ_LEN: usize = 512;
const SEQUENCES: usize = 16;

/// Tokens that statistics need at least, and those below which they say little.
const LEAST: usize = 2;
const FEW: usize = 1024;

/// Chooses codes on a text for a plan.
pub(super) fn solve(
    request: &Request,
    source: &Source,
    text: &str,
    progress: &dyn Progress,
) -> Result<(Solutions, Calibration), ExportError> {
    let plan = request.options.precision.as_ref();
    let Some(plan) = plan.filter(|plan| plan.is_solvable()) else {
        let asked = plan.map_or_else(|| "fp16".to_owned(), ToString::to_string);
        return Err(failed(&format!(
            "is for automatic precision, for int4 and int8, and for palettes, lut1 to lut8; the precision is {asked}"
        )));
    };
    check(request, source, plan)?;
    let sequences = sequences(source, text)?;
    // Never committed: it goes when it is dropped, or with the next export if this one is killed. Codes stay mapped.
    let scratch = Staging::new(&request.output).map_err(|e| ExportError::io(&request.output, &e))?;
    let began = |step: &str| progress.began(step, None);
    let solutions = calibrate::quantize(&source.decoder, plan, &sequences, scratch.path(), &began)
        .map_err(|e| failed(&e.to_string()))?;
    let tokens = sequences.iter().map(Vec::len).sum();
    Ok((solutions, Calibration { tokens, digest: digest_text(xxh3_128(text.as_bytes())) }))
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

/// The tokens of a text, as sequences.
pub(super) fn sequences(source: &Source, text: &str) -> Result<Vec<Vec<u32>>, ExportError> {
    let json = source.checkpoint.tokenizer.as_deref();
    let json = json.ok_or_else(|| failed("needs a tokenizer, and the checkpoint has none"))?;
    let tokenizer = Tokenizer::from_bytes(json, Path::new("tokenizer.json"));
    let ids = tokenizer.and_then(|tokenizer| tokenizer.encode(text, true));
    let ids = ids.map_err(|e| failed(&e.to_string()))?;
    if ids.len() < LEAST {
        return Err(failed(&format!("needs a text of {LEAST} tokens, this one has {}", ids.len())));
    }
    let seq_len = SEQ_LEN.min(source.decoder.max_positions).max(1);
    let all: Vec<&[u32]> = ids.chunks(seq_len).collect();
    let taken = SEQUENCES.min(all.len());
    // From all over the text, which may change its subject.
    Ok((0..taken).map(|index| all[index * all.len() / taken].to_vec()).collect())
}
