//! Language models in the shapes that others export: recognised, adopted and driven; tokens against a direct computation.

mod checkpoint;
mod decoder;
mod gemma;
mod graph;
mod packages;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::command::{Outcome, anemeter, arg, json};
use crate::support::packages::write as write_package;
use crate::support::scene::Scene;
use decoder::{CONTEXT, Decoder, VOCABULARY};
use gemma::Kept;
use packages::{Head, Packages};

const PROMPT: [u32; 6] = [3, 17, 5, 11, 2, 20];
const COUNT: usize = 9;

/// What is beside the packages, by file name.
type Beside = &'static [(&'static str, &'static str)];

const META: Beside = &[("meta.yaml", "model_info: { parameters: { vocab_size: 24, split_lm_head: 2 } }")];
const CONFIG: Beside =
    &[("model_config.json", r#"{"vocab_size": 24, "context_length": 16, "architecture": "x"}"#)];

/// A contract, and how the program speaks of it.
struct Shape {
    packages: fn(&Decoder) -> Packages,
    beside: Beside,
    told: &'static str,
    kv: &'static str,
}

const SHAPES: [Shape; 8] = [
    Shape {
        packages: packages::whole_sequence,
        beside: &[],
        told: "whole sequence: input_ids, attention_mask",
        kv: "none",
    },
    Shape {
        packages: packages::stateless,
        beside: &[],
        told: "swift-transformers (stateless): inputIds",
        kv: "none",
    },
    Shape {
        packages: packages::stateful,
        beside: &[],
        told: "swift-transformers (stateful): inputIds, causalMask; states keyCache, valueCache",
        kv: "state",
    },
    Shape {
        packages: packages::caches,
        beside: &[],
        told: "swift-transformers (caches as inputs and outputs): inputIds, causalMask; caches keyCache, valueCache",
        kv: "io",
    },
    Shape {
        packages: |decoder| packages::anemll(decoder, Head::Logits),
        beside: &[],
        told: "ANEMLL: input_ids, hidden_states, causal_mask, position_ids, current_pos; states model_model_kv_cache_0",
        kv: "state",
    },
    Shape {
        packages: |decoder| packages::anemll(decoder, Head::Largest),
        beside: META,
        told: "ANEMLL: input_ids, hidden_states, causal_mask, position_ids, current_pos; states model_model_kv_cache_0",
        kv: "state",
    },
    Shape {
        packages: packages::anemll_monolithic,
        beside: &[],
        told: "ANEMLL: input_ids, causal_mask, position_ids, current_pos; states model_model_kv_cache_0",
        kv: "state",
    },
    Shape {
        packages: packages::coreml_llm,
        beside: CONFIG,
        told: "CoreML-LLM: input_ids, causal_mask, position_ids, update_mask; states kv_cache_0",
        kv: "state",
    },
];

/// Writes packages and what is beside them; gives their paths.
fn write(folder: &Path, packages: Packages, beside: Beside) -> Vec<PathBuf> {
    std::fs::create_dir_all(folder).unwrap();
    for (name, text) in beside {
        anemeter::atomic::write_file(&folder.join(name), text.as_bytes()).unwrap();
    }
    let write = |(name, model): (&str, _)| {
        let path = folder.join(name);
        write_package(&path, model);
        path
    };
    packages.into_iter().map(write).collect()
}

/// Adopts packages as a bundle; gives what the program said.
fn adopt(scene: &Scene, name: &str, shape: &Shape, decoder: &Decoder) -> Outcome {
    let source = scene.path(&format!("{name}-source"));
    let packages = write(&source, (shape.packages)(decoder), shape.beside);
    let bundle = scene.path(name);
    let packages: Vec<&str> = packages.iter().map(|path| arg(path)).collect();
    anemeter(&[&["adopt"], &packages[..], &["-o", arg(&bundle)]].concat())
}

/// Generates greedily.
fn generate(bundle: &Path, prompt: &[u32], count: usize, more: &[&str]) -> Outcome {
    let ids: Vec<String> = prompt.iter().map(ToString::to_string).collect();
    let (ids, count) = (ids.join(","), count.to_string());
    let args = ["generate", arg(bundle), "--token-ids", &ids, "--max-tokens", &count, "--json"];
    anemeter(&[&args, more].concat())
}

fn tokens(outcome: &Outcome) -> (Vec<u32>, Value) {
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
    (serde_json::from_value(document["sequences"][0]["ids"].clone()).unwrap(), document)
}

#[test]
fn each_contract_gives_the_tokens_of_the_decoder() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    let expected = decoder.greedy(&PROMPT, COUNT);
    let mut distinct = expected.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 2, "the decoder says one thing only: {expected:?}");
    for (number, shape) in SHAPES.iter().enumerate() {
        let adopted = adopt(&scene, &number.to_string(), shape, &decoder);
        assert_eq!(adopted.code, 0, "{}", adopted.stderr);
        let said = format!("{}{}", adopted.stdout, adopted.stderr);
        assert!(said.contains(shape.told), "`{}` is not in {said}", shape.told);
        let bundle = scene.path(&number.to_string());
        let (found, document) = tokens(&generate(&bundle, &PROMPT, COUNT, &[]));
        assert_eq!((found, &document["kv"]), (expected.clone(), &shape.kv.into()), "{}", shape.told);
        // A prompt of one token, and one that leaves room for one more.
        for prompt in [&PROMPT[..1], &[7; CONTEXT - 1]] {
            let (found, _) = tokens(&generate(&bundle, prompt, 2, &[]));
            assert_eq!(found, decoder.greedy(prompt, 2)[..found.len()], "{} {prompt:?}", shape.told);
        }
    }
}

