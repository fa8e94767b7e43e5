//! Seeded faults: each is found, and the layer that it is in is named.

use std::path::{Path, PathBuf};

use half::f16;
use serde_json::{Value, json};

use super::{ALL_FORMS, export, export_in, set, verify, verify_json};
use crate::support::architectures::{self, Tiny};
use crate::support::command::arg;

/// A model and what spoils it.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) sound: Tiny,
    pub(super) spoil: fn(&mut Tiny),
    /// The first point that drifts; none if the fault is after the last layer.
    pub(super) expected: Option<&'static str>,
}

const FEW: [&str; 4] = ["--shapes", "16", "--tokens", "6"];

pub(super) fn values<'a>(tiny: &'a mut Tiny, tensor: &str) -> &'a mut Vec<f16> {
    &mut tiny.tensors.get_mut(tensor).unwrap().1
}

fn turn(tiny: &mut Tiny, tensor: &str) {
    let values = values(tiny, tensor);
    let half = values.len() / 2;
    values.rotate_left(half);
}

fn in_llama(name: &'static str, spoil: fn(&mut Tiny), expected: Option<&'static str>) -> Fault {
    Fault { name, sound: architectures::llama("sound", &json!({})), spoil, expected }
}

fn faults() -> Vec<Fault> {
    let gpt2 = architectures::gpt2("sound", &json!({}));
    let local = json!({"head_dim": 8, "query_pre_attn_scalar": 16, "sliding_window": 3, "layer_types":
        ["full_attention", "sliding_attention", "full_attention"]});
    let biased = architectures::llama("sound", &json!({"attention_bias": true}));
    vec![
        in_llama(
            "one weight",
            |tiny| set(tiny, "model.layers.1.mlp.down_proj.weight", 17, 4.0),
            Some("layer 1"),
        ),
        in_llama(
            "swapped heads of keys",
            |tiny| turn(tiny, "model.layers.0.self_attn.k_proj.weight"),
            Some("layer 0 attention"),
        ),
        in_llama(
            "swapped heads of queries",
            |tiny| turn(tiny, "model.layers.1.self_attn.q_proj.weight"),
            Some("layer 1 attention"),
        ),
        in_llama("another base", |tiny| tiny.config["rope_theta"] = json!(100.0), Some("layer 0 attention")),
        in_llama(
            "gate and value swapped",
            |tiny| {
                let gate = values(tiny, "model.layers.2.mlp.gate_proj.weight").clone();
                let up = std::mem::replace(values(tiny, "model.layers.2.mlp.up_proj.weight"), gate);
                *values(tiny, "model.layers.2.mlp.gate_proj.weight") = up;
            },
            Some("layer 2"),
        ),
        in_llama(
            "output transposed",
            |tiny| {
                let weight = values(tiny, "model.layers.2.self_attn.o_proj.weight");
                let old = weight.clone();
                (0..24 * 24).for_each(|i| weight[i] = old[i % 24 * 24 + i / 24]);
            },
            Some("layer 2 attention"),
        ),
        in_llama(
            "one scale of a norm",
            |tiny| set(tiny, "model.layers.1.post_attention_layernorm.weight", 5, -2.0),
            Some("layer 1"),
        ),
        in_llama("one scale of the last norm", |tiny| set(tiny, "model.norm.weight", 3, -1.0), None),
        in_llama(
            "a column of token vectors",
            |tiny| {
                let table = values(tiny, "model.embed_tokens.weight");
                table.iter_mut().step_by(24).for_each(|x| *x = f16::from_f32(x.to_f32() * 2.0));
            },
            Some("embedding"),
        ),
        Fault {
            name: "position off by one",
            sound: gpt2,
            spoil: |tiny| {
                let hidden = 24;
                values(tiny, "transformer.wpe.weight").rotate_left(hidden);
            },
            expected: Some("embedding"),
        },
        Fault {
            name: "window off by one",
            sound: architectures::gemma3("sound", &local),
            spoil: |tiny| tiny.config["sliding_window"] = json!(4),
            expected: Some("layer 1 attention"),
        },
        Fault {
            name: "bias of values",
            sound: biased,
            spoil: |tiny| turn(tiny, "model.layers.2.self_attn.v_proj.bias"),
            expected: Some("layer 2 attention"),
        },
    ]
}

/// The first point that drifts in every form.
fn first_drifts(report: &Value) -> Vec<Option<&str>> {
    report["layers"].as_array().unwrap().iter().map(|layers| layers["first_drift"].as_str()).collect()
}

#[test]
fn every_fault_is_found_and_its_layer_named() {
    all_are_found(faults());
}

pub(super) fn all_are_found(faults: Vec<Fault>) {
    all_are_found_in(ALL_FORMS, faults);
}

