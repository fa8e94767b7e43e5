//! Pipelines: their ML programs are opened by their place, and the other stages are named.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::advice::Advice;
use anemeter::package::{ErrorKind, Form, Package, Pipeline};
use coreml_proto::proto;
use coreml_proto::proto::model::Type as ModelType;
use prost::Message as _;
use serde_json::Value;

use crate::support::command::{anemeter, arg, redact};
use crate::support::compile::frame;
use crate::support::damage::{MODEL, put};
use crate::support::fixtures;
use crate::support::mlmodelc::{DESCRIPTION, compiled_pipeline, into_pipeline, proto_model};

/// A package, and the same as the first model of a pipeline in a package and of a compiled one.
fn pipelines(folder: &Path) -> [PathBuf; 3] {
    let single = fixtures::write(fixtures::accumulator(), folder, "single.mlpackage");
    let package = fixtures::write(fixtures::accumulator(), folder, "detector.mlpackage");
    into_pipeline(&package);
    let compiled = folder.join("detector.mlmodelc");
    compiled_pipeline(&single, &compiled);
    [single, package, compiled]
}

#[test]
fn programs_are_opened_by_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let [single, package, compiled] = pipelines(folder.path());
    let single = Package::open(&single).unwrap();
    for (path, form) in [(&package, Form::Stage), (&compiled, Form::Compiled)] {
        let stage = Package::open(path.join("model0")).unwrap();
        assert_eq!((stage.model(), stage.form()), (single.model(), form));
        assert_eq!(stage.path(), path.join("model0"));
        assert_ne!(stage.digest().unwrap(), single.digest().unwrap());
        let pipeline = Pipeline::open(path).unwrap().unwrap();
        let kinds: Vec<_> = pipeline.stages.iter().map(|stage| (stage.name.as_str(), stage.kind)).collect();
        assert_eq!(kinds, [("model0", "mlProgram"), ("model1", "nonMaximumSuppression")]);
        assert!(Pipeline::open(path.join("model0")).unwrap().is_none());
    }
    assert!(Pipeline::open(single.path()).unwrap().is_none());
}

#[test]
fn stages_that_are_no_programs_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let [_, package, compiled] = pipelines(folder.path());
    for path in [&package, &compiled] {
        let whole = Package::open(path).unwrap_err();
        assert_eq!(whole.kind(), ErrorKind::Pipeline);
        let text = whole.to_string();
        assert!(
            text.ends_with("one after the other: model0 (mlProgram), model1 (nonMaximumSuppression)"),
            "{text}"
        );
        let help = whole.remedy().unwrap().to_string();
        assert_eq!(help, "name one of its ML programs after the path: PATH/model0");
        let stage = Package::open(path.join("model1")).unwrap_err();
        let expected = "is a nonMaximumSuppression model, which keeps the best of overlapping boxes";
        assert!(stage.to_string().contains(expected), "{stage}");
        assert!(stage.remedy().unwrap().to_string().contains("do this stage in the application"));
        assert!(anemeter(&["run", arg(path)]).refused().contains("PATH/model0"));
        let missing = Package::open(path.join("model7")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Missing, "{missing}");
    }
    let missing = Package::open(package.join("model7")).unwrap_err().to_string();
    assert!(
        missing.contains("the pipeline has no `model7`; it has model0 (mlProgram), model1 ("),
        "{missing}"
    );
    let single = Package::open(folder.path().join("single.mlpackage/model0")).unwrap_err().to_string();
    assert!(single.contains("is no pipeline, so it has no models to choose from"), "{single}");
    let nowhere = Package::open(folder.path().join("none.mlpackage/model0")).unwrap_err().to_string();
    assert!(nowhere.contains("none.mlpackage/model0: cannot open the package"), "{nowhere}");
}

