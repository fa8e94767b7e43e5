//! Files of others ask for memory, time and the terminal, and get none of it: one error each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(target_os = "linux")]
use std::process::{Child, Stdio};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use anemeter::mil::{Builder, Dim, Function, Model, Opset, TensorType};
use anemeter::tensor::DType;
use half::f16;
use serde_json::{Value, json};

use crate::support::architectures::gpt2;
use crate::support::checkpoints::{Named, write_shard, write_text};
#[cfg(target_os = "linux")]
use crate::support::command::await_unfinished;
use crate::support::command::{Outcome, anemeter, arg, json, names, program, run};
use crate::support::fixtures;
use crate::support::scene::Scene;

/// What a terminal must not get.
const NAME: &str = "a\u{1b}[2J\u{9b}1m\u{202e}b\n::error::c\nerror: d";

/// The checkpoint of the quickstart, which has a tokenizer, and a bundle of it.
fn with_tokenizer() -> Scene {
    let scene = Scene::empty();
    let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/quickstart/model");
    let bundle = scene.path("bundle");
    anemeter(&["export", arg(&checkpoint), "-o", arg(&bundle), "--shapes", "16", "-q"]).succeeded();
    scene
}

fn generate(scene: &Scene) -> Outcome {
    anemeter(&["generate", arg(&scene.path("bundle")), "--prompt", "Once upon", "--max-tokens", "1"])
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut document = json(path);
    change(&mut document);
    write_text(path, &document.to_string());
}

fn is_harmless(outcome: &Outcome) {
    for text in [&outcome.stdout, &outcome.stderr] {
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("::")), "{text}");
    }
    assert!(
        outcome.stderr.lines().filter(|line| line.starts_with("error:")).count() <= 1,
        "{}",
        outcome.stderr
    );
}

#[test]
fn names_reach_no_terminal() {
    let scene = Scene::new();
    let package = {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F32, &[2]));
        let y = main.op("add").arg("x", x).arg("y", 1f32).named("y").push().unwrap();
        let mut model = Model::single(main.finish(&[y]));
        model.metadata.description = NAME.to_owned();
        model.metadata.user_defined.push((NAME.to_owned(), NAME.to_owned()));
        fixtures::write(model, scene.folder(), "named.mlpackage")
    };
    for flags in [&["--mil"][..], &[], &["--json"], &["--ops", "--weights"]] {
        let told = anemeter(&[&["inspect", arg(&package)], flags].concat());
        told.good();
        is_harmless(&told);
    }
    let report = scene.path("report.json");
    write_text(&report, &json!({ "schema": format!("anemeter.report/{NAME}") }).to_string());
    let told = anemeter(&["report", arg(&report)]);
    assert_eq!(told.code, 2);
    is_harmless(&told);
    let config = scene.path("tiny/config.json");
    edit(&config, |config| config["architectures"] = json!([NAME]));
    is_harmless(&scene.export("out", &["--shapes", "16"]));
    edit(&config, |config| config["architectures"] = json!(["StudentGqaForCausalLM"]));
    let told = scene.export("named", &["--shapes", "16", "--name", NAME]);
    told.good();
    is_harmless(&told);
}

