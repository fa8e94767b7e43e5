//! `anemeter export --format coreai`: the functions of a Core ML export as Core AI assets.

use std::fs;
use std::path::Path;

use anemeter::bundle::{Bundle, Manifest};
use anemeter::coreai::asset::Asset;
use anemeter::coreai::{self, Graph, Scalar, Type};
use serde_json::Value;

use crate::support::architectures;
use crate::support::command::{anemeter, arg};
use crate::support::scene::Scene;
use crate::support::{encoders, hybrids};

fn element(graph: &Graph, input: &str) -> Scalar {
    let port = graph.inputs.iter().find(|port| port.name == input).unwrap();
    let ty = match &port.ty {
        Type::Handle(content) => content,
        ty => ty,
    };
    match ty {
        Type::Tensor { element, .. } => *element,
        other => panic!("{input} is a {other:?}"),
    }
}

#[test]
fn every_length_is_a_function_of_the_asset() {
    let scene = Scene::new();
    let options =
        ["--shapes", "16,32", "--kv", "io,state", "--query", "4", "--format", "coreml,coreai", "--json"];
    let manifest = Manifest::parse(scene.export("out", &options).good()).unwrap();
    let bundle = Bundle::open(scene.path("out")).unwrap();
    let chunk = &manifest.chunks[0];
    assert_eq!(chunk.file.name, "model.mlpackage");
    let described = chunk.asset.as_ref().unwrap();
    assert_eq!(described.file.name, "model.aimodel");
    assert_eq!(chunk.asset_function("prefill", 1), Some("prefill_32"));
    assert_eq!(chunk.asset_function("prefill", 2), None);

    let asset = Asset::open(bundle.path("model.aimodel")).unwrap();
    asset.check_hash().unwrap();
    let names: Vec<&str> = asset.program().graphs.iter().map(|graph| graph.name.as_str()).collect();
    let expected: Vec<&str> = described.functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, expected);
    for name in ["prefill_16", "prefill_32", "decode_16", "decode_32", "prefill_c16_q4", "decode_c32"] {
        assert!(names.contains(&name), "{names:?} has no {name}");
    }
    let decode = asset.program().graphs.iter().find(|graph| graph.name == "decode_c32").unwrap();
    assert!(decode.inputs.iter().any(|port| matches!(port.ty, Type::Handle(_))), "states are handles");
    assert_eq!(element(decode, "mask"), Scalar::F16);
    // Weights are shared by functions: the asset is hardly larger than the package.
    assert!(described.file.bytes < chunk.file.bytes + chunk.file.bytes / 2 + (1 << 20));
}

#[test]
fn an_asset_can_be_alone_and_is_the_same_every_time() {
    let scene = Scene::new();
    let manifests = ["a", "b"].map(|output| {
        let options = ["--shapes", "16", "--format", "coreai", "--json"];
        let mut manifest: Value = serde_json::from_str(scene.export(output, &options).good()).unwrap();
        manifest.as_object_mut().unwrap().remove("profile");
        manifest
    });
    assert_eq!(manifests[0], manifests[1]);
    for file in ["main.mlirb", "main.hash", "metadata.json"] {
        let read = |output: &str| fs::read(scene.path(output).join("model.aimodel").join(file)).unwrap();
        assert!(read("a") == read("b"), "{file}");
    }
    assert!(!scene.path("a").join("model.mlpackage").exists());
    // Its files are known, so that it can be replaced.
    scene.export("a", &["--shapes", "16", "--format", "coreai", "--overwrite"]).good();
}

#[test]
fn activations_can_be_fp32() {
    let scene = Scene::new();
    let options =
        ["--shapes", "16", "--format", "coreai", "--activations", "fp32", "--precision", "int8", "--json"];
    let manifest = Manifest::parse(scene.export("out", &options).good()).unwrap();
    let asset = Asset::open(scene.path("out").join("model.aimodel")).unwrap();
    for graph in asset.program().graphs.iter().filter(|graph| graph.name.starts_with("decode")) {
        assert_eq!(element(graph, "k_cache"), Scalar::F32);
    }
    let ports = manifest.chunks[0].functions.iter().flat_map(|function| &function.inputs);
    let ports: Vec<_> = ports.collect();
    assert!(ports.iter().all(|port| port.dtype != "fp16"), "{ports:?}");
}

#[test]
fn sparse_weights_stay_sparse() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/src/quickstart/model");
    for (precision, operation) in [
        ("sparse:0.5", "primitive.sparse_with_bitmask_to_dense_v1"),
        ("sparse:0.5+int8", "primitive.blockwise_shift_scale_v2"),
        ("sparse:0.5+lut4", "primitive.lut_to_sparse_with_bitmask_v1"),
    ] {
        let scene = Scene::new();
        let out = scene.path("out");
        let options = ["--shapes", "16", "--format", "coreai", "--precision", precision];
        anemeter(&[&["export", model, "-o", arg(&out)], &options[..]].concat()).good();
        let asset = Asset::open(out.join("model.aimodel")).unwrap();
        let graphs = &asset.program().graphs;
        let names: Vec<&str> = graphs.iter().flat_map(|graph| &graph.body.ops).map(|op| &*op.name).collect();
        assert!(names.contains(&"primitive.build_sparse_with_bitmask_v1"), "{precision}");
        assert!(names.contains(&operation), "{precision}: no {operation}");
        let copy = scene.path("copy.aimodel");
        coreai::asset::write(asset.program(), asset.metadata(), &copy).unwrap();
        assert_eq!(Asset::open(copy).unwrap().recorded_sha256(), asset.recorded_sha256());
    }
}

/// Every chunk of an export as an asset, written and read again, and consistent.
fn assert_converts(name: &str, checkpoint: &Path, bundle: &Path, options: &[&str]) {
    let export = ["export", arg(checkpoint), "-o", arg(bundle), "--format", "coreai", "--chunks", "2"];
    let exported = anemeter(&[&export[..], options].concat());
    assert_eq!(exported.code, 0, "{name}: {}", exported.stderr);
    let manifest = Bundle::open(bundle).unwrap().manifest().clone();
    assert!(manifest.chunks.len() >= 2, "{name}");
    for chunk in &manifest.chunks {
        let described = chunk.asset.as_ref().unwrap();
        let asset = Asset::open(bundle.join(&described.file.name)).unwrap();
        asset.check_hash().unwrap();
        coreai::verify(asset.program()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(asset.program().graphs.len(), described.functions.len(), "{name}");
    }
}

#[test]
fn every_architecture_of_decoders_converts_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let any = architectures::all().into_iter().map(|tiny| (tiny, "io,state,none"));
    for (tiny, forms) in any.chain(hybrids::all().into_iter().map(|tiny| (tiny, "io,none"))) {
        let checkpoint = tiny.write(folder.path());
        let bundle = folder.path().join(format!("{}-assets", tiny.name));
        let options = ["--kv", forms, "--shapes", "16,24", "--query", "4"];
        assert_converts(tiny.name, &checkpoint, &bundle, &options);
    }
}

#[test]
fn every_architecture_of_encoders_converts() {
    let folder = tempfile::tempdir().unwrap();
    for encoder in encoders::all() {
        let checkpoint = encoder.write(folder.path());
        let bundle = folder.path().join(format!("{}-assets", encoder.name()));
        assert_converts(encoder.name(), &checkpoint, &bundle, &["--shapes", "12,24"]);
    }
}
