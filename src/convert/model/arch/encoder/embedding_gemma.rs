//! EmbeddingGemma: the text model of Gemma 3 whose tokens see both sides.

use super::{EncoderArchitecture, Source};
use crate::model::arch::{family, gemma3};
use crate::model::encoder::{Attends, Encoder};
use crate::model::keys::{Keys, Result};
use crate::model::tensors::{Prefix, Tensors};

pub(super) const DEF: EncoderArchitecture = EncoderArchitecture {
    name: "embedding-gemma",
    classes: &["Gemma3TextModel"],
    model_types: &["gemma3_text"],
    applies: |checkpoint| {
        checkpoint.config.opt_bool("use_bidirectional_attention").is_ok_and(|value| value == Some(true))
    },
    prefixes: &[Prefix { body: "model.", head: "" }, Prefix { body: "", head: "" }],
    probe: family::PROBE,
    harmless: family::harmless,
    build,
};

fn build(source: &Source<'_>, tensors: &mut Tensors<'_>) -> Result<Encoder> {
    let keys = Keys::new(source.config, &[]);
    if keys.has("text_config") {
        return Err(keys.wrong("text_config", "is there, but only a text model alone is supported"));
    }
    tensors.leave_head();
    let mut decoder = gemma3::layers(source.config, tensors)?;
    decoder.architecture = DEF.name;
    for layer in &mut decoder.layers {
        // The key is the width of both sides together.
        if let Some(attention) = layer.mixer.attention_mut() {
            attention.window = attention.window.map(|width| width / 2 + 1);
        }
    }
    Ok(Encoder::of_decoder(decoder, Attends::BothSides).expect("every layer of Gemma 3 attends"))
}