/// The same of models that have no other forms than these.
pub(super) fn all_are_found_in(forms: &str, faults: Vec<Fault>) {
    let folder = tempfile::tempdir().unwrap();
    let mut bundles: Vec<(Value, PathBuf)> = Vec::new();
    for (number, fault) in faults.into_iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        let known = bundles.iter().find(|(config, _)| *config == fault.sound.config);
        let bundle = known.map(|(_, bundle)| bundle.clone()).unwrap_or_else(|| {
            let bundle = export_in(forms, &fault.sound.write(&folder), &folder, &[]);
            bundles.push((fault.sound.config.clone(), bundle.clone()));
            bundle
        });
        let mut spoiled = Tiny { name: "spoiled", ..fault.sound };
        (fault.spoil)(&mut spoiled);
        let (code, report) = verify_json(&bundle, &spoiled.write(&folder), &FEW);
        assert_eq!((code, &report["passed"]), (1, &json!(false)), "{}", fault.name);
        let expected = vec![fault.expected; forms.split(',').count()];
        assert_eq!(first_drifts(&report), expected, "{}", fault.name);
    }
}

#[test]
fn a_fault_of_the_package_is_named_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let sound = architectures::llama("sound", &json!({}));
    let mut spoiled = Tiny { name: "spoiled", ..sound.clone() };
    set(&mut spoiled, "model.layers.1.self_attn.o_proj.weight", 3, 3.0);
    let bundle = export(&spoiled.write(folder.path()), folder.path(), &["--chunks", "2"]);
    let checkpoint = sound.write(folder.path());
    let outcome = verify(&bundle, &checkpoint, &[&FEW[..], &["--kv", "io"]].concat());
    assert_eq!(outcome.code, 1);
    let line = "first drift beyond 0.02: layer 1, in its attention";
    assert!(outcome.stdout.lines().any(|found| found == line), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("note: the checkpoint sound has the digest"), "{}", outcome.stderr);
}

/// Every layer of every form is shown, and none drifts. What a host looks up is computed in no program.
pub(super) fn no_layer_drifts(name: &str, report: &Value, is_looked_up_in_graph: bool) {
    for layers in report["layers"].as_array().unwrap() {
        let points: Vec<&str> =
            layers["points"].as_array().unwrap().iter().map(|p| p["point"].as_str().unwrap()).collect();
        let (of_layers, unseen) = match is_looked_up_in_graph {
            true => (points.strip_prefix(&["embedding"]).unwrap_or_default(), json!([])),
            false => (&points[..], json!(["embedding"])),
        };
        let expected =
            ["layer 0 attention", "layer 0", "layer 1 attention", "layer 1", "layer 2 attention", "layer 2"];
        assert_eq!((of_layers, &layers["unseen"]), (&expected[..], &unseen), "{name}: {layers:#}");
        assert_eq!(layers["first_drift"], Value::Null, "{name}: {:#}", layers["points"]);
        assert_eq!(layers["first_overflow"], Value::Null);
        let ranges = layers["ranges"].as_array().unwrap();
        assert!(ranges.len() > 50 && ranges.iter().all(|range| range["not_finite"] == 0));
    }
}

#[test]
fn overflow_and_headroom_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut loud = architectures::llama("loud", &json!({}));
    for tensor in ["model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight"] {
        values(&mut loud, tensor).iter_mut().for_each(|x| *x = f16::from_f32(x.to_f32() * 2000.0));
    }
    let checkpoint = loud.write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &[]);
    let (code, report) = verify_json(&bundle, &checkpoint, &[&FEW[..], &["--kv", "io"]].concat());
    assert_eq!(code, 1);
    let layers = &report["layers"][0];
    let overflow = layers["first_overflow"].as_str().unwrap();
    assert!(overflow.starts_with("layers_1_mlp"), "{overflow}");
    assert_eq!(layers["first_drift"], "layer 1");
}

#[test]
fn heat_maps_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = architectures::llama("llama", &json!({})).write(folder.path());
    let bundle = export(&checkpoint, folder.path(), &[]);
    let maps = folder.path().join("maps");
    let outcome = verify(&bundle, &checkpoint, &[&FEW[..], &["--plot", arg(&maps)]].concat());
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("no layer drifts beyond 0.02"), "{}", outcome.stdout);
    let map =
        |form: &str| std::fs::read_to_string(Path::new(&maps).join(format!("layers-{form}-16.svg"))).unwrap();
    for form in ["io", "state", "none"] {
        // Seven points by sixteen positions, the ground and the legend.
        assert_eq!(map(form).matches("<rect").count(), 7 * 16 + 9, "{form}");
        assert!(map(form).contains("layer 2 attention"));
    }
}