#[test]
fn only_regular_files_are_read() {
    let scene = Scene::new();
    scene.export("bundle", &["--shapes", "16"]).good();
    let (pipe, bundle) = (scene.path("pipe"), scene.path("bundle"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let package = bundle.join("model.mlpackage");
    let (checkpoint, out) = (scene.path("tiny"), scene.path("out"));
    for path in [pipe.as_path(), Path::new("/dev/zero")] {
        let commands: [&[&str]; 7] = [
            &["bench", arg(&bundle), "--workload", arg(path)],
            &["export", arg(&checkpoint), "-o", arg(&out), "--config", arg(path)],
            &["lint", arg(&package), "--waivers", arg(path)],
            &["run", arg(&package), "--inputs", arg(path)],
            &["run", arg(&package), "--state", arg(path)],
            &["report", arg(path)],
            &["generate", arg(&bundle), "--prompt-file", arg(path)],
        ];
        for command in commands {
            let told = anemeter(command);
            assert_eq!(told.code, 2, "{command:?}: {}", told.stderr);
            assert!(told.stderr.contains("not a regular file"), "{command:?}: {}", told.stderr);
        }
    }
}

#[test]
fn every_element_that_is_written_is_finite() {
    let scene = Scene::empty();
    let good = gpt2("gpt2", &json!({}));
    for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY] {
        for name in good.tensors.keys() {
            let mut tiny = good.clone();
            let (_, values) = tiny.tensors.get_mut(name).unwrap();
            *values.last_mut().unwrap() = bad;
            let checkpoint = tiny.write(&scene.path("checkpoint"));
            let out = scene.path("out");
            for precision in ["fp16", "int8"] {
                let shapes =
                    ["export", arg(&checkpoint), "-o", arg(&out), "--shapes", "16", "--precision", precision];
                let told = anemeter(&shapes);
                assert_eq!(told.code, 2, "{name} with {bad} in {precision}: {}", told.stderr);
                assert!(!told.stderr.contains(".anemeter-tmp"), "{}", told.stderr);
                assert_eq!(names(scene.folder()), ["checkpoint"], "{name}");
            }
            fs::remove_dir_all(scene.path("checkpoint")).unwrap();
        }
    }
}

#[test]
fn a_norm_with_a_bias_that_fp16_has_not_is_refused() {
    let scene = Scene::empty();
    let good = gpt2("gpt2", &json!({}));
    let (checkpoint, out) = (good.write(&scene.path("checkpoint")), scene.path("out"));
    let file = checkpoint.join("model.safetensors");
    let whole: Vec<Named> = good
        .tensors
        .iter()
        .map(|(name, (shape, values))| {
            (name.clone(), shape.clone(), values.iter().map(|value| value.to_f32()).collect())
        })
        .collect();
    let export = |precision: &str| {
        let args = ["export", arg(&checkpoint), "-o", arg(&out), "--shapes", "16", "--precision", precision];
        anemeter(&args)
    };
    // 65,520 is the least number that fp16 rounds to infinity; all of these are finite in fp32.
    for bad in [65_520.0, -65_520.0, 1e38] {
        for norm in ["h.0.ln_1", "h.2.ln_2", "ln_f"] {
            let mut tensors = whole.clone();
            let name = format!("transformer.{norm}.bias");
            let bias = tensors.iter_mut().find(|(found, ..)| *found == name).unwrap();
            *bias.2.last_mut().unwrap() = bad;
            write_shard(&file, &tensors);
            for precision in ["fp16", "int8"] {
                let told = export(precision);
                assert_eq!(told.code, 2, "{name} with {bad} in {precision}: {}", told.stderr);
                assert!(told.stderr.contains(&format!("`{name}`: element 23 is ")), "{}", told.stderr);
                assert!(told.stderr.contains("outside the range of fp16"), "{}", told.stderr);
                assert!(!told.stderr.contains(".anemeter-tmp"), "{}", told.stderr);
                assert_eq!(names(scene.folder()), ["checkpoint"], "{name}");
            }
        }
    }
    write_shard(&file, &whole);
    export("fp16").good();
}

#[test]
fn numbers_that_no_program_has_are_named_by_their_key() {
    let scene = Scene::new();
    let config = scene.path("tiny/config.json");
    let good = json(&config);
    for (key, value) in [
        ("rope_theta", json!(1e-320)),
        ("rope_theta", json!(1e308)),
        ("rms_norm_eps", json!(1e-320)),
        ("rms_norm_eps", json!(7)),
    ] {
        edit(&config, |config| {
            *config = good.clone();
            config[key] = value.clone();
        });
        let message = scene.export("out", &["--shapes", "16"]).complaint();
        assert!(message.contains(key) && message.contains("tiny"), "{key} = {value}: {message}");
        assert_eq!(names(scene.folder()), ["tiny"]);
    }
}

#[test]
fn damaged_tokenizers_are_refused() {
    let scene = with_tokenizer();
    let file = scene.path("bundle/tokenizer.json");
    let good = json(&file);
    let replace =
        |pattern: Value, content: String| json!({"type": "Replace", "pattern": pattern, "content": content});
    let doubling: Vec<Value> = (0..40).map(|_| replace(json!({"String": "a"}), "aa".to_owned())).collect();
    let template = json!({"type": "TemplateProcessing", "pair": [], "special_tokens": {},
        "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]});
    let cases: Vec<(&str, &str, Value)> = vec![
        ("an empty pattern", "normalizer", replace(json!({"String": ""}), "x".to_owned())),
        ("an empty expression", "normalizer", replace(json!({"Regex": ""}), "x".to_owned())),
        ("text that doubles", "normalizer", json!({"type": "Sequence", "normalizers": doubling})),
        ("long text before each", "normalizer", json!({"type": "Prepend", "prepend": "y".repeat(1 << 20)})),
        (
            "a damaged map",
            "normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "AAQAAAAA/wAAAAAAAP//"}),
        ),
        ("pieces of no length", "pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        ("a token that is not listed", "post_processor", template),
        (
            "many steps",
            "decoder",
            json!({"type": "Sequence", "decoders": vec![json!({"type": "Fuse"}); 1000]}),
        ),
    ];
    for (what, part, step) in cases {
        let mut damaged = good.clone();
        damaged[part] = step;
        write_text(&file, &damaged.to_string());
        let told = generate(&scene);
        assert_eq!(told.code, 2, "{what}: {}{}", told.stdout, told.stderr);
        assert!(told.stderr.contains("tokenizer.json: "), "{what}: {}", told.stderr);
        assert!(!told.stderr.contains("panicked"), "{what}: {}", told.stderr);
    }
    // Prefixes that cut a character in two, and tokens without end.
    let mut cut = good.clone();
    cut["model"]["continuing_subword_prefix"] = json!("x");
    cut["model"]["vocab"] = json!({"é": 0, "a": 1});
    cut["model"]["merges"] = json!([["a", "é"]]);
    let mut long = good.clone();
    long["added_tokens"][0]["content"] = json!("z".repeat(1 << 20));
    for damaged in [cut, long] {
        write_text(&file, &damaged.to_string());
        let told = generate(&scene);
        assert_eq!(told.code, 2, "{}", told.stderr);
        assert!(!told.stderr.contains("panicked"), "{}", told.stderr);
    }
    write_text(&file, &good.to_string());
    generate(&scene).good();
}

#[test]
fn chat_templates_have_a_budget() {
    let scene = with_tokenizer();
    let file = scene.path("bundle/export.json");
    for (what, template) in [
        ("strings that double", format!("{{% set x = 'ab' %}}{}{{{{ x }}}}", "{% set x = x ~ x %}".repeat(60))),
        ("a huge string", "{{ 'ab' * 1099511627776 }}".to_owned()),
        ("lists that double", format!("{{% set x = [1] %}}{}{{{{ x }}}}", "{% set x = x + x %}".repeat(60))),
        ("lists in lists", format!("{{% set x = [1] %}}{}{{{{ x }}}}", "{% set x = [x, x] %}".repeat(60))),
        ("deep lists", "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% for j in range(100) %}\
             {% set ns.l = [ns.l] %}{% endfor %}{% endfor %}{{ ns.l }}".to_owned()),
        ("recursion", "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}".to_owned()),
        ("deep expressions", format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000))),
        ("long output", "{% for i in range(100000) %}{% for j in range(100000) %}{{ 'x' * 1000 }}{% endfor %}{% endfor %}".to_owned()),
    ] {
        edit(&file, |manifest| manifest["tokenizer"]["chat_template"] = json!(template));
        let told = generate(&scene);
        assert_eq!(told.code, 2, "{what}: {}{}", told.stdout, told.stderr);
        assert!(told.stderr.contains("chat template"), "{what}: {}", told.stderr);
    }
    edit(&file, |manifest| manifest["tokenizer"]["chat_template"] = json!("{{ messages[0].content }}"));
    generate(&scene).good();
}

fn loops(doubles: bool) -> Function {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F32, &[1, 4]));
    let ty = TensorType::new(DType::F32, vec![Dim::from(1usize), Dim::Unknown]);
    let condition = main.block(&[("c", ty.clone().into())], |main, _| {
        Ok(vec![main.op("equal").arg("x", 1i32).arg("y", 1i32).push()?])
    });
    let body = main.block(&[("b", ty.into())], |main, inputs| {
        let (x, op) = (inputs[0], if doubles { "concat" } else { "add" });
        Ok(vec![match doubles {
            true => main.op(op).args("values", &[x, x]).arg("axis", 1).push()?,
            false => main.op(op).arg("x", x).arg("y", 1f32).push()?,
        }])
    });
    let looped = main.op("while_loop").arg("loop_vars", x).nested(condition.unwrap()).nested(body.unwrap());
    let y = looped.push().unwrap();
    main.finish(&[y])
}

