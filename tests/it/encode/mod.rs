//! Encoders through the program: export, embed, verify, bench, and what they are refused.

mod faults;

use std::path::{Path, PathBuf};

use anemeter::lint::{Setting, Subject, lint};
use serde_json::{Value, json};

use crate::support::architectures::max_abs_difference;
use crate::support::checkpoints::write_text;
use crate::support::command::{Outcome, anemeter, arg, json as read_json};
use crate::support::encoders::{self, LAYERS, TinyEncoder};

/// Exports an encoder at two lengths.
fn export(checkpoint: &Path, folder: &Path, more: &[&str]) -> PathBuf {
    let name = checkpoint.file_name().unwrap().to_str().unwrap();
    let bundle = folder.join(format!("{name}-bundle-{}", more.concat().replace("--", "")));
    let mut args = vec!["export", arg(checkpoint), "-o", arg(&bundle), "--shapes", "12,24"];
    args.extend(more);
    let outcome = anemeter(&args);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    bundle
}

fn verify(bundle: &Path, checkpoint: &Path, more: &[&str]) -> Outcome {
    let mut args = vec!["verify", arg(bundle), "--checkpoint", arg(checkpoint)];
    args.extend(more);
    anemeter(&args)
}

fn verify_json(bundle: &Path, checkpoint: &Path, more: &[&str]) -> (i32, Value) {
    let outcome = verify(bundle, checkpoint, &[&["--json"], more].concat());
    (outcome.code, serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.stderr)))
}

fn vectors(bundle: &Path, more: &[&str]) -> Vec<Vec<f32>> {
    let outcome = anemeter(&[&["embed", arg(bundle), "--json"], more].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(document["schema"], "anemeter.embed/1");
    serde_json::from_value(document["texts"][0]["vectors"].clone()).unwrap()
}

#[test]
fn every_encoder_passes_whole_and_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    for encoder in encoders::all() {
        let checkpoint = encoder.write(folder.path());
        for more in [&[][..], &["--chunks", "2"], &["--batch", "2"]] {
            let bundle = export(&checkpoint, folder.path(), more);
            let (code, report) = verify_json(&bundle, &checkpoint, &["--layers"]);
            let name = encoder.name();
            assert_eq!((code, &report["passed"]), (0, &json!(true)), "{name} {more:?}: {report:#}");
            for length in report["lengths"].as_array().unwrap() {
                let is_scores = report["output"] == "scores";
                assert!(is_scores || length["cosine_min"].as_f64().unwrap() >= 0.9999, "{name}: {length:#}");
                assert!(length["error_max"].as_f64().unwrap() <= 0.02, "{name}: {length:#}");
                assert_eq!(length["texts"].as_array().unwrap().len(), 8, "{name}");
            }
            no_layer_drifts(name, &report["layers"][0]);
        }
    }
}

/// Every layer is shown, and none drifts.
fn no_layer_drifts(name: &str, layers: &Value) {
    let points: Vec<&str> =
        layers["points"].as_array().unwrap().iter().map(|p| p["point"].as_str().unwrap()).collect();
    let expected = ["embedding", "layer 0 attention", "layer 0", "layer 1 attention", "layer 1"];
    assert_eq!(points[..5], expected, "{name}: {layers:#}");
    assert_eq!((points.len(), &layers["unseen"]), (1 + 2 * LAYERS, &json!([])), "{name}");
    assert_eq!(layers["first_drift"], Value::Null, "{name}: {:#}", layers["points"]);
    assert_eq!(layers["first_overflow"], Value::Null, "{name}");
}

#[test]
fn only_lookups_are_predicted_off_the_neural_engine() {
    let folder = tempfile::tempdir().unwrap();
    for encoder in encoders::all() {
        let bundle = export(&encoder.write(folder.path()), folder.path(), &[]);
        let report = lint(&Subject::open(&bundle).unwrap(), &Setting::default(), &[]).unwrap();
        assert_eq!(report.counts.errors, 0, "{}: {:?}", encoder.name(), report.findings.first());
        for placement in &report.placements {
            assert_eq!(placement.islands.len(), 1, "{}: {:?}", encoder.name(), placement.islands);
            let kinds: Vec<&str> =
                placement.islands[0].operations.iter().map(|op| op.kind.as_str()).collect();
            assert!(kinds.iter().all(|kind| *kind == "gather"), "{}: {kinds:?}", encoder.name());
        }
    }
}

fn minilm() -> TinyEncoder {
    encoders::all().into_iter().find(|encoder| encoder.name() == "minilm").unwrap()
}

#[test]
fn vectors_have_length_one_and_do_not_depend_on_the_padding() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = export(&minilm().write(folder.path()), folder.path(), &[]);
    let short = vectors(&bundle, &["--token-ids", "3,7,11,2"]);
    let long = vectors(&bundle, &["--token-ids", "3,7,11,2", "--seq-len", "24"]);
    assert_eq!((short.len(), short[0].len()), (1, 24));
    let length: f32 = short[0].iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!((length - 1.0).abs() < 2e-3, "{length}");
    let off = max_abs_difference(&short, &long);
    assert!(off < 2e-3, "{off}");
    let other = vectors(&bundle, &["--token-ids", "3,7,12,2"]);
    assert!(short[0].iter().zip(&other[0]).any(|(a, b)| (a - b).abs() > 0.01), "tokens matter");

    let manifest = read_json(&bundle.join("export.json"));
    let expected = json!({"attends": "both_sides", "output": "embedding", "width": 24, "normalized": true,
        "pooling": "mean", "segment_kinds": 2, "max_tokens": 64, "lower_case": false});
    assert_eq!(manifest["encoder"], expected);
    assert_eq!(manifest["settings"]["kv"], json!([]));
}

