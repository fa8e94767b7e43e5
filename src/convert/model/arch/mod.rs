//! The architectures: one file each, and the table that finds the one a configuration names.

mod cohere2;
mod encoder;
mod ernie4_5;
mod experts;
mod family;
mod gemma2;
mod gemma3;
mod gemma4;
mod glm;
mod glm4;
mod gpt2;
mod granite;
mod granite4;
mod lfm2;
mod llama;
mod minicpm;
mod ministral;
mod ministral3;
mod mistral;
mod olmo2;
mod olmo3;
mod pagating;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod refused;
mod rotary;
mod smollm3;
mod stablelm;
mod starcoder2;
mod structure;
mod student;
#[cfg(test)]
mod tests;

use super::error::ModelError;
use super::graph::{Activation, Decoder, Head};
use super::keys::{Keys, Result, Size};
use super::tensors::{Prefix, Tensors};
use super::weight::Weight;
use crate::checkpoint::{Checkpoint, Config, ConfigError};

pub use encoder::{ENCODERS, EncoderArchitecture, build, build_any};
pub use structure::Structure;

/// How a kind of model is found and built.
pub struct Architecture {
    /// Its name.
    pub name: &'static str,
    /// Entries of `architectures` that select it.
    pub classes: &'static [&'static str],
    /// Values of `model_type` that select it.
    pub model_types: &'static [&'static str],
    /// The end of a tensor name that tells it from others of the same class.
    marker: Option<&'static str>,
    prefixes: &'static [Prefix],
    /// The embedding, which tells the prefix.
    probe: &'static str,
    /// Stored tensors that hold nothing of the model.
    harmless: fn(&str) -> bool,
    build: fn(&Config, &mut Tensors<'_>) -> Result<Decoder>,
}

/// Every architecture that can be built.
pub const ARCHITECTURES: &[Architecture] = &[
    llama::DEF,
    mistral::DEF,
    qwen2::DEF,
    qwen3::DEF,
    gemma3::DEF,
    phi3::DEF,
    gpt2::DEF,
    pagating::DEF,
    student::DEF,
    smollm3::DEF,
    granite::DEF,
    granite4::DEF,
    olmo2::DEF,
    olmo3::DEF,
    gemma2::DEF,
    ministral::DEF,
    ministral3::DEF,
    starcoder2::DEF,
    stablelm::DEF,
    cohere2::DEF,
    glm::DEF,
    glm4::DEF,
    ernie4_5::DEF,
    minicpm::DEF,
    gemma4::DEF,
    lfm2::DEF,
    qwen3_5::DEF,
];

/// The decoder of a checkpoint, once every tensor is known to be there in its shape and none is left over.
fn decoder_of(checkpoint: &Checkpoint) -> std::result::Result<Decoder, ModelError> {
    let config_error = |problem| ModelError::Config { path: checkpoint.path.clone(), problem };
    let words = words(&checkpoint.config).map_err(config_error)?;
    if experts::are_in(&checkpoint.config) {
        return Err(ModelError::Experts {
            path: checkpoint.path.clone(),
            found: quoted(&words),
            dense: experts::dense_relative(&words),
        });
    }
    if let Some(refusal) = refused::refusal(&words, checkpoint, quoted(&words)) {
        return Err(refusal);
    }
    let Some(architecture) = find(&words, checkpoint) else { return Err(unknown(&words, checkpoint)) };
    let mut tensors = Tensors::new(checkpoint, architecture.prefixes, architecture.probe);
    let decoder = (architecture.build)(&checkpoint.config, &mut tensors).map_err(config_error)?;
    let problems = tensors.finish(architecture.harmless);
    if problems.is_empty() {
        return Ok(decoder);
    }
    Err(ModelError::Tensors { path: checkpoint.path.clone(), architecture: architecture.name, problems })
}

/// What a configuration says of its architecture, the most specific first.
fn words(config: &Config) -> Result<Vec<&str>> {
    let mut words = config.opt_texts("architectures")?.unwrap_or_default();
    words.extend(config.opt_text("model_type")?);
    if words.is_empty() {
        let problem = "is missing, and so is `architectures`".to_owned();
        return Err(ConfigError { key: "model_type".to_owned(), problem });
    }
    Ok(words)
}

fn find(words: &[&str], checkpoint: &Checkpoint) -> Option<&'static Architecture> {
    let named =
        |word: &str| ARCHITECTURES.iter().filter(move |a| a.words().any(|known| known == word)).collect();
    let candidates: Vec<_> = words.iter().map(|word| named(word)).find(|found: &Vec<_>| !found.is_empty())?;
    let marked = |a: &&&Architecture| {
        a.marker.is_some_and(|marker| checkpoint.tensors.keys().any(|name| name.ends_with(marker)))
    };
    let unmarked = |a: &&&Architecture| a.marker.is_none();
    let found = candidates.iter().find(marked).or(candidates.iter().find(unmarked)).or(candidates.first());
    found.copied()
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" / ")
}

fn unknown(words: &[&str], checkpoint: &Checkpoint) -> ModelError {
    ModelError::UnknownArchitecture {
        path: checkpoint.path.clone(),
        found: quoted(words),
        structure: Structure::of(words, &checkpoint.config),
        known: ARCHITECTURES
            .iter()
            .map(|architecture| architecture.name)
            .chain(ENCODERS.iter().map(|encoder| encoder.name))
            .collect(),
    }
}

impl Architecture {
    fn words(&self) -> impl Iterator<Item = &'static str> {
        self.classes.iter().chain(self.model_types).copied().chain([self.name])
    }
}

/// The head: the embedding or a matrix of its own.
fn head(tied: bool, tensors: &mut Tensors<'_>, embedding: &Weight, shape: [&Size; 2]) -> Head {
    if tied {
        tensors.tie(embedding);
    }
    let weight = if tied { embedding.clone() } else { tensors.head(&shape) };
    Head { map: None, weight, tied, softcap: None }
}

/// The activation that a key names, or the default where it is left out.
fn activation(keys: &Keys, key: &str, default: Activation) -> Result<Activation> {
    match keys.opt_text(key)? {
        None => Ok(default),
        Some("relu") => Ok(Activation::Relu),
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some("sigmoid") => Ok(Activation::Sigmoid),
        Some("tanh") => Ok(Activation::Tanh),
        Some("gelu") => Ok(Activation::Gelu),
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Ok(Activation::GeluTanh),
        Some(other) => {
            let known = "relu, silu, swish, sigmoid, tanh, gelu, gelu_new, gelu_pytorch_tanh or gelu_fast";
            Err(keys.wrong(key, &format!("is `{other}`, expected {known}")))
        }
    }
}

/// Whether each layer looks back over a window only, from `layer_types` or, without it, from `rule`.
fn windowed(keys: &Keys, layers: usize, rule: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
    let Some(types) = keys.opt_texts("layer_types")? else { return Ok((0..layers).map(rule).collect()) };
    if types.len() != layers {
        return Err(keys.wrong("layer_types", &format!("has {} entries for {layers} layers", types.len())));
    }
    let sliding = types.into_iter().map(|kind| match kind {
        "sliding_attention" => Ok(true),
        "full_attention" => Ok(false),
        other => {
            let problem = format!("has `{other}`, expected sliding_attention or full_attention");
            Err(keys.wrong("layer_types", &problem))
        }
    });
    sliding.collect()
}