fn filled(rows: i32) -> Function {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F32, &[1]));
    let large = main.op("fill").arg("shape", [rows, 1024]).arg("value", 1f32).push().unwrap();
    let y = main.op("add").arg("x", large).arg("y", x).named("y").push().unwrap();
    main.finish(&[y])
}

#[test]
fn programs_have_a_budget() {
    let scene = Scene::empty();
    let write = |function, name| fixtures::write(Model::single(function), scene.folder(), name);
    let endless = write(loops(false), "endless.mlpackage");
    let doubling = write(loops(true), "doubling.mlpackage");
    let large = write(filled(1 << 20), "large.mlpackage");
    let small = write(filled(1 << 10), "small.mlpackage");
    for (package, option) in
        [(&endless, "--step-limit"), (&doubling, "--memory-limit"), (&large, "--memory-limit")]
    {
        let told = anemeter(&["run", arg(package)]);
        assert_eq!(told.code, 2, "{}", told.stderr);
        assert!(told.stderr.contains(option), "{}", told.stderr);
        for command in ["lint", "inspect"] {
            let told = anemeter(&[command, arg(package)]);
            assert!((0..=2).contains(&told.code), "{}", told.stderr);
        }
        anemeter(&["inspect", arg(package), "--cost"]);
    }
    let told = anemeter(&["run", arg(&small), "--memory-limit", "1MiB"]);
    assert_eq!(told.code, 2, "{}", told.stderr);
    anemeter(&["run", arg(&small), "--memory-limit", "64MiB", "--step-limit", "10"]).good();
}

