//! Classifiers over a whole text, as transformers' classes have them.

use candle_nn::{Activation, LayerNorm, VarBuilder, linear, linear_b};

use super::modules::{Pool, Readout, Step};
use crate::error::Result;
use crate::settings::Keys;
use anemeter_convert::checkpoint::Config;

/// The classifier of a class that has one.
pub(super) fn of(config: &Config, architecture: &str, tensors: &VarBuilder<'_>) -> Result<Option<Readout>> {
    let classes = config.opt_texts("architectures")?.unwrap_or_default();
    if !classes.iter().any(|class| class.ends_with("ForSequenceClassification")) {
        return Ok(None);
    }
    let keys = Keys::new(config, &[("num_labels", 2.0), ("norm_eps", 1e-5)]);
    let hidden = keys.size("hidden_size")?;
    let labels = match config.opt_section("id2label")? {
        Some(names) => names.values().len(),
        None => keys.size("num_labels")?,
    };
    let scores =
        |name: &str| Ok::<_, candle_core::Error>(Step::Linear(linear(hidden, labels, tensors.pp(name))?));
    let (pool, steps) = match architecture {
        "bert" => {
            let pooler = linear(hidden, hidden, tensors.pp("bert.pooler.dense"))?;
            (Pool::First, vec![Step::Linear(pooler), Step::Tanh, scores("classifier")?])
        }
        "roberta" => {
            let dense = linear(hidden, hidden, tensors.pp("classifier.dense"))?;
            (Pool::First, vec![Step::Linear(dense), Step::Tanh, scores("classifier.out_proj")?])
        }
        _ => {
            let bias = keys.flag("classifier_bias")?;
            let dense = linear_b(hidden, hidden, bias, tensors.pp("head.dense"))?;
            let weight = tensors.get(hidden, "head.norm.weight")?;
            let epsilon = keys.number("norm_eps")?;
            let norm = match keys.flag("norm_bias")? {
                true => LayerNorm::new(weight, tensors.get(hidden, "head.norm.bias")?, epsilon),
                false => LayerNorm::new_no_bias(weight, epsilon),
            };
            let activation = keys.activation("classifier_activation", Activation::Gelu)?;
            let steps = vec![
                Step::Linear(dense),
                Step::Activation(activation),
                Step::Norm(norm),
                scores("classifier")?,
            ];
            (if keys.text("classifier_pooling")? == Some("mean") { Pool::Mean } else { Pool::First }, steps)
        }
    };
    Ok(Some(Readout { pool, steps }))
}
