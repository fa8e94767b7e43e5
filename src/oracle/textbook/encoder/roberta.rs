//! RoBERTa and XLM-RoBERTa: BERT whose positions are counted from the one after padding.

use candle_nn::VarBuilder;

use super::{EncoderNetwork, bert};
use crate::error::Result;
use crate::reader::Names;
use crate::settings::Keys;
use anemeter_convert::checkpoint::Config;

pub(super) const NAMES: Names = Names { body: "roberta.", embedding: "embeddings.word_embeddings.weight" };

pub(super) fn open(config: &Config, _: usize, tensors: &VarBuilder<'_>) -> Result<Box<dyn EncoderNetwork>> {
    let padding = Keys::new(config, &[("pad_token_id", 1.0)]).size("pad_token_id")?;
    Ok(Box::new(bert::encoder(config, &tensors.pp("roberta"), padding + 1)?))
}
