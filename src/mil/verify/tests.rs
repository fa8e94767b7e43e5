//! Faults seeded into a good model, each found and named.

use super::{findings, verify, verify_rewritten};
use crate::{
    Argument, Binding, Builder, Dim, FeatureType, Flexibility, Interfaces, Literal, Model, Opset, TensorType,
    Type, ValueId,
};
use anemeter_kernels::tensor::{DType, Tensor};

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

/// What is found in the good model after a change.
fn faults(change: impl FnOnce(&mut Model)) -> String {
    let mut model = good();
    change(&mut model);
    findings(&model).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn finds(expected: &str, change: impl FnOnce(&mut Model)) {
    let found = faults(change);
    assert!(found.contains(expected), "{found}");
}

fn array(model: &mut Model) -> &mut crate::ArrayType {
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
fn a_rewrite_may_keep_faults_but_not_add_any() {
    let broken = |kind: &str| {
        let mut model = good();
        kind.clone_into(&mut model.program.functions[0].body.operations[0].kind);
        model
    };
    assert!(verify_rewritten(&broken("added"), broken("added")).is_ok());
    for original in [good(), broken("added")] {
        let faults = verify_rewritten(&original, broken("summed")).unwrap_err();
        assert!(faults.to_string().contains("summed"), "{faults}");
    }
}

#[test]
fn values_are_defined_once_and_before_use() {
    finds("value `sum`: is used as `x` of softmax before it is defined", |m| {
        m.program.functions[0].body.operations.swap(0, 2);
    });
    finds("value `sum`: is defined twice", |m| {
        let op = m.program.functions[0].body.operations[0].clone();
        m.program.functions[0].body.operations.push(op);
    });
    finds("a block output is value 99, the function has 4", |m| {
        m.program.functions[0].body.outputs = vec![ValueId::new(99)];
    });
}

#[test]
fn names_are_identifiers() {
    let named =
        |name: &'static str| move |m: &mut Model| name.clone_into(&mut m.program.functions[0].values[1].name);
    finds("value `a b`: the name is not an identifier", named("a b"));
    finds("reserved word", named("tensor"));
}

#[test]
fn arguments_follow_the_definition() {
    let softmax = |f: fn(&mut crate::Operation)| {
        move |m: &mut Model| {
            let ops = &mut m.program.functions[0].body.operations;
            f(ops.iter_mut().find(|op| op.kind == "softmax").unwrap());
        }
    };
    let renamed = softmax(|op| "axes".clone_into(&mut op.inputs[0].parameter));
    finds("`axes` is not a parameter of softmax since ios15, which has x, axis", renamed);
    finds("`x` is missing", softmax(|op| op.inputs.retain(|a| a.parameter != "x")));
    let computed = softmax(|op| {
        op.inputs[0] =
            Argument { parameter: "axis".to_owned(), bindings: vec![Binding::Value(ValueId::new(0))] };
    });
    finds("`axis` must be a constant, `x` is computed", computed);
    finds("`axis` is fp16, which softmax since ios15 does not take", computed);
}

#[test]
fn declared_types_must_be_what_comes_out() {
    finds("`sum` is declared tensor<fp16, [2, 2]> and comes out as tensor<fp16, [1, 2]>", |m| {
        m.program.functions[0].values[1].ty = Type::Tensor(TensorType::fixed(DType::F16, &[2, 2]));
    });
}

#[test]
fn constants_fill_their_types() {
    finds("a constant does not fill its type tensor<int32, [2]>", |m| {
        let ops = &mut m.program.functions[0].body.operations;
        let constant = ops.iter_mut().find(|op| op.kind == "const").unwrap();
        let wrong = Literal::immediate(&Tensor::from_slice(&[1], &[1i32]).unwrap());
        let (_, literal) = constant.attributes.iter_mut().find(|(name, _)| name == "val").unwrap();
        literal.data = wrong.data;
        literal.ty = TensorType::fixed(DType::I32, &[2]).into();
    });
}

#[test]
fn the_interface_agrees_with_the_program() {
    let renamed = |m: &mut Model| "z".clone_into(&mut m.interface_mut("main").unwrap().inputs[0].name);
    finds("feature `x`: is missing in the interface", renamed);
    finds("feature `z`: is not an input of the function", renamed);
    finds("is fp32 in the interface and fp16 in the program", |m| array(m).dtype = DType::F32);
    finds("fp16 needs specification 7, this is 6", |m| m.spec_version = 6);
    finds("the default shape [1, 3] is not among the enumerated ones", |m| array(m).shape = vec![1, 3]);
    let flexible = |flexibility: Flexibility| move |m: &mut Model| array(m).flexibility = flexibility;
    let ranks = Flexibility::Enumerated(vec![vec![1, 2], vec![2]]);
    finds("shape [2] does not fit the program's tensor<fp16, [1, ?]>", flexible(ranks));
    let ranges = Flexibility::Ranges(vec![(1, Some(1)), (4, Some(8))]);
    finds("the default shape [1, 2] is outside the ranges", flexible(ranges));
    let many = Flexibility::Enumerated(vec![vec![1, 2]; 129]);
    finds("enumerates 129 shapes; 1 to 128 are possible", flexible(many));
    finds("the default function has no interface", |m| {
        m.interfaces = Interfaces::Many { functions: Vec::new(), default: "main".to_owned() };
    });
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
    let message = &found[0].message;
    assert!(message.starts_with("with enumerated shape 1: shapes tensor<fp16, [1, 3]>"), "{message}");
}

#[test]
fn everything_is_reported_at_once() {
    let both = faults(|m| {
        m.spec_version = 6;
        "a b".clone_into(&mut m.program.functions[0].values[1].name);
    });
    assert!(both.lines().count() >= 2, "{both}");
}
