//! `anemeter run`: predictions from and to files.

use std::path::{Path, PathBuf};

use anemeter::mil::Literal;
use anemeter::tensor::Tensor;
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

/// The outputs of a classifier for logits 0, ln 3 and 0: the label and its probabilities.
fn classify(labels: &[Literal]) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::classifier(labels), folder.path(), "classifier.mlpackage");
    let (inputs, outputs) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    let logits: Vec<u8> = [0.0f32, 3.0f32.ln(), 0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    save(&inputs, &[("x", Dtype::F32, &[1, 3], &logits)]);
    let outcome = anemeter(&["run", arg(&package), "--inputs", arg(&inputs), "--outputs", arg(&outputs)]);
    (outcome.succeeded().to_owned(), std::fs::read(&outputs).unwrap())
}

#[test]
fn classifiers_say_their_label_and_every_probability() {
    let (text, bytes) = classify(&["cat", "dog", "Käse"].map(Literal::text));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["label: dog", "class  probability"]);
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["dog", "0.6000"]);
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let said = &metadata.metadata().as_ref().unwrap()["classifier"];
    assert_eq!(said, r#"{"label":"dog","label_probs":["cat","dog","Käse"]}"#);
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.names(), ["label_probs"]);
    let view = tensors.tensor("label_probs").unwrap();
    assert_eq!((view.dtype(), view.shape()), (Dtype::F64, &[3][..]));
    let doubles = view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()));
    for (found, expected) in doubles.zip([0.2, 0.6, 0.2]) {
        assert!((found - expected).abs() < 1e-6, "{found}");
    }
}

#[test]
fn integer_labels_are_numbers_among_the_outputs() {
    let (text, bytes) = classify(&[3i64, -1, 7].map(|n| Literal::immediate(&Tensor::scalar(n))));
    assert!(text.starts_with("label: -1\n"), "{text}");
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let label = tensors.tensor("label").unwrap();
    assert_eq!((label.dtype(), label.data()), (Dtype::I64, &(-1i64).to_le_bytes()[..]));
}

#[test]
fn inputs_are_made_up_if_none_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    let run = |name: &str| {
        let outputs = folder.path().join(name);
        let outcome = anemeter(&["run", arg(&package), "--outputs", arg(&outputs)]);
        outcome.good();
        let said = "note: no inputs are given, so they are made up: x [1, 1, 8]; floats from -1 to 1, \
                    integers from 0 to 3 (0 where there is one), pixels from 0 to 255, seed 1\n";
        assert_eq!(outcome.stderr, said);
        load(&outputs, "y")
    };
    let first = run("a.safetensors");
    assert!(first.iter().any(|&value| value != 0.0), "{first:?}");
    assert_eq!(run("b.safetensors"), first);
}

#[test]
fn wide_values_are_narrowed_where_they_fit() {
    use anemeter::mil::{Builder, Model, Opset, TensorType};
    use anemeter::tensor::DType;
    let mut main = Builder::new("main", Opset::Ios18);
    let ids = main.input("ids", TensorType::fixed(DType::I32, &[2]));
    let x = main.input("x", TensorType::fixed(DType::F16, &[2]));
    let half = main.op("cast").arg("x", ids).arg("dtype", "fp16").named("half").push().unwrap();
    let y = main.op("add").arg("x", x).arg("y", half).named("y").push().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(Model::single(main.finish(&[y])), folder.path(), "add.mlpackage");
    let (inputs, outputs) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    let run = |ids: [i64; 2]| {
        let ids: Vec<u8> = ids.iter().flat_map(|v| v.to_le_bytes()).collect();
        let doubles: Vec<u8> = [0.5f64, 0.25].iter().flat_map(|v| v.to_le_bytes()).collect();
        save(&inputs, &[("ids", Dtype::I64, &[2], &ids), ("x", Dtype::F64, &[2], &doubles)]);
        anemeter(&["run", arg(&package), "--inputs", arg(&inputs), "--outputs", arg(&outputs)])
    };
    let outcome = run([3, -4]);
    outcome.good();
    let said =
        "note: input ids: int64 values converted to int32\nnote: input x: fp64 values converted to fp16\n";
    assert_eq!(outcome.stderr, said);
    assert_eq!(load(&outputs, "y"), [3.5, -3.75]);
    let beyond = run([1 << 40, 0]);
    let message = "error: input `ids`: holds 1099511627776, which is beyond int32, the type of the input";
    assert!(beyond.refused().contains(message), "{}", beyond.stderr);
}

/// A sum of two vectors.
fn adder(folder: &Path) -> PathBuf {
    use anemeter::mil::{Builder, Model, Opset, TensorType};
    use anemeter::tensor::DType;
    let mut main = Builder::new("main", Opset::Ios18);
    let [a, b] = ["a", "b"].map(|name| main.input(name, TensorType::fixed(DType::F16, &[2, 3])));
    let sum = main.op("add").arg("x", a).arg("y", b).named("sum").push().unwrap();
    fixtures::write(Model::single(main.finish(&[sum])), folder, "add.mlpackage")
}

