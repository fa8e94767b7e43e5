//! GGUF files written by the tests, whole and broken.

use std::path::Path;

use serde_json::Value;

use super::super::tests::{all, put};
use super::super::{Checkpoint, open};
use super::*;

/// A metadata value to write.
#[derive(Clone)]
enum V {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
    Texts(&'static [&'static str]),
    F32s(&'static [f32]),
    I32s(&'static [i32]),
}

/// A tensor to write: name, dimensions innermost first, GGML type, bytes.
type T = (&'static str, &'static [u64], u32, Vec<u8>);

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn value(out: &mut Vec<u8>, value: &V) {
    let array = |out: &mut Vec<u8>, kind: u32, count: usize| {
        out.extend(9u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((count as u64).to_le_bytes());
    };
    match value {
        V::U32(x) => out.extend([4u32.to_le_bytes(), x.to_le_bytes()].concat()),
        V::F32(x) => out.extend([6u32.to_le_bytes(), x.to_le_bytes()].concat()),
        V::Bool(x) => out.extend([&7u32.to_le_bytes()[..], &[u8::from(*x)]].concat()),
        V::Text(x) => {
            out.extend(8u32.to_le_bytes());
            text(out, x);
        }
        V::Texts(xs) => {
            array(out, 8, xs.len());
            xs.iter().for_each(|x| text(out, x));
        }
        V::F32s(xs) => {
            array(out, 6, xs.len());
            xs.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        V::I32s(xs) => {
            array(out, 5, xs.len());
            xs.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
    }
}

fn file(metadata: &[(&str, V)], tensors: &[T]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, v) in metadata {
        text(&mut out, key);
        value(&mut out, v);
    }
    let mut data = Vec::new();
    for (name, dims, kind, bytes) in tensors {
        text(&mut out, name);
        out.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend(kind.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(bytes);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(data);
    out
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn settings(name: &'static str) -> Vec<(String, V)> {
    let key = |suffix: &str| format!("{name}.{suffix}");
    vec![
        ("general.architecture".to_owned(), V::Text(name)),
        (key("block_count"), V::U32(1)),
        (key("context_length"), V::U32(64)),
        (key("embedding_length"), V::U32(4)),
        (key("feed_forward_length"), V::U32(8)),
        (key("attention.head_count"), V::U32(1)),
        (key("attention.layer_norm_rms_epsilon"), V::F32(1e-5)),
        (key("rope.freq_base"), V::F32(500_000.0)),
    ]
}

fn attempt(metadata: &[(String, V)], tensors: &[T]) -> Result<Checkpoint> {
    let metadata: Vec<_> = metadata.iter().map(|(key, v)| (key.as_str(), v.clone())).collect();
    opened(&file(&metadata, tensors))
}

fn opened(bytes: &[u8]) -> Result<Checkpoint> {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "m.gguf", bytes);
    open(folder.path().join("m.gguf"))
}

fn embedding() -> T {
    ("token_embd.weight", &[4, 3], 0, floats((0..12).map(|x| x as f32)))
}

#[test]
fn a_llama_becomes_what_transformers_would_have_written() {
    let query = floats((0..16).map(|x| x as f32));
    let tensors = [embedding(), ("blk.0.attn_q.weight", &[4, 4], 0, query)];
    let checkpoint = attempt(&settings("llama"), &tensors).unwrap();
    let config = &checkpoint.config;
    assert_eq!(config.opt_text("model_type").unwrap(), Some("llama"));
    let sizes = [
        ("num_hidden_layers", 1),
        ("hidden_size", 4),
        ("num_key_value_heads", 1),
        ("vocab_size", 3),
        ("max_position_embeddings", 64),
    ];
    for (key, size) in sizes {
        assert_eq!(config.size(key).unwrap(), size, "{key}");
    }
    assert_eq!(config.opt_float("rms_norm_eps").unwrap(), Some(1e-5));
    assert_eq!(config.opt_float("rope_theta").unwrap(), Some(500_000.0));
    assert_eq!(config.opt_bool("tie_word_embeddings").unwrap(), Some(true));
    assert_eq!(checkpoint.tensors["model.embed_tokens.weight"].shape[..], [3, 4]);
    let query = &checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"];
    let rows: Vec<f32> = all(query).chunks(4).map(|row| row[0]).collect();
    assert_eq!(rows, [0.0, 8.0, 4.0, 12.0]);
    assert!(checkpoint.tokenizer.is_none());
}

#[test]
fn other_architectures_keep_their_ways() {
    let norm = ("blk.0.attn_q_norm.weight", &[4][..], 0, floats([1.0, 2.0, 1.5, 0.0]));
    let gemma = attempt(&settings("gemma3"), &[embedding(), norm]).unwrap();
    assert_eq!(all(&gemma.tensors["model.layers.0.self_attn.q_norm.weight"]), [0.0, 1.0, 0.5, -1.0]);
    assert_eq!(gemma.config.size("query_pre_attn_scalar").unwrap(), 4);

    let mut query = vec![0, 0x3c];
    query.extend(0..32);
    let query = ("blk.0.attn_q.weight", &[32, 1][..], 8, query);
    let qwen = attempt(&settings("qwen2"), &[embedding(), query]).unwrap();
    let query = &qwen.tensors["model.layers.0.self_attn.q_proj.weight"];
    assert_eq!(all(query), (0..32).map(|x| x as f32).collect::<Vec<_>>());

    let map = ("blk.0.ffn_up.weight", &[2, 3][..], 0, floats((0..6).map(|x| x as f32)));
    let gpt2 = attempt(&settings("gpt2"), &[embedding(), map]).unwrap();
    let map = &gpt2.tensors["transformer.h.0.mlp.c_fc.weight"];
    assert_eq!((&map.shape[..], all(map)), (&[2, 3][..], vec![0.0, 2.0, 4.0, 1.0, 3.0, 5.0]));
    assert_eq!(gpt2.config.size("n_embd").unwrap(), 4);

    let factors = |name| (name, &[2][..], 0, floats([1.5, 2.5]));
    let tensors = [embedding(), factors(ROPE_SHORT), factors(ROPE_LONG)];
    let phi = attempt(&settings("phi3"), &tensors).unwrap();
    let scaling = phi.config.get("rope_scaling").unwrap();
    assert_eq!((&scaling["rope_type"], &scaling["short_factor"][1]), (&"longrope".into(), &2.5.into()));
}

#[test]
fn llama_3_scaling_is_recognised_by_its_factors() {
    let other = [1.0, 1.0, 1.0, 1.0, 0.984_914_7f32, 32.0, 32.0, 32.0];
    let exact = |i: usize| {
        let wavelength = std::f64::consts::TAU * 500_000f64.powf(i as f64 / 8.0);
        let smooth = ((8192.0 / wavelength - 1.0) / 3.0).clamp(0.0, 1.0);
        (1.0 / ((1.0 - smooth) / 32.0 + smooth)) as f32
    };
    let rule: Vec<f32> = (0..8).map(exact).collect();
    let scaling = |values: &[f32]| {
        let factors = (ROPE_FREQS, &[8][..], 0, floats(values.iter().copied()));
        let checkpoint = attempt(&settings("llama"), &[embedding(), factors]).unwrap();
        checkpoint.config.get("rope_scaling").unwrap().clone()
    };
    let llama3 = scaling(&rule);
    assert_eq!((&llama3["rope_type"], &llama3["factor"]), (&"llama3".into(), &32.0.into()));
    assert_eq!(llama3["original_max_position_embeddings"], 8192);
    assert_eq!(scaling(&other)["rope_type"], "longrope");
    let none = (ROPE_FREQS, &[0, 1 << 40, 1 << 40][..], 0, Vec::new());
    assert!(attempt(&settings("llama"), &[embedding(), none]).is_ok(), "sizes beside a zero may be any");
    for bad in [f32::NAN, f32::INFINITY, 0.0, -1.0] {
        let factors = (ROPE_FREQS, &[2][..], 0, floats([1.0, bad]));
        let error = attempt(&settings("llama"), &[embedding(), factors]).unwrap_err().to_string();
        assert!(error.ends_with("has a rotation factor that is not a positive number"), "{bad}: {error}");
    }
}

fn tokenizer(metadata: &[(&str, V)]) -> Result<(Value, Checkpoint)> {
    let mut all = settings("llama");
    all.extend(metadata.iter().map(|(key, v)| (format!("tokenizer.{key}"), v.clone())));
    let checkpoint = attempt(&all, &[embedding()])?;
    let json = serde_json::from_slice(checkpoint.tokenizer.as_ref().unwrap()).unwrap();
    Ok((json, checkpoint))
}

#[test]
fn a_byte_level_tokenizer_is_rebuilt() {
    let metadata = [
        ("ggml.model", V::Text("gpt2")),
        ("ggml.pre", V::Text("smollm")),
        ("ggml.tokens", V::Texts(&["a", "Ġ", "Ġa", "<|im_end|>", "<s>"])),
        ("ggml.token_type", V::I32s(&[1, 1, 1, 3, 3])),
        ("ggml.merges", V::Texts(&["Ġ a"])),
        ("ggml.bos_token_id", V::U32(4)),
        ("ggml.eos_token_id", V::U32(0)),
        ("ggml.add_bos_token", V::Bool(true)),
        ("chat_template", V::Text("{{ x }}")),
    ];
    let (json, checkpoint) = tokenizer(&metadata).unwrap();
    assert_eq!(json["model"]["merges"][0], serde_json::json!(["Ġ", "a"]));
    assert_eq!(json["model"]["vocab"]["Ġa"], 2);
    assert_eq!(json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"], r"\p{N}");
    assert_eq!(json["added_tokens"].as_array().unwrap().len(), 2);
    assert_eq!(json["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
    assert_eq!((checkpoint.bos, &checkpoint.eos[..]), (Some(4), &[0, 3][..]));
    assert_eq!(checkpoint.chat_template.as_deref(), Some("{{ x }}"));

    let broken = |at: usize, v: V| {
        let mut metadata = metadata.clone();
        metadata[at].1 = v;
        tokenizer(&metadata).unwrap_err().to_string()
    };
    let known = "`tokenizer.ggml.model` is `bert`, known are gpt2 and llama";
    assert!(broken(0, V::Text("bert")).contains(known));
    assert!(broken(1, V::Text("odd")).contains("`tokenizer.ggml.pre` is `odd`, known are gpt-2"));
    assert!(broken(3, V::I32s(&[1])).contains("`tokenizer.ggml.token_type` has 1 entries for 5 tokens"));
    assert!(broken(4, V::Texts(&["a b"])).contains("has `a b`, which does not join tokens"));
    assert!(broken(5, V::U32(9)).contains("`tokenizer.ggml.bos_token_id` is 9, there are 5 tokens"));
}

#[test]
fn a_sentence_piece_tokenizer_is_rebuilt() {
    let metadata = [
        ("ggml.model", V::Text("llama")),
        ("ggml.tokens", V::Texts(&["<unk>", "<s>", "<0x0A>", "\u{2581}", "a", "\u{2581}a"])),
        ("ggml.token_type", V::I32s(&[2, 3, 6, 1, 1, 1])),
        ("ggml.scores", V::F32s(&[0.0, 0.0, 0.0, -3.0, -2.0, -1.0])),
        ("ggml.unknown_token_id", V::U32(0)),
        ("ggml.bos_token_id", V::U32(1)),
    ];
    let (json, _) = tokenizer(&metadata).unwrap();
    assert_eq!(json["model"]["merges"], serde_json::json!([["\u{2581}", "a"]]));
    let model = &json["model"];
    assert_eq!((&model["unk_token"], &model["byte_fallback"]), (&"<unk>".into(), &true.into()));
    assert_eq!(json["normalizer"]["normalizers"][0]["type"], "Prepend");
    assert_eq!(json["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
}

#[test]
fn the_general_keys_say_who_made_a_model_and_where_it_came_from() {
    let mut metadata = settings("llama");
    let said = [
        ("general.organization", "org"),
        ("general.license", "mit"),
        ("general.license.name", "MIT License"),
        ("general.description", " "),
        ("general.repo_url", "https://huggingface.co/org/model"),
    ];
    metadata.extend(said.map(|(key, text)| (key.to_owned(), V::Text(text))));
    let about = attempt(&metadata, &[embedding()]).unwrap().about;
    assert_eq!((about.author.as_deref(), about.license.as_deref()), (Some("org"), Some("mit")));
    assert_eq!((about.description, about.revision), (None, None));
    assert_eq!(about.source.as_deref(), Some("https://huggingface.co/org/model"));
    metadata.push(("general.author".to_owned(), V::U32(1)));
    let error = attempt(&metadata, &[embedding()]).unwrap_err().to_string();
    assert!(error.contains("general.author"), "{error}");
}

#[test]
fn broken_tables_are_refused() {
    let message =
        |metadata: &[(String, V)], tensors: &[T]| attempt(metadata, tensors).unwrap_err().to_string();
    let llama = settings("llama");
    let with = |key: &str, v: V| [llama.clone(), vec![(key.to_owned(), v)]].concat();
    let query = |dims: &'static [u64], kind: u32, len: usize| -> T {
        ("blk.0.attn_q.weight", dims, kind, vec![0; len])
    };
    let cases = [
        (message(&settings("bert"), &[]), "`general.architecture` is `bert`, known are llama"),
        (message(&llama[..1], &[embedding()]), "`llama.block_count` is missing"),
        (message(&llama, &[]), "tensor `token_embd.weight`: is missing"),
        (message(&llama, &[embedding(), embedding()]), "tensor `token_embd.weight`: is there twice"),
        (message(&with("llama.block_count", V::U32(1)), &[]), "`llama.block_count` comes twice"),
        (message(&with("split.count", V::U32(3)), &[]), "one of several parts"),
        (message(&with("general.alignment", V::U32(0)), &[]), "`general.alignment` is 0"),
        (
            message(&with("llama.attention.head_count_kv", V::Text("x")), &[embedding()]),
            "not an unsigned number",
        ),
        (message(&llama, &[embedding(), query(&[6, 6], 0, 144)]), "not whole heads of 4"),
        (message(&llama, &[embedding(), query(&[4, 4], 99, 0)]), "GGML type 99 are not supported"),
        (message(&llama, &[embedding(), query(&[4, 4], 8, 34)]), "impossible for"),
        (message(&llama, &[embedding(), query(&[1 << 40, 1 << 40], 0, 0)]), "impossible for"),
        (message(&llama, &[embedding(), query(&[1 << 20, 4], 0, 0)]), "needs 16777216 bytes at"),
        (message(&llama, &[embedding(), ("x.weight", &[1], 0, vec![0; 4])]), "is no tensor of `llama`"),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found:?} without {expected:?}");
    }
}

#[test]
fn broken_bytes_are_refused() {
    let huge = [b"GGUF\x03\0\0\0", &[0xff; 8][..], &[0xff; 8]].concat();
    let mut nested = b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0k".to_vec();
    nested.extend(9u32.to_le_bytes());
    for _ in 0..1000 {
        nested.extend([&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat());
    }
    for (bytes, expected) in [
        (&b"GGUF\x01\0\0\0"[..], "is GGUF version 1"),
        (b"GGUF\0\0\0\x03", "big-endian"),
        (&huge, "only 0 are left"),
        (&nested, "is an array in more than 4 arrays"),
    ] {
        let found = opened(bytes).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
    }
    let metadata: Vec<_> = settings("llama");
    let metadata: Vec<_> = metadata.iter().map(|(key, v)| (key.as_str(), v.clone())).collect();
    let whole = file(&metadata, &[embedding()]);
    for end in (4..whole.len() - 16).step_by(7) {
        let error = opened(&whole[..end]).unwrap_err();
        assert_eq!(error.file().and_then(Path::file_name), Some("m.gguf".as_ref()));
    }
}

/// Metadata, the stem of a tensor, its name in Hugging Face's form, and keys of the configuration.
type Case = (Vec<(String, V)>, &'static str, &'static str, Value);

#[test]
fn decoders_beside_llama_keep_their_names_and_settings() {
    let more = |name: &'static str, more: &[(&str, V)]| {
        let more = more.iter().map(|(suffix, value)| (format!("{name}.{suffix}"), value.clone()));
        settings(name).into_iter().chain(more).collect::<Vec<_>>()
    };
    let cases: [Case; 12] = [
        (more("smollm3", &[]), "attn_q", "self_attn.q_proj", serde_json::json!({"rope_theta": 500_000.0})),
        (
            more(
                "mistral3",
                &[
                    ("rope.scaling.type", V::Text("yarn")),
                    ("rope.scaling.factor", V::F32(16.0)),
                    ("rope.scaling.original_context_length", V::U32(16)),
                    ("rope.scaling.yarn_beta_fast", V::F32(24.0)),
                    ("rope.scaling.yarn_log_multiplier", V::F32(1.0)),
                    ("attention.temperature_scale", V::F32(0.5)),
                ],
            ),
            "attn_q",
            "self_attn.q_proj",
            serde_json::json!({"model_type": "ministral3", "head_dim": 4, "rope_scaling": {
                "rope_type": "yarn", "type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16,
                "beta_fast": 24.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5,
            }}),
        ),
        (
            more("granite", &[("residual_scale", V::F32(0.22)), ("logit_scale", V::F32(8.0))]),
            "ffn_down",
            "mlp.down_proj",
            serde_json::json!({"residual_multiplier": 0.22, "logits_scaling": 8.0}),
        ),
        (
            more("minicpm", &[("residual_scale", V::F32(0.5)), ("logit_scale", V::F32(2.0))]),
            "ffn_norm",
            "post_attention_layernorm",
            serde_json::json!({"scale_depth": 0.5, "dim_model_base": 2.0}),
        ),
        (
            more("olmo2", &[]),
            "post_ffw_norm",
            "post_feedforward_layernorm",
            serde_json::json!({"model_type": "olmo2"}),
        ),
        (
            more("olmo2", &[("attention.sliding_window", V::U32(9))]),
            "attn_k_norm",
            "self_attn.k_norm",
            serde_json::json!({"model_type": "olmo3", "architectures": ["Olmo3ForCausalLM"], "sliding_window": 9}),
        ),
        (
            more("gemma2", &[("attn_logit_softcapping", V::F32(50.0))]),
            "ffn_norm",
            "pre_feedforward_layernorm",
            serde_json::json!({"attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 4}),
        ),
        (
            more("starcoder2", &[("attention.layer_norm_epsilon", V::F32(1e-5))]),
            "ffn_up",
            "mlp.c_fc",
            serde_json::json!({"norm_epsilon": 1e-5, "use_bias": false}),
        ),
        (
            more(
                "stablelm",
                &[("use_parallel_residual", V::Bool(true)), ("rope.dimension_count", V::U32(4))],
            ),
            "attn_norm",
            "input_layernorm",
            serde_json::json!({"use_parallel_residual": true, "partial_rotary_factor": 1.0}),
        ),
        (
            more("cohere2", &[("logit_scale", V::F32(0.25))]),
            "attn_output",
            "self_attn.o_proj",
            serde_json::json!({"logit_scale": 0.25}),
        ),
        (
            more("glm4", &[("rope.dimension_count", V::U32(2))]),
            "post_attention_norm",
            "post_self_attn_layernorm",
            serde_json::json!({"partial_rotary_factor": 0.5}),
        ),
        (more("ernie4_5", &[]), "attn_v", "self_attn.v_proj", serde_json::json!({"model_type": "ernie4_5"})),
    ];
    for (metadata, stem, expected, keys) in cases {
        let name: &'static str = format!("blk.0.{stem}.weight").leak();
        let tensor: T = (name, &[4, 4], 0, floats((0..16).map(|x| x as f32)));
        let checkpoint = attempt(&metadata, &[embedding(), tensor]).unwrap();
        let expected = format!("model.layers.0.{expected}.weight");
        assert!(checkpoint.tensors.contains_key(&expected), "{expected}: {:?}", checkpoint.tensors.keys());
        for (key, value) in keys.as_object().unwrap() {
            assert_eq!(checkpoint.config.get(key), Some(value), "{expected}: {key}");
        }
        // llama.cpp permutes the rows of models whose halves transformers rotates, and of no others.
        if stem == "attn_q" {
            assert_eq!(all(&checkpoint.tensors[&expected])[4], 8.0);
        }
    }
}

#[test]
fn queries_that_grow_without_yarn_are_refused() {
    let grown = ("mistral3.attention.temperature_scale".to_owned(), V::F32(0.5));
    let error =
        attempt(&[settings("mistral3"), vec![grown]].concat(), &[embedding()]).unwrap_err().to_string();
    let expected = "`mistral3.attention.temperature_scale` is 0.5, but `rope.scaling.type` is not yarn";
    assert!(error.contains(expected), "{error}");
    assert!(attempt(&settings("mistral3"), &[embedding()]).is_ok(), "Mistral Small has neither");
}

#[test]
fn a_file_of_lfm2_says_which_layers_attend() {
    let mut metadata = settings("lfm2");
    metadata.retain(|(key, _)| key != "lfm2.block_count");
    metadata.push(("lfm2.block_count".to_owned(), V::U32(3)));
    metadata.push(("lfm2.attention.head_count_kv".to_owned(), V::I32s(&[0, 1, 0])));
    metadata.push(("lfm2.shortconv.l_cache".to_owned(), V::U32(3)));
    let norm = || floats([1.0; 4]);
    let tensors = [
        embedding(),
        ("token_embd_norm.weight", &[4][..], 0, norm()),
        ("blk.0.shortconv.conv.weight", &[3, 4][..], 0, floats((0..12).map(|x| x as f32))),
        ("blk.1.attn_q_norm.weight", &[4][..], 0, norm()),
        ("blk.1.ffn_up.weight", &[4, 2][..], 0, floats([0.5; 8])),
    ];
    let checkpoint = attempt(&metadata, &tensors).unwrap();
    let config = &checkpoint.config;
    assert_eq!(config.opt_texts("layer_types").unwrap().unwrap(), ["conv", "full_attention", "conv"]);
    assert_eq!(config.opt_size("num_key_value_heads").unwrap(), Some(1));
    assert_eq!(config.opt_size("conv_L_cache").unwrap(), Some(3));
    assert_eq!(config.opt_bool("block_auto_adjust_ff_dim").unwrap(), Some(false));
    let names: Vec<&str> = checkpoint.tensors.keys().map(String::as_str).collect();
    let expected = [
        "model.embed_tokens.weight",
        "model.embedding_norm.weight",
        "model.layers.0.conv.conv.weight",
        "model.layers.1.feed_forward.w3.weight",
        "model.layers.1.self_attn.q_layernorm.weight",
    ];
    assert_eq!(names, expected);
    let kernels = &checkpoint.tensors["model.layers.0.conv.conv.weight"];
    assert_eq!((&kernels.shape[..], all(kernels)[5]), (&[4, 1, 3][..], 5.0));

    let uneven = ("lfm2.attention.head_count_kv".to_owned(), V::I32s(&[2, 1, 0]));
    metadata.retain(|(key, _)| !key.ends_with("head_count_kv"));
    let error = attempt(&[metadata, vec![uneven]].concat(), &tensors).unwrap_err().to_string();
    assert!(error.contains("has 2 and 1, expected as many in every layer"), "{error}");
}
