//! Compiled models and pipelines, made from packages.

use std::fs;
use std::path::{Path, PathBuf};

use coreml_proto::proto::model::Type as ModelType;
use coreml_proto::proto::{self, NonMaximumSuppression, Pipeline};
use prost::Message as _;

use super::compile::{Dialect, compile, frame};
use super::damage::{MODEL, WEIGHTS, put};

pub(crate) const TEXT: &str = "model.mil";
pub(crate) const DESCRIPTION: &str = "coremldata.bin";
/// The weights of a compiled model.
pub(crate) const COMPILED_WEIGHTS: &str = "weights/weight.bin";

/// The protobuf of a package.
pub(crate) fn proto_model(package: &Path) -> proto::Model {
    proto::Model::decode(&fs::read(package.join(MODEL)).unwrap()[..]).unwrap()
}

/// Compiles a package into a folder.
pub(crate) fn compile_to(package: &Path, folder: &Path, dialect: Dialect) {
    let (text, description) = compile(&proto_model(package), dialect);
    fs::create_dir_all(folder.join("weights")).unwrap();
    put(&folder.join(TEXT), text.as_bytes());
    put(&folder.join(DESCRIPTION), &description);
    if package.join(WEIGHTS).exists() {
        fs::copy(package.join(WEIGHTS), folder.join(COMPILED_WEIGHTS)).unwrap();
    }
}

/// Compiles a package beside itself.
pub(crate) fn compiled(package: &Path, dialect: Dialect) -> PathBuf {
    let folder = package.with_extension("mlmodelc");
    compile_to(package, &folder, dialect);
    folder
}

/// A model that keeps the best of overlapping boxes, as detectors end in.
pub(crate) fn non_maximum_suppression() -> proto::Model {
    proto::Model {
        specification_version: 3,
        r#type: Some(ModelType::NonMaximumSuppression(NonMaximumSuppression::default())),
        ..proto::Model::default()
    }
}

/// Makes a package a pipeline of its ML program and a stage that is none.
pub(crate) fn into_pipeline(package: &Path) {
    let program = proto_model(package);
    let description = program.description.clone();
    let pipeline = Pipeline {
        models: vec![program, non_maximum_suppression()],
        names: vec!["detector".to_owned(), "nms".to_owned()],
    };
    let model = proto::Model {
        specification_version: 9,
        description,
        r#type: Some(ModelType::Pipeline(pipeline)),
        ..proto::Model::default()
    };
    put(&package.join(MODEL), &model.encode_to_vec());
}

/// A compiled pipeline of a package's ML program and a stage that is none.
pub(crate) fn compiled_pipeline(package: &Path, folder: &Path) {
    compile_to(package, &folder.join("model0"), Dialect::Tensors);
    fs::create_dir_all(folder.join("model1")).unwrap();
    put(&folder.join("model1").join(DESCRIPTION), &frame(610, 3, b""));
    put(&folder.join(DESCRIPTION), &frame(202, 9, b""));
}
