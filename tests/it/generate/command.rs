//! `anemeter generate`.

use std::path::Path;

use anemeter::atomic;
use anemeter::bundle::Tokenizer;
use anemeter::vocabulary::KvForm;
use serde_json::{Value, json};

use super::bundles::{file, write};
use super::forms::options;
use crate::lower::models::{TINY, llama};
use crate::support::command::{anemeter, arg};

/// Words `w0` to `w36`, of which `w1` begins and `w36` ends a text.
fn tokenizer() -> Vec<u8> {
    let vocab: serde_json::Map<String, Value> = (0..37).map(|id| (format!("w{id}"), json!(id))).collect();
    let document = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    });
    document.to_string().into_bytes()
}

pub(crate) fn bundle(folder: &Path, chat_template: Option<&str>, batch: usize) {
    let chat_template = chat_template.map(ToOwned::to_owned);
    let described = Tokenizer { file: file("tokenizer.json"), chat_template, bos: Some(1), eos: vec![36] };
    write(&llama(TINY, 31), &options(batch), Some((&tokenizer(), described)), folder);
}

fn document(args: &[&str]) -> Value {
    serde_json::from_str(anemeter(&[&["generate"], args, &["--json"]].concat()).succeeded()).unwrap()
}

#[test]
fn text_is_streamed_and_documented_alike() {
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), None, 1);
    let place = arg(folder.path());
    let given = [place, "--prompt", "w5 w9 w2", "--max-tokens", "6", "--threads", "1"];
    let first = document(&[&given[..], &["--top-logits", "2"]].concat());
    assert_eq!(first["prompt_ids"], json!([5, 9, 2]));
    assert_eq!((&first["kv"], &first["runtime"]), (&json!("io"), &json!("cpu")));
    let sequence = &first["sequences"][0];
    let ids: Vec<u64> = sequence["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!((ids.len(), &sequence["finish"]), (6, &json!("length")));
    assert_eq!(first["seq_len"], json!({"first": 8, "last": 8}));
    let best: Vec<u64> = sequence["top_logits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step[0]["id"].as_u64().unwrap())
        .collect();
    assert_eq!(best, ids);
    assert_eq!(first["timings"]["steps_ms"].as_array().unwrap().len(), 5);

    let text = sequence["text"].as_str().unwrap();
    let streamed = anemeter(&[&["generate"], &given[..]].concat());
    assert_eq!((streamed.code, streamed.stdout.as_str()), (0, format!("{text}\n").as_str()));
    assert!(
        streamed.stderr.starts_with("6 tokens, as many as asked for; 3 prompt tokens, "),
        "{}",
        streamed.stderr
    );
    assert!(streamed.stderr.ends_with("kv io, seq_len 8, runtime cpu\n"), "{}", streamed.stderr);

    for form in [KvForm::State, KvForm::None] {
        let form = form.to_string();
        let other = document(&[place, "--token-ids", "5,9,2", "--max-tokens", "6", "--kv", &form]);
        assert_eq!((&other["sequences"][0]["ids"], &other["kv"]), (&sequence["ids"], &json!(form)));
    }
}

#[test]
fn chance_is_repeated_by_its_seed() {
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), None, 2);
    let run = |seed: &str| {
        let chance = ["--temperature", "1.5", "--top-k", "20", "--top-p", "0.9", "--seed", seed];
        document(&[&[arg(folder.path()), "--token-ids", "5,9", "--max-tokens", "10"], &chance[..]].concat())
    };
    let (first, again, other) = (run("1"), run("1"), run("2"));
    assert_eq!(first["sequences"], again["sequences"]);
    assert_ne!(first["sequences"], other["sequences"]);
    assert_ne!(first["sequences"][0], first["sequences"][1]);
}

#[test]
fn chat_templates_are_used_unless_the_prompt_is_raw() {
    let folder = tempfile::tempdir().unwrap();
    let template = "{{ bos_token }} {% for m in messages %}{{ 'w2' if m.role == 'system' else 'w3' }} {{ m.content }} \
                    {% endfor %}{% if add_generation_prompt %}w4{% endif %}";
    bundle(folder.path(), Some(template), 1);
    let ids = |args: &[&str]| {
        document(&[&[arg(folder.path()), "--prompt", "w9", "--max-tokens", "1"], args].concat())["prompt_ids"]
            .clone()
    };
    assert_eq!(ids(&[]), json!([1, 3, 9, 4]));
    assert_eq!(ids(&["--chat"]), json!([1, 3, 9, 4]));
    assert_eq!(ids(&["--system", "w7"]), json!([1, 2, 7, 3, 9, 4]));
    assert_eq!(ids(&["--raw"]), json!([9]));
}

#[test]
fn prompts_of_ten_megabytes_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), None, 1);
    let prompt = folder.path().join("prompt.txt");
    atomic::write_file(&prompt, "<script>\u{1b}[2J ".repeat(800_000).as_bytes()).unwrap();
    let outcome = anemeter(&["generate", arg(folder.path()), "--prompt-file", arg(&prompt)]);
    insta::assert_snapshot!(outcome.refused(), @"
    error: the prompt has 10400000 bytes, too many for the 16 tokens of the bundle
    help: shorten it, or export with a longer sequence length or context
    ");
}

#[test]
fn refusals_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (with, without) = (folder.path().join("with"), folder.path().join("without"));
    std::fs::create_dir(&with).unwrap();
    std::fs::create_dir(&without).unwrap();
    bundle(&with, None, 1);
    write(
        &llama(TINY, 32),
        &anemeter::lower::Options { kv: [KvForm::Io].into(), ..options(1) },
        None,
        &without,
    );
    let refused = |args: &[&str]| anemeter(&[&["generate"], args].concat()).refused().to_owned();
    let long = "w1 ".repeat(17);
    let words = [
        refused(&[arg(&with), "--prompt", &long]),
        refused(&[arg(&with), "--prompt", "w1", "--chat"]),
        refused(&[arg(&with), "--prompt", ""]),
        refused(&[arg(&with), "--token-ids", "99"]),
        refused(&[arg(&with), "--prompt", "w1", "--top-p", "0"]),
        refused(&[arg(&without), "--prompt", "w1"]),
        refused(&[arg(&without), "--token-ids", "1", "--kv", "state"]),
    ];
    insta::assert_snapshot!(words.concat(), @"
    error: the prompt has 17 tokens, the bundle takes at most 16
    help: shorten it, or export with a longer seq_len; this bundle has 8, 12, 16
    error: the bundle has no chat template
    help: use the prompt without a chat template: --raw
    error: the prompt has no tokens
    error: token 99 is not among the 37 of the model
    error: top-p is 0, should be above 0 and at most 1
    error: the bundle has no tokenizer
    help: give token ids: --token-ids 1,2,3
    error: the bundle has no cache form `state`
    help: it has io; export with `state` for another: `anemeter export --kv state`
    ");
    atomic::write_file(&with.join("tokenizer.json"), b"{").unwrap();
    let broken = refused(&[arg(&with), "--prompt", "w1"]);
    assert!(broken.contains("tokenizer.json: is not a tokenizer: "), "{broken}");
}

#[test]
fn streaming_ends_quietly_when_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    bundle(folder.path(), None, 1);
    let command =
        format!("{} generate {} --prompt w5 | true", env!("CARGO_BIN_EXE_anemeter"), arg(folder.path()));
    let outcome = crate::support::command::run(std::process::Command::new("sh").args(["-c", &command]));
    assert!(!outcome.stderr.contains("panicked") && !outcome.stderr.contains("error"), "{}", outcome.stderr);
}
