//! What kind of model an unknown architecture is, by the end of its class's name and the keys of its configuration.

use std::fmt;

use crate::checkpoint::Config;

/// What kind of model a configuration describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// A causal language model of dense layers, with the known architectures that are built alike.
    Decoder(&'static [&'static str]),
    /// A model that takes images or sound beside text.
    Multimodal,
    /// A model that reads one text and writes another.
    EncoderDecoder,
    /// A model of images or sound alone.
    Perception,
    /// A model that reads text and writes none.
    Encoder,
    /// Nothing tells.
    Unclear,
}

/// Keys of models that take more than text.
const MULTIMODAL: &[&str] = &["vision_config", "audio_config"];
/// Keys of models of images or sound.
const PERCEPTION: &[&str] = &["image_size", "patch_size", "num_mel_bins", "conv_kernel"];
/// Keys of models with LayerNorm, and of those whose positions are rotations.
const LAYER_NORM: &[&str] = &["layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"];
const ROTATION: &[&str] = &["rope_theta", "rope_parameters", "rope_scaling", "rotary_pct", "rotary_dim"];
/// Ends of the names of causal language models.
const CAUSAL: &[&str] = &["ForCausalLM", "LMHeadModel"];
/// Ends of the names of models that classify, embed or fill in text.
const ENCODERS: &[&str] = &[
    "ForMaskedLM",
    "ForPreTraining",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "Model",
];

impl Structure {
    /// The kind of model that the words of a configuration and its keys tell.
    pub(super) fn of(words: &[&str], config: &Config) -> Structure {
        let has = |keys: &[&str]| keys.iter().any(|key| config.get(key).is_some());
        let ends = |ends: &[&str]| words.iter().any(|word| ends.iter().any(|end| word.ends_with(end)));
        let is_true = |key: &str| config.opt_bool(key).is_ok_and(|value| value == Some(true));
        match () {
            () if has(MULTIMODAL) => Structure::Multimodal,
            () if is_true("is_encoder_decoder") => Structure::EncoderDecoder,
            () if ends(CAUSAL) => Structure::Decoder(match () {
                () if has(&["rms_norm_eps"]) => &["llama", "mistral", "qwen2", "qwen3"],
                () if has(LAYER_NORM) && has(ROTATION) => &["stablelm", "starcoder2"],
                () if has(LAYER_NORM) => &["gpt2"],
                () => &[],
            }),
            () if has(PERCEPTION) => Structure::Perception,
            () if ends(ENCODERS) => Structure::Encoder,
            () => Structure::Unclear,
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Decoder([]) => "it is a decoder",
            Structure::Decoder(near) => {
                return write!(f, "it is a decoder, built like {}", near.join(", "));
            }
            Structure::Multimodal => "it takes images or sound beside text",
            Structure::EncoderDecoder => "it is an encoder with a decoder",
            Structure::Perception => "it is a model of images or sound",
            Structure::Encoder => "it is an encoder, which generates no text",
            Structure::Unclear => "its name and keys do not tell what kind of model it is",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_keys_tell_what_a_model_is() {
        let llama_like: &[&str] = &["llama", "mistral", "qwen2", "qwen3"];
        let cases = [
            (&["BertModel", "bert"][..], r#"{"layer_norm_eps": 1e-12}"#, Structure::Encoder),
            (&["RobertaForMaskedLM", "roberta"], "{}", Structure::Encoder),
            (&["Qwen4ForCausalLM", "qwen4"], r#"{"rms_norm_eps": 1e-6}"#, Structure::Decoder(llama_like)),
            (&["BloomForCausalLM"], r#"{"layer_norm_epsilon": 1e-5}"#, Structure::Decoder(&["gpt2"])),
            (
                &["GPTNeoXForCausalLM", "gpt_neox"],
                r#"{"layer_norm_eps": 1e-5, "rotary_pct": 0.25}"#,
                Structure::Decoder(&["stablelm", "starcoder2"]),
            ),
            (&["MambaForCausalLM"], "{}", Structure::Decoder(&[])),
            (&["LlavaForConditionalGeneration"], r#"{"vision_config": {}}"#, Structure::Multimodal),
            (&["T5ForConditionalGeneration"], r#"{"is_encoder_decoder": true}"#, Structure::EncoderDecoder),
            (&["ViTForImageClassification"], r#"{"image_size": 224}"#, Structure::Perception),
            (&["Thing"], "{}", Structure::Unclear),
        ];
        for (words, config, expected) in cases {
            let config = Config::new(serde_json::from_str(config).unwrap());
            assert_eq!(Structure::of(words, &config), expected, "{words:?}");
        }
    }
}
