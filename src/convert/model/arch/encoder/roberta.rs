//! RoBERTa and XLM-RoBERTa: BERT's layers with positions that begin after the one of padding.

use super::bert::{self, DEFAULTS, Trunk};
use super::{EncoderArchitecture, Source};
use crate::model::encoder::{Encoder, Gives, Pooling, Readout, Stage};
use crate::model::graph::Activation;
use crate::model::keys::{Keys, Result, Size};
use crate::model::tensors::{Prefix, Tensors};

pub(super) const DEF: EncoderArchitecture = EncoderArchitecture {
    name: "roberta",
    classes: &[
        "RobertaModel",
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "XLMRobertaModel",
        "XLMRobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
    ],
    model_types: &["roberta", "xlm-roberta"],
    prefixes: &[Prefix { body: "roberta.", head: "" }, Prefix { body: "", head: "" }],
    build,
    ..bert::DEF
};

/// The token of padding where the configuration names none.
const PADDING: usize = 1;

fn build(source: &Source<'_>, tensors: &mut Tensors<'_>) -> Result<Encoder> {
    let keys = Keys::new(source.config, DEFAULTS);
    let trunk = Trunk::read(&keys, tensors)?;
    let first = keys.count_or("pad_token_id", PADDING)?.saturating_add(1);
    let rows = &trunk.positions;
    let Some(left) = rows.value.checked_sub(first).filter(|&left| left > 0) else {
        let problem =
            format!("is {}, so that no position is left after the {first} up to padding", rows.value);
        return Err(keys.wrong("max_position_embeddings", &problem));
    };
    let left = Size { value: left, from: format!("{} - {first}", rows.from) };
    let name = "embeddings.position_embeddings.weight";
    let table = tensors.rows_from(name, (rows, first), &left, &trunk.hidden);
    let mut encoder = trunk.encoder(DEF.name, (table, left.value), tensors);
    if source.classifies() {
        let hidden = &trunk.hidden;
        let dense = tensors.outside("classifier.dense", hidden, hidden, true);
        let classifier = bert::classifier(&keys, "classifier.out_proj", hidden, tensors)?;
        let stages = vec![Stage::Dense { linear: dense, activation: Some(Activation::Tanh) }, classifier];
        encoder.readout = Some(Readout { pooling: Pooling::First, stages, gives: Gives::Scores });
    }
    Ok(encoder)
}
