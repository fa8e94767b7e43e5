//! `anemeter compress`: smaller packages that still give what they gave.

use std::path::Path;

use anemeter::mil::{Builder, Function, Literal, Model, Opset, TensorType};
use anemeter::package::Package;
use anemeter::runtime::{self, LoadOptions, Runtime};
use anemeter::tensor::{DType, Tensor};
use half::f16;

use crate::lower::cosine;
use crate::support::command::{anemeter, arg, names, redact};
use crate::support::fixtures::{numbers, weight, write};

/// Looks up rows of a table and multiplies with it again, as tied embeddings do, with a projection between.
fn tied(name: &str, tokens: usize, table: &Literal, projection: &Literal) -> Function {
    let mut main = Builder::new(name, Opset::Ios18);
    let ids = main.input("ids", TensorType::fixed(DType::I32, &[1, tokens]));
    let table = main.constant("embedding_weight", table.clone());
    let x = main.op("gather").arg("x", table).arg("indices", ids).named("x").push().unwrap();
    let projection = main.constant("layers_0_mlp_weight", projection.clone());
    let h = main.op("matmul").arg("x", x).arg("y", projection).named("h").push().unwrap();
    let y = main.op("matmul").arg("x", h).arg("y", table).arg("transpose_y", true).named("y").push().unwrap();
    main.finish(&[y])
}

fn two_functions() -> Model {
    let (table, projection) = (weight(&[96, 64], 1), weight(&[64, 64], 2));
    Model::multi(vec![tied("prefill", 4, &table, &projection), tied("decode", 1, &table, &projection)])
}

fn predict(package: &Path) -> Vec<f32> {
    let loaded = runtime::cpu().load(&Package::open(package).unwrap(), &LoadOptions::default()).unwrap();
    let mut session = loaded.session();
    let ids = Tensor::from_slice(&[1, 4], &[3i32, 95, 0, 41]).unwrap();
    session.predict("prefill", &[("ids", ids.view())]).unwrap();
    session.output("y").unwrap().slice::<f16>().unwrap().iter().map(|x| x.to_f32()).collect()
}

#[test]
fn every_precision_gives_a_package_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let package = write(two_functions(), folder.path(), "m.mlpackage");
    let expected = predict(&package);
    for (precision, least) in [
        ("fp16", 1.0),
        ("int8", 0.9999),
        ("int8:asym", 0.9999),
        ("int4", 0.985),
        ("lut6:group=16", 0.999),
        ("lut4", 0.985),
        ("lut4:tensor", 0.98),
        ("lut4:scale", 0.985),
        ("sparse:0.2", 0.98),
    ] {
        let output = folder.path().join("out.mlpackage");
        let args = ["compress", arg(&package), "-o", arg(&output), "--overwrite", "--precision", precision];
        let text = anemeter(&args).succeeded().to_owned();
        let found = cosine(&expected, &predict(&output));
        assert!(found >= least - 1e-6, "{precision}: {found}\n{text}");
    }
}

#[test]
fn functions_share_what_they_shared_and_the_log_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let package = write(two_functions(), folder.path(), "m.mlpackage");
    let output = folder.path().join("small.mlpackage");
    let args = ["compress", arg(&package), "-o", arg(&output), "--precision", "lut4:group=16", "--json"];
    let document: serde_json::Value = serde_json::from_str(anemeter(&args).succeeded()).unwrap();
    let log = &document["log"];
    let names: Vec<(&str, &str)> = log["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| (t["name"].as_str().unwrap(), t["precision"].as_str().unwrap()))
        .collect();
    let expected = [("embedding_weight", "int8:channel"), ("layers_0_mlp_weight", "lut4:group=16")];
    assert_eq!(names, expected, "in the order of the program, each once");
    assert_eq!(log["totals"]["bytes_before"], (96 * 64 + 64 * 64) * 2);
    assert_eq!(log["totals"]["bytes_after"], 96 * 64 + 96 * 2 + 64 * 64 / 2 + 4 * 16 * 2);
    let package = Package::open(&output).unwrap();
    let blobs: Vec<usize> =
        package.weight_files().iter().flat_map(|file| &file.blobs).map(|blob| blob.references).collect();
    assert_eq!(blobs, [2; 4], "two weights of two pieces each, from both functions");
}

