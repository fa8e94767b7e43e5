//! Round trips of generated models through the format, and models that have no place in it.

use std::sync::Arc;

use proptest::prelude::*;
use prost::Message as _;

use super::testing::generated;
use super::{Package, PackageError, WeightFiles, WriteOptions, decode_model, encode_model, write};
use crate::verify::Verified;
use crate::{
    Argument, Binding, Block, Function, Interface, Interfaces, Literal, LiteralData, Metadata, Model,
    Operation, Opset, Payload, Program, TensorType, ValueId,
};
use anemeter_kernels::tensor::{Bytes, DType};

fn decoded(model: &[u8], weights: Vec<u8>) -> Result<Model, PackageError> {
    decode_model(model, &WeightFiles::in_memory([("weight.bin".to_owned(), Bytes::from(weights))]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn models_survive_the_format(choices in proptest::collection::vec(any::<u8>(), 0..600)) {
        let model = generated(&choices);
        let encoded = encode_model(&model).unwrap();
        let again = decoded(&encoded.model, encoded.weights.clone()).unwrap();
        prop_assert_eq!(&again, &model);
        prop_assert_eq!(encode_model(&again).unwrap(), encoded);
    }

    /// A decoder made from Apple's schema drops fields it does not know and writes maps in any order.
    #[test]
    fn the_bytes_follow_apples_schema(choices in proptest::collection::vec(any::<u8>(), 0..600)) {
        let model = generated(&choices);
        let encoded = encode_model(&model).unwrap();
        let official = coreml_proto::proto::Model::decode(&encoded.model[..]).unwrap();
        let bytes = official.encode_to_vec();
        prop_assert_eq!(decoded(&bytes, encoded.weights).unwrap(), model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn packages_survive_the_disk(choices in proptest::collection::vec(any::<u8>(), 300..600)) {
        let model = generated(&choices);
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a.mlpackage", "b.mlpackage"].map(|name| folder.path().join(name));
        let summary = write(&Verified::unchecked(model.clone()), &first, WriteOptions::default()).unwrap();
        let package = Package::open(&first).unwrap();
        prop_assert_eq!(package.model(), &model);
        let blobs: usize = package.weight_files().iter().map(|file| file.blobs.len()).sum();
        prop_assert_eq!(blobs, summary.blobs);
        write(&Verified::unchecked(package.model().clone()), &second, WriteOptions::default()).unwrap();
        for file in ["Manifest.json", "Data/com.apple.CoreML/model.mlmodel"] {
            prop_assert_eq!(std::fs::read(first.join(file)).unwrap(), std::fs::read(second.join(file)).unwrap());
        }
    }
}

/// A function that returns its input, for the tests to spoil.
fn plain() -> Model {
    let mut function = Function::new("main", Opset::Ios16);
    let input = function.add_value("x", TensorType::scalar(DType::F32).into());
    function.inputs = vec![input];
    let output = function.add_value("y", TensorType::scalar(DType::F32).into());
    let argument = Argument { parameter: "x".to_owned(), bindings: vec![Binding::Value(input)] };
    let kind = "identity".to_owned();
    let op = Operation { kind, inputs: vec![argument], outputs: vec![output], ..Operation::default() };
    function.body = Block { operations: vec![op], outputs: vec![output], ..Block::default() };
    Model {
        spec_version: 7,
        program: Program { version: 1, functions: vec![function], attributes: Vec::new() },
        interfaces: Interfaces::Single(Interface { function: "main".to_owned(), ..Interface::default() }),
        metadata: Metadata::default(),
    }
}

fn literal(dtype: DType, shape: &[usize], data: LiteralData) -> Literal {
    Literal { ty: TensorType::fixed(dtype, shape).into(), data }
}

#[test]
fn inconsistent_models_are_not_written() {
    type Spoil = fn(&mut Model, &mut Function);
    let bytes = |n: usize| Bytes::from(vec![2; n]);
    let attribute = |value: Literal| {
        let mut model = plain();
        model.program.functions[0].body.operations[0].attributes.push(("a".to_owned(), value));
        model
    };
    let spoiled = |spoil: Spoil| {
        let mut model = plain();
        let mut function = model.program.functions.remove(0);
        spoil(&mut model, &mut function);
        model.program.functions.insert(0, function);
        model
    };
    let cases = [
        (spoiled(|m, _| m.spec_version = 5), "has specification version 5"),
        (spoiled(|m, _| m.program.version = 0), "has program version 0"),
        (spoiled(|_, f| f.name = "other".to_owned()), "the program has `other`"),
        (spoiled(|_, f| f.values[1].name.clear()), "value 1 has no name"),
        (spoiled(|_, f| f.values[1].name = "x".to_owned()), "value `x` is defined twice"),
        (spoiled(|_, f| f.body.outputs[0] = ValueId::new(9)), "value id 9 is outside the table of 2"),
        (spoiled(|_, f| f.inputs.clear()), "op 0 `identity`: `x`: value `x` is not defined before its use"),
        (spoiled(|_, f| f.body.operations[0].kind.clear()), "op 0: has no type"),
        (spoiled(|_, f| f.body.operations[0].inputs[0].parameter.clear()), "input has no name"),
        (spoiled(|_, f| f.body.operations[0].blocks.push(Block::default())), "has an empty block"),
        (
            spoiled(|m, _| m.metadata.user_defined = vec![("k".to_owned(), String::new()); 2]),
            "metadata `k` occurs twice",
        ),
        (
            spoiled(|_, f| {
                let hiding = f.add_value("x", TensorType::scalar(DType::F32).into());
                let outputs = vec![f.inputs[0]];
                f.body.operations[0].blocks =
                    vec![Block { inputs: vec![hiding], outputs, ..Block::default() }];
            }),
            "value `x` is hidden by another of its name",
        ),
        (attribute(literal(DType::F32, &[2], LiteralData::Immediate(bytes(7)))), "has 7 bytes"),
        (attribute(literal(DType::F32, &[2], LiteralData::Blob(bytes(7)))), "has 7 bytes"),
        (attribute(literal(DType::Bool, &[2], LiteralData::Blob(bytes(2)))), "cannot be in a weight file"),
        (attribute(literal(DType::Bool, &[2], LiteralData::Immediate(bytes(2)))), "other than 0 and 1"),
        (attribute(literal(DType::String, &[2], LiteralData::Strings(Vec::new()))), "has 0 strings"),
        (
            attribute(literal(DType::F32, &[2], LiteralData::Items(Vec::new()))),
            "of another kind than its type",
        ),
        (attribute(literal(DType::F32, &[usize::MAX, 2], LiteralData::Blob(bytes(1)))), "size is not known"),
    ];
    encode_model(&plain()).unwrap();
    for (model, expected) in cases {
        let error = encode_model(&model).unwrap_err().to_string();
        assert!(error.contains(expected), "expected {expected:?}: {error}");
    }
}

#[test]
fn streams_become_blobs() {
    struct Zeros;
    impl Payload for Zeros {
        fn byte_len(&self) -> u64 {
            1000
        }

        fn write_to(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
            out.write_all(&[0; 1000])
        }
    }
    let mut model = plain();
    let attributes = &mut model.program.functions[0].body.operations[0].attributes;
    attributes.push(("a".to_owned(), literal(DType::U8, &[1000], LiteralData::Stream(Arc::new(Zeros)))));
    let encoded = encode_model(&model).unwrap();
    let again = decoded(&encoded.model, encoded.weights).unwrap();
    let expected = literal(DType::U8, &[1000], LiteralData::Blob(Bytes::from(vec![0; 1000])));
    assert_eq!(again.program.functions[0].body.operations[0].attribute("a"), Some(&expected));
}
