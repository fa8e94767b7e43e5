//! Compiled models are inspected, linted and run as the packages that they were compiled from.

mod pipelines;

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::mil::{Literal, Model};
use anemeter::package::{Form, Package};
use serde_json::Value;

use crate::support::command::{anemeter, arg, json, redact};
use crate::support::compile::Dialect;
use crate::support::mlmodelc::{DESCRIPTION, TEXT, compiled};
use crate::support::{fixtures, tiny};

/// A model of every sort that `run` takes, by name.
fn models() -> Vec<(&'static str, Model)> {
    let labels = ["cat", "dog", "ant"].map(Literal::text);
    vec![
        ("enumerated", fixtures::enumerated_mlp()),
        ("classifier", fixtures::classifier(&labels)),
        ("stateful", fixtures::accumulator()),
        ("functions", fixtures::two_functions()),
        ("blocks", tiny::model()),
    ]
}

/// What `run` writes for made-up inputs: outputs and states, byte for byte.
fn predicted(package: &Path, function: &str, numerics: &str) -> [Option<Vec<u8>>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let (outputs, state) = (folder.path().join("out.safetensors"), folder.path().join("state.safetensors"));
    let command = ["run", arg(package), "--function", function, "--numerics", numerics];
    let files = ["--outputs", arg(&outputs), "--state", arg(&state)];
    let outcome = anemeter(&[&command[..], &files].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    [outputs, state].map(|file| fs::read(file).ok())
}

#[test]
fn outputs_are_those_of_the_package_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    for (name, model) in models() {
        let package = fixtures::write(model, folder.path(), &format!("{name}.mlpackage"));
        let original = Package::open(&package).unwrap();
        for dialect in [Dialect::Tensors, Dialect::Scalars] {
            let path = compiled(&package, dialect);
            let read = Package::open(&path).unwrap();
            assert_eq!(read.model(), original.model(), "{name} in {dialect:?}");
            assert_eq!((read.form(), original.form()), (Form::Compiled, Form::Package));
            assert_eq!(read.model_path(), path.canonicalize().unwrap().join(TEXT));
            for interface in original.model().interfaces() {
                for numerics in ["fast", "fp16-exact"] {
                    let [expected, found] =
                        [&package, &path].map(|path| predicted(path, &interface.function, numerics));
                    assert!(expected[0].is_some());
                    assert_eq!(found, expected, "{name} in {dialect:?}: {}, {numerics}", interface.function);
                }
            }
        }
    }
}

fn inspected(path: &Path, more: &[&str]) -> Value {
    let outcome = anemeter(&[&["inspect", arg(path), "--json"], more].concat());
    let mut document: Value = serde_json::from_str(outcome.succeeded()).unwrap();
    for own in ["package", "model_bytes"] {
        document.as_object_mut().unwrap().remove(own);
    }
    document
}

#[test]
fn what_is_shown_is_what_the_package_shows() {
    let folder = tempfile::tempdir().unwrap();
    for (name, model) in models() {
        let package = fixtures::write(model, folder.path(), &format!("{name}.mlpackage"));
        let path = compiled(&package, Dialect::Scalars);
        for more in [&[][..], &["--cost"]] {
            assert_eq!(inspected(&path, more), inspected(&package, more), "{name} {more:?}");
        }
        let mil = |path: &PathBuf| anemeter(&["inspect", arg(path), "--mil"]).succeeded().to_owned();
        assert_eq!(mil(&path), mil(&package));
    }
    let path = folder.path().join("enumerated.mlmodelc");
    let text = anemeter(&["inspect", arg(&path), "--ops"]);
    insta::assert_snapshot!(redact(text.succeeded(), folder.path()));
}

/// Findings of the package, and that a compiled model is alone only where it is.
#[test]
fn lint_looks_into_compiled_models() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "m.mlpackage");
    let path = compiled(&package, Dialect::Scalars);
    let rules = |path: &Path| -> Vec<String> {
        let outcome = anemeter(&["lint", arg(path), "--json"]);
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect()
    };
    let expected = rules(&package);
    assert!(!expected.is_empty(), "the fixture has something to say");
    assert_eq!(rules(&path), expected);
    fs::remove_dir_all(&package).unwrap();
    let alone = rules(&path);
    assert!(alone.contains(&"A56".to_owned()) && alone.len() == expected.len() + 1, "{alone:?}");
}

/// What tells two compiled models apart is their text, their description and their weights.
#[test]
fn digests_cover_the_description() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::accumulator(), folder.path(), "m.mlpackage");
    let path = compiled(&package, Dialect::Scalars);
    let digest = |path: &Path| Package::open(path).unwrap().digest().unwrap();
    let first = digest(&path);
    assert_eq!(digest(&path), first);
    assert_ne!(digest(&package), first);
    compiled(&package, Dialect::Tensors);
    assert_ne!(digest(&path), first);
    compiled(&package, Dialect::Scalars);
    assert_eq!(digest(&path), first);
    let mut bytes = fs::read(path.join(DESCRIPTION)).unwrap();
    *bytes.last_mut().unwrap() = 1;
    anemeter::atomic::write_file(&path.join(DESCRIPTION), &bytes).unwrap();
    assert_ne!(digest(&path), first);
}

/// A compiled model is measured and adopted as its package is.
#[test]
fn a_compiled_model_is_measured_and_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "m.mlpackage");
    let path = compiled(&package, Dialect::Scalars);
    let cases = |what: &Path, out: &str| {
        let out = folder.path().join(out);
        let fixed = ["--launches", "1", "--requests", "3", "--runtime", "cpu"];
        let outcome = anemeter(&[&["bench", arg(what), "--out", arg(&out)], &fixed[..]].concat());
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let report = json(&out.join("report.json"));
        (report["subject"]["name"].clone(), report["workload"]["cases"].as_array().unwrap().len())
    };
    assert_eq!(cases(&package, "a"), cases(&path, "b"));
    let bundle = folder.path().join("bundle");
    anemeter(&["adopt", arg(&path), "-o", arg(&bundle)]).succeeded();
    assert_eq!(cases(&bundle, "c"), cases(&path, "d"));
}

/// A compiled model can be written as a package again.
#[test]
fn compress_makes_a_package_of_a_compiled_model() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "m.mlpackage");
    let path = compiled(&package, Dialect::Scalars);
    let compressed = |source: &Path, name: &str| {
        let output = folder.path().join(name);
        anemeter(&["compress", arg(source), "--precision", "int8", "-o", arg(&output)]).succeeded();
        Package::open(&output).unwrap().into_model()
    };
    let from_package = compressed(&package, "a.mlpackage");
    let from_compiled = compressed(&path, "b.mlpackage");
    assert_eq!(from_compiled, from_package);
}