#[test]
fn what_is_shown_is_what_loses_most() {
    let folder = tempfile::tempdir().unwrap();
    let package = write(two_functions(), folder.path(), "m.mlpackage");
    let output = folder.path().join("small.mlpackage");
    let args = ["compress", arg(&package), "-o", arg(&output), "--precision", "int4"];
    let text = redact(anemeter(&args).succeeded(), folder.path());
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with(
            "FOLDER/small.mlpackage: 2 weights compressed, 0 kept, 20.5 kB of weights became 8.6 kB (2.37 times smaller)"
        ),
        "{text}"
    );
    assert_eq!(lines[2], "weights that lose most:");
    assert!(lines[4].starts_with("  layers_0_mlp_weight  int4:block=32  4.50   8.2 kB  2.3 kB"), "{text}");
    assert!(lines[5].starts_with("  embedding_weight     int8:channel   8.25  12.3 kB  6.3 kB"), "{text}");
    let expected = " dB of signal to noise on average: little loss is expected";
    assert!(lines[6].ends_with(expected) && lines.len() == 7, "{text}");
}

#[test]
fn bad_requests_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let package = write(two_functions(), folder.path(), "m.mlpackage");
    let output = folder.path().join("small.mlpackage");
    let compress = |extra: &[&str]| {
        let mut args = vec!["compress", arg(&package), "-o", arg(&output)];
        args.extend(extra);
        anemeter(&args)
    };
    let config = |text: &str| {
        let path = folder.path().join("precision.yaml");
        anemeter::atomic::write_file(&path, text.as_bytes()).unwrap();
        path
    };
    let refused = compress(&["--precision", "int9"]);
    assert!(refused.refused().contains("`int9` is unknown; did you mean `int8`?"));
    let refused = compress(&["--precision", "lut4:group=24"]);
    let message =
        "weight `layers_0_mlp_weight` has 64 output channels, which cannot be divided into groups of 24";
    assert!(refused.refused().contains(message), "{}", refused.stderr);
    let unused = config("precision: {default: int8, rules: [{match: q_proj, precision: int4}]}");
    let refused = compress(&["--rules", arg(&unused)]);
    assert!(refused.refused().contains("the rule `q_proj` matches no weight"));
    let misspelt = config("precison: int8");
    assert!(compress(&["--rules", arg(&misspelt)]).refused().contains("unknown key `precison`"));
    let neither = compress(&[]);
    assert_eq!(neither.code, 2);
    assert!(!output.exists());
}

#[test]
fn weights_that_are_no_numbers_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut values = numbers(64 * 64, 2);
    values[777] = f16::NAN;
    let bad = Literal::blob(&Tensor::from_slice(&[64, 64], &values).unwrap());
    let model = Model::multi(vec![tied("prefill", 4, &weight(&[96, 64], 1), &bad)]);
    let package = write(model, folder.path(), "m.mlpackage");
    let output = folder.path().join("small.mlpackage");
    for precision in ["int8", "lut4", "sparse:0.5"] {
        let outcome = anemeter(&["compress", arg(&package), "-o", arg(&output), "--precision", precision]);
        let message = "weight `layers_0_mlp_weight` has an element that is NaN and cannot be compressed";
        assert!(outcome.refused().contains(message), "{}", outcome.stderr);
        assert!(!output.exists());
    }
}

/// A name that is no identifier may stay in a package that has it; the rewrite must not make another from it.
#[test]
fn a_rewrite_that_is_not_verified_is_one_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let package = write(two_functions(), folder.path(), "m.mlpackage");
    let spec = package.join("Data/com.apple.CoreML/model.mlmodel");
    let (name, other) = (b"layers_0_mlp_weight", b"layers.0.mlp.weight");
    let mut bytes = std::fs::read(&spec).unwrap();
    for at in 0..bytes.len() - name.len() {
        if bytes[at..].starts_with(name) {
            bytes[at..at + name.len()].copy_from_slice(other);
        }
    }
    anemeter::atomic::write_file(&spec, &bytes).unwrap();
    let output = folder.path().join("small.mlpackage");
    let compress = |precision: &str| {
        anemeter(&["compress", arg(&package), "-o", arg(&output), "--overwrite", "--precision", precision])
    };
    let refused = compress("lut4:scale");
    let message = refused.refused();
    assert!(message.contains("value `layers.0.mlp.weight_"), "{message}");
    assert!(message.contains("the name is not an identifier"), "{message}");
    assert!(message.contains("; nothing was written"), "{message}");
    assert_eq!(names(folder.path()), ["m.mlpackage"]);
    compress("int8").succeeded();
    let before = predict(&output);
    compress("lut4:scale").refused();
    assert_eq!(names(folder.path()), ["m.mlpackage", "small.mlpackage"]);
    assert_eq!(predict(&output), before, "the package that was there");
}

