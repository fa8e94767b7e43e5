//! Each fault that Core ML is known to have ends in one clear error or in a fallback that is recorded, and leaves
//! nothing behind: every test here checks the census at its end.

use std::sync::Arc;
use std::time::Duration;

use anemeter::advice::Advice;
use anemeter::generate::GenerateError;
use anemeter::hardware::{Thermal, system_state};
use anemeter::runtime::{LoadOptions, LoadedModel, Runtime, RuntimeError, Session};
use anemeter::vocabulary::KvForm;
use coreml_standin::census;
use coreml_standin::fault::{self, Fault};
use coreml_standin::witness;
use half::f16;

use crate::balance::balanced;
use crate::fixtures;
use crate::scene::{Scene, driver, greedy, halves, output};

/// The error of an operation, as text with its help.
fn said<T>(result: Result<T, RuntimeError>) -> String {
    let error = result.err().expect("it fails");
    let help = error.remedy().map(|remedy| format!(" / {remedy}")).unwrap_or_default();
    format!("{error}{help}")
}

fn loaded(scene: &Scene) -> Arc<dyn LoadedModel> {
    scene.load(fixtures::two_functions()).unwrap()
}

fn predict(session: &mut dyn Session, seed: u32) -> Result<(), RuntimeError> {
    session.predict("decode", &[("x", halves(&[1, 8], seed).view())])
}

#[test]
fn a_package_that_does_not_compile() {
    for (fault, reason) in [
        (Fault::CompileFails, "unable to parse ML Program"),
        (Fault::CompileGivesNothing, "it gave neither a result nor an error"),
    ] {
        let balance = balanced(&[fault]);
        let scene = Scene::new();
        let text = said(scene.load(fixtures::two_functions()));
        assert!(text.starts_with("Core ML cannot compile ") && text.contains(reason), "{text}");
        assert!(text.contains("model.mlpackage"), "{text}");
        // Nothing half made is kept.
        balance.faults.mend();
        let package = anemeter::package::Package::open(scene.path("model.mlpackage")).unwrap();
        let loaded = scene.core_ml().load(&package, &LoadOptions::default()).unwrap();
        assert!(!loaded.loading().compilation.unwrap().cached);
    }
}

#[test]
fn a_function_that_does_not_load() {
    let _balance = balanced(&[Fault::LoadFails]);
    let scene = Scene::new();
    let text = said(loaded(&scene).prepare(&["decode"]));
    assert!(text.starts_with("Core ML cannot load the function `decode`: "), "{text}");
    assert!(text.contains("(com.apple.appleneuralengine.compiler -14)"), "the innermost reason: {text}");
    assert!(text.contains("in: Failed to build the model execution plan"), "the outer one: {text}");
    assert!(text.contains("form `io`"), "what to do: {text}");
}

#[test]
fn a_load_without_result_and_without_error() {
    let _balance = balanced(&[Fault::LoadGivesNothing]);
    let scene = Scene::new();
    let text = said(loaded(&scene).prepare(&["decode"]));
    assert_eq!(text, "Core ML cannot load the function `decode`: it gave neither a result nor an error");
}

#[test]
fn a_load_that_hangs() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let package = scene.package(fixtures::two_functions());
    let options = LoadOptions { load_limit: Duration::from_millis(100), ..LoadOptions::default() };
    // Compiled before, under no limit that matters.
    scene.core_ml().load(&package, &LoadOptions::default()).unwrap();
    let loaded = scene.core_ml().load(&package, &options).unwrap();
    balance.faults.add(Fault::LoadHangs);
    let text = said(loaded.prepare(&["decode"]));
    assert!(text.starts_with("Core ML did not load the function `decode` within 0 s: "), "{text}");
    assert!(text.contains("Neural Engine") && text.contains("run it again"), "{text}");
    let text = said(loaded.placement(&["decode"]));
    assert!(text.starts_with("Core ML did not plan the function `decode` within "), "{text}");
    // What comes too late is let go of: the balance waits for it.
    drop(loaded);
    balance.faults.mend();
    balance.settle();
}

