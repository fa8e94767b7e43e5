//! `anemeter export --layout apple-llm`: what Apple's programs for language models take, against Apple's own exports of a
//! tiny Qwen3.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anemeter::coreai::asset::Asset;
use anemeter::coreai::{Graph, verify};
use half::f16;
use serde_json::{Value, json};

use crate::support::architectures::Tiny;
use crate::support::command::{anemeter, arg, json as read_json, names};
use crate::support::numbers::numbers;

/// A Qwen3 of the sizes that Apple's exports in `src/coreai/testdata` have.
fn qwen3() -> Tiny {
    let config = json!({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true,
        "hidden_act": "silu", "eos_token_id": 2,
    });
    let mut shapes =
        vec![("model.embed_tokens".to_owned(), vec![64, 64]), ("model.norm".to_owned(), vec![64])];
    for layer in 0..2 {
        let parts: [(&str, Vec<usize>); 11] = [
            ("self_attn.q_proj", vec![64, 64]),
            ("self_attn.k_proj", vec![32, 64]),
            ("self_attn.v_proj", vec![32, 64]),
            ("self_attn.o_proj", vec![64, 64]),
            ("self_attn.q_norm", vec![16]),
            ("self_attn.k_norm", vec![16]),
            ("mlp.gate_proj", vec![128, 64]),
            ("mlp.up_proj", vec![128, 64]),
            ("mlp.down_proj", vec![64, 128]),
            ("input_layernorm", vec![64]),
            ("post_attention_layernorm", vec![64]),
        ];
        shapes.extend(parts.map(|(part, shape)| (format!("model.layers.{layer}.{part}"), shape)));
    }
    let tensor = |(seed, (name, shape)): (u32, (String, Vec<usize>))| {
        let middle = if shape.len() == 1 { 1.0 } else { 0.0 };
        let values = numbers(shape.iter().product(), seed + 1).into_iter();
        let values = values.map(|v| f16::from_f32(middle + 0.2 * v.to_f32())).collect();
        (format!("{name}.weight"), (shape, values))
    };
    let tensors: BTreeMap<_, _> = (0..).zip(shapes).map(tensor).collect();
    Tiny { name: "tiny-qwen3", config, tensors }
}

fn export(folder: &Path, options: &[&str]) -> PathBuf {
    let checkpoint = qwen3().write(folder);
    let output = folder.join("out");
    let words = [&["export", arg(&checkpoint), "-o", arg(&output)], options].concat();
    anemeter(&words).good();
    output
}

fn samples(name: &str) -> Asset {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/coreai/testdata").join(name);
    Asset::open(path).unwrap()
}

/// The functions that a program calls: public, and not what a composite operation stands for.
fn functions(asset: &Asset) -> BTreeMap<String, &Graph> {
    let graphs = asset.program().graphs.iter();
    let called = graphs.filter(|graph| !graph.is_private && graph.composite.is_none());
    called.map(|graph| (graph.name.clone(), graph)).collect()
}

/// Names, types, shapes and layouts of what goes in and what comes out, in order.
fn assert_same_functions(ours: &Asset, apples: &Asset) {
    verify(ours.program()).unwrap();
    let (ours, apples) = (functions(ours), functions(apples));
    let keys = |functions: &BTreeMap<String, &Graph>| functions.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&ours), keys(&apples));
    for (name, apple) in apples {
        assert_eq!(ours[&name].inputs, apple.inputs, "inputs and states of {name}");
        assert_eq!(ours[&name].outputs, apple.outputs, "outputs of {name}");
    }
}

#[test]
fn static_functions_are_those_of_apples_recipe_for_the_neural_engine() {
    let folder = tempfile::tempdir().unwrap();
    let output = export(folder.path(), &["--layout", "apple-llm", "--name", "tiny"]);
    let ours = Asset::open(output.join("tiny.aimodel")).unwrap();
    ours.check_hash().unwrap();
    assert_same_functions(&ours, &samples("qwen_ios_none_float16.aimodel"));
}

