//! Core AI assets by the program, with a Python that plays Apple's module.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::coreai::asset::{self, AssetMetadata};
use anemeter::coreai::convert::from_mil;
use anemeter::mil::verify::verify;
use anemeter::mil::{Builder, Model, Opset, TensorType, Type};
use anemeter::tensor::DType;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tempfile::TempDir;

use crate::support::apple_python;
use crate::support::command::{anemeter, arg, json};
use crate::support::damage::put;
use crate::support::fixtures;

struct Scene {
    folder: TempDir,
    asset: PathBuf,
    python: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let (asset, python) = (folder.path().join("double.aimodel"), apple_python::doubling(folder.path()));
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F32, &[2]));
        main.input("count", Type::State(TensorType::fixed(DType::F32, &[2])));
        let y = main.op("add").arg("x", x).arg("y", x).named("y").push().unwrap();
        let model = verify(Model::single(main.finish(&[y]))).unwrap();
        asset::write(&from_mil(&model).unwrap(), &AssetMetadata::default(), &asset).unwrap();
        Scene { folder, asset, python }
    }

    fn inputs(&self, values: [f32; 2]) -> PathBuf {
        let path = self.folder.path().join("in.safetensors");
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![2], &bytes).unwrap();
        put(&path, &safetensors::serialize([("x", view)], None).unwrap());
        path
    }
}

fn floats(path: &Path, name: &str) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let view = tensors.tensor(name).unwrap();
    view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn an_asset_is_run_and_every_output_says_by_what() {
    let scene = Scene::new();
    let (outputs, state) =
        (scene.folder.path().join("out.safetensors"), scene.folder.path().join("state.safetensors"));
    let inputs = scene.inputs([1.5, -3.0]);
    for round in 1..=3 {
        let command = ["run", arg(&scene.asset), "--python", arg(&scene.python), "--inputs", arg(&inputs)];
        let rest = ["--outputs", arg(&outputs), "--state", arg(&state), "--time", "3"];
        let run = anemeter(&[&command[..], &rest].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(floats(&outputs, "y"), [3.0, -6.0]);
        assert_eq!(floats(&state, "count")[0], round as f32);
        for said in [&run.stdout, &run.stderr] {
            assert!(
                said.contains("executed by Apple's CPU interpreter (coreai-core 0.0): it is for checking"),
                "{said}"
            );
        }
        assert!(
            run.stdout.contains("of which the call of `main` without its prediction: "),
            "{}",
            run.stdout
        );
    }
}

#[test]
fn an_abort_of_apples_code_is_one_error_of_the_program() {
    let scene = Scene::new();
    let inputs = scene.inputs([42.0, 0.0]);
    let run = anemeter(&["run", arg(&scene.asset), "--python", arg(&scene.python), "--inputs", arg(&inputs)]);
    assert_eq!((run.code, run.stdout.as_str()), (4, ""), "{}", run.stderr);
    let error = run.stderr.split_once("error: ").unwrap().1;
    insta::assert_snapshot!(error, @r"
    Core AI cannot run the function `main`: its worker was ended by SIGABRT (Apple's code gave up); it printed last:
      Fatal error: no answer
    ");
}

#[test]
fn runtimes_are_strict() {
    let scene = Scene::new();
    let other = anemeter(&["run", arg(&scene.asset), "--runtime", "cpu"]);
    assert!(other.refused().contains("is a Core AI asset, and the runtime `cpu` executes Core ML packages"));
    assert!(other.refused().contains("help: choose a runtime that executes it"), "{}", other.stderr);
    let package = fixtures::write(fixtures::accumulator(), scene.folder.path(), "total.mlpackage");
    let other = anemeter(&["run", arg(&package), "--runtime", "coreai", "--python", arg(&scene.python)]);
    assert!(
        other.refused().contains("is no Core AI asset, and the runtime `coreai` executes `.aimodel` assets")
    );
    let none = anemeter(&["run", arg(&scene.asset), "--python", "/no/such/python"]);
    assert_eq!(none.code, 4);
    assert!(
        none.stderr.contains("the runtime `coreai` is unavailable: /no/such/python cannot be started"),
        "{}",
        none.stderr
    );
    assert!(none.stderr.contains("coreai-core==1.0.0b3"), "{}", none.stderr);
}

#[test]
fn doctor_says_what_executes() {
    let scene = Scene::new();
    let found = anemeter(&["doctor", "--python", arg(&scene.python)]);
    assert_eq!(found.code, 0, "{}", found.stderr);
    let expected = "available: Apple's CPU interpreter on Linux, for checking and not for speed; coreai-core 0.0 in Python 3.12.0";
    assert!(found.stdout.contains(expected), "{}", found.stdout);
}

#[test]
fn a_result_of_llm_benchmark_becomes_a_report_that_says_whose_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("qwen3.json"), folder.path().join("report"));
    let result = r#"{"model": "qwen3", "prompt_tokens": 512, "generation_tokens": 1024, "num_trials": 1, "prepare_seconds": 1.5,
        "cache_hit": false, "warmup_seconds": 9.0, "trials": [{"prompt_tps": 1024.0, "gen_tps": 50.0}],
        "averages": {"prompt_tps": 1024.0, "generation_tps": 50.0}}"#;
    put(&file, result.as_bytes());
    let imported = anemeter(&["report", "--import", arg(&file), "-o", arg(&out)]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(imported.stdout.contains("Apple's llm-benchmark"), "{}", imported.stdout);
    let report = json(&out.join("report.json"));
    assert_eq!(report["header"]["measured_by"], "Apple's llm-benchmark");
    assert_eq!(report["launches"][0]["requests"][0]["ttft_ms"], 500.0);
    assert!(out.join("report.html").is_file() && out.join("report.md").is_file());
    put(&file, b"{}");
    let refused = anemeter(&["report", "--import", arg(&file)]);
    assert!(
        refused
            .refused()
            .contains("qwen3.json: is no result of `llm-benchmark --output-json`: missing field")
    );
}