#[test]
fn threads_are_bounded() {
    let scene = Scene::new();
    scene.export("bundle", &["--shapes", "16"]).good();
    let bundle = scene.path("bundle");
    let told = anemeter(&["generate", arg(&bundle), "--token-ids", "1", "--threads", "4096"]);
    assert_eq!(told.code, 2);
    assert!(told.stderr.contains("is not a number of threads from 1 to 1024"), "{}", told.stderr);
    let told = anemeter(&["serve", arg(&bundle), "--port", "0", "--threads", "4096"]);
    assert_eq!(told.code, 2);
    assert!(told.stderr.contains("is not a number of threads from 1 to 1024"), "{}", told.stderr);
    let (checkpoint, out) = (scene.path("tiny"), scene.path("out"));
    let mut command = program();
    command.env("RAYON_NUM_THREADS", "100000");
    let told = run(command.args(["export", arg(&checkpoint), "-o", arg(&out), "--shapes", "16"]));
    told.good();
    assert!(told.stderr.contains("RAYON_NUM_THREADS is above 1024"), "{}", told.stderr);
}

#[test]
fn numbers_beyond_measure_are_refused() {
    let scene = Scene::new();
    let report = crate::support::report::small(&scene);
    for value in ["1e308", "-1e300", "1e101"] {
        let text = fs::read_to_string(&report).unwrap();
        let at = text.find("\"ttft_ms\":").unwrap() + "\"ttft_ms\":".len();
        let end = at + text[at..].find([',', '\n']).unwrap();
        let damaged = scene.path("damaged.json");
        write_text(&damaged, &format!("{}{value}{}", &text[..at], &text[end..]));
        for format in ["html", "text", "csv"] {
            let told = anemeter(&["report", arg(&damaged), "--format", format]);
            assert_eq!(told.code, 2, "{}", told.stderr);
            assert!(told.stderr.contains("nothing that is measured"), "{}", told.stderr);
        }
    }
}

