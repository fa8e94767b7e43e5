//! Cases of packages that others made, hostile ones among them.

use std::path::Path;

use super::*;
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::package::{WriteOptions, write};
use anemeter_mil::verify::verify;
use anemeter_mil::{ArrayType, Builder, Dim, Feature, Function, Literal, Model, Opset, TensorType, ValueId};

fn function(name: &str, build: impl FnOnce(&mut Builder) -> ValueId) -> Function {
    let mut builder = Builder::new(name, Opset::Ios18);
    let y = build(&mut builder);
    builder.finish(&[y])
}

/// `relu` of an input with one open dimension.
fn open_relu(name: &str) -> Function {
    function(name, |b| {
        let x = b.input("x", TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown]));
        b.op("relu").arg("x", x).named("y").push().unwrap()
    })
}

fn relu(name: &str, shape: &[usize]) -> Function {
    function(name, |b| {
        let x = b.input("x", TensorType::fixed(DType::F16, shape));
        b.op("relu").arg("x", x).named("y").push().unwrap()
    })
}

fn ranged(low: u64, high: Option<u64>, default: u64) -> Model {
    let mut model = Model::single(open_relu("main"));
    let feature = &mut model.interface_mut("main").unwrap().inputs[0];
    let FeatureType::Array(array) = &mut feature.ty else { panic!("it is an array") };
    *array = ArrayType {
        dtype: DType::F16,
        shape: if default == 0 { Vec::new() } else { vec![1, default] },
        flexibility: Flexibility::Ranges(vec![(1, Some(1)), (low, high)]),
        default: None,
    };
    model
}

fn bundle(folder: &Path, models: Vec<(&str, Model)>) -> Bundle {
    for (name, model) in models {
        write(&verify(model).unwrap(), folder.join(name), WriteOptions::default()).unwrap();
    }
    Bundle::open_any(folder).unwrap()
}

fn planned(model: Model, config: &PredictConfig) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), vec![("m.mlpackage", model)]);
    let (wanted, _) = PredictUse::plan(config, &bundle, RuntimeName::Cpu, 1)
        .map_err(|error| format!("{error} / {}", error.remedy))?;
    Ok(wanted.cases().into_iter().map(|case| case.name).collect())
}

fn shaped(input: &str, shapes: &[&str]) -> PredictConfig {
    let shapes = shapes.iter().map(|text| text.parse().unwrap()).collect();
    PredictConfig { shapes: [(input.to_owned(), shapes)].into(), ..PredictConfig::default() }
}

#[test]
fn every_enumerated_shape_is_a_case_and_a_range_is_its_default() {
    let mut model = Model::single(open_relu("main"));
    model.interface_mut("main").unwrap().enumerate("x", &[vec![1, 8], vec![1, 16]]);
    let usual = PredictConfig::default();
    assert_eq!(planned(model, &usual).unwrap(), ["main 1x8", "main 1x16"]);
    assert_eq!(planned(ranged(1, Some(64), 8), &usual).unwrap(), ["main 1x8"]);
    let asked = planned(ranged(1, Some(64), 8), &shaped("x", &["1x3", "1x64"]));
    assert_eq!(asked.unwrap(), ["main 1x3", "main 1x64"]);
}

#[test]
fn shapes_and_names_that_do_not_fit_are_named() {
    let refused = |config: &PredictConfig| planned(ranged(1, Some(64), 8), config).unwrap_err();
    insta::assert_snapshot!(refused(&shaped("x", &["1x65"])), @"no function takes the shape 1x65 for `x` / look up the functions of the package");
    insta::assert_snapshot!(refused(&shaped("y", &["1x8"])), @"there is a shape for `y`, which is not an input; is `x` meant? / look up the functions of the package");
    let functions = Some(vec!["mian".to_owned()]);
    insta::assert_snapshot!(refused(&PredictConfig { functions, ..PredictConfig::default() }), @"the packages have no function `mian`; is `main` meant? / look up the functions of the package");
    let ranges = [("ids".to_owned(), "0..9".parse().unwrap())].into();
    insta::assert_snapshot!(refused(&PredictConfig { ranges, ..PredictConfig::default() }), @"there is a range for `ids`, which is not an input / look up the functions of the package");
}

#[test]
fn huge_ranges_and_empty_dimensions_have_a_clear_answer() {
    let huge = planned(ranged(1 << 40, None, 0), &PredictConfig::default()).unwrap_err();
    assert!(huge.contains("too large to be made up") && huge.contains("give a shape"), "{huge}");
    let empty = planned(Model::single(relu("main", &[1, 0, 4])), &PredictConfig::default()).unwrap_err();
    assert!(empty.contains("input `x` of `main` has the shape [1, 0, 4]"), "{empty}");
}

#[test]
fn core_ml_is_given_no_images() {
    let mut model = Model::single(function("main", |b| {
        let image = b.input("image", TensorType::fixed(DType::F32, &[1, 3, 8, 8]));
        b.op("relu").arg("x", image).named("y").push().unwrap()
    }));
    let color = anemeter_mil::ColorSpace::Rgb;
    let image = anemeter_mil::ImageType { width: 8, height: 8, color, sizes: ImageSizes::Fixed };
    model.interface_mut("main").unwrap().inputs[0].ty = FeatureType::Image(image);
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), vec![("m.mlpackage", model)]);
    let plan = |runtime| PredictUse::plan(&PredictConfig::default(), &bundle, runtime, 1);
    assert!(plan(RuntimeName::Cpu).is_ok());
    insta::assert_snapshot!(
        plan(RuntimeName::CoreMl).unwrap_err(),
        @"m.mlpackage: the input `image` of `main` is an image, and the coreml runtime takes tensors only"
    );
}

