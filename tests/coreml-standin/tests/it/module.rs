//! The Core ML module gives what the CPU runtime gives, and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anemeter::mil::{Builder, Literal, LiteralData, Model, Opset, TensorType, Type};
use anemeter::package::Package;
use anemeter::runtime::{
    Availability, Hints, LoadOptions, ReshapeFrequency, Runtime, RuntimeError, Session, Specialization,
    choose, cpu,
};
use anemeter::tensor::{DType, Tensor};
use anemeter::vocabulary::{ComputeUnits, KvForm, RuntimeName};
use coreml_standin::census;
use coreml_standin::witness::{self, Asked};
use half::f16;

use crate::balance::balanced;
use crate::fixtures;
use crate::scene::{Scene, driver, greedy, halves, output};

/// Predicts with both and compares every byte of an output.
pub(crate) fn agree(
    both: &mut [Box<dyn Session>; 2],
    function: &str,
    inputs: &[(&str, &Tensor)],
    outputs: &[&str],
) {
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
    for session in both.iter_mut() {
        session.predict(function, &inputs).unwrap();
    }
    for name in outputs {
        let [found, expected] = [0, 1].map(|i| both[i].output(name).unwrap());
        assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{name}");
        assert_eq!(found.bytes(), expected.bytes(), "{name}");
    }
}

/// Doubles an integer matrix and adds to a float one.
fn typed() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let count = main.input("count", TensorType::fixed(DType::I32, &[2, 3]));
    let x = main.input("x", TensorType::fixed(DType::F32, &[2, 3]));
    let doubled = main.op("add").arg("x", count).arg("y", count).named("doubled").push().unwrap();
    let sum = main.op("add").arg("x", x).arg("y", x).named("sum").push().unwrap();
    Model::single(main.finish(&[doubled, sum]))
}

/// Small integers, as they are and as floats.
fn small_integers() -> Model {
    let mut main = Builder::new("main", Opset::Ios26);
    let x = main.input("x", TensorType::fixed(DType::I8, &[2, 3]));
    let kept = main.op("identity").arg("x", x).named("kept").push().unwrap();
    let wide = main.op("cast").arg("x", x).arg("dtype", "fp16").named("wide").push().unwrap();
    Model::single(main.finish(&[kept, wide]))
}

/// Adds two large matrices, more than is copied into arrays of the module.
fn large() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F16, &[3, 70, 500]));
    let y = main.input("y", TensorType::fixed(DType::F16, &[500]));
    let sum = main.op("add").arg("x", x).arg("y", y).named("sum").push().unwrap();
    Model::single(main.finish(&[sum]))
}

/// Two lengths of a state, each with two functions that share it.
fn ladder() -> Model {
    let function = |name: &str, state: &str, width: usize, scale: f32| {
        let mut builder = Builder::new(name, Opset::Ios18);
        let kept = builder.input(state, Type::State(TensorType::fixed(DType::F16, &[2, width])));
        let x = builder.input("x", TensorType::fixed(DType::F16, &[2, width]));
        let before = builder.op("read_state").arg("input", kept).named("before").push().unwrap();
        let scale = builder
            .constant("scale", Literal::blob(&Tensor::from_slice(&[1], &[f16::from_f32(scale)]).unwrap()));
        let scaled = builder.op("mul").arg("x", x).arg("y", scale).named("scaled").push().unwrap();
        let after = builder.op("add").arg("x", before).arg("y", scaled).named("after").push().unwrap();
        builder.op("write_state").arg("input", kept).arg("data", after).named("write").push_all().unwrap();
        let sum = builder.op("identity").arg("x", after).named("sum").push().unwrap();
        builder.finish(&[sum])
    };
    Model::multi(vec![
        function("add_4", "total_4", 4, 1.0),
        function("add_8", "total_8", 8, 1.0),
        function("take_4", "total_4", 4, -0.5),
        function("take_8", "total_8", 8, -0.5),
    ])
}

#[test]
fn core_ml_is_the_runtime_of_choice() {
    let _balance = balanced(&[]);
    let runtime = choose(None).unwrap();
    assert_eq!((runtime.name(), runtime.availability()), (RuntimeName::CoreMl, Availability::Ready));
}