#[test]
fn old_opsets_get_their_own_forms_or_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let model = |opset| {
        let mut main = Builder::new("main", opset);
        let x = main.input("x", TensorType::fixed(DType::F16, &[2, 64]));
        let (w, b) = (main.constant("w", weight(&[64, 64], 3)), main.constant("b", weight(&[64], 4)));
        let y = main.op("linear").arg("x", x).arg("weight", w).arg("bias", b).named("y").push().unwrap();
        Model::single(main.finish(&[y]))
    };
    let package = write(model(Opset::Ios16), folder.path(), "old.mlpackage");
    let output = folder.path().join("small.mlpackage");
    for (precision, kind) in [
        ("int8", "constexpr_affine_dequantize"),
        ("lut4", "constexpr_lut_to_dense"),
        ("sparse:0.5", "constexpr_sparse_to_dense"),
    ] {
        let args = ["compress", arg(&package), "-o", arg(&output), "--overwrite", "--precision", precision];
        anemeter(&args).succeeded();
        let read = Package::open(&output).unwrap();
        let operations = &read.model().program.functions[0].body.operations;
        assert!(operations.iter().any(|op| op.kind == kind), "{precision}");
    }
    let refused =
        anemeter(&["compress", arg(&package), "-o", arg(&output), "--overwrite", "--precision", "int4"]);
    assert!(refused.refused().contains("weight `w` cannot be stored as int4:block=32 in ios16"));
}

#[test]
fn ios15_programs_are_raised_if_something_is_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let mut main = Builder::new("main", Opset::Ios15);
    let x = main.input("x", TensorType::fixed(DType::F32, &[2, 64]));
    let half = main.op("cast").arg("x", x).arg("dtype", "fp16").named("half").push().unwrap();
    let (w, b) = (main.constant("w", weight(&[64, 64], 3)), main.constant("b", weight(&[64], 4)));
    let y = main.op("linear").arg("x", half).arg("weight", w).arg("bias", b).named("h").push().unwrap();
    let y = main.op("cast").arg("x", y).arg("dtype", "fp32").named("y").push().unwrap();
    let package = write(Model::single(main.finish(&[y])), folder.path(), "old.mlpackage");
    let output = folder.path().join("small.mlpackage");
    let compress = |precision: &str| {
        anemeter(&["compress", arg(&package), "-o", arg(&output), "--overwrite", "--precision", precision])
    };
    let version = || {
        let model = Package::open(&output).unwrap().into_model();
        (model.spec_version, model.program.functions[0].opset)
    };
    let text = compress("int8").succeeded().to_owned();
    let said = "raised from ios15 to ios16 (specification version 7): ios15 has no compressed weights\n";
    assert!(text.starts_with(said), "{text}");
    assert_eq!(version(), (7, Opset::Ios16));
    assert!(!compress("fp16").succeeded().contains("raised"));
    assert_eq!(version(), (6, Opset::Ios15));
    let refused = compress("int4");
    assert!(refused.refused().contains("weight `w` cannot be stored as int4:block=32 in ios16"));
}

/// A bidirectional LSTM, of which each direction has two weights.
fn lstm() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F16, &[5, 1, 32]));
    let start = ["h", "c"].map(|name| main.input(name, TensorType::fixed(DType::F16, &[1, 64])));
    let [ih, ih_back] = [1, 3].map(|seed| main.constant(&format!("ih{seed}"), weight(&[128, 32], seed)));
    let [hh, hh_back] = [2, 4].map(|seed| main.constant(&format!("hh{seed}"), weight(&[128, 32], seed)));
    let lstm = main.op("lstm").arg("x", x).arg("initial_h", start[0]).arg("initial_c", start[1]);
    let lstm = lstm.arg("weight_ih", ih).arg("weight_hh", hh).arg("direction", "bidirectional");
    let lstm = lstm.arg("weight_ih_back", ih_back).arg("weight_hh_back", hh_back);
    let outputs = lstm.arg("output_sequence", true).outputs(&["y", "last", "cell"]).push_all().unwrap();
    Model::single(main.finish(&outputs))
}

