//! A tiny model with one of everything that packages are made of.

use anemeter::mil::{
    Argument, ArrayType, Binding, Block, Feature, FeatureType, Flexibility, Function, Interface, Interfaces,
    Literal, LiteralData, Metadata, Model, Operation, Opset, Program, TensorType, Type, ValueId,
};
use anemeter::tensor::{Bytes, DType, Tensor};

/// `x + w` behind a condition, with two weights in the weight file and constants of several types.
pub(crate) fn model() -> Model {
    let mut function = Function::new("main", Opset::Ios18);
    let matrix: Type = TensorType::fixed(DType::F32, &[2, 3]).into();
    let x = function.add_value("x", matrix.clone());
    function.inputs = vec![x];

    let weight = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let axes = Tensor::from_slice(&[2], &[0i32, -1]).unwrap();
    let flag = Tensor::from_bools(&[], &[true]).unwrap();
    let nibbles = Literal {
        ty: TensorType::fixed(DType::I4, &[5]).into(),
        data: LiteralData::Blob(Bytes::from(vec![0x78, 0xf1, 0x03])),
    };
    let w = constant(&mut function, "w", Literal::blob(&weight));
    constant(&mut function, "nibbles", nibbles);
    constant(&mut function, "axes", Literal::immediate(&axes));
    constant(&mut function, "mode", Literal::text("EXACT"));
    let flag = constant(&mut function, "flag", Literal::immediate(&flag));

    let branches = ["then", "else"].map(|name| {
        let sum = function.add_value(&format!("sum_{name}"), matrix.clone());
        let add = Operation {
            kind: "add".to_owned(),
            inputs: vec![argument("x", x), argument("y", w)],
            outputs: vec![sum],
            ..Operation::default()
        };
        Block { operations: vec![add], outputs: vec![sum], ..Block::default() }
    });
    let y = function.add_value("y", matrix);
    function.body.operations.push(Operation {
        kind: "cond".to_owned(),
        inputs: vec![argument("pred", flag)],
        outputs: vec![y],
        blocks: branches.to_vec(),
        attributes: vec![("name".to_owned(), Literal::text("choose"))],
    });
    function.body.outputs = vec![y];
    Model {
        spec_version: 9,
        program: Program { version: 1, functions: vec![function], attributes: Vec::new() },
        interfaces: Interfaces::Single(Interface {
            function: "main".to_owned(),
            inputs: vec![feature("x")],
            outputs: vec![feature("y")],
            ..Interface::default()
        }),
        metadata: Metadata { author: "anemeter".to_owned(), ..Metadata::default() },
    }
}

fn constant(function: &mut Function, name: &str, value: Literal) -> ValueId {
    let id = function.add_value(name, value.ty.clone());
    function.body.operations.push(Operation {
        kind: "const".to_owned(),
        outputs: vec![id],
        attributes: vec![("name".to_owned(), Literal::text(name)), ("val".to_owned(), value)],
        ..Operation::default()
    });
    id
}

fn argument(parameter: &str, value: ValueId) -> Argument {
    Argument { parameter: parameter.to_owned(), bindings: vec![Binding::Value(value)] }
}

fn feature(name: &str) -> Feature {
    Feature {
        name: name.to_owned(),
        description: String::new(),
        ty: FeatureType::Array(ArrayType {
            dtype: DType::F32,
            shape: vec![2, 3],
            flexibility: Flexibility::Fixed,
            default: None,
        }),
        optional: false,
    }
}
