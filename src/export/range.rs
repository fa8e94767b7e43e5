//! `--range-repair`: factors that keep activations within fp16, chosen on a text.

use xxhash_rust::xxh3::xxh3_128;

use super::error::ExportError;
use super::{PrecisionPlan, Progress, Request, Source, calibration};
use crate::bundle::{self, RepairedTensor, digest_text};
use crate::calibrate::{self, RangeRepair};
use crate::harness::BUILT_IN_TEXT;
use crate::model::RangeScales;

/// Tokens of a made-up sequence, and how many sequences there are, where a checkpoint has no tokenizer.
const SEQ_LEN: usize = 128;
const SEQUENCES: usize = 4;

/// Chooses factors and puts them into the model.
pub(super) fn repair(
    request: &Request,
    source: &mut Source,
    progress: &dyn Progress,
) -> Result<bundle::RangeRepair, ExportError> {
    let given = match &request.precision {
        PrecisionPlan::Fixed => None,
        PrecisionPlan::Calibrated { text } => Some(text.as_str()),
        PrecisionPlan::Auto(wanted) => wanted.calibration.as_deref(),
    };
    let text = given.unwrap_or(BUILT_IN_TEXT);
    let (sequences, digest) = match source.checkpoint.tokenizer.is_some() {
        true => (calibration::sequences(source, text)?, Some(digest_text(xxh3_128(text.as_bytes())))),
        false => (made_up(source.decoder.vocabulary, source.decoder.max_positions), None),
    };
    let began = |step: &str| progress.began(step, None);
    let found = calibrate::repair_range(&source.decoder, &sequences, &began)
        .map_err(|e| ExportError::option("range_repair", e.to_string()))?;
    let before = source.decoder.clone();
    source.decoder = before.clone().with_ranges(&found.scales);
    let weights = RangeScales::weight_factors(&before, &source.decoder);
    let RangeRepair { scales, largest: (largest_tensor, largest), large } = found;
    let repaired = large.into_iter().map(|found| RepairedTensor {
        tensor: found.tensor,
        largest: found.largest,
        factor: found.factor,
    });
    Ok(bundle::RangeRepair {
        stream: scales.stream,
        tokens: sequences.iter().map(Vec::len).sum(),
        digest,
        largest_tensor,
        largest,
        repaired: repaired.collect(),
        weights,
    })
}

/// Tensors that stay beyond half of what fp16 holds.
pub(super) fn remarks(repair: &bundle::RangeRepair) -> Vec<String> {
    let left: Vec<&str> = repair
        .repaired
        .iter()
        .filter(|found| found.factor == 1.0)
        .map(|found| found.tensor.as_str())
        .collect();
    let mut remarks = Vec::new();
    if !left.is_empty() {
        remarks.push(format!(
            "range repair has no factor for {}, which came to more than half of what fp16 holds: compare each \
             layer with the checkpoint",
            left.join(", ")
        ));
    }
    if repair.digest.is_none() {
        remarks.push(
            "range repair was chosen on made-up tokens, because the checkpoint has no tokenizer: real text may need \
             more of it"
                .to_owned(),
        );
    }
    remarks
}

/// Tokens from all over the vocabulary.
fn made_up(vocabulary: usize, max_positions: usize) -> Vec<Vec<u32>> {
    // A step that shares no factor with most sizes comes to all tokens before it repeats one.
    const STEP: usize = 7919;
    let seq_len = SEQ_LEN.min(max_positions).max(1);
    let token = |index: usize| (index * STEP % vocabulary.max(1)) as u32;
    (0..SEQUENCES).map(|n| (n * seq_len..(n + 1) * seq_len).map(token).collect()).collect()
}
