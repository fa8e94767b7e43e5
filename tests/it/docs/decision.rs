//! `docs/guides/choose-a-precision.md`, followed in an empty folder: the exit code of every command and the files that it
//! leaves, and what the page for the decision has of every precision.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anemeter::checkpoint::testing::{QuantFormat, TestTensor, write};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::{PAGES, copy, follow_in, root};
use crate::support::checkpoints::write_text;
use crate::support::command::Outcome;

const PRECISIONS: [&str; 5] = ["fp16", "int8", "int4", "lut4", "stored"];

/// The checkpoint that comes with the program, with the weights of its layers in eight bits, a scale for each row, as
/// compressed-tensors stores them.
fn write_quantised(folder: &Path) {
    let original = root().join("src/quickstart/model");
    copy(&original, folder);
    let bytes = fs::read(original.join("model.safetensors")).unwrap();
    let mut parts = Vec::new();
    for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
        let (dtype, shape) = (view.dtype(), view.shape().to_vec());
        match name.ends_with("_proj.weight") {
            true => parts.extend(in_eight_bits(&name, &shape, view.data())),
            false => parts.push(TestTensor { name, dtype, shape, bytes: view.data().to_vec() }),
        }
    }
    let config = fs::read_to_string(original.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["quantization_config"] = QuantFormat::Bytes.config();
    write(folder, &config, &parts);
}

fn in_eight_bits(name: &str, shape: &[usize], bytes: &[u8]) -> [TestTensor; 2] {
    let numbers: Vec<f32> =
        bytes.as_chunks().0.iter().map(|&bytes| bf16::from_le_bytes(bytes).to_f32()).collect();
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for row in numbers.chunks_exact(shape[1]) {
        let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = f16::from_f32((largest / 127.0).max(1e-4));
        codes.extend(row.iter().map(|x| (x / scale.to_f32()).round().clamp(-127.0, 127.0) as i8 as u8));
        scales.push(scale.to_f32());
    }
    let codes = TestTensor { name: name.to_owned(), dtype: Dtype::I8, shape: shape.to_vec(), bytes: codes };
    [codes, TestTensor::halves(&format!("{name}_scale"), &[shape[0], 1], &scales)]
}

/// Files below a folder, a package as one.
fn files(folder: &Path) -> BTreeSet<String> {
    fn visit(folder: &Path, root: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() && path.extension().is_none_or(|extension| extension != "mlpackage") {
                true => visit(&path, root, found),
                false => drop(found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned())),
            }
        }
    }
    let mut found = BTreeSet::new();
    visit(folder, folder, &mut found);
    found
}

/// A command with its exit code and the files that are new after it.
fn transcript(command: &str, outcome: &Outcome, new: &[String]) -> String {
    // A verdict about speed depends on the machine.
    let is_verdict = command.starts_with("anemeter compare ") && [0, 1, 3].contains(&outcome.code);
    let code = if is_verdict { "0, 1 or 3".to_owned() } else { outcome.code.to_string() };
    let new: String = new.iter().map(|file| format!("  + {file}\n")).collect();
    format!("$ {command}\n  exit code {code}\n{new}")
}

#[test]
fn choose_a_precision() {
    let folder = tempfile::tempdir().unwrap();
    write_quantised(&folder.path().join("merrow-int8"));
    let text = fs::read_to_string(root().join("src/quickstart/merrow.txt")).unwrap();
    write_text(&folder.path().join("text.txt"), &text.chars().take(2000).collect::<String>());
    let (known, said) = (RefCell::new(files(folder.path())), RefCell::new(String::new()));
    follow_in(PAGES[2], folder.path(), &|command, outcome| {
        let now = files(folder.path());
        let new: Vec<String> =
            now.difference(&known.borrow()).filter(|file| !file.ends_with(".yaml")).cloned().collect();
        *said.borrow_mut() += &transcript(command, outcome, &new);
        *known.borrow_mut() = now;
    });
    insta::assert_snapshot!(said.into_inner());
    check_sweep(&folder.path().join("reports/sweep"));
    let decision = fs::read_to_string(folder.path().join("decision.md")).unwrap();
    assert!(PRECISIONS.iter().all(|precision| decision.contains(precision)), "{decision}");
}

/// Everything that decides is there for every precision, and the best may be taken.
fn check_sweep(folder: &Path) {
    let read = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
    };
    let sweep = read("sweep.json");
    let rows = sweep["rows"].as_array().unwrap();
    let page = fs::read_to_string(folder.join("sweep.html")).unwrap();
    assert_eq!(rows.iter().map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), PRECISIONS);
    for row in rows {
        for figure in ["tokens_per_second", "ttft_ms", "memory_peak_bytes", "kl", "top1", "perplexity"] {
            assert!(row[figure].is_number(), "{figure} of {row}");
        }
        assert_eq!(row["is_verified"], true, "{row}");
        assert_eq!(row["checkpoint_digest"], rows[0]["checkpoint_digest"]);
        let (name, precision) = (row["name"].as_str().unwrap(), row["precision"].as_str().unwrap());
        assert!(page.contains(&format!("{name}: merrow-int8 ({precision})")), "{name}, {precision}");
    }
    let best = rows.iter().find(|row| row["name"] == sweep["best"]["name"]).unwrap();
    assert!(best["excluded"].is_null(), "{best}");
    assert!(page.contains(&format!("best: {}: ", best["name"].as_str().unwrap())));
    let keys: BTreeSet<PathBuf> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| {
            let report = read(&format!("{}-{}/report.json", index + 1, row["name"].as_str().unwrap()));
            Path::new(report["subject"]["name"].as_str().unwrap())
                .join(report["subject"]["precision"].as_str().unwrap())
        })
        .collect();
    assert_eq!(keys.len(), PRECISIONS.len(), "no two have one name and precision: {keys:?}");
}
