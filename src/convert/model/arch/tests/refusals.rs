//! Checkpoints that make no model, and what is said of them.

use serde_json::json;

use super::*;
use anemeter_base::advice::Advice;

#[test]
fn all_that_is_wrong_with_tensors_is_reported_at_once() {
    let tensors = LLAMA
        .replace("q_proj.weight [8, 8]", "q_proj.weight [8, 9]")
        .replace("v_proj.weight", "w_proj.weight")
        .replace("model.norm", "model.morn");
    assert_eq!(
        refused(&family("LlamaForCausalLM", r#", "head_dim": 2"#), &[&tensors]),
        "tiny: tensors do not make up the llama model of its configuration
  `model.layers.0.self_attn.q_proj.weight` is [8, 9], expected [8, 8] from [num_attention_heads * head_dim, hidden_size]
  `model.layers.0.self_attn.v_proj.weight` is missing, expected [4, 8] from [num_key_value_heads * head_dim, hidden_size]
  `model.norm.weight` is missing, expected [8] from [hidden_size]
  `model.layers.0.self_attn.w_proj.weight` [4, 8] is not part of the model
  `model.morn.weight` [8] is not part of the model"
    );
    let error = refused(&family("Phi3ForCausalLM", ""), &[&PHI3.replace("[24, 8]", "[12, 8]")]);
    assert!(
        error.contains(
            "is [12, 8], expected [24, 8] from [intermediate_size + intermediate_size, hidden_size]"
        ),
        "{error}"
    );
    let error = refused(&gpt2(""), &[GPT2_TRUNK, &GPT2_MLP.replace("[8, 32]", "[32, 8]")]);
    assert!(
        error.contains(
            "`transformer.h.0.mlp.c_fc.weight` is [32, 8], expected [8, 32] from [n_embd, 4 * n_embd]"
        ),
        "{error}"
    );
}

#[test]
fn hostile_and_impossible_configurations_are_refused() {
    let good: serde_json::Value = serde_json::from_str(&family("LlamaForCausalLM", "")).unwrap();
    let most = u64::MAX;
    for (key, value, expected) in [
        ("num_hidden_layers", json!(4_000_000_000u64), "but there are only 12 tensors"),
        ("num_attention_heads", json!(0), "`num_attention_heads` is 0"),
        ("num_attention_heads", json!(6), "`num_attention_heads` is 6, which does not divide hidden_size 8"),
        ("num_key_value_heads", json!(3), "which does not divide num_attention_heads 4"),
        ("vocab_size", json!("many"), "`vocab_size` is \"many\", expected a size"),
        ("hidden_act", json!("mish"), "`hidden_act` is `mish`"),
        (
            "intermediate_size",
            json!(most),
            "expected [18446744073709551615, 8] from [intermediate_size, hidden_size]",
        ),
        ("architectures", json!(null), "`model_type` is missing"),
        ("head_dim", json!(most - 1), "head_dim 18446744073709551614 dimensions are rotated"),
    ] {
        let mut config = good.clone();
        config[key] = value;
        let error = refused(&config.to_string(), &[LLAMA]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn mixtures_of_experts_are_refused_with_the_reason_and_a_way_out() {
    let cases = [
        ("Qwen3MoeForCausalLM", r#", "model_type": "qwen3_moe", "num_experts": 128"#, "(qwen3)"),
        ("MixtralForCausalLM", r#", "model_type": "mixtral", "num_local_experts": 8"#, "(mistral)"),
        ("Lfm2MoeForCausalLM", r#", "model_type": "lfm2_moe", "num_experts": 32"#, "(lfm2)"),
        (
            "Qwen3_5MoeForConditionalGeneration",
            r#", "model_type": "qwen3_5_moe", "text_config": {"num_experts": 64}"#,
            "(qwen3_5)",
        ),
        ("GptOssForCausalLM", r#", "model_type": "gpt_oss", "num_local_experts": 32"#, "active parameters"),
        ("MiniCPMForCausalLM", r#", "model_type": "minicpm", "num_experts": 8"#, "(minicpm)"),
    ];
    for (class, keys, way_out) in cases {
        let error = build(&checkpoint(&family(class, keys), LLAMA)).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!("architecture `{class}`")), "{message}");
        assert!(message.contains("is a mixture of experts"), "{message}");
        assert!(message.ends_with("gathers of weights leave the Neural Engine"), "{message}");
        let help = error.remedy().unwrap().to_string();
        assert!(help.contains(way_out) && help.contains("on the GPU, with MLX or llama.cpp"), "{help}");
    }
    let none = family("LlamaForCausalLM", r#", "num_local_experts": 0, "num_experts": null"#);
    assert!(build(&checkpoint(&none, LLAMA)).is_ok(), "no experts are none");
}

#[test]
fn an_unknown_architecture_is_told_the_known_ones() {
    let config = family("Qwen4ForCausalLM", r#", "model_type": "qwen4""#);
    let error = refused(&config, &[LLAMA]);
    let [found, known] = [
        "tiny: architecture `Qwen4ForCausalLM` / `qwen4` is not known: it is a decoder",
        "; known are llama, mistral, \
         qwen2, qwen3, gemma3, phi3, gpt2, pagating, student, smollm3, granite, granite4, olmo2, olmo3, gemma2, ministral, \
         ministral3, starcoder2, stablelm, cohere2, glm, glm4, ernie4_5, minicpm, gemma4",
    ];
    assert!(error.starts_with(found) && error.contains(known), "{error}");
    assert!(error.ends_with(", bert, roberta, modernbert, embedding-gemma"), "{error}");
    let error = refused(&family("MPNetModel", ""), &[]);
    assert!(
        error.contains("`MPNetModel` is not known: it is an encoder, which generates no text"),
        "{error}"
    );
}
