//! Faults seeded into a good model, each found and named.

use super::{findings, verify};
use crate::mil::{
    Argument, Binding, Builder, Dim, FeatureType, Flexibility, Interfaces, Literal, Model, Opset, TensorType,
    Type, ValueId,
};
use crate::tensor::{DType, Tensor};

/// `y = softmax(add(x, x))` over `[1, n]` with n of 2 or 4.
fn good() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown]));
    let sum = main.op("add").arg("x", x).arg("y", x).named("sum").push().unwrap();
    let y = main.op("softmax").arg("x", sum).arg("axis", -1).named("y").push().unwrap();
    let mut model = Model::single(main.finish(&[y]));
    model.interface_mut("main").unwrap().enumerate("x", &[vec![1, 2], vec![1, 4]]);
    model
}

fn fault(change: impl FnOnce(&mut Model)) -> String {
    let mut model = good();
    change(&mut model);
    findings(&model).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn array(model: &mut Model) -> &mut crate::mil::ArrayType {
    match &mut model.interface_mut("main").unwrap().inputs[0].ty {
        FeatureType::Array(array) => array,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_model_is_verified() {
    assert!(verify(good()).is_ok());
}

#[test]
fn values_are_defined_once_and_before_use() {
    let late = fault(|m| m.program.functions[0].body.operations.swap(0, 2));
    assert!(late.contains("value `sum`: is used as `x` of softmax before it is defined"), "{late}");
    let twice = fault(|m| {
        let op = m.program.functions[0].body.operations[0].clone();
        m.program.functions[0].body.operations.push(op);
    });
    assert!(twice.contains("value `sum`: is defined twice"), "{twice}");
    let outside = fault(|m| m.program.functions[0].body.outputs = vec![ValueId::new(99)]);
    assert!(outside.contains("a block output is value 99, the function has 4"), "{outside}");
}

#[test]
fn names_are_identifiers() {
    let space = fault(|m| "a b".clone_into(&mut m.program.functions[0].values[1].name));
    assert!(space.contains("value `a b`: the name is not an identifier"), "{space}");
    let reserved = fault(|m| "tensor".clone_into(&mut m.program.functions[0].values[1].name));
    assert!(reserved.contains("reserved word"), "{reserved}");
}

#[test]
fn arguments_follow_the_definition() {
    let function = |m: &mut Model, f: &dyn Fn(&mut crate::mil::Operation)| {
        let ops = &mut m.program.functions[0].body.operations;
        f(ops.iter_mut().find(|op| op.kind == "softmax").unwrap());
    };
    let unknown = fault(|m| function(m, &|op| "axes".clone_into(&mut op.inputs[0].parameter)));
    assert!(
        unknown.contains("`axes` is not a parameter of softmax since ios15, which has x, axis"),
        "{unknown}"
    );
    let missing = fault(|m| function(m, &|op| op.inputs.retain(|a| a.parameter != "x")));
    assert!(missing.contains("`x` is missing"), "{missing}");
    let computed = fault(|m| {
        function(m, &|op| {
            op.inputs[0] =
                Argument { parameter: "axis".to_owned(), bindings: vec![Binding::Value(ValueId::new(0))] };
        });
    });
    assert!(computed.contains("`axis` must be a constant, `x` is computed"), "{computed}");
    assert!(computed.contains("`axis` is fp16, which softmax since ios15 does not take"), "{computed}");
}

#[test]
fn declared_types_must_be_what_comes_out() {
    let wrong = fault(|m| {
        m.program.functions[0].values[1].ty = Type::Tensor(TensorType::fixed(DType::F16, &[2, 2]));
    });
    assert!(
        wrong.contains("`sum` is declared tensor<fp16, [2, 2]> and comes out as tensor<fp16, [1, 2]>"),
        "{wrong}"
    );
}

#[test]
fn constants_fill_their_types() {
    let short = fault(|m| {
        let ops = &mut m.program.functions[0].body.operations;
        let constant = ops.iter_mut().find(|op| op.kind == "const").unwrap();
        let wrong = Literal::immediate(&Tensor::from_slice(&[1], &[1i32]).unwrap());
        let (_, literal) = constant.attributes.iter_mut().find(|(name, _)| name == "val").unwrap();
        literal.data = wrong.data;
        literal.ty = TensorType::fixed(DType::I32, &[2]).into();
    });
    assert!(short.contains("a constant does not fill its type tensor<int32, [2]>"), "{short}");
}

#[test]
fn the_interface_agrees_with_the_program() {
    let renamed = fault(|m| "z".clone_into(&mut m.interface_mut("main").unwrap().inputs[0].name));
    assert!(renamed.contains("feature `x`: is missing in the interface"), "{renamed}");
    assert!(renamed.contains("feature `z`: is not an input of the function"), "{renamed}");
    let dtype = fault(|m| array(m).dtype = DType::F32);
    assert!(dtype.contains("is fp32 in the interface and fp16 in the program"), "{dtype}");
    let version = fault(|m| m.spec_version = 6);
    assert!(version.contains("fp16 needs specification 7, this is 6"), "{version}");
    let default = fault(|m| array(m).shape = vec![1, 3]);
    assert!(default.contains("the default shape [1, 3] is not among the enumerated ones"), "{default}");
    let rank = fault(|m| array(m).flexibility = Flexibility::Enumerated(vec![vec![1, 2], vec![2]]));
    assert!(rank.contains("shape [2] does not fit the program's tensor<fp16, [1, ?]>"), "{rank}");
    let range = fault(|m| array(m).flexibility = Flexibility::Ranges(vec![(1, Some(1)), (4, Some(8))]));
    assert!(range.contains("the default shape [1, 2] is outside the ranges"), "{range}");
    let many = fault(|m| array(m).flexibility = Flexibility::Enumerated(vec![vec![1, 2]; 129]));
    assert!(many.contains("enumerates 129 shapes; 1 to 128 are possible"), "{many}");
    let absent = fault(|m| {
        m.interfaces = Interfaces::Many { functions: Vec::new(), default: "main".to_owned() };
    });
    assert!(absent.contains("the default function has no interface"), "{absent}");
}

#[test]
fn a_shape_that_breaks_the_graph_is_found() {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown]));
    let mask = main.input("mask", TensorType::fixed(DType::F16, &[1, 4]));
    let y = main.op("add").arg("x", x).arg("y", mask).named("y").push().unwrap();
    let mut model = Model::single(main.finish(&[y]));
    model.interface_mut("main").unwrap().enumerate("x", &[vec![1, 4], vec![1, 3]]);
    let found = findings(&model);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].message.starts_with("with enumerated shape 1: shapes tensor<fp16, [1, 3]>"),
        "{}",
        found[0]
    );
}

#[test]
fn everything_is_reported_at_once() {
    let both = fault(|m| {
        m.spec_version = 6;
        "a b".clone_into(&mut m.program.functions[0].values[1].name);
    });
    assert!(both.lines().count() >= 2, "{both}");
}