/// `y = relu(x)` as Core ML's compiler writes it.
fn write_compiled(folder: &Path) {
    const TEXT: &str = "program(1.0)
{
    func main<ios16>(tensor<fp16, [1, 4]> x) {
            tensor<fp16, [1, 4]> y = relu(x = x)[name = tensor<string, []>(\"y\")];
        } -> (y);
}
";
    let feature =
        |field: u8, name: u8| [field, 15, 10, 1, name, 26, 10, 42, 8, 10, 2, 1, 4, 16, 0x90, 0x80, 4];
    let description = [feature(0x0a, b'x'), feature(0x52, b'y')].concat();
    let number = |n: usize| (n as u64).to_le_bytes();
    let header =
        [&502u32.to_le_bytes()[..], &[5], &[0; 23], &number(7), b"generic", &7u32.to_le_bytes(), &[0; 28]];
    let data = [&header.concat()[..], &number(description.len()), &description, &number(502), &number(0)];
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("model.mil"), TEXT).unwrap();
    fs::write(folder.join("coremldata.bin"), data.concat()).unwrap();
}

#[test]
fn compiled_models_are_loaded_as_they_are() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let path = scene.path("relu.mlmodelc");
    write_compiled(&path);
    let package = Package::open(&path).unwrap();
    let load = |runtime: &dyn Runtime| runtime.load(&package, &LoadOptions::default()).unwrap();
    let loaded = load(&scene.core_ml());
    assert_eq!(loaded.loading().compilation, None);
    let mut both = [loaded.session(), load(&cpu()).session()];
    agree(&mut both, "main", &[("x", &halves(&[1, 4], 1))], &["y"]);
    assert!(!scene.path("cache").exists(), "nothing is compiled, so nothing is stored");
}

/// A message in a field of another.
fn field(number: usize, content: &[u8]) -> Vec<u8> {
    let varint = |mut n: usize| {
        let mut bytes = Vec::new();
        while n >= 0x80 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    };
    [varint(number << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

#[test]
fn a_stage_of_a_packaged_pipeline_is_refused() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let package = scene.package(typed());
    let model = fs::read(package.model_path()).unwrap();
    fs::write(package.model_path(), field(202, &field(1, &model))).unwrap();
    let stage = Package::open(package.path().join("model0")).unwrap();
    let refused = scene.core_ml().load(&stage, &LoadOptions::default()).err().unwrap();
    assert!(matches!(&refused, RuntimeError::StageOfPipeline(path) if path.ends_with("model0")), "{refused}");
    cpu().load(&stage, &LoadOptions::default()).unwrap();
}

#[test]
fn functions_agree_with_the_cpu_runtime() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let mut both = scene.both(fixtures::two_functions());
    // From the second prediction on, outputs are written into arrays of the module's own.
    for seed in 0..4 {
        agree(&mut both, "prefill", &[("x", &halves(&[4, 8], seed))], &["y"]);
        agree(&mut both, "decode", &[("x", &halves(&[1, 8], seed))], &["y"]);
    }
}

#[test]
fn types_and_large_inputs_agree() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let mut both = scene.both(typed());
    for step in 0..3i32 {
        let count: Vec<i32> = (0..6).map(|i| i * 70_000 - step).collect();
        let count = Tensor::from_slice(&[2, 3], &count).unwrap();
        let x = Tensor::from_slice(&[2, 3], &[1.5f32, -2.0, 3e20, 0.0, -0.25, step as f32]).unwrap();
        agree(&mut both, "main", &[("count", &count), ("x", &x)], &["doubled", "sum"]);
    }
    let scene = Scene::new();
    let mut both = scene.both(large());
    for seed in 0..3 {
        agree(
            &mut both,
            "main",
            &[("x", &halves(&[3, 70, 500], seed)), ("y", &halves(&[500], seed))],
            &["sum"],
        );
    }
}

/// Probabilities, and the class of the largest; classes are strings or int64.
fn classified(classes: &[Literal]) -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F32, &[1, classes.len()]));
    let p = main.op("softmax").arg("x", x).arg("axis", 1).named("p").push().unwrap();
    let ty = Type::List(Box::new(classes[0].ty.clone()), classes.len().into());
    let classes = Literal { ty, data: LiteralData::Items(classes.to_vec()) };
    let classify = main.op("classify").arg("probabilities", p).arg("classes", classes);
    let given = classify.outputs(&["label", "label_probs"]).push_all().unwrap();
    Model::single(main.finish(&[p, given[0], given[1]]))
}

#[test]
fn classifiers_give_their_tensors_and_leave_labels_out() {
    let _balance = balanced(&[]);
    let texts = ["cat", "dog", "cow"].map(Literal::text);
    let numbers = [3i64, 7, 9].map(|class| Literal::immediate(&Tensor::scalar(class)));
    for classes in [&texts[..], &numbers] {
        let scene = Scene::new();
        let mut both = scene.both(classified(classes));
        for step in 0..3 {
            let x = Tensor::from_slice(&[1, 3], &[0.5f32, step as f32, 1.0]).unwrap();
            agree(&mut both, "main", &[("x", &x)], &["p"]);
            assert!(["label", "label_probs"].iter().all(|name| both[0].output(name).is_none()));
        }
    }
}

