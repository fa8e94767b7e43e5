//! The measurement: codes of a whole model by one method, and what the model loses on a text that was held out.

use std::path::Path;
use std::time::Instant;

use anemeter::calibrate::{Method, Text, quantize};
use anemeter::checkpoint::Checkpoint;
use anemeter::compress::Plan;
use anemeter::model::{Decoder, build, rotate};
use anyhow::{Context, Result};

/// A method by name.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) rotated: bool,
    pub(crate) method: Method,
}

/// What one came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) exact: f64,
    pub(crate) compressed: f64,
    pub(crate) divergence: f64,
    pub(crate) seconds: f64,
    pub(crate) tokens: usize,
}

/// A model with its texts.
pub(crate) struct Subject {
    plain: Decoder,
    rotated: Decoder,
    calibration: Vec<Vec<u32>>,
    held_out: Vec<Vec<u32>>,
}

/// Tokens of a sequence.
const SEQ_LEN: usize = 512;

impl Subject {
    /// The first sequences of the one text to calibrate by, spread over it, and all of the other to judge by.
    pub(crate) fn new(checkpoint: &Checkpoint, [text, judged]: [&str; 2], sequences: usize) -> Result<Subject> {
        let plain = build(checkpoint)?;
        let json = checkpoint.tokenizer.as_deref().context("the checkpoint has no tokenizer")?;
        let tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(|e| anyhow::anyhow!("{e}"))?;
        let ids = |text: &str| -> Result<Vec<Vec<u32>>> {
            let encoded = tokenizer.encode(text, true).map_err(|e| anyhow::anyhow!("{e}"))?;
            Ok(encoded.get_ids().chunks(SEQ_LEN).map(<[u32]>::to_vec).collect())
        };
        let all = ids(text)?;
        let taken = sequences.min(all.len());
        let calibration = (0..taken).map(|index| all[index * all.len() / taken].clone()).collect();
        let rotated = rotate(&plain).decoder;
        Ok(Subject { plain, rotated, calibration, held_out: ids(judged)? })
    }

    /// Chooses the codes of a plan.
    pub(crate) fn measure(&self, plan: &Plan, variant: &Variant, scratch: &Path) -> Result<Found> {
        let decoder = if variant.rotated { &self.rotated } else { &self.plain };
        let text = Text { calibration: &self.calibration, held_out: &self.held_out };
        let folder = tempfile::tempdir_in(scratch)?;
        let started = Instant::now();
        let found = quantize(decoder, plan, &text, variant.method, folder.path(), &|_| ())?;
        let held_out = found.held_out.context("no text was held out")?;
        Ok(Found {
            exact: held_out.exact,
            compressed: held_out.compressed,
            divergence: held_out.divergence,
            seconds: started.elapsed().as_secs_f64(),
            tokens: held_out.tokens,
        })
    }
}