#[test]
fn the_dynamic_function_is_that_of_apples_recipe_for_the_gpu() {
    for (activations, apples) in
        [("fp32", "qwen_macos_none_float32.aimodel"), ("fp16", "qwen_macos_4bit_float16.aimodel")]
    {
        let folder = tempfile::tempdir().unwrap();
        let options = ["--layout", "apple-llm-dynamic", "--activations", activations, "--context", "512"];
        let output = export(folder.path(), &options);
        assert_same_functions(&Asset::open(output.join("tiny-qwen3.aimodel")).unwrap(), &samples(apples));
    }
}

#[test]
fn the_folder_is_what_apples_programs_read() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("tiny-qwen3");
    fs::create_dir_all(&checkpoint).unwrap();
    let tokenizer = json!({"model": {}, "added_tokens": [{"id": 2, "content": "<end>"}]});
    fs::write(checkpoint.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(checkpoint.join("tokenizer_config.json"), r#"{"eos_token": "<end>"}"#).unwrap();
    fs::write(checkpoint.join("README.md"), "---\nlicense: apache-2.0\n---\n# Tiny\n").unwrap();
    let output =
        export(folder.path(), &["--layout", "apple-llm", "--author", "A. Author", "--precision", "int8"]);
    assert_eq!(names(&output), ["metadata.json", "tiny-qwen3.aimodel", "tokenizer"]);
    assert_eq!(names(&output.join("tokenizer")), ["tokenizer.json", "tokenizer_config.json"]);
    let metadata = read_json(&output.join("metadata.json"));
    let expected = json!({
        "metadata_version": "0.2", "kind": "llm", "name": "tiny-qwen3", "assets": {"main": "tiny-qwen3.aimodel"},
        "language": {
            "tokenizer": "tiny-qwen3", "vocab_size": 64, "max_context_length": 512, "embedded_tokenizer": true,
        },
        "source": {"model_definition": "anemeter", "hf_model_id": "tiny-qwen3"},
        "compression": "int8:channel", "compilation": {"targets": []},
    });
    assert_eq!(metadata, expected);
    let asset: Value = read_json(&output.join("tiny-qwen3.aimodel/metadata.json"));
    assert_eq!(asset["license"], "apache-2.0");
    assert_eq!(asset["author"], "A. Author");
    assert!(asset["description"].as_str().unwrap().contains("language model of 2 layers"), "{asset}");
    assert_eq!(asset["creatorDefinedMetadata"], json!({"source": "tiny-qwen3"}));
}

#[test]
fn an_existing_folder_is_replaced_only_when_told_to_and_only_if_it_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = export(folder.path(), &["--layout", "apple-llm-dynamic"]);
    let checkpoint = folder.path().join("tiny-qwen3");
    let again = |more: &[&str]| {
        let layout = ["--layout", "apple-llm-dynamic"];
        anemeter(&[&["export", arg(&checkpoint), "-o", arg(&output)], &layout[..], more].concat())
    };
    assert!(again(&[]).refused().contains("holds a bundle already"));
    again(&["--overwrite"]).good();
    fs::write(output.join("notes.txt"), "mine").unwrap();
    assert!(again(&["--overwrite"]).refused().contains("notes.txt: is not from an export"));
    fs::remove_file(output.join("metadata.json")).unwrap();
    assert!(again(&["--overwrite"]).refused().contains("holds something else"));
    let inside = checkpoint.join("out");
    let inside = anemeter(&["export", arg(&checkpoint), "-o", arg(&inside), "--layout", "apple-llm"]);
    assert!(inside.refused().contains("is inside the checkpoint"));
}

#[test]
fn options_without_a_meaning_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = qwen3().write(folder.path());
    for (options, message) in [
        (["--kv", "io"], "its caches are states"),
        (["--shapes", "64"], "lengths of caches are contexts"),
        (["--format", "coreml"], "its models are Core AI assets"),
        (["--chunks", "2"], "all layers are in one asset"),
        (["--name", "a/b"], "which no file can be called"),
    ] {
        let output = folder.path().join("out");
        let words = ["export", arg(&checkpoint), "-o", arg(&output), "--layout", "apple-llm"];
        let outcome = anemeter(&[&words[..], &options].concat());
        assert!(outcome.complaint().contains(message), "{options:?}: {}", outcome.stderr);
        assert!(!output.exists());
    }
}