#[test]
fn chunks_that_share_keys_and_values_are_driven_with_the_tables_beside_them() {
    let (scene, (decoder, files)) = (Scene::empty(), gemma::decoder(5));
    let told = [
        "CoreML-LLM: hidden_states, per_layer_raw, cos_s, sin_s, cos_f, sin_f, causal_mask_full, \
         causal_mask_sliding, update_mask, per_layer_combined, kv13_v, kv14_k; caches K_sliding_in, V_sliding_in, \
         K_full_in, V_full_in",
        "CoreML-LLM: hidden_states, per_layer_raw, cos_s, sin_s, cos_f, sin_f, causal_mask_full, \
         causal_mask_sliding, current_pos, ring_pos, per_layer_combined, kv13_v, kv14_k; states kv_cache_sliding, \
         kv_cache_full",
    ];
    for ((name, kept), told) in [("caches", Kept::Caches), ("states", Kept::States)].into_iter().zip(told) {
        let source = scene.path(&format!("{name}-source"));
        let packages = write(&source, gemma::chunks(&decoder, kept), &[]);
        for (file, bytes) in &files {
            anemeter::atomic::write_file(&source.join(file), bytes).unwrap();
        }
        let packages: Vec<&str> = packages.iter().map(|path| arg(path)).collect();
        let bundle = scene.path(name);
        let adopted = anemeter(&[&["adopt"], &packages[..], &["-o", arg(&bundle)]].concat());
        assert_eq!(adopted.code, 0, "{}", adopted.stderr);
        let said = format!("{}{}", adopted.stdout, adopted.stderr);
        assert!(said.contains(told), "`{told}` is not in {said}");
        // Within the window and beyond it, with pieces that fit and tokens that are left over.
        for prompt in [&PROMPT[..1], &PROMPT[..3], &PROMPT[..4], &PROMPT, &[7, 3, 9, 1, 4, 20, 8, 2]] {
            let expected = decoder.greedy(prompt, CONTEXT - prompt.len());
            for what in [&bundle, &source] {
                let (found, _) = tokens(&generate(what, prompt, CONTEXT - prompt.len(), &[]));
                assert_eq!(found, expected[..found.len()], "{name} {prompt:?}");
                assert!(found.len() >= CONTEXT - gemma::WINDOW - 4, "{found:?}");
            }
        }
        let gone = source.join("embed_tokens_scales.bin");
        std::fs::remove_file(&gone).unwrap();
        let refused = anemeter(&[&["adopt"], &packages[..], &["-o", arg(&scene.path("no"))]].concat());
        assert_eq!(refused.code, 2);
        let problem = "model_config.json: needs the file `embed_tokens_scales.bin`, which is not beside it";
        assert!(refused.stderr.contains(problem), "{}", refused.stderr);
    }
}