#[test]
fn hidden_states_come_out_where_nothing_pools_them() {
    let folder = tempfile::tempdir().unwrap();
    let bert = encoders::bert("bert", &json!({}));
    let outcome = {
        let checkpoint = bert.write(folder.path());
        let bundle = folder.path().join("b");
        anemeter(&["export", arg(&checkpoint), "-o", arg(&bundle), "--shapes", "12"])
    };
    assert!(
        outcome.stdout.contains("warning: nothing says how hidden states become one vector"),
        "{}",
        outcome.stdout
    );
    let states = vectors(&folder.path().join("b"), &["--token-ids", "3,7,11"]);
    assert_eq!((states.len(), states[0].len()), (3, 24));
}

#[test]
fn what_generates_text_is_refused_an_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = minilm().write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &[]);
    let cases = folder.path().join("cases.jsonl");
    write_text(&cases, "");
    let text = folder.path().join("text.txt");
    write_text(&text, "Some text.");
    for args in [
        vec!["generate", arg(&bundle), "--prompt", "Hello"],
        vec!["eval", arg(&bundle), "--text", arg(&text)],
        vec!["bench", arg(&bundle), "--kind", "generate"],
    ] {
        let outcome = anemeter(&args);
        assert_eq!(outcome.code, 2, "{args:?}: {}", outcome.stdout);
        assert!(
            outcome.stderr.contains("encoder") && outcome.stderr.contains("generates no text"),
            "{}",
            outcome.stderr
        );
    }
    for (more, message) in [
        (&["--kv", "io"][..], "option `kv`: an encoder has no KV cache"),
        (&["--context", "12"], "option `contexts`: an encoder has no KV cache"),
        (&["--embeddings", "host"], "option `embeddings`: an encoder has its lookup in the graph only"),
        (&["--shapes", "65"], "option `shapes`: has 65, the model learned 64 positions"),
        (&["--precision", "auto", "--target-bits", "4"], "option `precision`: is chosen by logits"),
    ] {
        let out = folder.path().join("refused");
        let outcome = anemeter(&[&["export", arg(&checkpoint), "-o", arg(&out)], more].concat());
        assert!(outcome.complaint().contains(message), "{message}: {}", outcome.stderr);
        assert!(!out.exists());
    }
    let short = anemeter(&["export", arg(&checkpoint), "-o", arg(&folder.path().join("short"))]);
    assert!(
        short.complaint().contains("none of the default sequence lengths [128, 256, 512] fits the 64 tokens")
    );
}

#[test]
fn embed_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = export(&minilm().write(folder.path()), folder.path(), &[]);
    let empty = folder.path().join("empty.txt");
    write_text(&empty, "\n");
    for (more, message) in [
        (&["--text", "a"][..], "the bundle has no tokenizer"),
        (&["--token-ids", "99"], "token 99 is outside the vocabulary of 37"),
        (&["--token-ids", "1", "--seq-len", "13"], "the bundle has no sequence length 13, but 12, 24"),
        (&["--file", arg(&empty)], "has no text"),
        (&["--file", "nowhere.txt"], "nowhere.txt: "),
    ] {
        let outcome = anemeter(&[&["embed", arg(&bundle)], more].concat());
        assert!(outcome.refused().contains(message), "{message}: {}", outcome.stderr);
    }
    let many = vec!["1"; 25].join(",");
    let outcome = anemeter(&["embed", arg(&bundle), "--token-ids", &many]);
    assert!(outcome.refused().contains("a text has 25 tokens; sequence lengths are 12, 24"));
}

#[test]
fn bench_measures_each_length_and_no_tokens_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = minilm().write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &[]);
    let report = folder.path().join("report");
    let few = ["--launches", "2", "--requests", "3", "--runtime", "cpu"];
    let outcome = anemeter(&[&["bench", arg(&bundle), "--out", arg(&report)], &few[..]].concat());
    assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
    let document = read_json(&report.join("report.json"));
    let cases = document["workload"]["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2, "one per length");
    assert!(outcome.stdout.contains("per second p50"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("TTFT") && !outcome.stdout.contains("TPS"), "{}", outcome.stdout);

    let one = folder.path().join("one");
    let args = [&["bench", arg(&bundle), "--out", arg(&one), "--shapes", "24"], &few[..]].concat();
    assert_eq!(anemeter(&args).code, 0);
    assert_eq!(read_json(&one.join("report.json"))["workload"]["cases"].as_array().unwrap().len(), 1);
    let wrong = anemeter(&["bench", arg(&bundle), "--out", arg(&folder.path().join("w")), "--shapes", "13"]);
    assert!(wrong.refused().contains("the bundle has no seq_len 13"));
}
