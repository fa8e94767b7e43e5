//! Seeded faults in the parts that only some decoders have: each is found, and the layer that it is in is named.

use half::f16;
use serde_json::{Value, json};

use super::faults::{Fault, all_are_found, values};
use super::set;
use crate::support::architectures::Tiny;
use crate::support::decoders;

fn fault(name: &'static str, sound: Tiny, spoil: fn(&mut Tiny), expected: Option<&'static str>) -> Fault {
    Fault { name, sound, spoil, expected }
}

fn granite() -> Tiny {
    let config = json!({"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.37,
        "logits_scaling": 0.6});
    decoders::granite("sound", &config)
}

fn smollm3() -> Tiny {
    decoders::smollm3("sound", &json!({"no_rope_layers": [1, 0, 1], "tie_word_embeddings": false}))
}

fn gemma2() -> Tiny {
    let config = json!({"head_dim": 8, "query_pre_attn_scalar": 4, "sliding_window": 64,
        "attn_logit_softcapping": 0.7, "final_logit_softcapping": 5.0});
    decoders::gemma2("sound", &config)
}

fn cohere2() -> Tiny {
    let types = ["sliding_attention", "full_attention", "sliding_attention"];
    let config =
        json!({"sliding_window": 4, "layer_types": types, "logit_scale": 0.4, "tie_word_embeddings": true});
    decoders::cohere2("sound", &config)
}

fn glm4() -> Tiny {
    let config = json!({"head_dim": 8, "partial_rotary_factor": 0.5});
    decoders::glm("sound", "Glm4ForCausalLM", &config)
}

fn olmo2() -> Tiny {
    decoders::olmo("sound", "Olmo2ForCausalLM", &json!({}))
}

/// Exchanges two neighbouring rows of a matrix.
fn exchange_rows(tiny: &mut Tiny, tensor: &str, row: usize) {
    let width = tiny.tensors[tensor].0[1];
    let (first, second) = values(tiny, tensor)[row * width..][..2 * width].split_at_mut(width);
    first.swap_with_slice(second);
}

fn times(tiny: &mut Tiny, tensor: &str, factor: f32) {
    values(tiny, tensor).iter_mut().for_each(|x| *x = f16::from_f32(x.to_f32() * factor));
}

fn change(tiny: &mut Tiny, key: &str, value: Value) {
    tiny.config[key] = value;
}

#[test]
fn positions_and_scores() {
    all_are_found(vec![
        fault(
            "a layer without positions is rotated",
            smollm3(),
            |tiny| change(tiny, "no_rope_layers", json!([1, 1, 1])),
            Some("layer 1 attention"),
        ),
        fault(
            "a rotated layer has no positions",
            smollm3(),
            |tiny| change(tiny, "no_rope_layers", json!([1, 0, 0])),
            Some("layer 2 attention"),
        ),
        fault(
            "another cap of scores",
            gemma2(),
            |tiny| change(tiny, "attn_logit_softcapping", json!(7.0)),
            Some("layer 0 attention"),
        ),
        fault(
            "neighbours exchanged within a pair",
            glm4(),
            |tiny| exchange_rows(tiny, "model.layers.1.self_attn.q_proj.weight", 2),
            Some("layer 1 attention"),
        ),
        fault(
            "another share of a head rotated",
            glm4(),
            |tiny| change(tiny, "partial_rotary_factor", json!(1.0)),
            Some("layer 0 attention"),
        ),
    ]);
}

#[test]
fn norms() {
    all_are_found(vec![
        fault(
            "one scale of the norm of all query heads",
            olmo2(),
            |tiny| set(tiny, "model.layers.1.self_attn.q_norm.weight", 13, -4.0),
            Some("layer 1 attention"),
        ),
        fault(
            "one scale of the norm after attention",
            glm4(),
            |tiny| set(tiny, "model.layers.2.post_self_attn_layernorm.weight", 5, -2.0),
            Some("layer 2 attention"),
        ),
        fault(
            "one scale of the norm after the MLP",
            olmo2(),
            |tiny| set(tiny, "model.layers.1.post_feedforward_layernorm.weight", 5, -2.0),
            Some("layer 1"),
        ),
        fault(
            "one bias of a layer norm",
            decoders::starcoder2("sound", &json!({"tie_word_embeddings": true})),
            |tiny| set(tiny, "model.layers.1.post_attention_layernorm.bias", 4, 4.0),
            Some("layer 1"),
        ),
    ]);
}

#[test]
fn multipliers_and_what_runs_side_by_side() {
    all_are_found(vec![
        fault(
            "another multiplier of embeddings",
            granite(),
            |tiny| change(tiny, "embedding_multiplier", json!(3.3)),
            Some("embedding"),
        ),
        fault(
            "another multiplier of scores",
            granite(),
            |tiny| change(tiny, "attention_multiplier", json!(1.5)),
            Some("layer 0 attention"),
        ),
        fault(
            "another multiplier of what is added",
            granite(),
            |tiny| change(tiny, "residual_multiplier", json!(0.5)),
            Some("layer 0 attention"),
        ),
        fault(
            "one layer adds more",
            granite(),
            |tiny| times(tiny, "model.layers.1.mlp.down_proj.weight", 1.5),
            Some("layer 1"),
        ),
        fault(
            "an MLP beside attention",
            cohere2(),
            |tiny| set(tiny, "model.layers.1.mlp.up_proj.weight", 17, 4.0),
            Some("layer 1"),
        ),
        fault(
            "the norm that attention and MLP share",
            cohere2(),
            |tiny| set(tiny, "model.layers.2.input_layernorm.weight", 5, -2.0),
            Some("layer 2 attention"),
        ),
        fault("another scale of logits", cohere2(), |tiny| change(tiny, "logit_scale", json!(0.8)), None),
    ]);
}