#[test]
fn logits_of_one_contract_are_those_of_another() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    adopt(&scene, "whole", &SHAPES[0], &decoder);
    adopt(&scene, "chunks", &SHAPES[4], &decoder);
    let (whole, chunks) = (scene.path("whole"), scene.path("chunks"));
    let args = ["verify", arg(&chunks), "--against", arg(&whole), "--tokens", "4", "--json"];
    let found = anemeter(&args);
    assert_eq!(found.code, 0, "{}{}", found.stdout, found.stderr);
    adopt(&scene, "other", &SHAPES[4], &Decoder::new(6));
    let other = scene.path("other");
    let found = anemeter(&["verify", arg(&chunks), "--against", arg(&other), "--tokens", "4", "--json"]);
    assert_eq!(found.code, 1, "{}", found.stderr);
}

#[test]
fn a_benchmark_of_a_contract_is_one_of_a_language_model() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    adopt(&scene, "chunks", &SHAPES[4], &decoder);
    let workload =
        include_str!("../../../configs/bench.yaml").replace("generated_tokens: 32", "generated_tokens: 4");
    anemeter::atomic::write_file(&scene.path("bench.yaml"), workload.as_bytes()).unwrap();
    let (bundle, report, file) = (scene.path("chunks"), scene.path("report"), scene.path("bench.yaml"));
    let args = ["bench", arg(&bundle), "-o", arg(&report), "--workload", arg(&file), "--launches", "1"];
    let found = anemeter(&[&args[..], &["--requests", "2", "--runtime", "cpu", "--threads", "1"]].concat());
    assert_eq!(found.code, 0, "{}", found.stderr);
    let report = json(&report.join("report.json"));
    assert_eq!(
        (&report["subject"]["kv_form"], &report["subject"]["origin"]),
        (&"state".into(), &"adopted".into())
    );
    let request = &report["launches"][0]["requests"][0];
    assert_eq!((&request["prompt_tokens"], &request["generated_tokens"]), (&12.into(), &4.into()));
    assert!(request["embed_ms"].as_f64().unwrap() > 0.0, "ANEMLL's token vectors are a package of their own");
    let weights = report["subject"]["weight_bytes_per_token"].as_u64().unwrap();
    assert!(weights > 2 * (VOCABULARY * decoder::HIDDEN) as u64, "{weights}");
}

/// A tokenizer whose words are `w0` and so on.
fn tokenizer() -> String {
    let vocabulary: serde_json::Map<String, Value> =
        (0..VOCABULARY).map(|id| (format!("w{id}"), id.into())).collect();
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    })
    .to_string()
}

