//! `anemeter run`: predictions from and to files.

use std::path::{Path, PathBuf};

use half::f16;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::support::command::{anemeter, arg, json};
use crate::support::damage::put;
use crate::support::fixtures;

fn save(path: &Path, tensors: &[(&str, Dtype, &[usize], &[u8])]) -> PathBuf {
    let views = tensors.iter().map(|&(name, dtype, shape, bytes)| {
        (name.to_owned(), TensorView::new(dtype, shape.to_vec(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    put(path, &bytes);
    path.to_owned()
}

fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect()
}

fn load(path: &Path, name: &str) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::F16);
    view.data().chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

#[test]
fn states_are_carried_from_run_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::accumulator(), folder.path(), "total.mlpackage");
    let inputs = folder.path().join("in.safetensors");
    save(&inputs, &[("x", Dtype::F16, &[1, 4], &halves(&[1.0, 2.0, 3.0, 4.0]))]);
    let (state, outputs) = (folder.path().join("state.safetensors"), folder.path().join("out.safetensors"));
    for round in 1..=3 {
        let command = [
            "run",
            arg(&package),
            "--inputs",
            arg(&inputs),
            "--outputs",
            arg(&outputs),
            "--state",
            arg(&state),
        ];
        anemeter(&command).succeeded();
        let expected: Vec<f32> = (1..=4).map(|i| (i * round) as f32).collect();
        assert_eq!(load(&outputs, "sum"), expected);
        assert_eq!(load(&state, "total"), expected);
    }
}

#[test]
fn every_problem_with_the_inputs_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    let inputs = folder.path().join("in.safetensors");
    save(&inputs, &[("extra", Dtype::F16, &[1], &halves(&[0.0]))]);
    let outcome = anemeter(&["run", arg(&package), "--inputs", arg(&inputs)]);
    insta::assert_snapshot!(outcome.refused(), @"error: function `main`: `extra` is not an input; inputs are `x`; `x` is missing; it is a tensor<fp16, [1, ?, 8]>");
    save(&inputs, &[("x", Dtype::F16, &[1, 2, 8], &halves(&[0.0; 16]))]);
    let outcome = anemeter(&["run", arg(&package), "--inputs", arg(&inputs)]);
    insta::assert_snapshot!(outcome.refused(), @"error: function `main`: `x` has shape [1, 2, 8], allowed are [1, 1, 8], [1, 4, 8], [1, 8, 8]");
    save(&inputs, &[("x", Dtype::I8, &[1, 1, 8], &[0; 8])]);
    let outcome = anemeter(&["run", arg(&package), "--inputs", arg(&inputs)]);
    insta::assert_snapshot!(outcome.refused(), @"error: function `main`: `x` is int8, expected fp16");
}

#[test]
fn values_are_converted_to_the_type_of_their_input() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::accumulator(), folder.path(), "total.mlpackage");
    let (inputs, outputs) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    let command = ["run", arg(&package), "--inputs", arg(&inputs), "--outputs", arg(&outputs)];
    let singles: Vec<u8> = [1.0f32, 1e6, -1e6, f32::INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect();
    save(&inputs, &[("x", Dtype::F32, &[1, 4], &singles)]);
    let outcome = anemeter(&command);
    let said = "note: input x: fp32 values converted to fp16, 2 beyond its range became infinite\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, said));
    assert_eq!(load(&outputs, "sum"), [1.0, f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
    let integers: Vec<u8> = [1i32, 2, 3, 4].iter().flat_map(|v| v.to_le_bytes()).collect();
    save(&inputs, &[("x", Dtype::I32, &[1, 4], &integers)]);
    let outcome = anemeter(&command);
    let said = "note: input x: int32 values converted to fp16\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, said));
    assert_eq!(load(&outputs, "sum"), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn unknown_functions_list_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::two_functions(), folder.path(), "two.mlpackage");
    let outcome = anemeter(&["run", arg(&package), "--function", "encode"]);
    insta::assert_snapshot!(outcome.refused(), @"error: no function `encode`; the package has decode, prefill");
}

#[test]
fn overflow_is_named_where_it_begins() {
    use anemeter::mil::{Builder, Model, Opset, TensorType};
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(anemeter::tensor::DType::F16, &[2]));
    let square = main.op("mul").arg("x", x).arg("y", x).named("square").push().unwrap();
    let root = main.op("sqrt").arg("x", square).named("root").push().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(Model::single(main.finish(&[root])), folder.path(), "square.mlpackage");
    let inputs = folder.path().join("in.safetensors");
    save(&inputs, &[("x", Dtype::F16, &[2], &halves(&[2.0, 300.0]))]);
    let outcome = anemeter(&["run", arg(&package), "--inputs", arg(&inputs), "--report-overflow"]);
    insta::assert_snapshot!(outcome.succeeded(), @"fp16 overflow: `square` = mul: element 1 of shape [2] is inf");
    save(&inputs, &[("x", Dtype::F16, &[2], &halves(&[2.0, 100.0]))]);
    let outcome = anemeter(&["run", arg(&package), "--inputs", arg(&inputs), "--report-overflow"]);
    insta::assert_snapshot!(outcome.succeeded(), @"no fp16 overflow in 2 operations; the largest magnitude is 10000 of 65504");
}

#[test]
fn profile_and_times_name_what_ran() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    let inputs = folder.path().join("in.safetensors");
    save(&inputs, &[("x", Dtype::F16, &[1, 4, 8], &halves(&[0.5; 32]))]);
    let trace = folder.path().join("trace.json");
    let profile = format!("--profile={}", arg(&trace));
    let outcome = anemeter(&["run", arg(&package), "--inputs", arg(&inputs), &profile, "--time", "5"]);
    let text = outcome.succeeded();
    for word in ["3 operations", "linear", "silu", "p99"] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(json(&trace)["traceEvents"].as_array().unwrap().len(), 3);
}
