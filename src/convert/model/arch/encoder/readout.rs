//! What sentence-transformers makes of hidden states: pooling, dense layers, normalisation.

use crate::checkpoint::{Config, ConfigError, SentenceModule, SentenceModules};
use crate::model::encoder::{Gives, Pooling, Readout, Stage};
use crate::model::graph::Activation;
use crate::model::keys::{Result, Size};
use crate::model::tensors::Tensors;

/// Names of poolings as `1_Pooling/config.json` has them: the key of older versions, the word of newer ones.
const POOLINGS: &[(&str, &str, Option<Pooling>)] = &[
    ("pooling_mode_cls_token", "cls", Some(Pooling::First)),
    ("pooling_mode_max_tokens", "max", None),
    ("pooling_mode_mean_tokens", "mean", Some(Pooling::Mean)),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Some(Pooling::MeanSqrtLen)),
    ("pooling_mode_weightedmean_tokens", "weightedmean", Some(Pooling::WeightedMean)),
    ("pooling_mode_lasttoken", "lasttoken", Some(Pooling::Last)),
];

/// The readout that the modules after the transformer make up.
pub(super) fn of_modules(
    sentence: &SentenceModules,
    hidden: usize,
    tensors: &mut Tensors<'_>,
) -> Result<Readout> {
    let Some((first, others)) = sentence.modules.split_first() else {
        return Err(wrong("modules.json", "lists a transformer only: nothing makes one vector of a text"));
    };
    if first.class != "Pooling" {
        let problem = format!("has {} after the transformer, expected Pooling", first.class);
        return Err(wrong("modules.json", &problem));
    }
    let pooling = pooling(first)?;
    let mut width = Size { value: hidden, from: "hidden_size".to_owned() };
    let mut stages = Vec::new();
    for module in others {
        match module.class.as_str() {
            "Dense" => stages.push(dense(module, &mut width, tensors)?),
            "Normalize" => stages.push(Stage::Normalize),
            // It does nothing when nothing is trained.
            "Dropout" => {}
            other => {
                let problem = format!("has a module {other}, expected Dense or Normalize");
                return Err(wrong("modules.json", &problem));
            }
        }
    }
    Ok(Readout { pooling, stages, gives: Gives::Embedding })
}

fn pooling(module: &SentenceModule) -> Result<Pooling> {
    let SentenceModule { path, config, .. } = module;
    if config.opt_bool("include_prompt").map_err(|error| within(path, &error))? == Some(false) {
        let problem = "is false, but prompts cannot be left out of the pooling";
        return Err(wrong(&format!("{path}.include_prompt"), problem));
    }
    let chosen = chosen(config).map_err(|error| within(path, &error))?;
    match chosen[..] {
        [(_, _, Some(pooling))] => Ok(pooling),
        [(_, word, None)] => {
            let problem = format!("is {word}, which is not supported; cls, mean and lasttoken are");
            Err(wrong(&format!("{path}.pooling_mode"), &problem))
        }
        _ => {
            let words: Vec<&str> = chosen.iter().map(|(_, word, _)| *word).collect();
            let problem = format!("is {} at once, but only one is supported", words.join(" and "));
            Err(wrong(&format!("{path}.pooling_mode"), &problem))
        }
    }
}

type Named = (&'static str, &'static str, Option<Pooling>);

/// The poolings that a configuration asks for; the mean if it says nothing.
fn chosen(config: &Config) -> Result<Vec<Named>> {
    let by_word = |word: &str| {
        let found = POOLINGS.iter().find(|(_, known, _)| *known == word).copied();
        found.ok_or_else(|| wrong("pooling_mode", &format!("is `{word}`, which is not known")))
    };
    if config.get("pooling_mode").is_some_and(serde_json::Value::is_array) {
        let words = config.opt_texts("pooling_mode")?.unwrap_or_default();
        return words.into_iter().map(by_word).collect();
    }
    if let Some(word) = config.opt_text("pooling_mode")? {
        return Ok(vec![by_word(word)?]);
    }
    let mut chosen = Vec::new();
    for entry in POOLINGS {
        if config.opt_bool(entry.0)? == Some(true) {
            chosen.push(*entry);
        }
    }
    if chosen.is_empty() {
        chosen.push(by_word("mean")?);
    }
    Ok(chosen)
}

fn dense(module: &SentenceModule, width: &mut Size, tensors: &mut Tensors<'_>) -> Result<Stage> {
    let SentenceModule { path, config, .. } = module;
    let key = |key: &str| format!("{path}.{key}");
    let named = |error: ConfigError| within(path, &error);
    let size = |name: &str| -> Result<Size> {
        let value = config.size(name).map_err(named)?;
        Ok(Size { value, from: key(name) })
    };
    let (input, out) = (size("in_features")?, size("out_features")?);
    if input.value != width.value {
        let problem = format!("is {}, but {} numbers come in", input.value, width.value);
        return Err(wrong(&key("in_features"), &problem));
    }
    if config.opt_bool("use_residual").map_err(named)? == Some(true) {
        return Err(wrong(&key("use_residual"), "is true, which is not supported"));
    }
    for name in ["module_input_name", "module_output_name"] {
        if let Some(other) = config.opt_text(name).map_err(named)?.filter(|&it| it != "sentence_embedding") {
            return Err(wrong(&key(name), &format!("is `{other}`, expected `sentence_embedding`")));
        }
    }
    let function = config.opt_text("activation_function").map_err(named)?;
    let activation = match function.map(|name| name.rsplit('.').next().unwrap_or_default()) {
        // The class's own default.
        None => Some(Activation::Tanh),
        Some("Identity") => None,
        Some("Tanh") => Some(Activation::Tanh),
        Some("ReLU") => Some(Activation::Relu),
        Some("GELU") => Some(Activation::Gelu),
        Some("SiLU") => Some(Activation::Silu),
        Some("Sigmoid") => Some(Activation::Sigmoid),
        Some(other) => {
            let problem = format!("is `{other}`, expected Identity, Tanh, ReLU, GELU, SiLU or Sigmoid");
            return Err(wrong(&key("activation_function"), &problem));
        }
    };
    let has_bias = config.opt_bool("bias").map_err(named)?.unwrap_or(true);
    let linear = tensors.outside(&format!("{path}.linear"), &out, &input, has_bias);
    *width = out;
    Ok(Stage::Dense { linear, activation })
}

fn within(path: &str, error: &ConfigError) -> ConfigError {
    wrong(&format!("{path}.{}", error.key), &error.problem)
}

fn wrong(key: &str, problem: &str) -> ConfigError {
    ConfigError { key: key.to_owned(), problem: problem.to_owned() }
}
