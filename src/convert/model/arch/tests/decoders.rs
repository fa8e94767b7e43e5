//! What the plain decoders change about Llama: positions, norms, multipliers, windows.

use super::*;
use crate::model::graph::{Activation, Layer, Mlp, NormKind, QueryGrowth, Residual};
use crate::model::mixer::Mixer;
use crate::model::rope::RopeScaling;
use crate::model::weight::Weight;

/// A list of tensors with so many layers like its first.
fn layered(tensors: &str, layers: usize) -> String {
    let is_inner = |line: &&str| line.contains(".layers.0.");
    let inner: Vec<&str> = tensors.lines().filter(is_inner).collect();
    let outer: Vec<&str> = tensors.lines().filter(|line| !is_inner(line)).collect();
    let layer = |i: usize| inner.join("\n").replace(".layers.0.", &format!(".layers.{i}."));
    [vec![outer.join("\n")], (0..layers).map(layer).collect()].concat().join("\n")
}

fn configured(class: &str, layers: usize, more: &str) -> String {
    let count = format!(r#""num_hidden_layers": {layers}"#);
    family(class, more).replace(r#""num_hidden_layers": 1"#, &count)
}

fn read(weight: &Weight) -> Vec<f32> {
    let mut values = vec![0.0; weight.element_count()];
    weight.read(0..values.len(), &mut values);
    values
}

fn rotated(decoder: &Decoder) -> Vec<bool> {
    decoder.layers.iter().map(|layer| layer.attention().unwrap().rope.is_some()).collect()
}

fn windows(decoder: &Decoder) -> Vec<Option<usize>> {
    decoder.layers.iter().map(|layer| layer.attention().unwrap().window).collect()
}

fn without(tensors: &str, names: &[&str]) -> String {
    let keeps = |line: &&str| names.iter().all(|name| !line.contains(name));
    tensors.lines().filter(keeps).collect::<Vec<_>>().join("\n")
}

fn renamed(tensors: &str, pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(tensors.to_owned(), |tensors, (from, to)| tensors.replace(from, to))
}

/// The tensors that the names of norms have beside their weights.
const NORM_BIASES: &str = "
    model.layers.0.input_layernorm.bias [8]
    model.layers.0.post_attention_layernorm.bias [8]
    model.norm.bias [8]";

#[test]
fn smollm3_has_layers_without_positions() {
    let tensors = layered(&without(LLAMA, &["lm_head"]), 5);
    let decoder = built(&configured("SmolLM3ForCausalLM", 5, ""), &[&tensors]);
    assert_eq!(rotated(&decoder), [true, true, true, false, true]);
    assert!(decoder.head.tied);
    assert_eq!(decoder.layers[0].attention().unwrap().rope.as_ref().unwrap().base, 2e6);
    let listed = r#", "no_rope_layers": [0, 1, 1, 0, 1], "use_sliding_window": true, "sliding_window": 7"#;
    let decoder = built(&configured("SmolLM3ForCausalLM", 5, listed), &[&tensors]);
    assert_eq!(rotated(&decoder), [false, true, true, false, true]);
    assert_eq!(windows(&decoder), [Some(7), None, None, Some(7), None]);
    let error = refused(&configured("SmolLM3ForCausalLM", 5, r#", "no_rope_layers": [1]"#), &[&tensors]);
    assert!(error.contains("`no_rope_layers` has 1 entries for 5 layers"), "{error}");
}

#[test]
fn multipliers_become_part_of_weights() {
    let granite = r#", "embedding_multiplier": 12.0, "attention_multiplier": 0.25, "residual_multiplier": 0.5,
        "logits_scaling": 4.0, "attention_bias": true, "mlp_bias": true"#;
    let decoder = built(&family("GraniteForCausalLM", granite), &[LLAMA, QKV_BIASES, OTHER_BIASES]);
    let minicpm = r#", "scale_emb": 12, "scale_depth": 0.5, "dim_model_base": 2, "attention_bias": true,
        "mlp_bias": true, "tie_word_embeddings": false"#;
    let other = built(&family("MiniCPMForCausalLM", minicpm), &[LLAMA, QKV_BIASES, OTHER_BIASES]);
    for decoder in [&decoder, &other] {
        assert_eq!(decoder.embedding_scale, 12.0);
        let Layer { mixer: Mixer::Attention(attention), mlp: Mlp::Gated { down, up, .. }, .. } =
            &decoder.layers[0]
        else {
            panic!("a gated MLP")
        };
        for scaled in [&attention.output.weight, attention.output.bias.as_ref().unwrap(), &down.weight] {
            assert_eq!(read(scaled)[..4], [0.0, 0.5, 1.0, 1.5], "{}", scaled.name);
        }
        for plain in [&attention.value.weight, &up.weight, &decoder.head.weight] {
            assert_eq!(read(plain)[..3], [0.0, 1.0, 2.0], "{}", plain.name);
        }
        assert_eq!(read(&decoder.final_norm.weight)[..4], [0.0, 0.25, 0.5, 0.75]);
    }
    assert_eq!(decoder.layers[0].attention().unwrap().scale, 0.25);
    let plain = r#", "scale_depth": null, "dim_model_base": null, "scale_emb": 1"#;
    let plain = built(&family("MiniCPMForCausalLM", plain), &[&without(LLAMA, &["lm_head"])]);
    assert_eq!(read(&plain.final_norm.weight)[..3], [0.0, 1.0, 2.0]);
    assert_eq!(read(&plain.layers[0].attention().unwrap().output.weight)[..3], [0.0, 1.0, 2.0]);
    let error = refused(&family("MiniCPMForCausalLM", r#", "sparse_config": {"block_size": 64}"#), &[LLAMA]);
    assert!(error.contains("`sparse_config` is there, but only dense attention is supported"), "{error}");
}

#[test]
fn granite_4_is_dense_or_refused() {
    let tensors = renamed(
        &without(LLAMA, &["up_proj"]),
        &[
            ("mlp.gate_proj.weight [12, 8]", "shared_mlp.input_linear.weight [24, 8]"),
            ("mlp.down_proj", "shared_mlp.output_linear"),
        ],
    );
    let config = |more: &str| {
        let keys = r#", "shared_intermediate_size": 12, "residual_multiplier": 0.5, "num_local_experts": 0"#;
        family("GraniteMoeHybridForCausalLM", &format!("{keys} {more}"))
    };
    let rope = r#", "layer_types": ["attention"], "position_embedding_type": "rope""#;
    let decoder = built(&config(rope), &[&tensors]);
    assert_eq!((decoder.architecture, rotated(&decoder)), ("granite4", vec![true]));
    let Mlp::Gated { up, down, .. } = &decoder.layers[0].mlp else { panic!("a gated MLP") };
    assert_eq!((read(&up.weight)[0], read(&down.weight)[1]), (96.0, 0.5));
    let nope = r#", "layer_types": ["full_attention"], "position_embedding_type": "nope""#;
    assert_eq!(rotated(&built(&config(nope), &[&tensors])), [false]);
    let error = refused(&config(r#", "layer_types": ["mamba"]"#), &[&tensors]);
    assert!(error.contains("`layer_types` has `mamba`, but only attention is supported"), "{error}");
    let error = refused(&config(""), &[&tensors]);
    assert!(error.contains("`layer_types` is missing"), "{error}");
}

/// OLMo 2 and 3.
fn olmo(layers: usize) -> String {
    let tensors = renamed(LLAMA, &[("input_layernorm", "post_feedforward_layernorm")]);
    let norms = "
    model.layers.0.self_attn.q_norm.weight [8]
    model.layers.0.self_attn.k_norm.weight [4]";
    layered(&[&tensors, norms].concat(), layers)
}

#[test]
fn olmo_norms_come_after_and_are_of_all_heads() {
    let decoder = built(&configured("Olmo2ForCausalLM", 2, ""), &[&olmo(2)]);
    let layer = &decoder.layers[1];
    assert!(layer.attention_norm.is_none() && layer.mlp_norm.is_none());
    let names = [&layer.post_attention_norm, &layer.post_mlp_norm];
    let names = names.map(|norm| norm.as_ref().unwrap().weight.name.as_str());
    let expected = ["post_attention", "post_feedforward"];
    assert_eq!(names, expected.map(|name| format!("model.layers.1.{name}_layernorm.weight")));
    assert_eq!(layer.attention().unwrap().query_norm.as_ref().unwrap().weight.shape[..], [8]);
    assert_eq!(layer.attention().unwrap().key_norm.as_ref().unwrap().weight.shape[..], [4]);
    assert_eq!((decoder.final_norm.epsilon, windows(&decoder)), (1e-5, vec![None, None]));

    let olmo3 = |more: &str| built(&configured("Olmo3ForCausalLM", 5, more), &[&olmo(5)]);
    let five = |window| vec![window, window, window, None, window];
    assert_eq!(windows(&olmo3("")), five(Some(4096)));
    assert_eq!(windows(&olmo3(r#", "sliding_window": 6"#)), five(Some(6)));
    assert_eq!(windows(&olmo3(r#", "sliding_window": null"#)), five(None));
    let linear = r#""rope_type": "linear", "factor": 8.0"#;
    let older = olmo3(&format!(r#", "rope_theta": 1000.0, "rope_scaling": {{{linear}}}"#));
    let newer = olmo3(&format!(
        r#", "rope_parameters": {{"sliding_attention": {{"rope_type": "default", "rope_theta": 1000.0}},
        "full_attention": {{"rope_theta": 1000.0, {linear}}}}}"#
    ));
    for decoder in [older, newer] {
        let scalings =
            decoder.layers.iter().map(|layer| layer.attention().unwrap().rope.clone().unwrap().scaling);
        let long = RopeScaling::Linear(8.0);
        let expected = [RopeScaling::None, RopeScaling::None, RopeScaling::None, long, RopeScaling::None];
        assert_eq!(scalings.collect::<Vec<_>>(), expected);
    }
    let flat = r#", "rope_parameters": {"rope_type": "default"}"#;
    let error = refused(&configured("Olmo3ForCausalLM", 5, flat), &[&olmo(5)]);
    assert!(error.contains("`rope_parameters.sliding_attention` is missing"), "{error}");
}

#[test]
fn gemma2_caps_scores_and_logits() {
    let norms = ["q_norm", "k_norm"];
    let tensors = layered(&without(&[WIDE_HEADS, FEEDFORWARD_NORMS].concat(), &norms), 3);
    let gemma2 = |more: &str| {
        let more = format!(r#", "head_dim": 6, "query_pre_attn_scalar": 16 {more}"#);
        built(&configured("Gemma2ForCausalLM", 3, &more), &[&tensors])
    };
    let decoder = gemma2("");
    let attention = decoder.layers[0].attention().unwrap();
    assert_eq!((attention.softcap, decoder.head.softcap), (Some(50.0), Some(30.0)));
    assert_eq!((attention.scale, decoder.embedding_scale), (0.25, 8f32.sqrt()));
    assert_eq!(windows(&decoder), [Some(4096), None, Some(4096)]);
    assert_eq!(read(&decoder.final_norm.weight)[..2], [1.0, 2.0], "one is added");
    let bare = gemma2(r#", "attn_logit_softcapping": null, "final_logit_softcapping": null"#);
    assert_eq!((bare.layers[0].attention().unwrap().softcap, bare.head.softcap), (None, None));
}

#[test]
fn mistrals_newer_forms() {
    let types = r#", "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]"#;
    let decoder = built(&configured("MinistralForCausalLM", 2, types), &[&layered(LLAMA, 2)]);
    assert_eq!(windows(&decoder), [Some(5), None]);

    let rope = |more: &str| {
        format!(
            r#", "head_dim": 2, "rope_parameters": {{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
            "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 1.0 {more}}}"#
        )
    };
    let scaled = rope(r#", "llama_4_scaling_beta": 0.1"#);
    let decoder = built(&family("Ministral3ForCausalLM", &scaled), &[LLAMA]);
    let attention = decoder.layers[0].attention().unwrap();
    let growth = QueryGrowth { beta: 0.1, length: 32 };
    assert_eq!((attention.growth, attention.rope.as_ref().unwrap().magnitude()), (Some(growth), 1.0));
    assert_eq!([0, 31, 32, 64].map(|p| growth.factor(p)), [1.0, 1.0, 1.069_314_7, 1.109_861_3]);
    let decoder = built(&family("Ministral3ForCausalLM", &rope("")), &[LLAMA]);
    assert_eq!(decoder.layers[0].attention().unwrap().growth, None);
    let error = refused(&family("Ministral3ForCausalLM", ""), &[LLAMA]);
    assert!(error.contains("`rope_parameters` is missing"), "{error}");

    let text = family("MistralForCausalLM", r#", "head_dim": 2, "rope_theta": 1e9, "sliding_window": null"#);
    let config =
        format!(r#"{{"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {text}}}"#);
    let image = "\nvision_tower.patch_conv.weight [8]\nmulti_modal_projector.norm.weight [8]";
    let tensors =
        renamed(LLAMA, &[("model.", "language_model.model."), ("lm_head", "language_model.lm_head")]);
    let decoder = built(&config, &[&tensors, image]);
    assert_eq!((decoder.architecture, decoder.head.tied), ("ministral3", false));
    assert!(built(&config, &[&without(&tensors, &["lm_head"]), image]).head.tied, "no head is stored");
}

#[test]
fn starcoder2_has_layer_norms_and_plain_mlps() {
    let mlp = [("mlp.gate_proj", "mlp.c_fc"), ("mlp.down_proj", "mlp.c_proj")];
    let tensors = [LLAMA, QKV_BIASES, OTHER_BIASES, NORM_BIASES].concat();
    let tensors = renamed(&without(&tensors, &["up_proj", "lm_head"]), &mlp);
    let decoder = built(&family("Starcoder2ForCausalLM", r#", "sliding_window": 9"#), &[&tensors]);
    let layer = &decoder.layers[0];
    let Mlp::Plain { up, activation, down } = &layer.mlp else { panic!("a plain MLP") };
    assert_eq!((up.weight.shape[0], down.weight.shape[0], *activation), (12, 8, Activation::GeluTanh));
    let norm = layer.attention_norm.as_ref().unwrap();
    assert!(norm.kind == NormKind::Layer && norm.bias.is_some() && decoder.final_norm.bias.is_some());
    assert_eq!((layer.attention().unwrap().window, decoder.head.tied), (Some(9), true));
}

#[test]
fn stablelm_runs_side_by_side_if_told() {
    let tensors = [LLAMA, QKV_BIASES, NORM_BIASES].concat();
    let keys = r#", "use_qkv_bias": true, "partial_rotary_factor": 1.0"#;
    let decoder = built(&family("StableLmForCausalLM", keys), &[&tensors]);
    let layer = &decoder.layers[0];
    assert_eq!(
        (layer.residual, layer.attention().unwrap().output.bias.is_none()),
        (Residual::Sequential, true)
    );
    let parallel = format!(r#"{keys}, "use_parallel_residual": true"#);
    let one_norm = without(&tensors, &["post_attention_layernorm"]);
    let decoder = built(&family("StableLmForCausalLM", &parallel), &[&one_norm]);
    let layer = &decoder.layers[0];
    assert_eq!((layer.residual, layer.mlp_norm.is_none()), (Residual::Parallel, true));
    let error = refused(&family("StableLmForCausalLM", r#", "qk_layernorm": true"#), &[&tensors]);
    assert!(error.contains("`qk_layernorm` is true, but"), "{error}");
    let error = refused(&family("StableLmForCausalLM", ""), &[&tensors]);
    assert!(error.contains("is 0.25, so that 0 of"), "a quarter by default: {error}");
}

/// Queries of four heads of four dimensions.
const FOUR_BY_FOUR: &str = "
    model.embed_tokens.weight [11, 8]
    model.layers.0.self_attn.q_proj.weight [16, 8]
    model.layers.0.self_attn.k_proj.weight [8, 8]
    model.layers.0.self_attn.v_proj.weight [8, 8]
    model.layers.0.self_attn.o_proj.weight [8, 16]
    model.layers.0.input_layernorm.weight [8]
    model.norm.weight [8]";

const GATED: &str = "
    model.layers.0.mlp.gate_proj.weight [12, 8]
    model.layers.0.mlp.up_proj.weight [12, 8]
    model.layers.0.mlp.down_proj.weight [8, 12]";

/// The stored rows of queries in their order in the model.
fn rows_of(weight: &Weight) -> Vec<f32> {
    read(weight).iter().step_by(8).map(|first| first / 8.0).collect()
}

#[test]
fn pairs_of_neighbours_become_halves() {
    let norm = "\nmodel.layers.0.post_attention_layernorm.weight [8]";
    let ernie = family("Ernie4_5ForCausalLM", r#", "head_dim": 4"#);
    let decoder = built(&ernie, &[FOUR_BY_FOUR, GATED, norm]);
    let attention = decoder.layers[0].attention().unwrap();
    assert_eq!(rows_of(&attention.query.weight)[..8], [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    assert_eq!(rows_of(&attention.key.weight)[4..], [4.0, 6.0, 5.0, 7.0]);
    assert_eq!(rows_of(&attention.value.weight)[..4], [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(attention.rope.as_ref().unwrap().base, 500_000.0);

    let fused = "
    model.layers.0.mlp.gate_up_proj.weight [24, 8]
    model.layers.0.mlp.down_proj.weight [8, 12]
    model.layers.0.self_attn.q_proj.bias [16]
    model.layers.0.self_attn.k_proj.bias [8]
    model.layers.0.self_attn.v_proj.bias [8]
    lm_head.weight [11, 8]";
    let config = |class: &str| family(class, r#", "head_dim": 4, "partial_rotary_factor": 1.0"#);
    let decoder = built(&config("GlmForCausalLM"), &[FOUR_BY_FOUR, fused, norm]);
    let layer = &decoder.layers[0];
    assert!(layer.post_attention_norm.is_none() && layer.post_mlp_norm.is_none());
    assert_eq!(read(layer.attention().unwrap().query.bias.as_ref().unwrap())[..4], [0.0, 2.0, 1.0, 3.0]);
    let more = "
    model.layers.0.post_self_attn_layernorm.weight [8]
    model.layers.0.post_mlp_layernorm.weight [8]";
    let half = config("Glm4ForCausalLM").replace("1.0", "0.5");
    let decoder = built(&half, &[FOUR_BY_FOUR, fused, norm, more]);
    let layer = &decoder.layers[0];
    assert!(layer.post_attention_norm.is_some() && layer.post_mlp_norm.is_some());
    assert_eq!(layer.attention().unwrap().rope.as_ref().unwrap().dims, 2, "a pair is its own halves");
    assert_eq!(rows_of(&layer.attention().unwrap().query.weight)[..4], [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn cohere2_has_one_norm_and_layers_without_positions() {
    let tensors = layered(&[FOUR_BY_FOUR, GATED].concat(), 4);
    let config = configured("Cohere2ForCausalLM", 4, r#", "head_dim": 4, "sliding_window": 6"#);
    let decoder = built(&config, &[&tensors]);
    assert_eq!(windows(&decoder), [Some(6), Some(6), Some(6), None]);
    assert_eq!(rotated(&decoder), [true, true, true, false]);
    let layer = &decoder.layers[3];
    let norm = layer.attention_norm.as_ref().unwrap();
    assert!(norm.kind == NormKind::Layer && norm.bias.is_none() && layer.mlp_norm.is_none());
    assert_eq!((layer.residual, decoder.head.tied), (Residual::Parallel, true));
    assert_eq!(rows_of(&layer.attention().unwrap().query.weight)[..4], [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(read(&decoder.final_norm.weight)[..2], [0.0, 0.0625]);
}

const GEMMA4: &str = "\
    model.embed_tokens.weight [32, 8]
    model.embed_tokens_per_layer.weight [32, 12]
    model.per_layer_model_projection.weight [12, 8]
    model.per_layer_projection_norm.weight [4]
    model.norm.weight [8]
";

/// The tensors of a layer whose heads are so wide; with keys and values, or without.
fn gemma4_layer(index: usize, head_dim: usize, has_keys: bool, wide: usize) -> String {
    let at = format!("model.layers.{index}");
    let (queries, keys) = (4 * head_dim, 2 * head_dim);
    let mut lines = vec![
        format!("{at}.self_attn.q_proj.weight [{queries}, 8]"),
        format!("{at}.self_attn.o_proj.weight [8, {queries}]"),
        format!("{at}.self_attn.q_norm.weight [{head_dim}]"),
        format!("{at}.mlp.gate_proj.weight [{wide}, 8]"),
        format!("{at}.mlp.up_proj.weight [{wide}, 8]"),
        format!("{at}.mlp.down_proj.weight [8, {wide}]"),
        format!("{at}.per_layer_input_gate.weight [4, 8]"),
        format!("{at}.per_layer_projection.weight [8, 4]"),
        format!("{at}.post_per_layer_input_norm.weight [8]"),
        format!("{at}.layer_scalar [1]"),
    ];
    if has_keys {
        lines.push(format!("{at}.self_attn.k_proj.weight [{keys}, 8]"));
        lines.push(format!("{at}.self_attn.v_proj.weight [{keys}, 8]"));
        lines.push(format!("{at}.self_attn.k_norm.weight [{head_dim}]"));
    }
    for norm in ["input", "post_attention", "pre_feedforward", "post_feedforward"] {
        lines.push(format!("{at}.{norm}_layernorm.weight [8]"));
    }
    lines.join("\n")
}

#[test]
fn gemma_4_shares_keys_and_has_inputs_of_layers() {
    let config = r#"{"architectures": ["Gemma4ForCausalLM"], "hidden_size": 8, "intermediate_size": 16,
        "vocab_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2,
        "global_head_dim": 8, "sliding_window": 5, "max_position_embeddings": 64, "num_kv_shared_layers": 1,
        "use_double_wide_mlp": true, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 32,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"]}"#;
    let layers = [gemma4_layer(0, 2, true, 16), gemma4_layer(1, 8, true, 16), gemma4_layer(2, 8, false, 32)]
        .join("\n");
    let decoder = built(config, &[GEMMA4, &layers]);
    assert_eq!(windows(&decoder), [Some(5), None, None]);
    let attentions: Vec<_> = decoder.layers.iter().map(|layer| layer.attention().unwrap()).collect();
    assert_eq!(attentions.iter().map(|a| a.head_dim).collect::<Vec<_>>(), [2, 8, 8]);
    assert_eq!(attentions.iter().map(|a| a.shared_from).collect::<Vec<_>>(), [None, None, Some(1)]);
    assert_eq!((attentions[2].key.weight.element_count(), attentions[2].scale), (0, 1.0));
    assert!(attentions[1].value_norm.is_some() && attentions[2].value_norm.is_none());
    let RopeScaling::Proportional { pairs, .. } = attentions[1].rope.as_ref().unwrap().scaling else {
        panic!("{:?}", attentions[1].rope)
    };
    assert_eq!((pairs, attentions[1].rope.as_ref().unwrap().dims), (1, 8));
    let inputs = decoder.per_layer.as_ref().unwrap();
    assert_eq!((inputs.width, inputs.all(), inputs.scale), (4, 12, 2.0));
    assert!((inputs.norm.epsilon / 8e-6 - 1.0).abs() < 1e-5);
    assert!((decoder.layers[0].per_layer.as_ref().unwrap().norm.epsilon / 2e-6 - 1.0).abs() < 1e-5);
    // What published checkpoints store for nothing is left.
    let unused =
        "\nmodel.layers.2.self_attn.k_proj.weight [16, 8]\nmodel.layers.2.self_attn.k_norm.weight [8]";
    built(config, &[GEMMA4, &layers, unused]);
    let few = config.replace(r#""num_kv_shared_layers": 1"#, r#""num_kv_shared_layers": 2"#);
    let error = refused(&few, &[GEMMA4, &layers]);
    assert!(error.contains("leaves layer 1 no earlier layer of its sort"), "{error}");
}