#[test]
fn commands_take_stages_and_lint_takes_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let [single, package, compiled] = pipelines(folder.path());
    let output = folder.path().join("out.safetensors");
    let run = |path: &Path| {
        let outcome = anemeter(&["run", arg(path), "--outputs", arg(&output)]);
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        fs::read(&output).unwrap()
    };
    let expected = run(&single);
    for path in [&package, &compiled] {
        assert_eq!(run(&path.join("model0")), expected);
        let text = anemeter(&["inspect", arg(&path.join("model0")), "--cost"]);
        assert!(text.succeeded().contains("main"), "{}", text.stdout);
        let lint = anemeter(&["lint", arg(path), "--json"]);
        let name = format!("{}/model", path.file_name().unwrap().to_str().unwrap());
        let note =
            format!("note: {name}1 is a nonMaximumSuppression model and no ML program: no rule concerns it");
        assert!(lint.stderr.contains(&note), "{}", lint.stderr);
        let report: Value = serde_json::from_str(&lint.stdout).unwrap();
        assert_eq!(report["placements"][0]["package"], format!("{name}0"));
        let inside = anemeter(&["inspect", arg(path), "--mil"]);
        assert!(inside.refused().contains("is a pipeline"), "{}", inside.stderr);
    }
    let text = anemeter(&["inspect", arg(&package)]);
    insta::assert_snapshot!(redact(text.succeeded(), folder.path()));
    let document: Value =
        serde_json::from_str(anemeter(&["inspect", arg(&compiled), "--json"]).succeeded()).unwrap();
    assert_eq!(document["schema"], "anemeter-inspect-pipeline-1");
    assert_eq!(document["stages"][1]["path"], Value::Null);
    let opened = document["stages"][0]["path"].as_str().unwrap();
    assert!(opened.ends_with("detector.mlmodelc/model0"), "{opened}");
}

#[test]
fn stages_are_measured_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let [_, package, compiled] = pipelines(folder.path());
    for path in [&package, &compiled] {
        let out = PathBuf::from(format!("{}-report", path.display()));
        let fixed = ["--launches", "1", "--requests", "3", "--runtime", "cpu", "--out", arg(&out)];
        let whole = anemeter(&[&["bench", arg(path)], &fixed[..]].concat());
        assert!(whole.refused().contains("help: name one of its ML programs"), "{}", whole.stderr);
        let stage = path.join("model0");
        let outcome = anemeter(&[&["bench", arg(&stage)], &fixed[..]].concat());
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let report: Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
        assert_eq!(report["subject"]["name"], "detector-model0");
    }
    let out = folder.path().join("bundle");
    let adopted = anemeter(&["adopt", arg(&package.join("model0")), "-o", arg(&out)]);
    assert!(adopted.refused().contains("is a model inside a pipeline"), "{}", adopted.stderr);
    anemeter(&["adopt", arg(&compiled.join("model0")), "-o", arg(&out)]).succeeded();
}

#[test]
fn pipelines_of_pipelines_and_of_no_programs() {
    let folder = tempfile::tempdir().unwrap();
    let [single, package, compiled] = pipelines(folder.path());
    // A classifier whose first model is a pipeline itself.
    let inner = proto_model(&package);
    let classifier = proto::PipelineClassifier {
        pipeline: Some(proto::Pipeline { models: vec![inner], names: Vec::new() }),
    };
    let outer = proto::Model {
        specification_version: 9,
        r#type: Some(ModelType::PipelineClassifier(classifier)),
        ..proto::Model::default()
    };
    put(&package.join(MODEL), &outer.encode_to_vec());
    let stage = Package::open(package.join("model0/model0")).unwrap();
    assert_eq!(stage.model(), Package::open(&single).unwrap().model());
    assert_eq!(Package::open(package.join("model0")).unwrap_err().kind(), ErrorKind::Pipeline);
    let lint = anemeter(&["lint", arg(&package)]);
    assert!(
        lint.code == 0 && lint.stderr.contains("model0/model1 is a nonMaximumSuppression"),
        "{}",
        lint.stderr
    );

    fs::remove_dir_all(compiled.join("model0")).unwrap();
    fs::rename(compiled.join("model1"), compiled.join("model0")).unwrap();
    for command in ["inspect", "lint", "run"] {
        let outcome = anemeter(&[command, arg(&compiled)]);
        if command == "inspect" {
            assert!(outcome.succeeded().contains("no: it keeps the best of overlapping boxes"));
        } else {
            assert!(outcome.refused().contains("help: none of them is an ML program"), "{}", outcome.stderr);
        }
    }
}

#[test]
fn compiled_neural_networks_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.mlmodelc");
    fs::create_dir(&path).unwrap();
    for (kind, name) in
        [(500, "neuralNetwork"), (403, "neuralNetworkClassifier"), (402, "treeEnsembleClassifier")]
    {
        put(&path.join(DESCRIPTION), &frame(kind, 4, b""));
        for command in ["inspect", "lint", "run"] {
            let outcome = anemeter(&[command, arg(&path)]);
            let expected =
                format!("coremldata.bin: is a {name} model; only ML programs (mlProgram) are supported");
            let text = outcome.refused();
            assert!(text.contains(&expected) && text.contains("help: re-convert with convert_to"), "{text}");
        }
    }
}
