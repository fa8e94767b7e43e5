//! Packages that are meant to do harm, or make little sense: each has a clear answer, and nothing is lost.

use std::fs;
use std::path::Path;

use anemeter::bundle::Bundle;
use anemeter::mil::{
    ArrayType, Builder, Dim, FeatureType, Flexibility, Function, Literal, Model, Opset, TensorType, Type,
};
use anemeter::tensor::{DType, Tensor};

use super::{WORKLOAD, refused};
use crate::support::checkpoints::write_text;
use crate::support::command::{Outcome, anemeter, arg, has_unfinished, json};
use crate::support::packages::{convolutions, write};
use crate::support::scene::Scene;

/// Commands that look at a package and write nothing.
const LOOKS: [&str; 5] = ["inspect", "lint", "doctor", "verify", "compare"];

fn scene(model: Model) -> Scene {
    let scene = Scene::empty();
    write_text(&scene.path("bench.yaml"), WORKLOAD);
    write(&scene.path("m.mlpackage"), model);
    scene
}

/// `relu` of one input.
fn relu(function: &str, input: &str, ty: TensorType) -> Function {
    let mut builder = Builder::new(function, Opset::Ios18);
    let x = builder.input(input, ty);
    let y = builder.op("relu").arg("x", x).named("y").push().unwrap();
    builder.finish(&[y])
}

/// Runs every command on `m.mlpackage`: none panics or fails without a word, and the package stays as it is.
fn answers(scene: &Scene) {
    let before = content(&scene.path("m.mlpackage"));
    for command in LOOKS {
        let more: &[&str] = match command {
            "verify" => &["--against", "m.mlpackage"],
            "compare" => &["m.mlpackage"],
            _ => &[],
        };
        clear(&scene.run(&[&[command, "m.mlpackage"], more].concat()), command);
    }
    clear(&scene.run(&["run", "m.mlpackage", "--outputs", "out.safetensors"]), "run");
    clear(&scene.run(&["generate", "m.mlpackage", "--token-ids", "1"]), "generate");
    clear(&scene.run(&["adopt", "m.mlpackage", "-o", "adopted"]), "adopt");
    assert_eq!(content(&scene.path("m.mlpackage")), before, "the package was changed");
    assert!(!has_unfinished(scene.folder()));
}

/// The files of a package that say what it is.
fn content(package: &Path) -> Vec<Vec<u8>> {
    ["Manifest.json", "Data/com.apple.CoreML/model.mlmodel"]
        .map(|file| fs::read(package.join(file)).unwrap())
        .to_vec()
}

/// Either it worked, or one message says why not.
fn clear(outcome: &Outcome, what: &str) {
    let Outcome { code, stdout, stderr } = outcome;
    assert!((0..=3).contains(code), "{what} ended with {code}: {stderr}");
    assert!(!stderr.contains("panicked"), "{what}: {stderr}");
    assert!(!format!("{stdout}{stderr}").contains('\u{1b}'), "{what} passes control characters on: {stderr}");
    assert!(*code != 2 || stderr.matches("error: ").count() == 1, "{what}: {stderr}");
}

#[test]
fn names_reach_no_terminal_and_no_page_as_they_are() {
    let evil = "x\u{1b}[2J<script>|=cmd";
    // No writer makes such a name, so it is put into the bytes: both have the same length.
    let plain = "x".repeat(evil.len());
    let scene = scene(Model::single(relu("main", &plain, TensorType::fixed(DType::F16, &[1, 4]))));
    let path = scene.path("m.mlpackage/Data/com.apple.CoreML/model.mlmodel");
    let bytes = fs::read(&path).unwrap();
    let count = bytes.windows(plain.len()).filter(|window| *window == plain.as_bytes()).count();
    assert!(count >= 2, "the name is in the program and in the description");
    let mut renamed = bytes.clone();
    for at in 0..=bytes.len() - plain.len() {
        if &bytes[at..at + plain.len()] == plain.as_bytes() {
            renamed[at..at + plain.len()].copy_from_slice(evil.as_bytes());
        }
    }
    anemeter::atomic::write_file(&path, &renamed).unwrap();
    answers(&scene);
    let outcome = scene.measured("m.mlpackage", &["--launches", "1"]);
    clear(&outcome, "bench");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    for page in ["out/report.html", "out/report.md"] {
        let page = fs::read_to_string(scene.path(page)).unwrap();
        assert!(!page.contains("<script>|") && !page.contains('\u{1b}'));
    }
    assert_eq!(json(&scene.path("out/report.json"))["workload"]["cases"][0]["shapes"][0]["input"], evil);
}

