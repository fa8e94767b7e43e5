//! Small programs at a few shapes, and the graph of open sizes that they become.

use crate::convert::{Conversion, ConvertError, from_mil_as};
use crate::program::Program;
use anemeter_kernels::tensor::DType;
use anemeter_mil::verify::verify;
use anemeter_mil::{Builder, Dim as MilDim, Model, Opset, TensorType};

fn open(
    axes: usize,
    shapes: &[Vec<u64>],
    build: impl Fn(&mut Builder, anemeter_mil::ValueId) -> anemeter_mil::ValueId,
) -> Result<Program, ConvertError> {
    let mut main = Builder::new("main", Opset::Ios18);
    let mut dims = vec![MilDim::Unknown; axes];
    dims.push(4usize.into());
    let x = main.input("x", TensorType::new(DType::F32, dims));
    let y = build(&mut main, x);
    let mut model = Model::multi(vec![main.finish(&[y])]);
    model.interface_mut("main").unwrap().enumerate("x", shapes);
    let conversion = Conversion { open: ["main".to_owned()].into(), ..Conversion::default() };
    from_mil_as(&verify(model).unwrap(), &conversion)
}

#[test]
fn shapes_that_differ_are_computed_from_those_of_the_inputs() {
    let shapes = [vec![3, 4], vec![5, 4], vec![11, 4]];
    let program = open(1, &shapes, |main, x| {
        let wide = main.op("reshape").arg("x", x).arg("shape", [-1, 2]).named("wide").push().unwrap();
        main.op("add").arg("x", wide).arg("y", 1.0f32).named("y").push().unwrap()
    });
    let program = program.unwrap();
    crate::verify(&program).unwrap();
    let [main] = &program.graphs[..] else { panic!("{} graphs", program.graphs.len()) };
    assert_eq!(main.name, "main");
    assert_eq!(main.inputs[0].ty.to_string(), "tensor<?x4xfloat32>");
    assert_eq!(main.outputs[0].ty.to_string(), "tensor<?x2xfloat32>");
    let names: Vec<&str> = main.body.ops.iter().map(|op| &*op.name).collect();
    let computed = ["primitive.get_shape_v2", "primitive.mul_v1", "primitive.broadcast_to_v1"];
    assert!(computed.iter().all(|name| names.contains(name)), "{names:?}");
}

#[test]
fn sizes_that_are_no_sums_are_refused_by_the_operation() {
    let shapes = [vec![3, 7, 4], vec![5, 11, 4], vec![6, 2, 4], vec![9, 13, 4]];
    let error = open(2, &shapes, |main, x| {
        main.op("reshape").arg("x", x).arg("shape", [-1, 4]).named("y").push().unwrap()
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("cannot be written for all sizes at once"), "{text}");
    assert!(text.contains("no sums of the open sizes"), "{text}");
}

#[test]
fn too_few_shapes_tell_no_sizes_apart() {
    let error =
        open(1, &[vec![3, 4], vec![5, 4]], |main, x| main.op("relu").arg("x", x).named("y").push().unwrap());
    assert!(error.unwrap_err().to_string().contains("takes 3 shapes"));
}
