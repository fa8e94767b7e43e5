//! Programs by hand and the aicode they become.

use super::*;
use crate::program::{Dim, Region, Scalar};
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::verify::verify;
use anemeter_mil::{BuildError, Builder, Dim as MilDim, Literal, Opset, TensorType};
use half::f16;

/// The names of a graph's operations, constants left out.
fn ops(graph: &Graph) -> Vec<&str> {
    let names = graph.body.ops.iter().map(|op| &*op.name);
    names.filter(|name| *name != "primitive.constant_v1").collect()
}

fn convert(
    build: impl FnOnce(&mut Builder) -> Result<Vec<MilId>, BuildError>,
) -> Result<Program, ConvertError> {
    let mut main = Builder::new("main", Opset::Ios18);
    let outputs = build(&mut main).unwrap();
    from_mil(&verify(Model::single(main.finish(&outputs))).unwrap())
}

fn fixed(shape: &[usize]) -> TensorType {
    TensorType::fixed(DType::F32, shape)
}

#[test]
fn broadcasts_are_operations() {
    let program = convert(|main| {
        let x = main.input("x", fixed(&[2, 3]));
        let y = main.input("y", fixed(&[3]));
        Ok(vec![main.op("add").arg("x", x).arg("y", y).named("sum").push()?])
    });
    let graph = &program.unwrap().graphs[0];
    assert_eq!(ops(graph), ["primitive.broadcast_to_v1", "primitive.add_v1", "dataflow.output_v1"]);
    let dims = vec![Dim::Fixed(2), Dim::Fixed(3)];
    let ty = Type::Tensor { dims, element: Scalar::F32, constraints: None };
    assert_eq!(graph.outputs, [Port { name: "sum".to_owned(), ty }]);
}

#[test]
fn a_state_is_read_and_written_in_the_order_of_its_tokens() {
    let program = convert(|main| {
        let x = main.input("x", fixed(&[2]));
        let state = main.input("kept", MilType::State(fixed(&[2])));
        let before = main.op("read_state").arg("input", state).named("before").push()?;
        let sum = main.op("add").arg("x", before).arg("y", x).named("sum").push()?;
        main.op("write_state").arg("input", state).arg("data", sum).push_all()?;
        Ok(vec![sum])
    });
    let graph = &program.unwrap().graphs[0];
    assert_eq!(
        ops(graph),
        [
            "dataflow.create_token_v1",
            "dataflow.read_handle_v1",
            "primitive.add_v1",
            "dataflow.write_handle_v1",
            "dataflow.output_v1"
        ]
    );
    assert!(matches!(&graph.inputs[1].ty, Type::Handle(_)));
    let names: Vec<_> = graph.outputs.iter().map(|port| (port.name.as_str(), &port.ty)).collect();
    assert!(matches!(names[..], [("kept", Type::Token), ("sum", Type::Tensor { .. })]));
    let write = &graph.body.ops[3];
    let read_results = graph.body.ops[1].results.len();
    assert_eq!((write.operands.len(), read_results), (3, 2), "handle, content and the token of the read");
}

#[test]
fn every_shape_is_a_function_and_weights_are_shared() {
    let mut main = Builder::new("prefill", Opset::Ios18);
    let x =
        main.input("x", TensorType::new(DType::F16, vec![1usize.into(), MilDim::Unknown, 64usize.into()]));
    let weight = Tensor::from_slice(&[64, 64], &[f16::ONE; 64 * 64]).unwrap();
    let weight = main.constant("weight", Literal::blob(&weight));
    let y = main.op("matmul").arg("x", x).arg("y", weight).named("y").push().unwrap();
    let mut model = Model::multi(vec![main.finish(&[y])]);
    model.interface_mut("prefill").unwrap().enumerate("x", &[vec![1, 8, 64], vec![1, 16, 64]]);
    let names: Vec<_> = functions(&model).map(|f| (f.name, f.function, f.shape)).collect();
    let named = |name: &str, shape| (name.to_owned(), "prefill".to_owned(), shape);
    assert_eq!(names, [named("prefill_8", 0), named("prefill_16", 1)]);

    let program = from_mil(&verify(model).unwrap()).unwrap();
    let resources: Vec<_> = program.graphs.iter().flat_map(|graph| &graph.body.ops).collect();
    let resources = resources.into_iter().filter_map(|op| match op.properties.first() {
        Some(Some(Attribute::DenseResource(resource))) => Some(resource),
        _ => None,
    });
    let resources: Vec<_> = resources.collect();
    assert_eq!(resources.len(), 2);
    assert_eq!(resources[0], resources[1], "one resource for both functions");
}

