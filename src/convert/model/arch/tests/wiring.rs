//! Each architecture from its tensors: what is wired where, in which shape.

use super::*;
use crate::checkpoint::Encoding;
use crate::model::graph::{Activation, Gate, Layer, Mlp, Position};
use crate::model::rope::RopeScaling;
use crate::model::weight::{Source, Weight};
use anemeter_kernels::tensor::DType;

fn read(weight: &Weight) -> Vec<f32> {
    let mut out = vec![-1.0; weight.element_count()];
    weight.read(0..out.len(), &mut out);
    out
}

fn gated(mlp: &Mlp) -> (&Weight, &Weight, &Weight, Activation) {
    match mlp {
        Mlp::Gated { gate, up, activation, down } => (&gate.weight, &up.weight, &down.weight, *activation),
        other => panic!("{other:?}"),
    }
}

#[test]
fn llama() {
    let decoder = built(&family("LlamaForCausalLM", r#", "rms_norm_eps": 1e-5"#), &[LLAMA]);
    assert_eq!((decoder.architecture, decoder.hidden, decoder.vocabulary), ("llama", 8, 11));
    assert_eq!((decoder.max_positions, decoder.layers.len(), decoder.head.tied), (64, 1, false));
    assert_eq!(decoder.head.weight.name, "lm_head.weight");
    let layer = &decoder.layers[0];
    let attention = layer.attention().unwrap();
    assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (4, 2, 2));
    assert_eq!((attention.scale, attention.window), (0.5f32.sqrt(), None));
    assert_eq!(attention.rope.as_ref().unwrap().base, 10_000.0);
    assert_eq!(attention.key.weight.name, "model.layers.0.self_attn.k_proj.weight");
    assert_eq!(attention.key.weight.shape[..], [4, 8]);
    assert!(attention.query.bias.is_none() && layer.post_attention_norm.is_none());
    let mlp_norm = layer.mlp_norm.as_ref().unwrap();
    assert_eq!(mlp_norm.weight.name, "model.layers.0.post_attention_layernorm.weight");
    assert_eq!(mlp_norm.epsilon, 1e-5);
    let (gate, up, down, activation) = gated(&layer.mlp);
    assert_eq!((gate.shape[0], up.shape[0], down.shape[0]), (12, 12, 8));
    assert_eq!(activation, Activation::Silu);
}

#[test]
fn llama_with_biases_and_a_tied_head_without_prefix() {
    let config = family(
        "LlamaModel",
        r#", "model_type": "llama", "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true"#,
    );
    let tensors = [LLAMA, QKV_BIASES, OTHER_BIASES].concat().replace("model.", "");
    let decoder = built(&config, &[&tensors, "\nlayers.0.self_attn.rotary_emb.inv_freq [1]"]);
    assert!(decoder.head.tied);
    let (embedding, head) = (&decoder.embedding.name, &decoder.head.weight.name);
    assert_eq!([embedding, head], ["embed_tokens.weight"; 2]);
    assert_eq!(decoder.layers[0].attention().unwrap().output.bias.as_ref().unwrap().shape[..], [8]);

    let error = refused(&config, &[&tensors.replace("lm_head.weight [11, 8]", "lm_head.weight [88]")]);
    assert!(error.contains("`lm_head.weight` differs from `embed_tokens.weight`"), "{error}");
}

#[test]
fn mistral_and_the_student() {
    let config = family("MistralForCausalLM", r#", "head_dim": 2, "sliding_window": 16"#);
    let decoder = built(&config, &[LLAMA]);
    assert_eq!((decoder.architecture, decoder.layers[0].attention().unwrap().window), ("mistral", Some(16)));
    let decoder = built(&family("MistralForCausalLM", r#", "sliding_window": null"#), &[LLAMA]);
    assert_eq!(decoder.layers[0].attention().unwrap().window, None);
    let decoder = built(&family("MistralForCausalLM", ""), &[LLAMA]);
    assert_eq!(decoder.layers[0].attention().unwrap().window, Some(4096), "as in transformers");

    let student = family("Student", r#", "model_type": "student_gqa""#);
    assert_eq!(built(&student, &[LLAMA]).architecture, "student");
    let error = refused(&student.replace("num_key_value_heads", "kv"), &[LLAMA]);
    assert!(error.ends_with("config key `num_key_value_heads` is missing"), "{error}");
}

#[test]
fn qwen2_windows_start_at_a_layer() {
    let two = [LLAMA, QKV_BIASES].concat();
    let second: String = two.lines().filter(|line| line.contains("layers.0")).collect::<Vec<_>>().join("\n");
    let second = format!("\n{}", second.replace("layers.0", "layers.1"));
    let config = |more: &str| {
        let config = family("Qwen2ForCausalLM", &format!(r#", "sliding_window": 16 {more}"#));
        config.replace(r#""num_hidden_layers": 1"#, r#""num_hidden_layers": 2"#)
    };
    let windows = |more: &str| {
        let decoder = built(&config(more), &[&two, &second]);
        assert!(
            decoder
                .layers
                .iter()
                .filter_map(Layer::attention)
                .all(|a| a.query.bias.is_some() && a.output.bias.is_none())
        );
        [decoder.layers[0].attention().unwrap().window, decoder.layers[1].attention().unwrap().window]
    };
    assert_eq!(windows(""), [None, None]);
    assert_eq!(windows(r#", "use_sliding_window": true, "max_window_layers": 1"#), [None, Some(16)]);
    assert_eq!(windows(r#", "use_sliding_window": true"#), [None, None]);
    let types = r#", "use_sliding_window": true, "layer_types": ["sliding_attention", "full_attention"]"#;
    assert_eq!(windows(types), [Some(16), None]);
    let error = refused(&config(&types.replace(r#", "full_attention""#, "")), &[&two, &second]);
    assert!(error.ends_with("config key `layer_types` has 1 entries for 2 layers"), "{error}");
}

#[test]
fn qwen3() {
    let config = family("Qwen3ForCausalLM", r#", "head_dim": 6, "tie_word_embeddings": true"#);
    let decoder = built(&config, &[WIDE_HEADS]);
    let attention = decoder.layers[0].attention().unwrap();
    let (query, output) = (&attention.query.weight.shape, &attention.output.weight.shape);
    assert_eq!((attention.head_dim, query[0], output[1]), (6, 24, 24));
    assert_eq!(attention.key_norm.as_ref().unwrap().weight.name, "model.layers.0.self_attn.k_norm.weight");
    assert_eq!(attention.rope.as_ref().unwrap().dims, 6);
}

const GEMMA3: &str = r#", "head_dim": 6, "query_pre_attn_scalar": 16, "sliding_window": 32,
    "final_logit_softcapping": 30.0"#;

#[test]
fn gemma3() {
    let config = family("Gemma3ForCausalLM", GEMMA3);
    let mut tensors = checkpoint(&config, &[WIDE_HEADS, FEEDFORWARD_NORMS].concat());
    let decoder = build(&tensors).unwrap();
    assert_eq!((decoder.embedding_scale, decoder.head.tied), (8f32.sqrt(), true));
    assert_eq!(decoder.head.softcap, Some(30.0));
    let layer = &decoder.layers[0];
    assert_eq!((layer.attention().unwrap().scale, layer.attention().unwrap().window), (0.25, Some(32)));
    assert_eq!(layer.attention().unwrap().rope.as_ref().unwrap().base, 10_000.0);
    let norms = [&layer.attention_norm, &layer.post_attention_norm, &layer.mlp_norm, &layer.post_mlp_norm];
    let names = norms.map(|norm| norm.as_ref().unwrap().weight.name.as_str());
    let expected = ["input", "post_attention", "pre_feedforward", "post_feedforward"];
    assert_eq!(names, expected.map(|name| format!("model.layers.0.{name}_layernorm.weight")));
    for norm in [layer.mlp_norm.as_ref().unwrap(), &decoder.final_norm] {
        assert_eq!(read(&norm.weight), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    }
    assert_eq!(read(&layer.attention().unwrap().query_norm.as_ref().unwrap().weight)[0], 1.0);
    assert_eq!(gated(&layer.mlp).3, Activation::GeluTanh);

    let embedding = tensors.tensors.get_mut("model.embed_tokens.weight").unwrap();
    embedding.encoding = Encoding::Plain(DType::BF16);
    assert_eq!(build(&tensors).unwrap().embedding_scale, 2.828_125);
}

#[test]
fn gemma3_layers_that_see_everything() {
    let scaling = r#", "sliding_window_pattern": 1, "rope_scaling": {"rope_type": "linear", "factor": 8.0}"#;
    let parameters = r#", "layer_types": ["full_attention"], "rope_parameters": {
        "full_attention": {"factor": 8.0, "rope_theta": 1000000.0, "rope_type": "linear"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}"#;
    for more in [scaling, parameters] {
        let config = family("Gemma3ForCausalLM", &format!("{GEMMA3}{more}"));
        let decoder = built(&config, &[WIDE_HEADS, FEEDFORWARD_NORMS]);
        let attention = decoder.layers[0].attention().unwrap();
        let rope = attention.rope.as_ref().unwrap();
        assert_eq!((rope.base, &rope.scaling), (1e6, &RopeScaling::Linear(8.0)));
        assert_eq!(attention.window, None);
    }
    let config = family("Gemma3ForCausalLM", &format!(r#"{GEMMA3}, "attn_logit_softcapping": 50.0"#));
    assert_eq!(
        built(&config, &[WIDE_HEADS, FEEDFORWARD_NORMS]).layers[0].attention().unwrap().softcap,
        Some(50.0)
    );
    let config = family("Gemma3ForCausalLM", r#", "use_bidirectional_attention": true"#);
    let error = refused(&config, &[WIDE_HEADS, FEEDFORWARD_NORMS]);
    assert!(error.contains("config key `use_bidirectional_attention` is true"), "{error}");
}

#[test]
fn gemma3_inside_a_model_that_sees_images() {
    let text = family("Gemma3TextModel", GEMMA3);
    let config = format!(r#"{{"model_type": "gemma3", "vision_config": {{}}, "text_config": {text}}}"#);
    let image = "\nvision_tower.vision_model.embeddings.patch_embedding.bias [8]
        multi_modal_projector.mm_soft_emb_norm.weight [8]";
    for prefix in ["language_model.model.", "model.language_model."] {
        let tensors = [WIDE_HEADS, FEEDFORWARD_NORMS].concat().replace("model.", prefix);
        let decoder = built(&config, &[&tensors, image]);
        assert_eq!(decoder.embedding.name, format!("{prefix}embed_tokens.weight"));
    }
    let error = refused(&config.replace(r#""hidden_size": 8"#, r#""hidden_size": 0"#), &[WIDE_HEADS]);
    assert!(error.contains("`text_config.hidden_size` is 0"), "{error}");
}

#[test]
fn phi3_splits_fused_rows() {
    let decoder = built(&family("Phi3ForCausalLM", r#", "rope_scaling": null"#), &[PHI3]);
    let attention = decoder.layers[0].attention().unwrap();
    let (_, up, ..) = gated(&decoder.layers[0].mlp);
    let parts = [
        (&attention.query.weight, "self_attn.qkv_proj.query", [8, 8], 0),
        (&attention.key.weight, "self_attn.qkv_proj.key", [4, 8], 64),
        (&attention.value.weight, "self_attn.qkv_proj.value", [4, 8], 96),
        (up, "mlp.gate_up_proj.up", [12, 8], 96),
    ];
    for (weight, name, shape, first) in parts {
        assert_eq!(weight.name, format!("model.layers.0.{name}.weight"));
        assert_eq!(weight.shape[..], shape);
        let values = read(weight);
        assert_eq!((values[0], values[values.len() - 1]), (first as f32, (first + values.len() - 1) as f32));
    }
    assert_eq!(decoder.final_norm.epsilon, 1e-5);
}

#[test]
fn gpt2_transposes_and_splits_columns() {
    let buffers = "\ntransformer.h.0.attn.bias [1, 1, 16, 16]\ntransformer.h.0.attn.masked_bias []";
    let decoder = built(&gpt2(""), &[GPT2_TRUNK, GPT2_MLP, buffers]);
    assert_eq!((decoder.architecture, decoder.max_positions, decoder.head.tied), ("gpt2", 16, true));
    assert!(matches!(&decoder.position, Position::Learned(weight) if weight.shape[..] == [16, 8]));
    let attention = decoder.layers[0].attention().unwrap();
    assert_eq!((attention.heads, attention.kv_heads, attention.head_dim, attention.scale), (2, 2, 4, 0.5));
    assert!(attention.rope.is_none());
    assert_eq!(attention.value.weight.name, "transformer.h.0.attn.c_attn.value.weight");
    assert_eq!(read(&attention.value.weight)[..3], [16.0, 40.0, 64.0]);
    assert_eq!(read(attention.key.bias.as_ref().unwrap())[..2], [8.0, 9.0]);
    let Mlp::Plain { up, activation, down } = &decoder.layers[0].mlp else { panic!("a plain MLP") };
    assert_eq!((&up.weight.shape[..], &down.weight.shape[..]), (&[32, 8][..], &[8, 32][..]));
    assert!(matches!(up.weight.source, Source::Transposed(_)));
    assert_eq!(*activation, Activation::GeluTanh);

    let bare = [GPT2_TRUNK, GPT2_MLP].concat().replace("transformer.", "");
    let config = gpt2(r#", "scale_attn_by_inverse_layer_idx": true, "scale_attn_weights": false"#);
    assert_eq!(
        built(&config, &[&bare, "\nh.0.attn.bias [1, 1, 16, 16]"]).layers[0].attention().unwrap().scale,
        1.0
    );
}

#[test]
fn pagating_is_told_from_gpt2_by_its_tensors() {
    let fixed = "\ntransformer.h.0.mlp.act.alpha_fixed []";
    let learned = "\ntransformer.h.0.mlp.act.alpha_param []";
    let inner = |decoder: Decoder| match &decoder.layers[0].mlp {
        Mlp::Inner { how, gate_norm, .. } => (decoder.architecture, *how, gate_norm.is_some()),
        other => panic!("{other:?}"),
    };
    let tensors = [GPT2_TRUNK, PAGATING_MLP].concat();
    let found = inner(built(&gpt2(""), &[&tensors, fixed]));
    assert_eq!(found, ("pagating", Gate { activation: Activation::Sigmoid, alpha: 0.0 }, false));
    let unit = gpt2(r#", "pagating_unit": "paSiLU""#);
    let found = inner(built(&unit, &[&tensors, learned, GATE_NORM]));
    assert_eq!(found, ("pagating", Gate { activation: Activation::Silu, alpha: 0.5 }, true));

    let error = refused(&gpt2(r#", "pagating_unit": "paGTU""#), &[&tensors, fixed]);
    assert!(error.contains("is `paGTU`, expected one of paGLU, paGELU, paSiLU, paReGLU"), "{error}");
    let error = refused(&gpt2(""), &[&tensors]);
    assert!(error.contains("`transformer.h.0.mlp.act.alpha_fixed` is missing, expected []"), "{error}");
    let error = refused(&gpt2(""), &[&tensors, fixed, learned]);
    assert!(error.contains("`transformer.h.0.mlp.act.alpha_fixed` [] is not part of the model"), "{error}");
    let mut outside = checkpoint(&gpt2(""), &[&tensors, fixed].concat());
    let alpha = outside.tensors.get_mut("transformer.h.0.mlp.act.alpha_fixed").unwrap();
    alpha.bytes = 1.5f32.to_ne_bytes().to_vec().into();
    assert!(build(&outside).unwrap_err().to_string().contains("alpha_fixed` is 1.5, expected"));
}