#[test]
fn a_file_name_reaches_no_terminal_and_leads_nowhere() {
    let scene = Scene::empty();
    write_text(&scene.path("bench.yaml"), WORKLOAD);
    let name = "a\u{1b}[31m\n.mlpackage";
    write(&scene.path(name), Model::single(convolutions("main", 8, 1)));
    let outcome = scene.measured(name, &["--launches", "1"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    clear(&outcome, "bench");
    let adopted = scene.run(&["adopt", name, "-o", "safe"]);
    assert!(!adopted.good().contains('\u{1b}'), "{}", adopted.stdout);
    assert_eq!(Bundle::open(scene.path("safe")).unwrap().manifest().chunks[0].file.name, name);
    // A description that leads elsewhere is refused.
    let text = fs::read_to_string(scene.path("safe/export.json")).unwrap();
    let elsewhere = text.replace(&serde_json::to_string(name).unwrap(), "\"../outside.mlpackage\"");
    write_text(&scene.path("safe/export.json"), &elsewhere);
    assert!(refused(&anemeter(&["bench", arg(&scene.path("safe"))])).contains("which is not a plain name"));
}

#[test]
fn a_function_without_inputs_is_measured() {
    let mut builder = Builder::new("main", Opset::Ios18);
    let c = builder.constant("c", Literal::blob(&Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap()));
    let y = builder.op("identity").arg("x", c).named("y").push().unwrap();
    let scene = scene(Model::single(builder.finish(&[y])));
    answers(&scene);
    let outcome = scene.measured("m.mlpackage", &["--launches", "1"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(json(&scene.path("out/report.json"))["workload"]["cases"][0]["name"], "main");
}

#[test]
fn a_dimension_of_nothing_is_refused_by_name() {
    let scene = scene(Model::single(relu("main", "x", TensorType::fixed(DType::F16, &[1, 0, 4]))));
    answers(&scene);
    let outcome = scene.measured("m.mlpackage", &[]);
    let told = refused(&outcome);
    assert!(told.contains("input `x` of `main` has the shape [1, 0, 4]"), "{told}");
    assert!(told.contains("help: give a shape"), "{told}");
    assert!(!scene.path("out/report.json").exists());
}

#[test]
fn a_range_beyond_all_memory_is_refused_and_a_shape_in_it_is_measured() {
    let ty = TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown]);
    let mut model = Model::single(relu("main", "x", ty));
    let feature = &mut model.interface_mut("main").unwrap().inputs[0];
    let huge = 1u64 << 40;
    feature.ty = FeatureType::Array(ArrayType {
        dtype: DType::F16,
        shape: vec![1, huge],
        flexibility: Flexibility::Ranges(vec![(1, Some(1)), (1, None)]),
        default: None,
    });
    let scene = scene(model);
    answers(&scene);
    let told = scene.measured("m.mlpackage", &[]);
    let told = refused(&told);
    assert!(told.contains("too large to be made up") && told.contains("help: give a shape"), "{told}");
    let small = scene.measured("m.mlpackage", &["--launches", "1", "--shape", "x=1x64"]);
    assert_eq!(small.code, 0, "{}", small.stderr);
    let beyond = scene.measured("m.mlpackage", &["--shape", &format!("x=1x{huge}")]);
    assert!(refused(&beyond).contains("too large to be made up"), "{}", beyond.stderr);
}

#[test]
fn a_state_beyond_all_memory_is_refused() {
    let mut builder = Builder::new("main", Opset::Ios18);
    let x = builder.input("x", TensorType::fixed(DType::F16, &[1, 1]));
    builder.input("cache", Type::State(TensorType::fixed(DType::F16, &[1 << 20, 1 << 22])));
    let y = builder.op("relu").arg("x", x).named("y").push().unwrap();
    let scene = scene(Model::single(builder.finish(&[y])));
    answers(&scene);
    let run = scene.run(&["run", "m.mlpackage", "--outputs", "out.safetensors"]);
    assert!(refused(&run).contains("state `cache`: is a"), "{}", run.stderr);
    let bench = scene.measured("m.mlpackage", &["--launches", "1"]);
    assert!(!bench.stderr.contains("panicked") && bench.code != 0, "{}", bench.stderr);
    assert!(format!("{}{}", bench.stdout, bench.stderr).contains("state `cache`"), "{}", bench.stderr);
}

#[test]
fn forty_functions_are_forty_cases() {
    let functions = (0..40).map(|n| relu(&format!("f{n:02}"), "x", TensorType::fixed(DType::F16, &[1, 4])));
    let scene = scene(Model::multi(functions.collect()));
    answers(&scene);
    let outcome = scene.measured("m.mlpackage", &["--launches", "1", "--requests", "2"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let report = json(&scene.path("out/report.json"));
    assert_eq!(report["workload"]["cases"].as_array().unwrap().len(), 40);
    assert_eq!(report["launches"][0]["predictions"].as_array().unwrap().len(), 40 * (1 + 2));
    let few = scene.measured("m.mlpackage", &["--launches", "1", "--functions", "f07,f31"]);
    assert_eq!(few.code, 0, "{}", few.stderr);
    assert_eq!(json(&scene.path("out/report.json"))["workload"]["cases"].as_array().unwrap().len(), 2);
}

#[test]
fn a_head_of_more_slices_than_any_vocabulary_has_takes_no_memory() {
    // The names are those of ANEMLL's embeddings, chunk and head.
    let scene = Scene::empty();
    let fp16 = |shape: &[usize]| TensorType::fixed(DType::F16, shape);
    let mut head = Builder::new("main", Opset::Ios18);
    let x = head.input("hidden_states", fp16(&[1, 1, 4]));
    let y = head.op("cast").arg("x", x).arg("dtype", "int32").named("argmax_idx").push().unwrap();
    let mut head = Model::single(head.finish(&[y]));
    let output = &mut head.interface_mut("main").unwrap().outputs[0];
    output.ty = FeatureType::Array(ArrayType {
        dtype: DType::I32,
        shape: vec![1, 1, 1 << 60],
        flexibility: Flexibility::Fixed,
        default: None,
    });
    let mut embed = Builder::new("main", Opset::Ios18);
    let ids = embed.input("input_ids", TensorType::fixed(DType::I32, &[1, 1]));
    let y = embed.op("cast").arg("x", ids).arg("dtype", "fp16").named("hidden_states").push().unwrap();
    let embed = Model::single(embed.finish(&[y]));
    let mut infer = Builder::new("infer", Opset::Ios18);
    let x = infer.input("hidden_states", fp16(&[1, 1, 4]));
    let mask = infer.input("causal_mask", fp16(&[1, 1, 1, 4]));
    let sum = infer.op("add").arg("x", x).arg("y", mask).named("sum").push().unwrap();
    let y = infer.op("squeeze").arg("x", sum).arg("axes", [0]).named("output_hidden_states").push().unwrap();
    let infer = Model::multi(vec![infer.finish(&[y])]);
    fs::create_dir(scene.path("m")).unwrap();
    for (name, model) in [("a", embed), ("b", infer), ("c", head)] {
        let Ok(verified) = anemeter::mil::verify::verify(model) else { continue };
        let path = scene.path(&format!("m/{name}.mlpackage"));
        anemeter::package::write(&verified, path, anemeter::package::WriteOptions::default()).unwrap();
    }
    write_text(&scene.path("m/meta.yaml"), "model_info: { parameters: { vocab_size: 24 } }");
    clear(&scene.run(&["generate", "m", "--token-ids", "1"]), "generate");
    clear(&scene.run(&["adopt", "m", "-o", "adopted"]), "adopt");
}
