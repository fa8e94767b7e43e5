//! Small models built in the tests.

use anemeter::mil::verify::verify;
use anemeter::mil::{Builder, Dim, Literal, LiteralData, Model, Opset, TensorType, Type};
use anemeter::package::{self, WriteOptions};
use anemeter::tensor::{DType, Tensor};
use std::path::{Path, PathBuf};

pub(crate) use super::numbers::numbers;

/// Little work for a launch of a small bundle.
pub(crate) const WORKLOAD: &str = "schema: anemeter.bench/1
prompts: { source: tokens }
generated_tokens: 4
launches: 1
requests_per_seq_len: 5
warm_up_rounds: 0
seed: 5
cool_down_s: 0
launch_limit_s: 120
";

/// A little more work, of which it is known how often each shape occurs.
pub(crate) const MIXED_WORKLOAD: &str = "schema: anemeter.bench/1
prompts: { source: tokens }
generated_tokens: 4
launches: 2
requests_per_seq_len: 3
warm_up_rounds: 1
seed: 5
cool_down_s: 0
launch_limit_s: 120
mix: { seq_lens: [16, 32], weights: [0.5, 0.5] }
";

/// A weight of the given shape in the weight file.
pub(crate) fn weight(shape: &[usize], seed: u32) -> Literal {
    Literal::blob(&Tensor::from_slice(shape, &numbers(shape.iter().product(), seed)).unwrap())
}

/// Two linear layers over `[1, n, 8]` with n of 1, 4 or 8.
pub(crate) fn enumerated_mlp() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown, 8usize.into()]));
    let up = main.constant("up_weight", weight(&[16, 8], 1));
    let up_bias = main.constant("up_bias", weight(&[16], 2));
    let down = main.constant("down_weight", weight(&[8, 16], 3));
    let h = main.op("linear").arg("x", x).arg("weight", up).arg("bias", up_bias).named("h").push().unwrap();
    let a = main.op("silu").arg("x", h).named("a").push().unwrap();
    let zero = main.constant("down_bias", weight(&[8], 4));
    let y = main.op("linear").arg("x", a).arg("weight", down).arg("bias", zero).named("y").push().unwrap();
    let mut model = Model::single(main.finish(&[y]));
    let shapes = [1, 4, 8].map(|n| vec![1, n, 8]);
    model.interface_mut("main").unwrap().enumerate("x", &shapes);
    model
}

/// Probabilities of the input's elements, classified by labels that are strings or int64.
pub(crate) fn classifier(labels: &[Literal]) -> Model {
    let mut main = Builder::new("main", Opset::Ios15);
    let x = main.input("x", TensorType::fixed(DType::F32, &[1, labels.len()]));
    let p = main.op("softmax").arg("x", x).arg("axis", 1).named("p").push().unwrap();
    let ty = Type::List(Box::new(labels[0].ty.clone()), labels.len().into());
    let classes = Literal { ty, data: LiteralData::Items(labels.to_vec()) };
    let classify = main.op("classify").arg("probabilities", p).arg("classes", classes);
    let outputs = classify.outputs(&["label", "label_probs"]).push_all().unwrap();
    Model::single(main.finish(&outputs))
}

/// A state that grows by the input at each prediction; the sum comes out.
pub(crate) fn accumulator() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let state = main.input("total", Type::State(TensorType::fixed(DType::F16, &[1, 4])));
    let x = main.input("x", TensorType::fixed(DType::F16, &[1, 4]));
    let before = main.op("read_state").arg("input", state).named("before").push().unwrap();
    let after = main.op("add").arg("x", before).arg("y", x).named("after").push().unwrap();
    main.op("write_state").arg("input", state).arg("data", after).named("write").push_all().unwrap();
    let sum = main.op("identity").arg("x", after).named("sum").push().unwrap();
    Model::single(main.finish(&[sum]))
}

/// Two functions that share a weight.
pub(crate) fn two_functions() -> Model {
    let shared = weight(&[8, 8], 7);
    let bias = weight(&[8], 8);
    let function = |name: &str, length: usize| {
        let mut builder = Builder::new(name, Opset::Ios18);
        let x = builder.input("x", TensorType::fixed(DType::F16, &[length, 8]));
        let w = builder.constant("w", shared.clone());
        let b = builder.constant("b", bias.clone());
        let y = builder.op("linear").arg("x", x).arg("weight", w).arg("bias", b).named("y").push().unwrap();
        builder.finish(&[y])
    };
    Model::multi(vec![function("prefill", 4), function("decode", 1)])
}

/// Writes a model into a folder.
pub(crate) fn write(model: Model, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    package::write(&verify(model).unwrap(), &path, WriteOptions::default()).unwrap();
    path
}