#[test]
fn inputs_of_all_cases_together_have_a_limit() {
    let refused = |model: Model, config: &PredictConfig| planned(model, config).unwrap_err();
    insta::assert_snapshot!(
        refused(ranged(1, Some(1 << 29), 1 << 29), &PredictConfig::default()),
        @"the inputs of the cases up to main 1x536870912 take 1.0 GiB, which is too large to be made up: at most 512 MiB / give a shape that can be made up, or a file with inputs"
    );
    let ranged = || ranged(1, Some(1 << 40), 8);
    assert!(refused(ranged(), &shaped("x", &["1x8", "1x1099511627776"])).contains("main 1x1099511627776"));
    let sizes: Vec<String> = (0..5).map(|n| format!("1x{}", (1u64 << 26) + n)).collect();
    let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
    let together = refused(ranged(), &shaped("x", &sizes));
    assert!(together.contains("up to main 1x67108867 take 0.5 GiB"), "{together}");
}

#[test]
fn the_cases_of_a_report_are_those_that_are_measured_again() {
    let mut pair = Model::single(function("main", |b| {
        let open = |b: &mut Builder, name: &str| {
            b.input(name, TensorType::new(DType::F16, vec![1usize.into(), Dim::Unknown]))
        };
        let (x, y) = (open(b, "x"), open(b, "y"));
        b.op("concat")
            .arg("values", x)
            .arg("values", y)
            .arg("axis", 1)
            .arg("interleave", false)
            .named("z")
            .push()
            .unwrap()
    }));
    let interface = pair.interface_mut("main").unwrap();
    interface.enumerate("x", &[vec![1, 8], vec![1, 16], vec![1, 16]]);
    interface.enumerate("y", &[vec![1, 4], vec![1, 4], vec![1, 2]]);
    let defaults = Model::multi(vec![relu("a", &[1, 4]), relu("b", &[1, 8])]);
    for model in [pair, defaults] {
        let folder = tempfile::tempdir().unwrap();
        let bundle = bundle(folder.path(), vec![("m.mlpackage", model)]);
        let plan = |config| PredictUse::plan(&config, &bundle, RuntimeName::Cpu, 1).unwrap().0.cases();
        let cases = plan(PredictConfig::default());
        let workload = anemeter_measure::report::Workload {
            cases: cases.clone(),
            ..anemeter_measure::report::testing::predicted(1, 1.0).workload
        };
        assert_eq!(plan(PredictConfig::of_workload(&workload, &PredictConfig::default())), cases);
    }
}

#[test]
fn forty_functions_are_forty_cases_and_too_many_are_refused() {
    let functions = |count: usize| (0..count).map(|n| relu(&format!("f{n:03}"), &[1, 4])).collect();
    assert_eq!(planned(Model::multi(functions(40)), &PredictConfig::default()).unwrap().len(), 40);
    let many = planned(Model::multi(functions(300)), &PredictConfig::default()).unwrap_err();
    insta::assert_snapshot!(many, @"there are 300 functions and shapes, a benchmark takes 256 / choose the functions to predict");
}

#[test]
fn a_function_without_inputs_is_a_case() {
    let constant = function("main", |b| {
        let c = b.constant("c", Literal::blob(&Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap()));
        b.op("identity").arg("x", c).named("y").push().unwrap()
    });
    assert_eq!(planned(Model::single(constant), &PredictConfig::default()).unwrap(), ["main"]);
}

#[test]
fn packages_have_their_names_in_cases_if_there_are_several() {
    let folder = tempfile::tempdir().unwrap();
    let models = vec![
        ("a.mlpackage", Model::single(relu("main", &[1, 4]))),
        ("b.mlpackage", Model::single(relu("main", &[1, 8]))),
    ];
    let bundle = bundle(folder.path(), models);
    let (wanted, source) = PredictUse::plan(&PredictConfig::default(), &bundle, RuntimeName::Cpu, 9).unwrap();
    let cases: Vec<_> = wanted.cases.iter().map(|of| (of.package, of.case.name.as_str())).collect();
    assert_eq!(cases, [(0, "a main 1x4"), (1, "b main 1x8")]);
    assert_eq!(source, InputSource::MadeUp { seed: 9, ranges: Vec::new() });
}

#[test]
fn inputs_that_cannot_be_made_up_are_told() {
    let feature =
        Feature { name: "t".to_owned(), description: String::new(), ty: FeatureType::Text, optional: false };
    let interface = Interface { inputs: vec![feature], function: "main".to_owned(), ..Interface::default() };
    let fixed = at_shapes(&interface, &[]);
    let error = anemeter_runtime::synthetic_inputs(&fixed).unwrap_err().to_string();
    assert!(error.contains("input `t` of `main`"), "{error}");
}

#[test]
fn a_workload_is_read_back_from_what_a_report_states() {
    let mut workload = anemeter_measure::report::testing::predicted(1, 1.0).workload;
    workload.cases[1].shapes[0].shape = vec![1, 3, 16, 16];
    workload.inputs = Some(InputSource::MadeUp {
        seed: 7,
        ranges: vec![InputRange { input: "ids".to_owned(), low: 0, end: 9 }],
    });
    let made = PredictConfig::of_workload(&workload, &PredictConfig::default());
    assert_eq!((made.predictions_per_case, made.functions.clone()), (30, Some(vec!["main".to_owned()])));
    let package = &workload.cases[0].package;
    let shapes = made.reported_shapes(package, "main").into_iter().map(|(shapes, _)| shapes[0].shape.clone());
    assert_eq!(shapes.collect::<Vec<_>>(), [[1, 3, 8, 8], [1, 3, 16, 16]]);
    assert_eq!(made.ranges["ids"].to_string(), "0..9");
}
