//! Decoders whose layers keep states of fixed size: which layer has which mixer, and what its parts are.

use super::*;
use crate::model::mixer::Mixer;
use crate::model::weight::Weight;

const LFM2: &str = "model.embed_tokens.weight [11, 8]
model.embedding_norm.weight [8]
model.layers.0.operator_norm.weight [8]
model.layers.0.ffn_norm.weight [8]
model.layers.0.conv.in_proj.weight [24, 8]
model.layers.0.conv.conv.weight [8, 1, 3]
model.layers.0.conv.out_proj.weight [8, 8]
model.layers.0.feed_forward.w1.weight [16, 8]
model.layers.0.feed_forward.w3.weight [16, 8]
model.layers.0.feed_forward.w2.weight [8, 16]
model.layers.1.operator_norm.weight [8]
model.layers.1.ffn_norm.weight [8]
model.layers.1.self_attn.q_proj.weight [8, 8]
model.layers.1.self_attn.k_proj.weight [4, 8]
model.layers.1.self_attn.v_proj.weight [4, 8]
model.layers.1.self_attn.out_proj.weight [8, 8]
model.layers.1.self_attn.q_layernorm.weight [2]
model.layers.1.self_attn.k_layernorm.weight [2]
model.layers.1.feed_forward.w1.weight [16, 8]
model.layers.1.feed_forward.w3.weight [16, 8]
model.layers.1.feed_forward.w2.weight [8, 16]";

const QWEN: &str = "model.language_model.embed_tokens.weight [11, 8]
model.language_model.norm.weight [8]
lm_head.weight [11, 8]
mtp.fc.weight [8, 16]
model.visual.blocks.0.norm1.weight [8]
model.language_model.layers.0.input_layernorm.weight [8]
model.language_model.layers.0.post_attention_layernorm.weight [8]
model.language_model.layers.0.linear_attn.in_proj_qkv.weight [20, 8]
model.language_model.layers.0.linear_attn.in_proj_z.weight [12, 8]
model.language_model.layers.0.linear_attn.in_proj_b.weight [4, 8]
model.language_model.layers.0.linear_attn.in_proj_a.weight [4, 8]
model.language_model.layers.0.linear_attn.conv1d.weight [20, 1, 4]
model.language_model.layers.0.linear_attn.dt_bias [4]
model.language_model.layers.0.linear_attn.A_log [4]
model.language_model.layers.0.linear_attn.norm.weight [3]
model.language_model.layers.0.linear_attn.out_proj.weight [8, 12]
model.language_model.layers.0.mlp.gate_proj.weight [12, 8]
model.language_model.layers.0.mlp.up_proj.weight [12, 8]
model.language_model.layers.0.mlp.down_proj.weight [8, 12]
model.language_model.layers.1.input_layernorm.weight [8]
model.language_model.layers.1.post_attention_layernorm.weight [8]
model.language_model.layers.1.self_attn.q_proj.weight [16, 8]
model.language_model.layers.1.self_attn.k_proj.weight [4, 8]
model.language_model.layers.1.self_attn.v_proj.weight [4, 8]
model.language_model.layers.1.self_attn.o_proj.weight [8, 8]
model.language_model.layers.1.self_attn.q_norm.weight [2]
model.language_model.layers.1.self_attn.k_norm.weight [2]
model.language_model.layers.1.mlp.gate_proj.weight [12, 8]
model.language_model.layers.1.mlp.up_proj.weight [12, 8]
model.language_model.layers.1.mlp.down_proj.weight [8, 12]";

fn two_layers(class: &str, more: &str) -> String {
    family(class, more).replace(r#""num_hidden_layers": 1"#, r#""num_hidden_layers": 2"#)
}

fn rows(weight: &Weight) -> Vec<f32> {
    let mut values = vec![0.0; weight.element_count()];
    weight.read(0..values.len(), &mut values);
    values.into_iter().step_by(weight.shape[1..].iter().product()).collect()
}

#[test]
fn lfm2_has_convolutions_between_gates() {
    // Two thirds of 12 are 8, rounded up to a multiple of 16.
    let sizes = r#", "full_attn_idxs": [1], "block_multiple_of": 16"#;
    let decoder = built(&two_layers("Lfm2ForCausalLM", sizes), &[LFM2]);
    assert_eq!((decoder.architecture, decoder.head.tied), ("lfm2", true));
    assert_eq!(decoder.final_norm.weight.name, "model.embedding_norm.weight");
    let Mixer::ShortConv(mixer) = &decoder.layers[0].mixer else { panic!("{:?}", decoder.layers[0].mixer) };
    assert_eq!((mixer.conv.sizes(), mixer.conv.bias.is_none()), ((8, 3), true));
    // Rows of the matrix: first what the input is multiplied by, then what the output is, then the input.
    let first = [&mixer.before, &mixer.after, &mixer.value].map(|linear| rows(&linear.weight)[0]);
    assert_eq!(first, [0.0, 64.0, 128.0]);
    let attention = decoder.layers[1].attention().unwrap();
    assert_eq!(attention.rope.as_ref().unwrap().base, 1e6);
    assert_eq!(attention.query_norm.as_ref().unwrap().weight.shape[..], [2]);
    assert_eq!(decoder.layers[0].mixer.state_bytes(), 2 * 8 * 2);

    let error = refused(&two_layers("Lfm2ForCausalLM", r#", "layer_types": ["conv", "mamba"]"#), &[LFM2]);
    assert!(error.contains("`layer_types` has `mamba`, expected conv or full_attention"), "{error}");
}

#[test]
fn qwen3_5_has_delta_rules_and_gates_what_attention_gives() {
    let sizes = r#", "model_type": "qwen3_5_text", "full_attention_interval": 2, "head_dim": 2,
        "partial_rotary_factor": 1.0, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 2, "linear_value_head_dim": 3"#;
    let text = two_layers("Qwen3_5ForConditionalGeneration", sizes);
    let config = format!(
        r#"{{"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "vision_config": {{}},
        "text_config": {text}}}"#
    );
    let decoder = built(&config, &[QWEN]);
    let Mixer::DeltaNet(mixer) = &decoder.layers[0].mixer else { panic!("{:?}", decoder.layers[0].mixer) };
    assert_eq!((mixer.key_width(), mixer.value_width(), mixer.conv.sizes()), (4, 12, (20, 4)));
    // The norm before the gate scales by its weight, all others by one more.
    let first = |weight: &Weight| rows(weight)[0];
    assert_eq!((first(&mixer.norm.weight), first(&decoder.final_norm.weight)), (0.0, 1.0));
    assert_eq!(decoder.layers[0].mixer.state_bytes(), 2 * 20 * 3 + 4 * 4 * 2 * 3);
    let attention = decoder.layers[1].attention().unwrap();
    // Two rows of queries, two of their gate, and so on.
    assert_eq!(rows(&attention.query.weight), [0.0, 8.0, 32.0, 40.0, 64.0, 72.0, 96.0, 104.0]);
    let gate = attention.output_gate.as_ref().unwrap();
    assert_eq!(rows(&gate.weight), [16.0, 24.0, 48.0, 56.0, 80.0, 88.0, 112.0, 120.0]);

    let halved = sizes.to_owned() + r#", "mamba_ssm_dtype": "bfloat16""#;
    let error = refused(&two_layers("Qwen3_5ForCausalLM", &halved), &[QWEN]);
    assert!(error.contains("`mamba_ssm_dtype` is `bfloat16`"), "{error}");
}
