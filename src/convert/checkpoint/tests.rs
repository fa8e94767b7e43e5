//! Folders written by the tests, whole and broken.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::*;
use anemeter_kernels::tensor::DType;

/// Writes a file of a folder.
pub(super) fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    File::create(folder.join(name)).unwrap().write_all(content.as_ref()).unwrap();
}

/// The floats of a golden file.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// All elements of a tensor.
pub(super) fn all(stored: &Stored) -> Vec<f32> {
    let mut out = vec![f32::NAN; stored.shape.iter().product()];
    stored.read(0..out.len(), &mut out);
    out
}

fn safetensors_bytes(tensors: &[(&str, &[f32])]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, v)| bytemuck::cast_slice(v).to_vec()).collect();
    let views = tensors.iter().zip(&bytes).map(|(&(name, values), bytes)| {
        let dtype = ::safetensors::Dtype::F32;
        (name, ::safetensors::tensor::TensorView::new(dtype, vec![values.len()], bytes).unwrap())
    });
    ::safetensors::serialize(views.collect::<HashMap<_, _>>(), None).unwrap()
}

fn whole_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "config.json", r#"{"model_type": "llama", "eos_token_id": 9}"#);
    put(folder.path(), "model.safetensors", safetensors_bytes(&[("b", &[3.0]), ("a", &[1.0, -2.0])]));
    folder
}

fn message(path: &Path) -> String {
    open(path).unwrap_err().to_string()
}