#[test]
fn composites_carry_what_they_stand_for() {
    let program = convert(|main| {
        let x = main.input("x", fixed(&[2, 3]));
        Ok(vec![main.op("softmax").arg("x", x).arg("axis", -1).named("y").push()?])
    });
    let program = program.unwrap();
    let softmax = program.graphs[0].body.ops.iter().find(|op| op.name == "softmax_v1").unwrap();
    let inner: Vec<&str> = softmax.regions[0].ops.iter().map(|op| &*op.name).collect();
    assert!(inner.contains(&"reduce_max_v1") && inner.contains(&"primitive.exp_v1"), "{inner:?}");
    assert_eq!(inner.last(), Some(&"dataflow.yield_v1"));
}

#[test]
fn an_operation_without_a_form_is_named() {
    let program = convert(|main| {
        let x = main.input("x", fixed(&[2, 3]));
        Ok(vec![main.op("cumsum").arg("x", x).arg("axis", 0).named("y").push()?])
    });
    let error = program.unwrap_err();
    let message = "function `main`, `y` = cumsum: Core AI export has no form of the operation cumsum";
    assert_eq!(error.to_string(), message);
    assert!(anemeter_base::advice::Advice::remedy(&error).is_some());
}

#[test]
fn what_is_not_finite_is_no_constant() {
    for value in [f32::NEG_INFINITY, f32::INFINITY, f32::NAN] {
        let program = convert(|main| {
            let x = main.input("x", fixed(&[2]));
            let y = Tensor::from_slice(&[2], &[0.0, value]).unwrap();
            Ok(vec![main.op("add").arg("x", x).arg("y", &y).named("y").push()?])
        });
        let message = program.unwrap_err().to_string();
        assert!(message.contains(&format!("holds {value} at element 1")), "{message}");
    }
}

#[test]
fn floats_with_scales_are_products() {
    let program = convert(|main| {
        let x = main.input("x", fixed(&[2, 8]));
        let data = Tensor::from_slice(&[2, 8], &[0.5f32; 16]).unwrap();
        let scale = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let weight = main.op("constexpr_blockwise_shift_scale").arg("data", &data).arg("scale", &scale);
        let weight = weight.named("weight").push()?;
        Ok(vec![main.op("add").arg("x", x).arg("y", weight).named("y").push()?])
    });
    let names = [
        "primitive.reshape_v2",
        "primitive.reshape_v2",
        "primitive.broadcast_to_v1",
        "primitive.mul_v1",
        "primitive.reshape_v2",
        "primitive.add_v1",
        "dataflow.output_v1",
    ];
    assert_eq!(ops(&program.unwrap().graphs[0]), names);
}

#[test]
fn the_table_has_every_operation_once_and_only_those_of_mil() {
    let mut seen = HashSet::new();
    for kind in ops::supported() {
        assert!(seen.insert(kind), "{kind} is in the table twice");
        assert!(anemeter_mil::ops::all().any(|def| def.name == kind), "MIL has no {kind}");
    }
}

/// The names of the operations of a region and of those in it.
fn all_names(region: &Region, names: &mut Vec<String>) {
    for op in &region.ops {
        names.push(op.name.to_string());
        op.regions.iter().for_each(|inner| all_names(inner, names));
    }
}

/// The reductions of a region by name, each with the operations that it is said to stand for.
fn reductions(region: &Region, found: &mut BTreeMap<String, Vec<String>>) {
    for op in &region.ops {
        if let [inner] = &op.regions[..]
            && inner.ops.iter().any(|op| op.name == "primitive.reduce_v1")
        {
            let mut names = Vec::new();
            all_names(inner, &mut names);
            found.insert(op.name.to_string(), names);
        }
        op.regions.iter().for_each(|inner| reductions(inner, found));
    }
}

#[test]
fn reductions_stand_for_what_apple_says_they_do() {
    let (mut apples, mut ours) = (BTreeMap::new(), BTreeMap::new());
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/qwen_macos_none_float32.aimodel");
    let asset = crate::asset::Asset::open(sample).unwrap();
    asset.program().graphs.iter().for_each(|graph| reductions(&graph.body, &mut apples));
    let program = convert(|main| {
        let x = main.input("x", fixed(&[2, 3]));
        let kinds = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"];
        kinds.iter().map(|kind| main.op(kind).arg("x", x).arg("axes", [0]).named(kind).push()).collect()
    });
    reductions(&program.unwrap().graphs[0].body, &mut ours);
    assert_eq!(ours.len(), 4);
    let common: Vec<&String> = ours.keys().filter(|name| apples.contains_key(*name)).collect();
    assert!(common.iter().any(|name| *name == "reduce_sum_v1"), "{apples:?}");
    assert!(common.iter().any(|name| *name == "reduce_product_v1"), "{apples:?}");
    for name in common {
        assert_eq!(ours[name], apples[name], "{name}");
    }
}