#[test]
fn an_lstm_with_compressed_weights_gives_what_it_gave() {
    let folder = tempfile::tempdir().unwrap();
    let package = write(lstm(), folder.path(), "lstm.mlpackage");
    let predict = |package: &Path| -> Vec<f32> {
        let loaded = runtime::cpu().load(&Package::open(package).unwrap(), &LoadOptions::default()).unwrap();
        let mut session = loaded.session();
        let x = Tensor::from_slice(&[5, 1, 32], &numbers(160, 5)).unwrap();
        let state = Tensor::from_slice(&[1, 64], &numbers(64, 6)).unwrap();
        session.predict("main", &[("x", x.view()), ("h", state.view()), ("c", state.view())]).unwrap();
        session.output("y").unwrap().slice::<f16>().unwrap().iter().map(|x| x.to_f32()).collect()
    };
    let expected = predict(&package);
    let output = folder.path().join("small.mlpackage");
    for (precision, least) in [("int8", 0.999), ("int4", 0.97), ("lut4", 0.97)] {
        let args = ["compress", arg(&package), "-o", arg(&output), "--overwrite", "--precision", precision];
        let shown = anemeter(&args).succeeded().to_owned();
        assert!(shown.contains(": 4 weights compressed, 0 kept"), "{shown}");
        let found = cosine(&expected, &predict(&output));
        assert!(found >= least, "{precision}: {found}");
    }
}

#[test]
fn recurrent_weights_are_compressed_and_what_is_compressed_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F16, &[3, 1, 64]));
    let start = main.input("start", TensorType::fixed(DType::F16, &[1, 64]));
    let (ih, hh) = (main.constant("ih", weight(&[64, 64], 1)), main.constant("hh", weight(&[64, 64], 2)));
    let rnn = main.op("rnn").arg("x", x).arg("initial_h", start).arg("weight_ih", ih).arg("weight_hh", hh);
    let outputs = rnn.outputs(&["y", "last"]).push_all().unwrap();
    let package = write(Model::single(main.finish(&outputs)), folder.path(), "rnn.mlpackage");
    let (small, again) = (folder.path().join("small.mlpackage"), folder.path().join("again.mlpackage"));
    let compress = |from: &Path, to: &Path| {
        let args = ["compress", arg(from), "-o", arg(to), "--precision", "int8", "--json"];
        let document: serde_json::Value = serde_json::from_str(anemeter(&args).succeeded()).unwrap();
        document["log"].clone()
    };
    let log = compress(&package, &small);
    assert_eq!(log["totals"]["compressed"], 2);
    let bytes = 2 * (64 * 64 + 64 * 2);
    assert_eq!(log["totals"]["bytes_after"], bytes);
    let log = compress(&small, &again);
    assert_eq!((&log["totals"]["compressed"], &log["totals"]["kept"]), (&0.into(), &2.into()));
    assert_eq!(
        (&log["totals"]["bytes_before"], &log["totals"]["bytes_after"]),
        (&bytes.into(), &bytes.into())
    );
    assert_eq!(log["tensors"][0]["precision"], "blockwise_shift_scale");
}

#[test]
fn a_package_is_never_compressed_over_itself() {
    let folder = tempfile::tempdir().unwrap();
    let outer = folder.path().join("outer");
    std::fs::create_dir(&outer).unwrap();
    let package = write(two_functions(), &outer, "m.mlpackage");
    for (output, expected) in [
        (package.clone(), "is the package itself"),
        (package.join("Data/small.mlpackage"), "is inside the package"),
        (outer.clone(), "is a folder that holds the package"),
    ] {
        let args = ["compress", arg(&package), "-o", arg(&output), "--precision", "int8", "--overwrite"];
        let refused = anemeter(&args);
        assert!(refused.refused().contains(expected), "{}", refused.stderr);
        Package::open(&package).unwrap();
        assert_eq!(names(&outer), ["m.mlpackage"]);
    }
    #[cfg(unix)]
    {
        let link = folder.path().join("link.mlpackage");
        std::os::unix::fs::symlink(&package, &link).unwrap();
        let args = ["compress", arg(&package), "-o", arg(&link), "--precision", "int8", "--overwrite"];
        let refused = anemeter(&args);
        assert!(refused.refused().contains("is the package itself"), "{}", refused.stderr);
    }
}