/// A prompt as text of the tokenizer.
fn words(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("w{id}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn packages_are_driven_where_they_lie() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    let expected = decoder.greedy(&PROMPT, 3);
    let text = scene.path("text.txt");
    anemeter::atomic::write_file(&text, words(&[3, 17, 5, 11, 2, 20, 7, 9]).as_bytes()).unwrap();
    // One package and a folder of several, with the tokenizer beside them; the folder once more as a bundle.
    for (name, shape) in [("one", &SHAPES[2]), ("chunks", &SHAPES[4])] {
        let folder = scene.path(name);
        let packages = write(&folder, (shape.packages)(&decoder), shape.beside);
        anemeter::atomic::write_file(&folder.join("tokenizer.json"), tokenizer().as_bytes()).unwrap();
        let before = crate::support::command::names(&folder);
        let what = if packages.len() == 1 { packages[0].clone() } else { folder.clone() };
        let prompt = words(&PROMPT);
        let args = ["generate", arg(&what), "--prompt", &prompt, "--raw", "--max-tokens", "3", "--json"];
        let generated = anemeter(&args);
        assert!(generated.stderr.contains(shape.told), "{}", generated.stderr);
        let (found, document) = tokens(&generated);
        assert_eq!(found, expected, "{name}");
        assert!(document["sequences"][0]["text"].as_str().is_some_and(|text| text.starts_with('w')));
        let scored = anemeter(&["eval", arg(&what), "--text", arg(&text), "--json"]);
        assert_eq!(scored.code, 0, "{}", scored.stderr);
        let scored: Value = serde_json::from_str(&scored.stdout).unwrap();
        assert!(scored["quality"]["perplexity"]["perplexity"].as_f64().is_some_and(|found| found > 1.0));
        let verified = anemeter(&["verify", arg(&what), "--against", arg(&what), "--tokens", "2"]);
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
        let shown = anemeter(&["doctor", arg(&what)]);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        let report = scene.path(&format!("{name}-report"));
        let requests = ["-p", "4", "-g", "3", "-d", "0,6", "-n", "2", "--launches", "6"];
        let fixed = ["--runtime", "cpu", "--threads", "1"];
        let bench = ["bench", arg(&what), "-o", arg(&report)];
        let measured = anemeter(&[&bench, &requests[..], &fixed[..]].concat());
        assert_eq!(measured.code, 0, "{}{}", measured.stdout, measured.stderr);
        let store = scene.path(&format!("{name}-baselines"));
        let bless =
            ["bless", arg(&report), "--scratch", "--accept-noise", "a test", "--baselines", arg(&store)];
        assert_eq!(anemeter(&bless).code, 0);
        let gate =
            ["gate", arg(&report), "--baselines", arg(&store), "--rerun", arg(&what), "--budget", "1s"];
        let gated = anemeter(&gate);
        assert!([0, 1, 3].contains(&gated.code), "{}{}", gated.stdout, gated.stderr);
        let compare =
            ["compare", arg(&what), arg(&what), "--measure", "--budget", "1s", "-p", "4", "-g", "3"];
        let compared = anemeter(&[&compare[..], &["-n", "2"], &fixed[..]].concat());
        assert!([0, 1, 3].contains(&compared.code), "{}{}", compared.stdout, compared.stderr);
        assert_eq!(crate::support::command::names(&folder), before, "nothing is written beside packages");
    }
}

#[test]
fn a_prompt_after_a_context_is_measured_at_each_depth() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    for (number, shape) in [0, 2, 3, 4].map(|number| (number, &SHAPES[number])) {
        let name = number.to_string();
        adopt(&scene, &name, shape, &decoder);
        let (bundle, out) = (scene.path(&name), scene.path(&format!("{name}-report")));
        let args = ["bench", arg(&bundle), "-o", arg(&out), "-p", "4", "-g", "3", "-n", "2", "-d", "0,6"];
        let measured = anemeter(&[&args[..], &["--launches", "1", "--runtime", "cpu"]].concat());
        assert_eq!(measured.code, 0, "{}", measured.stderr);
        assert!(measured.stdout.contains("Throughput"), "{}", measured.stdout);
        let report = json(&out.join("report.json"));
        crate::schema::assert_valid("report", &report);
        assert_eq!(report["workload"]["depths"]["depths"], serde_json::json!([0, 6]));
        assert_eq!(report["workload"]["seq_lens"], serde_json::json!([7, 13]));
        let requests = report["launches"][0]["requests"].as_array().unwrap();
        assert_eq!(requests.len(), 4);
        for request in requests {
            let depth = request["seq_len"].as_u64().unwrap() - 7;
            // What keeps nothing computes its context with each prompt.
            let kept = if shape.kv == "none" { 0 } else { depth };
            let expected = [kept, 4 + depth - kept, 3].map(Value::from);
            let found = ["context_tokens", "prompt_tokens", "generated_tokens"]
                .map(|key| request.get(key).cloned().unwrap_or(0.into()));
            assert_eq!(found, expected, "{}", shape.told);
        }
        let lines = anemeter(&["report", arg(&out), "--format", "llama-bench"]);
        let tests: Vec<[u64; 3]> = lines
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|line| ["n_prompt", "n_gen", "n_depth"].map(|key| line[key].as_u64().unwrap()))
            .collect();
        match shape.kv {
            "none" => assert_eq!(tests, [[0, 2, 4], [0, 2, 10], [4, 0, 0], [10, 0, 0]]),
            _ => assert_eq!(tests, [[0, 2, 4], [0, 2, 10], [4, 0, 0], [4, 0, 6]]),
        }
        let deep = anemeter(&["bench", arg(&bundle), "-p", "4", "-g", "3", "-d", "10"]);
        assert_eq!(deep.code, 2);
        let told =
            "10 tokens of context, 4 of a prompt and 3 generated need a length of 17, the longest is 16";
        assert!(deep.stderr.contains(told), "{}", deep.stderr);
    }
}