/// Ends what reads a file that is made shorter: exit code 2 and one error that names it.
#[cfg(target_os = "linux")]
fn shrink(file: &Path, child: Child) {
    let name = file.file_name().unwrap().to_str().unwrap();
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(64).unwrap();
    let began = Instant::now();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(began.elapsed() < Duration::from_secs(300), "it goes on");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("{name}: became shorter while it was read")), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_shrinks_while_it_is_read_is_named() {
    let scene = Scene::new();
    // Weights of 64 MB, which are read again with every prediction, by several threads at once.
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F16, &[1, 4096]));
    let weight = main.constant("w", fixtures::weight(&[4096, 4096], 3));
    let y = main.op("matmul").arg("x", x).arg("y", weight).named("y").push().unwrap();
    let model = Model::single(main.finish(&[y]));
    for threads in ["1", "2"] {
        let name = format!("large-{threads}.mlpackage");
        let package = fixtures::write(model.clone(), scene.folder(), &name);
        let child = program()
            .args(["run", arg(&package), "--time", "1000000", "--threads", threads])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        shrink(&package.join("Data/com.apple.CoreML/weights/weight.bin"), child);
        fs::remove_dir_all(package).unwrap();
    }
}

/// The export of a copy of the quickstart's checkpoint in a form whose codes take a while to choose, just begun.
#[cfg(target_os = "linux")]
fn slow_export(scene: &Scene) -> (PathBuf, Child) {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/quickstart/model");
    let checkpoint = scene.path("checkpoint");
    fs::create_dir(&checkpoint).unwrap();
    for name in names(&original) {
        fs::copy(original.join(&name), checkpoint.join(&name)).unwrap();
    }
    let mut child = program()
        .args(["export", arg(&checkpoint), "-o", arg(&scene.path("out")), "--shapes", "16"])
        .args(["--precision", "lut6:group=16"])
        .env("RAYON_NUM_THREADS", "2")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(await_unfinished(scene.folder(), &mut child), "it has ended already");
    (checkpoint, child)
}

#[cfg(target_os = "linux")]
#[test]
fn a_checkpoint_that_shrinks_during_an_export_is_named() {
    let scene = Scene::empty();
    let (checkpoint, child) = slow_export(&scene);
    shrink(&checkpoint.join("model.safetensors"), child);
    assert_eq!(names(scene.folder()), ["checkpoint"]);
}

#[cfg(target_os = "linux")]
#[test]
fn of_two_exports_at_once_the_second_is_told() {
    let scene = Scene::empty();
    let (checkpoint, first) = slow_export(&scene);
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &first.id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    signal("-STOP");
    let out = scene.path("out");
    let args = ["export", arg(&checkpoint), "-o", arg(&out), "--shapes", "16"];
    for more in [&[][..], &["--overwrite"]] {
        let second = anemeter(&[&args[..], more].concat());
        let said = second.complaint();
        assert!(said.contains("out: ") && said.contains("another process is writing it"), "{said}");
    }
    signal("-CONT");
    let output = first.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(scene.folder()), ["checkpoint", "out"]);
    let settings = json(&scene.path("out/export.json"))["settings"]["precision"].clone();
    assert_eq!(settings, "lut6:group=16", "the first is whole");
}

#[test]
fn long_names_and_states_are_kept_where_they_were_asked_for() {
    let scene = Scene::new();
    let name = "n".repeat(250);
    scene.export(&name, &["--shapes", "16"]).good();
    assert_eq!(names(scene.folder()).len(), 2);
    let package: PathBuf = fixtures::write(fixtures::accumulator(), scene.folder(), "a.mlpackage");
    let state = scene.path("none/state.safetensors");
    let told = anemeter(&["run", arg(&package), "--state", arg(&state)]);
    assert_eq!(told.code, 2, "{}", told.stderr);
    assert!(!scene.path("none").exists(), "nobody asked for a folder");
}