/// An array as numpy writes it.
fn array(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/harness/tensor_files/testdata").join(name)
}

fn npz(path: &Path) -> std::collections::BTreeMap<String, Tensor> {
    match anemeter::tensor_files::read(path).unwrap() {
        anemeter::tensor_files::Content::Named(tensors) => tensors,
        other => panic!("{other:?}"),
    }
}

#[test]
fn inputs_are_arrays_of_numpy_and_outputs_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let package = adder(folder.path());
    let outputs = folder.path().join("out.npz");
    let named = |name: &str, file: &str| format!("{name}={}", array(file).display());
    let mut sum = None;
    // A transposed matrix is written column by column.
    for file in ["fortran.npy", "float32.npy"] {
        let (a, b) = (named("a", "float16.npy"), named("b", file));
        let outcome =
            anemeter(&["run", arg(&package), "--inputs", &a, "--inputs", &b, "--outputs", arg(&outputs)]);
        outcome.good();
        assert_eq!(outcome.stderr, "note: input b: fp32 values converted to fp16\n");
        let found = npz(&outputs).remove("sum").unwrap();
        assert_eq!(found.shape(), [2, 3]);
        let halves = [0, 2, 4, 6, 8, 10].map(|x| f16::from_f32(x as f32));
        assert_eq!(found.view().slice::<f16>().unwrap(), halves, "{file}");
        sum = Some(found);
    }
    let sum = sum.unwrap();
    // What was written is an input again, and one output may be an array without a name.
    let half = anemeter::tensor_files::Document {
        tensors: [("a".to_owned(), sum.view()), ("b".to_owned(), sum.view())].into(),
        texts: None,
    };
    let (inputs, single) = (folder.path().join("in.npz"), folder.path().join("sum.npy"));
    anemeter::tensor_files::write(&inputs, &half).unwrap();
    let again = anemeter(&["run", arg(&package), "--inputs", arg(&inputs), "--outputs", arg(&single)]);
    again.good();
    assert_eq!(again.stderr, "");
    assert!(std::fs::read(&single).unwrap().starts_with(b"\x93NUMPY\x01\x00"));
}

#[test]
fn states_may_be_an_npz_file() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::accumulator(), folder.path(), "total.mlpackage");
    let (inputs, state) = (folder.path().join("x.npy"), folder.path().join("state.npz"));
    let x = Tensor::from_slice(&[1, 4], &[1.0f32, 2.0, 3.0, 4.0].map(f16::from_f32)).unwrap();
    let document =
        anemeter::tensor_files::Document { tensors: [("x".to_owned(), x.view())].into(), texts: None };
    anemeter::tensor_files::write(&inputs, &document).unwrap();
    for round in 1..=2u8 {
        // The only input needs no name.
        anemeter(&["run", arg(&package), "--inputs", arg(&inputs), "--state", arg(&state)]).good();
        let total = npz(&state).remove("total").unwrap();
        assert_eq!(total.view().slice::<f16>().unwrap()[3].to_f32(), 4.0 * f32::from(round));
    }
}

#[test]
fn arrays_that_cannot_be_inputs_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let package = adder(folder.path());
    let swapped = array("big-endian.npy");
    let refused = |files: &[&str]| {
        let mut command = vec!["run", arg(&package)];
        files.iter().for_each(|file| command.extend(["--inputs", file]));
        anemeter(&command).refused().replace(arg(&array("")), "")
    };
    insta::assert_snapshot!(refused(&[arg(&array("float16.npy"))]));
    insta::assert_snapshot!(refused(&[arg(&swapped)]));
    let twice = format!("a={}", array("float16.npy").display());
    insta::assert_snapshot!(refused(&[&twice, &twice]));
    insta::assert_snapshot!(refused(&["a=nowhere.npy"]));
    let outcome = anemeter(&["run", arg(&package), "--inputs", &twice]);
    assert!(outcome.refused().contains("`b` is missing"), "{}", outcome.stderr);
}

#[test]
fn labels_are_left_out_of_npz_files_and_a_note_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let labels = ["cat", "dog", "cow"].map(Literal::text);
    let package = fixtures::write(fixtures::classifier(&labels), folder.path(), "classifier.mlpackage");
    let outputs = folder.path().join("out.npz");
    let outcome = anemeter(&["run", arg(&package), "--outputs", arg(&outputs)]);
    outcome.good();
    let said = "note: .npz files hold no text: the label and the names of the classes are left out\n";
    assert!(outcome.stderr.ends_with(said), "{}", outcome.stderr);
    assert_eq!(npz(&outputs).keys().collect::<Vec<_>>(), ["label_probs"]);
}