#[test]
fn a_folder_gives_configuration_tensors_and_tokens() {
    let folder = whole_folder();
    let tokenizer = json!({
        "model": {"vocab": {"x": 0}},
        "added_tokens": [{"id": 7, "content": "<s>"}, {"id": 8, "content": "<end>"}],
    });
    put(folder.path(), "tokenizer.json", tokenizer.to_string());
    let tokenizer_config = json!({
        "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "<end>",
        "chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}],
    });
    put(folder.path(), "tokenizer_config.json", tokenizer_config.to_string());
    put(folder.path(), "generation_config.json", r#"{"eos_token_id": [5, 6]}"#);

    let checkpoint = open(folder.path()).unwrap();
    assert_eq!(checkpoint.config.opt_text("model_type").unwrap(), Some("llama"));
    assert_eq!(checkpoint.tensors.keys().collect::<Vec<_>>(), ["a", "b"]);
    let stored = &checkpoint.tensors["a"];
    assert_eq!((&stored.encoding, &stored.shape[..]), (&Encoding::Plain(DType::F32), &[2][..]));
    let mut values = [0.0; 1];
    stored.read(1..2, &mut values);
    assert_eq!(values, [-2.0]);
    assert_eq!((checkpoint.bos, checkpoint.eos), (Some(7), vec![5, 6, 8]));
    assert_eq!(checkpoint.chat_template.as_deref(), Some("d"));
    assert_eq!(checkpoint.tokenizer, Some(tokenizer.to_string().into_bytes()));

    put(folder.path(), "chat_template.jinja", "file");
    assert_eq!(open(folder.path()).unwrap().chat_template.as_deref(), Some("file"));
    let by_file = open(folder.path().join("model.safetensors")).unwrap();
    assert_eq!(by_file.tensors.len(), 2);
}

#[test]
fn tokens_are_found_in_the_configuration_of_the_text_model() {
    let folder = whole_folder();
    let config =
        json!({"model_type": "gemma4", "text_config": {"bos_token_id": 2, "eos_token_id": [1, 106]}});
    put(folder.path(), "config.json", config.to_string());
    let checkpoint = open(folder.path()).unwrap();
    assert_eq!((checkpoint.bos, checkpoint.eos), (Some(2), vec![1, 106]));

    let both = json!({"eos_token_id": 9, "text_config": {"eos_token_id": 1}});
    put(folder.path(), "config.json", both.to_string());
    assert_eq!(open(folder.path()).unwrap().eos, [9], "the whole model's come first");
    put(folder.path(), "config.json", json!({"text_config": {"eos_token_id": -1}}).to_string());
    assert!(message(folder.path()).contains("`eos_token_id` has -1, expected a token id"));
}

#[test]
fn shards_must_hold_what_the_index_says() {
    let folder = tempfile::tempdir().unwrap();
    let index = |map: serde_json::Value| {
        put(folder.path(), "model.safetensors.index.json", json!({"weight_map": map}).to_string());
    };
    put(folder.path(), "config.json", "{}");
    put(folder.path(), "one.safetensors", safetensors_bytes(&[("a", &[1.0])]));
    put(folder.path(), "two.safetensors", safetensors_bytes(&[("b", &[2.0])]));

    index(json!({"a": "one.safetensors", "b": "two.safetensors"}));
    let sharded = open(folder.path()).unwrap();
    assert_eq!(sharded.tensors.values().map(|stored| stored.shard).collect::<Vec<_>>(), [0, 1]);
    assert!(sharded.eos.is_empty());

    index(json!({"a": "two.safetensors", "b": "two.safetensors"}));
    assert!(message(folder.path()).ends_with(
        "model.safetensors.index.json: tensor `a`: is not in the shard `two.safetensors` that the index names"
    ));
    index(json!({"a": "three.safetensors"}));
    assert!(message(folder.path()).ends_with("names the shard `three.safetensors`, which does not exist"));
    for escape in ["../one.safetensors", "/etc/passwd", "./../x", ""] {
        index(json!({"a": escape}));
        assert!(message(folder.path()).contains("leads outside the folder"), "{escape}");
    }
    put(folder.path(), "two.safetensors", safetensors_bytes(&[("a", &[1.0]), ("b", &[2.0])]));
    index(json!({"a": "one.safetensors", "b": "two.safetensors"}));
    assert!(message(folder.path()).ends_with("tensor `a`: is also in the shard `one.safetensors`"));
    put(folder.path(), "model.safetensors.index.json", r#"{"weight_map": {"a": "x", "a": "y"}}"#);
    assert!(message(folder.path()).contains("key `a` comes twice"));
}

#[test]
fn broken_files_are_named() {
    let deep = "[".repeat(100_000);
    let cases: &[(&str, &[u8], &str)] = &[
        ("config.json", b"{\"a\": ", "config.json: is not the JSON expected"),
        ("config.json", b"[1]", "config.json: is not the JSON expected"),
        ("config.json", b"\"\xff\"", "config.json: is not text"),
        ("config.json", deep.as_bytes(), "config.json: is not the JSON expected"),
        ("tokenizer.json", deep.as_bytes(), "tokenizer.json: is not the JSON expected"),
        ("config.json", b"{\"eos_token_id\": -1}", "`eos_token_id` has -1, expected a token id"),
        ("tokenizer_config.json", b"{\"chat_template\": 3}", "`chat_template` is neither"),
        ("model.safetensors", b"", "model.safetensors: is not a valid safetensors file"),
        ("model.safetensors", b"\xff\xff\xff\xff\xff\xff\xff\xff{}", "is not a valid safetensors file"),
        ("model.safetensors", b"\x04\0\0\0\0\0\0\0\xff\xff\xff\xff", "is not a valid safetensors file"),
    ];
    for (name, content, expected) in cases {
        let folder = whole_folder();
        put(folder.path(), name, content);
        assert!(message(folder.path()).contains(expected), "{}", message(folder.path()));
    }
    let folder = whole_folder();
    let bytes = safetensors_bytes(&[("a", &[1.0, 2.0])]);
    put(folder.path(), "model.safetensors", &bytes[..bytes.len() - 1]);
    assert!(message(folder.path()).contains("is not a valid safetensors file"));
    assert!(message(&folder.path().join("none")).ends_with("none: does not exist"));
}

#[test]
fn headers_with_a_name_twice_or_an_unread_type_are_refused() {
    let entry = |dtype: &str| format!(r#""a": {{"dtype": "{dtype}", "shape": [0], "data_offsets": [0, 0]}}"#);
    for (header, expected) in [
        (format!("{{{}, {}}}", entry("F32"), entry("F16")), "header: key `a` comes twice"),
        (format!("{{{}}}", entry("F8_E4M3")), "tensor `a`: elements of type F8_E4M3 are not supported"),
    ] {
        let folder = whole_folder();
        let length = (header.len() as u64).to_le_bytes();
        put(folder.path(), "model.safetensors", [&length, header.as_bytes()].concat());
        assert!(message(folder.path()).contains(expected), "{}", message(folder.path()));
    }
}

#[cfg(unix)]
#[test]
fn links_may_lead_to_the_blobs_of_a_hub_cache_only() {
    use std::os::unix::fs::symlink;
    let cache = tempfile::tempdir().unwrap();
    let repository = cache.path().join("models--org--name");
    let snapshot = repository.join("snapshots/abc");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("blobs")).unwrap();
    put(&repository, "blobs/weights", safetensors_bytes(&[("a", &[1.0])]));
    put(&repository, "blobs/config", "{}");
    symlink("../../blobs/weights", snapshot.join("model.safetensors")).unwrap();
    symlink("../../blobs/config", snapshot.join("config.json")).unwrap();
    assert_eq!(open(&snapshot).unwrap().tensors.len(), 1);
    assert_eq!(open(snapshot.join("model.safetensors")).unwrap().tensors.len(), 1);

    put(cache.path(), "secret", "{}");
    symlink(cache.path().join("secret"), snapshot.join("tokenizer.json")).unwrap();
    assert!(message(&snapshot).ends_with("tokenizer.json: is a link that leads outside the folder"));
}
