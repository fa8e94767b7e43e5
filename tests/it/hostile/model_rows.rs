//! What can be wrong with the model of a package.

use std::fs;
use std::path::Path;

use coreml_proto::proto::mil_spec::Block;
use coreml_proto::proto::{self, feature_type, model::Type as ModelType};

use super::Row;
use crate::support::damage::{
    MODEL, edit_block, edit_function, edit_model, edit_op, edit_program, edit_value, field, nested, put,
    put_block, replace_by_folder, replace_by_link, set_shape, tensor_type,
};

pub(super) const MODEL_ROWS: &[Row] = &[
    ("no model", |p| fs::remove_file(p.join(MODEL)).unwrap(), "model.mlmodel: does not exist"),
    ("model is a folder", |p| replace_by_folder(&p.join(MODEL)), "model.mlmodel: is a folder"),
    (
        "model leads out",
        |p| replace_by_link(&p.join(MODEL), Path::new("/dev/zero")),
        "leads outside the package",
    ),
    ("empty model", |p| put(&p.join(MODEL), b""), "has specification version 0; supported are 6 to 10"),
    ("text", |p| put(&p.join(MODEL), b"hello"), "model.mlmodel: "),
    ("old", |p| edit_model(p, |m| m.specification_version = 5), "has specification version 5"),
    ("new", |p| edit_model(p, |m| m.specification_version = 11), "has specification version 11"),
    ("updatable", |p| edit_model(p, |m| m.is_updatable = true), "is an updatable model"),
    (
        "other kind",
        |p| {
            edit_model(p, |m| {
                m.r#type =
                    Some(ModelType::NeuralNetworkClassifier(proto::NeuralNetworkClassifier::default()));
            });
        },
        "is a neuralNetworkClassifier model; only ML programs (mlProgram) are supported",
    ),
    (
        "pipeline",
        |p| edit_model(p, |m| m.r#type = Some(ModelType::Pipeline(proto::Pipeline::default()))),
        "is a pipeline, several models that run one after the other",
    ),
    (
        "pipeline that classifies",
        |p| {
            edit_model(p, |m| {
                m.r#type = Some(ModelType::PipelineClassifier(proto::PipelineClassifier::default()));
            });
        },
        "is a pipeline, several models that run one after the other: it has none",
    ),
    ("no program", |p| edit_model(p, |m| m.r#type = None), "there is no mlProgram"),
    (
        "sequence",
        |p| {
            edit_model(p, |m| {
                let ty = m.description.as_mut().unwrap().input[0].r#type.as_mut().unwrap();
                ty.r#type = Some(feature_type::Type::SequenceType(proto::SequenceFeatureType::default()));
            });
        },
        "`x`: is a sequence",
    ),
    (
        "unknown field",
        |p| {
            let model = fs::read(p.join(MODEL)).unwrap();
            put(&p.join(MODEL), &[model, field(7, b"")].concat());
        },
        "Model has the unknown field 7",
    ),
    ("program version", |p| edit_program(p, |m| m.version = 2), "has program version 2; supported is 1"),
    ("doc string", |p| edit_program(p, |m| m.doc_string = "hi".to_owned()), "has a docString"),
    (
        "function name",
        |p| {
            edit_program(p, |m| {
                let main = m.functions.remove("main").unwrap();
                m.functions.insert("other".to_owned(), main);
            });
        },
        "the description has the functions `main`, the program has `other`",
    ),
    (
        "opset",
        |p| edit_function(p, |f| f.opset = "CoreML99".to_owned()),
        "function `main`: is written in opset `CoreML99`",
    ),
    (
        "second block",
        |p| {
            edit_function(p, |f| {
                f.block_specializations.insert("CoreML7".to_owned(), Block::default());
            });
        },
        "has a block for opset `CoreML7` besides its own",
    ),
    ("no block", |p| edit_function(p, |f| f.block_specializations.clear()), "has no block for its opset"),
    (
        "undefined output",
        |p| edit_block(p, |b| b.outputs[0] = "nothing".to_owned()),
        "block output `nothing` is not defined",
    ),
    (
        "use before definition",
        |p| edit_block(p, |b| b.operations.reverse()),
        "op 0 `cond` named `choose`: `pred`: binding `flag` is not defined",
    ),
    (
        "redefinition",
        |p| edit_op(p, "w", |op| op.outputs[0].name = "x".to_owned()),
        "output `x` is defined twice",
    ),
    ("nameless", |p| edit_op(p, "w", |op| op.outputs[0].name.clear()), "has no name"),
    ("no type", |p| edit_op(p, "w", |op| op.r#type.clear()), "op 0: has no type"),
    (
        "name not UTF-8",
        |p| put_block(p, &field(3, &field(1, b"\xff\xfe"))),
        "field 1 of Operation is not valid UTF-8",
    ),
    ("huge name", |p| put_block(p, &field(2, &vec![b'n'; 1 << 20])), "nnn…` is not defined"),
    (
        "rank",
        |p| edit_value(p, "w", |v| tensor_type(&mut v.r#type).rank = 3),
        "a tensor type of rank 3 has 2 dimensions",
    ),
    (
        "data type",
        |p| edit_value(p, "w", |v| tensor_type(&mut v.r#type).data_type = 99),
        "the unknown data type 99",
    ),
    (
        "many dimensions",
        |p| edit_value(p, "w", |v| set_shape(&mut v.r#type, &[1; 100_000])),
        "has 100000 dimensions",
    ),
    (
        "10^9 elements",
        |p| edit_value(p, "axes", |v| set_shape(&mut v.r#type, &[1_000_000_000])),
        "has 2 values, its shape has 1000000000",
    ),
    (
        "u64::MAX elements",
        |p| edit_value(p, "axes", |v| set_shape(&mut v.r#type, &[u64::MAX])),
        "is too large to address",
    ),
    (
        "product overflows",
        |p| edit_value(p, "w", |v| set_shape(&mut v.r#type, &[1 << 32, 1 << 32])),
        "is too large to address",
    ),
    (
        "10^9 strings",
        |p| edit_value(p, "mode", |v| set_shape(&mut v.r#type, &[1_000_000_000])),
        "has 1 values, its shape has 1000000000",
    ),
    (
        "wrong field",
        |p| edit_value(p, "axes", |v| tensor_type(&mut v.r#type).data_type = 11),
        "are not in field 1 of TensorValue",
    ),
    (
        "no value",
        |p| edit_value(p, "w", |v| v.value = None),
        "op 0 `const`: `val`: a value is neither immediate nor in a weight file",
    ),
    (
        "blocks 10,000 deep",
        |p| {
            put_block(
                p,
                &nested(10_000, &field(2, b"x"), |inner| {
                    field(3, &[field(1, b"cond"), field(4, inner)].concat())
                }),
            );
        },
        "blocks nest deeper than 64 levels",
    ),
    (
        "types 10,000 deep",
        |p| {
            let ty = nested(10_000, &field(1, b""), |inner| field(3, &field(1, inner)));
            put_block(p, &field(1, &[field(1, b"x"), field(2, &ty)].concat()));
        },
        "types nest deeper than 64 levels",
    ),
    (
        "values 10,000 deep",
        |p| {
            let tuple = field(2, &field(3, &field(1, &field(3, b""))));
            let value = nested(10_000, &tuple, |inner| {
                [tuple.clone(), field(3, &field(2, &field(1, inner)))].concat()
            });
            put_block(p, &field(4, &[field(1, b"a"), field(2, &value)].concat()));
        },
        "values nest deeper than 64 levels",
    ),
    ("8 MiB of empty operations", |p| put_block(p, &field(3, b"").repeat(4 << 20)), "op 0: has no type"),
    (
        "8 MiB of empty arguments",
        |p| put_block(p, &field(3, &[field(1, b"f"), field(2, b"").repeat(4 << 20)].concat())),
        "a map entry has no key",
    ),
    (
        "8 MiB of empty blocks",
        |p| put_block(p, &field(3, &[field(1, b"f"), field(4, b"").repeat(4 << 20)].concat())),
        "has an empty block",
    ),
    (
        "8 MiB of empty fields",
        |p| put(&p.join(MODEL), &field(502, b"").repeat(2 << 20)),
        "field 502 of Model occurs twice",
    ),
];