#[test]
fn int8_arrays_agree_in_both_directions() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let mut both = scene.both(small_integers());
    for step in 0..3i8 {
        let x = Tensor::from_slice(&[2, 3], &[i8::MIN, -1, 0, step, 100, i8::MAX]).unwrap();
        agree(&mut both, "main", &[("x", &x)], &["kept", "wide"]);
    }
    let view = both[0].output("kept").unwrap();
    assert_eq!(
        (view.dtype(), view.slice::<i8>().unwrap()),
        (DType::I8, &[i8::MIN, -1, 0, 2, 100, i8::MAX][..])
    );
}

#[test]
fn enumerated_shapes_agree_and_others_are_refused_before_the_call() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let mut both = scene.both(fixtures::enumerated_mlp());
    for length in [1, 4, 8, 4, 1, 8, 8] {
        agree(&mut both, "main", &[("x", &halves(&[1, length, 8], 5))], &["y"]);
    }
    let before = balance.faults.predictions();
    let error = both[0].predict("main", &[("x", halves(&[1, 5, 8], 5).view())]).unwrap_err();
    assert!(error.to_string().contains("allowed are [1, 1, 8], [1, 4, 8], [1, 8, 8]"), "{error}");
    assert_eq!(balance.faults.predictions(), before, "Core ML was not asked");
    assert!(matches!(both[0].predict("other", &[]).unwrap_err(), RuntimeError::NoFunction { .. }));
    assert!(matches!(both[0].predict("main", &[]).unwrap_err(), RuntimeError::Inputs { .. }));
}

#[test]
fn states_agree_are_shared_read_and_replaced() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let mut both = scene.both(ladder());
    for seed in 0..3 {
        agree(&mut both, "add_4", &[("x", &halves(&[2, 4], seed))], &["sum"]);
        agree(&mut both, "take_4", &[("x", &halves(&[2, 4], seed + 9))], &["sum"]);
        agree(&mut both, "add_8", &[("x", &halves(&[2, 8], seed))], &["sum"]);
    }
    assert_eq!(both[0].state_names(), both[1].state_names());
    for name in ["total_4", "total_8"] {
        let [found, expected] = [0, 1].map(|i| both[i].state(name).unwrap());
        assert_eq!((found.shape(), found.bytes()), (expected.shape(), expected.bytes()), "{name}");
    }
    let fresh = halves(&[2, 8], 77);
    for session in &mut both {
        session.set_state("total_8", &fresh).unwrap();
    }
    agree(&mut both, "take_8", &[("x", &halves(&[2, 8], 1))], &["sum"]);
    assert!(both[0].set_state("total_8", &halves(&[2, 4], 1)).is_err());
    assert!(both[0].set_state("other", &fresh).is_err());
    assert!(both[0].state("other").is_none());
}

#[test]
fn sessions_have_states_of_their_own() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let loaded = scene.load(fixtures::accumulator()).unwrap();
    let (mut first, mut second) = (loaded.clone().session(), loaded.session());
    let x = halves(&[1, 4], 3);
    assert_eq!(first.state("total").unwrap().slice::<f16>().unwrap(), [f16::ZERO; 4]);
    first.predict("main", &[("x", x.view())]).unwrap();
    first.predict("main", &[("x", x.view())]).unwrap();
    second.predict("main", &[("x", x.view())]).unwrap();
    assert_eq!(output(&*second, "sum"), x.view().slice::<f16>().unwrap());
    assert_ne!(output(&*first, "sum"), output(&*second, "sum"));
}

#[test]
fn units_and_hints_arrive_and_are_read_back() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let package = scene.package(fixtures::two_functions());
    let cases = [
        (ComputeUnits::Cpu, 0, Some(0.0)),
        (ComputeUnits::CpuGpu, 1, Some(0.0)),
        (ComputeUnits::All, 2, Some(1.0)),
        (ComputeUnits::CpuAne, 3, Some(1.0)),
    ];
    for (units, number, residency) in cases {
        let hints =
            Hints { reshape: ReshapeFrequency::Infrequent, specialization: Specialization::FastPrediction };
        let options = LoadOptions { units, hints, ..LoadOptions::default() };
        let loaded = scene.core_ml().load(&package, &options).unwrap();
        loaded.prepare(&["decode"]).unwrap();
        let expected = Asked {
            function: Some("decode".to_owned()),
            units: number,
            reshape_frequency: 1,
            specialization: 1,
        };
        assert_eq!(witness::last_load(), Some(expected));
        let loading = loaded.loading();
        assert_eq!((loading.units, loading.remarks.as_slice()), (Some(units), &[][..]));
        let placement = loaded.placement(&["decode"]).unwrap().unwrap();
        assert_eq!(placement.functions[0].by_cost, residency, "{units}");
        assert_eq!(placement.functions[0].operations, 1, "the constants do not run");
    }
}

