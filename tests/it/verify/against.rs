//! Bundles and packages against others, and prompts from files.

use serde_json::{Value, json};

use super::{export, set, verify, verify_json};
use crate::support::architectures::{self, Tiny};
use crate::support::checkpoints::write_text;
use crate::support::command::{anemeter, arg};

#[test]
fn two_bundles_without_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let sound = architectures::llama("sound", &json!({}));
    let one = export(&sound.write(folder.path()), folder.path(), &[]);
    let mut other = Tiny { name: "other", ..sound };
    set(&mut other, "model.layers.1.mlp.down_proj.weight", 17, 4.0);
    let two = export(&other.write(folder.path()), folder.path(), &["--chunks", "2"]);
    let few = ["--tokens", "3", "--shapes", "16", "--json"];

    let outcome = anemeter(&[&["verify", arg(&one), "--against", arg(&one)][..], &few].concat());
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.code, &report["passed"]), (0, &json!(true)), "{}", outcome.stderr);
    let tensors = report["tensors"].as_array().unwrap();
    assert!(tensors.len() > 50 && tensors.iter().all(|tensor| tensor["error"] == 0.0));
    assert!(!one.join("verify.json").exists(), "only a checkpoint verifies a bundle");

    let outcome = anemeter(&[&["verify", arg(&two), "--against", arg(&one)][..], &few].concat());
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.code, &report["passed"]), (1, &json!(false)), "{}", outcome.stderr);
    let mut tensors = report["tensors"].as_array().unwrap().iter();
    let first = tensors.find(|tensor| tensor["error"] != 0.0).unwrap();
    assert_eq!((&first["layer"], &first["tensor"]), (&json!(1), &json!("layers_1_mlp_down_out")));
}

#[test]
fn two_packages_without_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let sound = architectures::llama("sound", &json!({}));
    let package = export(&sound.write(folder.path()), folder.path(), &[]).join("model.mlpackage");
    let mut other = Tiny { name: "other", ..sound };
    set(&mut other, "model.layers.1.mlp.down_proj.weight", 17, 40.0);
    let other = export(&other.write(folder.path()), folder.path(), &[]).join("model.mlpackage");

    let same = anemeter(&["verify", arg(&package), "--against", arg(&package)]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(same.stdout.contains("tensors share names, none differs"), "{}", same.stdout);
    assert!(same.stdout.ends_with("passed\n"), "{}", same.stdout);
    let outcome = anemeter(&["verify", arg(&other), "--against", arg(&package), "--json"]);
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.code, &document["passed"]), (1, &json!(false)), "{}", outcome.stderr);
    let functions = document["functions"].as_array().unwrap();
    assert_eq!(functions.len(), 8, "a function of every form and length, and one for token vectors");
    let prefill = functions.iter().find(|function| function["function"] == "prefill").unwrap();
    let mut tensors = prefill["tensors"].as_array().unwrap().iter();
    assert_eq!(tensors.find(|tensor| tensor["error"] != 0.0).unwrap()["tensor"], "layers_1_mlp_down_out");

    let mixed = anemeter(&["verify", arg(&other), "--against", arg(package.parent().unwrap())]);
    let told = "nothing says how the packages are driven as a language model";
    assert!(mixed.refused().contains(told), "{}", mixed.stderr);
}

#[test]
fn calibration_gives_the_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = architectures::llama("llama", &json!({})).write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &[]);
    let file = folder.path().join("samples.jsonl");
    let lines: Vec<String> =
        (1..20).map(|id| json!({"token_ids": [id, id + 1, id + 2], "id": id}).to_string()).collect();
    write_text(&file, &lines.join("\n"));
    let given =
        ["--calibration", arg(&file), "--samples", "5", "--tokens", "2", "--kv", "io", "--shapes", "16"];
    let (code, report) = verify_json(&bundle, &checkpoint, &given);
    assert_eq!((code, &report["prompts"]), (0, &json!(5)));

    let text = folder.path().join("text.txt");
    write_text(&text, "some text");
    let bad = folder.path().join("bad.jsonl");
    write_text(&bad, "{\"token_ids\": [1]}\n{\"tokens\": [1]}\n");
    let empty = folder.path().join("empty.jsonl");
    write_text(&empty, "\n");
    let words = folder.path().join("words.jsonl");
    write_text(&words, "{\"text\": \"some text\"}\n");
    for (file, message) in [
        (&text, "text.txt: is text, and the bundle has no tokenizer"),
        (&words, "words.jsonl: is text, and the bundle has no tokenizer"),
        (&bad, "bad.jsonl: line 2: has none of the keys"),
        (&empty, "empty.jsonl: is empty"),
    ] {
        let outcome = verify(&bundle, &checkpoint, &["--calibration", arg(file)]);
        assert!(outcome.refused().contains(message), "{message}: {}", outcome.stderr);
    }
}