#[test]
fn a_prediction_that_fails_at_step_100() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let mut session = loaded(&scene).session();
    let mut sums = scene_of_sums(&scene);
    balance.faults.add(Fault::PredictionFails(100));
    for step in 1..100 {
        predict(&mut *session, step).unwrap();
    }
    let text = said(predict(&mut *session, 100));
    assert!(text.starts_with("Core ML cannot run the function `decode`: "), "{text}");
    assert!(text.contains("0x1d") && text.contains("form `io`"), "{text}");
    assert!(session.output("y").is_none(), "no output of a prediction that failed");
    let text = said(sums.predict("main", &[("x", halves(&[1, 4], 1).view())]));
    assert!(text.starts_with("Core ML cannot run the function `main`: "), "{text}");
    balance.faults.mend();
    predict(&mut *session, 1).unwrap();
    assert!(session.output("y").is_some());
}

fn scene_of_sums(scene: &Scene) -> Box<dyn Session> {
    let package = fixtures::write(fixtures::accumulator(), &scene.path(""), "sums.mlpackage");
    let package = anemeter::package::Package::open(package).unwrap();
    scene.core_ml().load(&package, &LoadOptions::default()).unwrap().session()
}

#[test]
fn a_prediction_without_result_and_without_error() {
    let scene = Scene::new();
    let package = scene.package(fixtures::two_functions());
    let fail = || {
        let loaded = scene.core_ml().load(&package, &LoadOptions::default()).unwrap();
        said(predict(&mut *loaded.session(), 1))
    };
    {
        // Of the first such call objc2 keeps an error for ever.
        let _faults = fault::inject(&[Fault::PredictionGivesNothing]);
        fail();
        while census::take().blocks > 0 {
            std::thread::yield_now();
        }
    }
    let _balance = balanced(&[Fault::PredictionGivesNothing]);
    let text = fail();
    assert_eq!(text, "Core ML cannot run the function `decode`: it gave neither a result nor an error");
}

#[test]
fn an_output_that_is_missing() {
    let _balance = balanced(&[Fault::OutputMissing]);
    let scene = Scene::new();
    let text = said(predict(&mut *loaded(&scene).session(), 1));
    assert_eq!(text, "the function `decode` gave no output `y`");
}

#[test]
fn an_output_of_another_type() {
    let _balance = balanced(&[Fault::OutputOfOtherType]);
    let scene = Scene::new();
    let text = said(predict(&mut *loaded(&scene).session(), 1));
    assert_eq!(text, "the function `decode` gave an output `y` that is fp32, expected fp16");
}

#[test]
fn padding_everywhere_and_backings_in_vain() {
    let _balance = balanced(&[Fault::PaddedEverywhere, Fault::BackingsIgnored]);
    let scene = Scene::new();
    let [mut found, mut expected] = scene.both(fixtures::enumerated_mlp());
    for length in [4, 8, 4] {
        let x = halves(&[1, length, 8], 6);
        found.predict("main", &[("x", x.view())]).unwrap();
        expected.predict("main", &[("x", x.view())]).unwrap();
        assert_eq!(output(&*found, "y"), output(&*expected, "y"));
    }
}

#[test]
fn inputs_that_are_kept_are_copied_from_then_on() {
    use anemeter::mil::{Builder, Model, Opset, TensorType};
    let _balance = balanced(&[Fault::InputsKept]);
    let scene = Scene::new();
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(anemeter::tensor::DType::F16, &[200, 200]));
    let y = main.op("add").arg("x", x).arg("y", x).named("y").push().unwrap();
    let loaded = scene.load(Model::single(main.finish(&[y]))).unwrap();
    let mut session = loaded.clone().session();
    for seed in 1..4 {
        let x = halves(&[200, 200], seed);
        session.predict("main", &[("x", x.view())]).unwrap();
        let twice = x.view().slice::<f16>().unwrap().iter().map(|&x| x + x).collect::<Vec<_>>();
        assert_eq!(output(&*session, "y"), twice);
    }
    let remarks = loaded.loading().remarks;
    assert_eq!(remarks, ["Core ML keeps inputs after a prediction, so they are copied"]);
}