#[test]
fn a_package_is_compiled_once() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let package = scene.package(fixtures::accumulator());
    for was_there in [false, true] {
        let loaded = scene.core_ml().load(&package, &LoadOptions::default()).unwrap();
        assert_eq!(loaded.loading().compilation.unwrap().cached, was_there);
    }
}

#[test]
fn plans_reach_into_nested_blocks() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let loaded = scene.load(crate::tiny::model()).unwrap();
    let placement = loaded.placement(&["main"]).unwrap().unwrap();
    let function = &placement.functions[0];
    assert_eq!((function.operations, function.unplanned), (3, 0), "one condition, two branches");
    let elsewhere: Vec<_> = function.not_on_ane().map(|operation| operation.kind.as_str()).collect();
    assert_eq!(elsewhere, ["cond"]);
}

#[test]
fn nothing_is_left_after_a_thousand_predictions_and_their_errors() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let sums = scene.load(fixtures::accumulator()).unwrap();
    let lines = scene_of(&scene, fixtures::enumerated_mlp());
    let (mut sums, mut lines) = (sums.session(), lines);
    let (x, inputs) = (halves(&[1, 4], 1), [1, 4, 8].map(|length| halves(&[1, length, 8], 2)));
    let mut round = |step: usize| {
        sums.predict("main", &[("x", x.view())]).unwrap();
        lines.predict("main", &[("x", inputs[step % 3].view())]).unwrap();
        if step % 50 == 7 {
            balance.faults.add(coreml_standin::fault::Fault::PredictionFails(1));
            assert!(sums.predict("main", &[("x", x.view())]).is_err());
            assert!(lines.predict("main", &[("x", inputs[step % 3].view())]).is_err());
            balance.faults.mend();
            assert!(lines.predict("main", &[("x", x.view())]).is_err(), "a wrong shape");
        }
        if step % 50 == 9 {
            let now = sums.state("total").unwrap().to_tensor();
            sums.set_state("total", &now).unwrap();
        }
    };
    (0..100).for_each(&mut round);
    let before = census::take();
    (100..1_100).for_each(&mut round);
    assert_eq!(census::take(), before, "while the sessions live, nothing is added");
}

pub(crate) fn scene_of(scene: &Scene, model: Model) -> Box<dyn Session> {
    let package = fixtures::write(model, &scene.path(""), "other.mlpackage");
    let package = Package::open(package).unwrap();
    scene.core_ml().load(&package, &LoadOptions::default()).unwrap().session()
}

#[test]
fn several_threads_may_predict() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let loaded = scene.load(fixtures::accumulator()).unwrap();
    let totals: Vec<Vec<f16>> = std::thread::scope(|scope| {
        let run = |_| {
            let mut session = loaded.clone().session();
            scope.spawn(move || {
                let x = Tensor::from_slice(&[1, 4], &[f16::from_f32(0.5); 4]).unwrap();
                (0..50).for_each(|_| session.predict("main", &[("x", x.view())]).unwrap());
                output(&*session, "sum")
            })
        };
        let threads: Vec<_> = (0..4).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(totals, vec![vec![f16::from_f32(25.0); 4]; 4]);
}

#[test]
fn tiny_bundles_give_the_same_tokens_in_both_forms() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let bundle = scene.tiny_bundle();
    for form in [KvForm::Io, KvForm::State] {
        let mut found = driver(&bundle, &scene.core_ml(), form).unwrap();
        let mut expected = driver(&bundle, &cpu(), form).unwrap();
        // Long enough to move from the length 16 to the length 32.
        let prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5];
        assert_eq!(greedy(&mut found, &prompt, 20).unwrap(), greedy(&mut expected, &prompt, 20).unwrap());
        assert_eq!(found.length(), 32);
        // Once more, with caches and states in use.
        assert_eq!(greedy(&mut found, &[7, 8], 5).unwrap(), greedy(&mut expected, &[7, 8], 5).unwrap());
    }
}

#[test]
fn a_load_in_time_is_no_time_out() {
    let _balance = balanced(&[]);
    let scene = Scene::new();
    let package = scene.package(fixtures::accumulator());
    let options = LoadOptions { load_limit: Duration::from_secs(600), ..LoadOptions::default() };
    let loaded = scene.core_ml().load(&package, &options).unwrap();
    loaded.prepare(&["main"]).unwrap();
    assert_eq!(loaded.loading().functions.len(), 1);
}
