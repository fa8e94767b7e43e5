//! Whether packages generate text: rules about that say nothing of others.

use super::Subject;
use crate::op::OpClass;
use crate::{Binding, Feature, FeatureType, Function, Interface, Model, Operation};

/// Words for keys, values or both.
const KEYS_AND_VALUES: &[&str] = &["k", "v", "key", "keys", "value", "values"];
/// Words for something that is kept from one prediction to the next.
const KEPT: &[&str] = &["cache", "caches", "past", "sliding", "full"];

impl Subject {
    /// Whether it generates text, or is a part of a model that does: the bundle says so, it keeps keys and values, or it goes
    /// from tokens to logits of its vocabulary. A state alone says nothing: recurrent and streaming models have states, too.
    pub(super) fn is_decoder(&self) -> bool {
        match self.generates_text {
            Some(said) => said,
            None => {
                self.training_seq_lens.is_some() || self.packages.iter().any(|package| speaks(&package.model))
            }
        }
    }
}

fn speaks(model: &Model) -> bool {
    model.interfaces().iter().any(|interface| {
        let features = || interface.inputs.iter().chain(&interface.states);
        features().any(|feature| keeps_keys_and_values(&feature.name))
            || takes_token_vectors(interface)
            || model.program.function(&interface.function).is_some_and(|of| picks_tokens(interface, of))
    })
}

/// Whether a name is that of cached keys and values, such as `kv_cache_0`, `keyCache`, `past_key_values` or `k_cache`.
fn keeps_keys_and_values(name: &str) -> bool {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    words.iter().any(|word| word == "kv") || (has(KEYS_AND_VALUES) && has(KEPT))
}

/// The words of a name, in lower case: `valueCache_12` has `value` and `cache`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphabetic() || (was_lower && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        was_lower = c.is_ascii_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphabetic()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// Whether vectors of tokens come in as they do into the layers of an export, or with a causal mask, or leave as logits.
fn takes_token_vectors(interface: &Interface) -> bool {
    let is_in = |is_it: fn(&str) -> bool| interface.inputs.iter().any(|feature| is_it(&feature.name));
    // Recurrent models call something of two or three dimensions hidden.
    let own = interface.inputs.iter().any(|feature| feature.name == "hidden" && rank(feature) == Some(4));
    let named = is_in(|name| name == "hidden_states");
    own || (named && (is_in(|name| name.starts_with("causal_mask")) || logits(interface).is_some()))
}

/// Whether token ids become logits of a vocabulary that is looked up. Classifiers of texts have logits of classes.
fn picks_tokens(interface: &Interface, function: &Function) -> bool {
    let takes_ids = interface.inputs.iter().any(|feature| feature.name.to_ascii_lowercase().contains("ids"));
    let Some(logits) = logits(interface).filter(|_| takes_ids) else { return false };
    let value = function.body.outputs.iter().map(|&id| function.value(id));
    let ty = value.filter(|value| value.name == logits.name).find_map(|value| value.ty.tensor());
    let Some(ty) = ty else { return false };
    let is_lookup = |op: &&Operation| matches!(function.class_of(op), Some(OpClass::Lookup));
    let tables = function.body.operations.iter().filter(is_lookup).filter_map(|op| {
        let Some(Binding::Value(table)) = op.input("x")?.bindings.first() else { return None };
        let rows = &function.value(*table).ty.tensor()?.shape[..];
        if let [rows, _] = rows { rows.size() } else { None }
    });
    let tables: Vec<usize> = tables.collect();
    // The vocabulary is the last axis, or that of channels.
    let is_vocabulary = |rows: &usize| ty.shape.iter().any(|dim| dim.size() == Some(*rows));
    tables.is_empty() || tables.iter().any(is_vocabulary)
}

fn logits(interface: &Interface) -> Option<&Feature> {
    interface.outputs.iter().find(|feature| feature.name.to_ascii_lowercase().starts_with("logits"))
}

fn rank(feature: &Feature) -> Option<usize> {
    match &feature.ty {
        FeatureType::Array(array) | FeatureType::State(array) => Some(array.shape.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, big, case, conv, input, read, state, unary};
    use super::*;
    use anemeter_kernels::tensor::DType;

    #[test]
    fn names_of_keys_and_values_are_told_from_those_of_other_caches() {
        for name in
            ["kv_cache_0", "model_model_kv_cache_0", "keyCache", "past_key_values", "v_cache", "kv13_k"]
        {
            assert!(keeps_keys_and_values(name), "{name}");
        }
        assert!(keeps_keys_and_values("K_sliding_in"));
        for name in
            ["cache_last_channel", "cache_len", "h_in", "conv_state", "hidden", "value", "keypoints", "past"]
        {
            assert!(!keeps_keys_and_values(name), "{name}");
        }
    }

    fn of_state(name: &'static str, dims: &[usize]) -> Case {
        case(|b| {
            let kept = state(b, name, dims);
            let content = read(b, kept);
            vec![unary(b, "relu", content)]
        })
    }

    #[test]
    fn a_state_alone_makes_no_decoder() {
        assert!(of_state("kv_cache", &[2, 4, 64, 32]).subject.is_decoder());
        for name in ["lstm_h", "cache_last_time", "conv_state"] {
            assert!(!of_state(name, &[2, 1, 64]).subject.is_decoder(), "{name}");
        }
        let mut said = of_state("memory", &[2, 4, 64, 32]).subject;
        said.generates_text = Some(true);
        assert!(said.is_decoder(), "a contract says that it is one");
    }

    #[test]
    fn hidden_states_of_recurrent_models_and_encoders_are_no_token_vectors() {
        let of = |name: &'static str, dims: &[usize], beside: Option<&'static str>| {
            let case = case(|b| {
                let x = input(b, name, DType::F16, dims);
                if let Some(beside) = beside {
                    input(b, beside, DType::F16, &[1, 1, 1, 8]);
                }
                vec![unary(b, "relu", x)]
            });
            case.subject.is_decoder()
        };
        assert!(of("hidden", &[1, 64, 1, 32], None), "as exports name it");
        assert!(of("hidden_states", &[1, 1, 64], Some("causal_mask")));
        assert!(!of("hidden", &[1, 1, 64], None));
        assert!(!of("hidden_states", &[1, 100, 64], Some("attention_mask")));
    }

    #[test]
    fn logits_of_classes_are_not_those_of_tokens() {
        let of = |rows: usize| {
            let case = case(|b| {
                let ids = input(b, "input_ids", DType::I32, &[1, 8]);
                let table = b.constant("table", big(&[rows, 64]));
                let x = b.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
                let weight = b.constant("w", big(&[96, 64]));
                let y = b.op("linear").arg("x", x).arg("weight", weight).named("logits").push().unwrap();
                vec![y]
            });
            case.subject.is_decoder()
        };
        assert!(of(96));
        assert!(!of(1000), "96 classes of 1000 tokens");
        let image = case(|b| {
            let x = input(b, "image", DType::F16, &[1, 64, 1, 32]);
            vec![conv(b, x, (64, 64))]
        });
        assert!(!image.subject.is_decoder());
    }
}