#[test]
fn a_state_that_cannot_be_made() {
    let _balance = balanced(&[Fault::NoState]);
    let scene = Scene::new();
    let text = said(scene_of_sums(&scene).predict("main", &[("x", halves(&[1, 4], 1).view())]));
    assert!(text.starts_with("Core ML cannot make the states of the function `main` / "), "{text}");
    assert!(text.contains("form `io`"), "{text}");
}

#[test]
fn a_state_that_cannot_be_read() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let mut session = scene_of_sums(&scene);
    session.predict("main", &[("x", halves(&[1, 4], 1).view())]).unwrap();
    balance.faults.add(Fault::StateNotReadable);
    assert!(session.state("total").is_none());
    let text = said(session.set_state("total", &halves(&[1, 4], 2)));
    assert_eq!(text, "state `total`: Core ML does not give access to it");
}

#[test]
fn a_function_name_that_is_refused() {
    let _balance = balanced(&[Fault::FunctionRefused]);
    let scene = Scene::new();
    // The only function of a package goes without its name, and that is recorded.
    let only = scene.load(fixtures::enumerated_mlp()).unwrap();
    only.prepare(&["main"]).unwrap();
    assert_eq!(witness::last_load().unwrap().function, None);
    assert_eq!(
        only.loading().remarks,
        ["Core ML refused the name of the only function `main` and took none"]
    );
    // One of several does not.
    let text = said(loaded(&Scene::new()).prepare(&["decode"]));
    assert!(
        text.starts_with("Core ML cannot load the function `decode`: functionName must be nil"),
        "{text}"
    );
}

#[test]
fn a_plan_without_costs_and_no_plan_at_all() {
    let balance = balanced(&[Fault::NoCosts]);
    let scene = Scene::new();
    let loaded = loaded(&scene);
    let placement = loaded.placement(&["decode"]).unwrap().unwrap();
    assert_eq!((placement.functions[0].by_cost, placement.functions[0].by_count), (None, Some(1.0)));
    balance.faults.add(Fault::NoPlan);
    let text = said(loaded.placement(&["decode"]));
    assert!(
        text.starts_with("Core ML cannot plan the function `decode`: Failed to make a compute plan."),
        "{text}"
    );
}

#[test]
fn a_machine_that_becomes_hot() {
    let balance = balanced(&[Fault::Hot(2)]);
    let scene = Scene::new();
    assert_eq!(system_state().thermal, Some(Thermal::Nominal));
    predict(&mut *loaded(&scene).session(), 1).unwrap();
    assert_eq!(
        (system_state().thermal, system_state().low_power_mode),
        (Some(Thermal::Serious), Some(false))
    );
    balance.faults.set_conditions(3, true);
    assert_eq!(
        (system_state().thermal, system_state().low_power_mode),
        (Some(Thermal::Critical), Some(true))
    );
}

#[test]
fn a_bundle_reports_the_chunk_and_the_function() {
    let balance = balanced(&[]);
    let scene = Scene::new();
    let bundle = scene.tiny_bundle();
    let mut driver = driver(&bundle, &scene.core_ml(), KvForm::Io).unwrap();
    greedy(&mut driver, &[1, 2, 3], 2).unwrap();
    balance.faults.add(Fault::PredictionFails(1));
    let error = driver.step(&[1]).unwrap_err();
    assert!(matches!(error, GenerateError::Runtime { .. }), "{error}");
    assert!(error.to_string().contains("Core ML cannot run the function"), "{error}");
}
