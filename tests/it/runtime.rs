//! The CPU runtime through its library interface.

use std::sync::Arc;

use anemeter::mil::{Builder, Model, Opset, TensorType};
use anemeter::runtime::{self, LoadOptions, LoadedModel, RuntimeError, Session};
use anemeter::tensor::{DType, Tensor};
use half::f16;

use crate::support::fixtures;

fn load(model: Model) -> Arc<dyn LoadedModel> {
    let options = LoadOptions { threads: Some(1), ..LoadOptions::default() };
    runtime::cpu().load_model(model, &options).unwrap()
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::from_slice(shape, &vec![f16::ONE; shape.iter().product()]).unwrap()
}

#[test]
fn predictions_allocate_nothing_after_the_first_with_a_shape() {
    let mut mlp = load(fixtures::enumerated_mlp()).session();
    let mut total = load(fixtures::accumulator()).session();
    let (short, long, step) = (ones(&[1, 1, 8]), ones(&[1, 8, 8]), ones(&[1, 4]));
    let mut predict = || {
        mlp.predict("main", &[("x", short.view())]).unwrap();
        mlp.predict("main", &[("x", long.view())]).unwrap();
        total.predict("main", &[("x", step.view())]).unwrap();
    };
    predict();
    let counted = allocation_counter::measure(|| (0..10).for_each(|_| predict()));
    assert_eq!(counted.count_total, 0);
}

/// A product of many columns, and the same of one.
fn wide_product() -> Model {
    let weight = Tensor::from_slice(&[256, 256], &vec![f16::from_f32(1.0 / 256.0); 256 * 256]).unwrap();
    let functions = [("prompt", 128), ("token", 1)].map(|(name, columns)| {
        let mut f = Builder::new(name, Opset::Ios18);
        let x = f.input("x", TensorType::fixed(DType::F16, &[256, columns]));
        let y = f.op("matmul").arg("x", &weight).arg("y", x).named("y").push().unwrap();
        f.finish(&[y])
    });
    Model::multi(functions.into())
}

#[test]
fn what_a_prompt_needs_is_given_back_when_tokens_follow() {
    let (prompt, token) = (ones(&[256, 128]), ones(&[256, 1]));
    let mut session = load(wide_product()).session();
    let mut predict = |function: &str, x: &Tensor| {
        let counted = allocation_counter::measure(|| session.predict(function, &[("x", x.view())]).unwrap());
        (counted.bytes_current, session.output("y").unwrap().slice::<f16>().unwrap()[0])
    };
    predict("token", &token);
    let (kept, sum) = predict("prompt", &prompt);
    assert_eq!(sum, f16::ONE);
    assert!(kept > 1 << 16, "{kept}");
    let (kept, sum) = predict("token", &token);
    assert_eq!(sum, f16::ONE);
    assert!(kept < -(1 << 16), "{kept}");
    assert_eq!(predict("token", &token), (0, f16::ONE));
}

#[test]
fn two_thousand_predictions_with_states_do_not_grow_memory() {
    let mut session = load(fixtures::accumulator()).session();
    let x = Tensor::from_slice(&[1, 4], &[f16::from_f32(0.25); 4]).unwrap();
    session.predict("main", &[("x", x.view())]).unwrap();
    let counted = allocation_counter::measure(|| {
        for _ in 0..2000 {
            session.predict("main", &[("x", x.view())]).unwrap();
        }
    });
    assert_eq!(counted.bytes_current, 0);
    let total = session.state("total").unwrap();
    assert_eq!(total.slice::<f16>().unwrap()[0], f16::from_f32(500.25));
}

#[test]
fn sessions_have_states_of_their_own() {
    let loaded = load(fixtures::accumulator());
    let (mut first, mut second) = (loaded.clone().session(), loaded.session());
    let x = ones(&[1, 4]);
    first.predict("main", &[("x", x.view())]).unwrap();
    first.predict("main", &[("x", x.view())]).unwrap();
    second.predict("main", &[("x", x.view())]).unwrap();
    let sum = |session: &dyn Session| session.output("sum").unwrap().slice::<f16>().unwrap()[0].to_f32();
    assert_eq!((sum(first.as_ref()), sum(second.as_ref())), (2.0, 1.0));
    second.set_state("total", &Tensor::from_slice(&[1, 4], &[f16::from_f32(7.0); 4]).unwrap()).unwrap();
    second.predict("main", &[("x", x.view())]).unwrap();
    assert_eq!(sum(second.as_ref()), 8.0);
    let error = second.set_state("total", &ones(&[4])).unwrap_err();
    assert_eq!(error.to_string(), "state `total`: is fp16 [4], expected fp16 [1, 4]");
}

#[test]
fn an_operation_that_does_not_exist_is_refused_at_load() {
    let mut model = fixtures::enumerated_mlp();
    model.program.functions[0].body.operations.iter_mut().filter(|op| op.kind == "silu").for_each(|op| {
        "silver".clone_into(&mut op.kind);
    });
    let Err(error) = runtime::cpu().load_model(model, &LoadOptions::default()) else { panic!("was loaded") };
    assert_eq!(error.to_string(), "function `main`, `a` = silver: unknown operation silver");
}

#[test]
fn an_operation_newer_than_the_function_is_refused_at_load() {
    let mut main = Builder::new("main", Opset::Ios18);
    let q = main.input("q", TensorType::fixed(DType::F16, &[1, 1, 2, 4]));
    let op = main.op("scaled_dot_product_attention");
    let y = op.arg("query", q).arg("key", q).arg("value", q).named("y").push().unwrap();
    let mut model = Model::single(main.finish(&[y]));
    model.program.functions[0].opset = Opset::Ios17;
    let Err(RuntimeError::Program(findings)) = runtime::cpu().load_model(model, &LoadOptions::default())
    else {
        panic!("was loaded")
    };
    assert_eq!(
        findings[0].message,
        "operation scaled_dot_product_attention exists since ios18, the function is ios17"
    );
}

#[test]
fn functions_of_one_package_share_a_session() {
    let mut session = load(fixtures::two_functions()).session();
    session.predict("decode", &[("x", ones(&[1, 8]).view())]).unwrap();
    let one: Vec<f16> = session.output("y").unwrap().slice().unwrap().to_vec();
    session.predict("prefill", &[("x", ones(&[4, 8]).view())]).unwrap();
    let four: &[f16] = session.output("y").unwrap().slice().unwrap();
    assert_eq!(&four[..8], &one[..]);
    assert_eq!(&four[24..], &one[..]);
}

#[test]
fn a_list_longer_than_memory_is_refused_before_it_is_made() {
    let mut main = Builder::new("main", Opset::Ios15);
    let length = main.input("length", TensorType::fixed(DType::I32, &[]));
    let list = main.op("make_list").arg("init_length", length).arg("elem_shape", 1024).push().unwrap();
    let counted = main.op("list_length").arg("ls", list).push().unwrap();
    let options = LoadOptions { threads: Some(1), memory: Some(1 << 20), ..LoadOptions::default() };
    let model = Model::single(main.finish(&[counted]));
    let mut session = runtime::cpu().load_model(model, &options).unwrap().session();
    let mut predict = |length: i32| {
        let length = Tensor::scalar(length);
        session.predict("main", &[("length", length.view())]).map(|_| ())
    };
    predict(16).unwrap();
    let error = predict(i32::MAX).unwrap_err().to_string();
    assert!(error.contains("does not fit into the memory limit"), "{error}");
}
