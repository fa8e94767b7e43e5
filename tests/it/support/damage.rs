//! Ways to damage a good package.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use coreml_proto::proto::mil_spec::value::Value as ValueKind;
use coreml_proto::proto::mil_spec::{self, Block, Operation, Value, value_type};
use coreml_proto::proto::{self, model::Type as ModelType};
use prost::Message;

use super::{fixtures, tiny};

pub(crate) const MANIFEST: &str = "Manifest.json";
pub(crate) const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
pub(crate) const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";
/// The offsets of the two records in the weight file of the tiny model.
pub(crate) const FIRST: usize = 64;
pub(crate) const SECOND: usize = 192;

pub(crate) fn good(folder: &Path) -> PathBuf {
    fixtures::write(tiny::model(), folder, "tiny.mlpackage")
}

pub(crate) fn put(path: &Path, bytes: &[u8]) {
    File::create(path).unwrap().write_all(bytes).unwrap();
}

pub(crate) fn edit_manifest(package: &Path, edit: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(package.join(MANIFEST)).unwrap();
    put(&package.join(MANIFEST), edit(text).as_bytes());
}

pub(crate) fn edit_weights(package: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(package.join(WEIGHTS)).unwrap();
    edit(&mut bytes);
    put(&package.join(WEIGHTS), &bytes);
}

pub(crate) fn edit_model(package: &Path, edit: impl FnOnce(&mut proto::Model)) {
    let mut model = proto::Model::decode(&fs::read(package.join(MODEL)).unwrap()[..]).unwrap();
    edit(&mut model);
    put(&package.join(MODEL), &model.encode_to_vec());
}

pub(crate) fn edit_program(package: &Path, edit: impl FnOnce(&mut mil_spec::Program)) {
    edit_model(package, |model| match &mut model.r#type {
        Some(ModelType::MlProgram(program)) => edit(program),
        _ => panic!("the tiny model is an ML program"),
    });
}

pub(crate) fn edit_function(package: &Path, edit: impl FnOnce(&mut mil_spec::Function)) {
    edit_program(package, |program| edit(program.functions.get_mut("main").unwrap()));
}

pub(crate) fn edit_block(package: &Path, edit: impl FnOnce(&mut Block)) {
    edit_function(package, |function| edit(function.block_specializations.get_mut("CoreML8").unwrap()));
}

pub(crate) fn edit_op(package: &Path, name: &str, edit: impl FnOnce(&mut Operation)) {
    edit_block(package, |block| {
        edit(block.operations.iter_mut().find(|op| op.outputs[0].name == name).unwrap());
    });
}

pub(crate) fn edit_value(package: &Path, name: &str, edit: impl FnOnce(&mut Value)) {
    edit_op(package, name, |op| edit(op.attributes.get_mut("val").unwrap()));
}

pub(crate) fn edit_blob(package: &Path, edit: impl FnOnce(&mut mil_spec::value::BlobFileValue)) {
    edit_value(package, "w", |value| match &mut value.value {
        Some(ValueKind::BlobFileValue(blob)) => edit(blob),
        _ => panic!("`w` is in the weight file"),
    });
}

pub(crate) fn tensor_type(ty: &mut Option<mil_spec::ValueType>) -> &mut mil_spec::TensorType {
    match ty.as_mut().and_then(|ty| ty.r#type.as_mut()) {
        Some(value_type::Type::TensorType(tensor)) => tensor,
        _ => panic!("not a tensor type"),
    }
}

pub(crate) fn set_shape(ty: &mut Option<mil_spec::ValueType>, shape: &[u64]) {
    let tensor = tensor_type(ty);
    tensor.rank = shape.len() as i64;
    tensor.dimensions = shape
        .iter()
        .map(|&size| mil_spec::Dimension {
            dimension: Some(mil_spec::dimension::Dimension::Constant(
                mil_spec::dimension::ConstantDimension { size },
            )),
        })
        .collect();
}

pub(crate) fn field(number: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(number << 3 | 2, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// A model whose only block has the given bytes.
pub(crate) fn put_block(package: &Path, block: &[u8]) {
    let entry = [field(1, b"CoreML8"), field(2, block)].concat();
    let function = [field(2, b"CoreML8"), field(3, &entry)].concat();
    let functions = field(2, &[field(1, b"main"), field(2, &function)].concat());
    let program = [vec![0x08, 0x01], functions].concat();
    put(&package.join(MODEL), &[vec![0x08, 0x09], field(502, &program)].concat());
}

/// Something nested `depth` times in itself.
pub(crate) fn nested(depth: usize, innermost: &[u8], wrap: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    (0..depth).fold(innermost.to_vec(), |inner, _| wrap(&inner))
}

pub(crate) fn replace_by_link(path: &Path, target: &Path) {
    fs::remove_file(path).unwrap();
    std::os::unix::fs::symlink(target, path).unwrap();
}

pub(crate) fn replace_by_folder(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}