#[test]
fn a_head_that_picks_the_token_is_not_sampled_from() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    adopt(&scene, "picks", &SHAPES[5], &decoder);
    let bundle = scene.path("picks");
    let found = generate(&bundle, &PROMPT, 2, &["--temperature", "0.7"]);
    assert_eq!(found.code, 2, "{}", found.stdout);
    let told = "error: the packages pick the next token themselves and give no logits to sample from\n\
                help: decode greedily: temperature 0\n";
    assert!(found.stderr.ends_with(told), "{}", found.stderr);
}

#[test]
fn anything_else_is_described_by_a_file() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    let mut packages = packages::stateless(&decoder);
    let interface = packages[0].1.interface_mut("main").unwrap();
    interface.inputs[0].name = "words".to_owned();
    let function = &mut packages[0].1.program.functions[0];
    let input = function.inputs[0];
    function.values[input.index()].name = "words".to_owned();
    let source = scene.path("source");
    let written = write(&source, packages, &[]);
    let contract = "
context_length: 16
vocabulary: 24
packages:
  - package: model.mlpackage
    functions:
      - { function: main, role: whole-sequence, inputs: { ids: words }, outputs: { logits: [logits] } }
";
    let (file, bundle) = (scene.path("contract.yaml"), scene.path("bundle"));
    anemeter::atomic::write_file(&file, contract.as_bytes()).unwrap();
    let adopted = anemeter(&["adopt", arg(&written[0]), "-o", arg(&bundle), "--contract", arg(&file)]);
    assert_eq!(adopted.code, 0, "{}", adopted.stderr);
    let (found, _) = tokens(&generate(&bundle, &PROMPT, COUNT, &[]));
    assert_eq!(found, decoder.greedy(&PROMPT, COUNT));
    anemeter::atomic::write_file(&file, contract.replace("words", "ids").as_bytes()).unwrap();
    let refused =
        anemeter(&["adopt", arg(&written[0]), "-o", arg(&scene.path("no")), "--contract", arg(&file)]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("function `main`: it has no input `ids`"), "{}", refused.stderr);
    assert!(!scene.path("no").exists());
}

#[test]
fn outputs_are_held_against_those_of_a_file() {
    let (scene, decoder) = (Scene::empty(), Decoder::new(5));
    adopt(&scene, "whole", &SHAPES[1], &decoder);
    let mut ids = [0i32; CONTEXT];
    ids.iter_mut().zip(PROMPT).for_each(|(to, id)| *to = i32::try_from(id).unwrap());
    let all = ids.map(|id| u32::try_from(id).unwrap());
    let mut logits: Vec<f32> = (1..=CONTEXT).flat_map(|count| decoder.logits(&all[..count])).collect();
    let bundle = scene.path("whole");
    let verify = |logits: &[f32]| {
        let path = scene.path("reference.safetensors");
        let shapes = [("inputIds", vec![1, CONTEXT]), ("logits", vec![1, CONTEXT, VOCABULARY])];
        let data: [&[u8]; 2] = [bytemuck::cast_slice(&ids), bytemuck::cast_slice(logits)];
        let types = [safetensors::Dtype::I32, safetensors::Dtype::F32];
        let views = shapes.iter().zip(data).zip(types).map(|(((name, shape), data), dtype)| {
            (*name, safetensors::tensor::TensorView::new(dtype, shape.clone(), data).unwrap())
        });
        let file = safetensors::serialize(views, None::<std::collections::HashMap<String, String>>).unwrap();
        anemeter::atomic::write_file(&path, &file).unwrap();
        anemeter(&["verify", arg(&bundle), "--reference", arg(&path)])
    };
    let right = verify(&logits);
    assert_eq!(right.code, 0, "{}{}", right.stdout, right.stderr);
    assert!(right.stdout.contains("passed"), "{}", right.stdout);
    assert_eq!(json(&bundle.join("verify.json"))["passed"], true);
    logits[100] += 1.0;
    let wrong = verify(&logits);
    assert_eq!(wrong.code, 1, "{}", wrong.stdout);
    assert!(wrong.stdout.contains("beyond the tolerance"), "{}", wrong.stdout);
    assert_eq!(json(&bundle.join("verify.json"))["passed"], false);
}
