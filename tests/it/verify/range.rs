//! `export --range-repair`: a model that overflows in fp16 computes again.

use std::path::Path;

use anemeter::bundle::Bundle;
use half::f16;
use serde_json::json;

use super::faults::values;
use super::{export, verify_json};
use crate::support::architectures::{self, Tiny};
use crate::support::command::{self, anemeter, arg};
use crate::support::gemma4::gemma4;
use crate::support::hybrids::lfm2;

const FEW: [&str; 4] = ["--shapes", "16", "--tokens", "6"];
/// Half of what fp16 holds.
const LIMIT: f32 = 65_504.0 / 2.0;

fn times(tiny: &mut Tiny, tensor: &str, factor: f32) {
    values(tiny, tensor).iter_mut().for_each(|x| *x = f16::from_f32(x.to_f32() * factor));
}

/// A Gemma 3 whose residual stream, products and outputs of MLPs are beyond fp16.
fn loud() -> Tiny {
    let config =
        json!({"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 3, "sliding_window_pattern": 2});
    let mut tiny = architectures::gemma3("loud", &config);
    values(&mut tiny, "model.layers.0.post_feedforward_layernorm.weight").fill(f16::from_f32(60_000.0));
    times(&mut tiny, "model.layers.1.mlp.up_proj.weight", 30_000.0);
    times(&mut tiny, "model.layers.1.self_attn.v_proj.weight", 20_000.0);
    // What comes after must still matter.
    for norm in ["post_attention", "post_feedforward"] {
        let norm = format!("model.layers.1.{norm}_layernorm.weight");
        values(&mut tiny, &norm).fill(f16::from_f32(50_000.0));
    }
    tiny
}

/// A Gemma 4 whose residual stream, products, values and per-layer projections are beyond fp16.
fn loud_gemma4() -> Tiny {
    let mut tiny = gemma4("loud-gemma4", &json!({}));
    values(&mut tiny, "model.layers.0.post_feedforward_layernorm.weight").fill(f16::from_f32(60_000.0));
    times(&mut tiny, "model.layers.1.mlp.up_proj.weight", 30_000.0);
    times(&mut tiny, "model.layers.1.self_attn.v_proj.weight", 30_000.0);
    times(&mut tiny, "model.layers.1.per_layer_projection.weight", 30_000.0);
    // Gates of inputs take the stream as it is, and nothing can scale what an activation follows.
    for layer in 0..3 {
        times(&mut tiny, &format!("model.layers.{layer}.per_layer_input_gate.weight"), 1.0 / 30_000.0);
    }
    // What comes after must still matter.
    for norm in ["post_attention_layernorm", "post_feedforward_layernorm", "post_per_layer_input_norm"] {
        for layer in [1, 2] {
            let norm = format!("model.layers.{layer}.{norm}.weight");
            values(&mut tiny, &norm).fill(f16::from_f32(50_000.0));
        }
    }
    tiny
}

fn repaired(checkpoint: &Path, folder: &Path, more: &[&str]) -> Bundle {
    let bundle = export(checkpoint, folder, &[&["--range-repair", "--overwrite"], more].concat());
    Bundle::open(bundle).unwrap()
}

/// Every cosine is that of a right model, where every tensor is rounded to fp16.
fn is_right(bundle: &Bundle, checkpoint: &Path, what: &str) {
    let (code, report) = verify_json(bundle.folder(), checkpoint, &[&FEW[..], &["--layers"]].concat());
    assert_eq!((code, &report["passed"]), (0, &json!(true)), "{what}: {report:#}");
    for layers in report["layers"].as_array().unwrap() {
        assert!(layers["first_overflow"].is_null(), "{what}: {layers:#}");
        assert!(layers["first_drift"].is_null(), "{what}: {layers:#}");
    }
    for cell in report["cells"].as_array().unwrap() {
        assert!(cell["cosine_min"].as_f64().unwrap() >= 0.999, "{what}: {cell}");
    }
    let record = command::json(&bundle.folder().join("verify.json"));
    assert_eq!(record["numerics"], "fp16-exact", "{what}: what a repaired bundle is verified in");
}

#[test]
fn a_gemma_that_overflows_is_nan_without_repair_and_right_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let large = ["layers_1_mlp_product", "layers_1_attention_value"];
    let gemma4 = [&large[..], &["layers_1_per_layer_projection"]].concat();
    for (tiny, large) in [(loud(), large.to_vec()), (loud_gemma4(), gemma4)] {
        let checkpoint = tiny.write(folder.path());
        let plain = export(&checkpoint, folder.path(), &[]);
        for numerics in ["fast", "fp16-exact"] {
            let how = ["--layers", "--numerics", numerics];
            let (code, report) = verify_json(&plain, &checkpoint, &[&FEW[..], &how].concat());
            assert_eq!(code, 1, "{}", tiny.name);
            for layers in report["layers"].as_array().unwrap() {
                assert!(layers["first_overflow"].as_str().is_some(), "{layers:#}");
            }
            let cells = report["cells"].as_array().unwrap();
            assert!(cells.iter().all(|cell| cell["cosine_min"].is_null()), "{}: {report:#}", tiny.name);
        }
        for more in [&[][..], &["--chunks", "2"], &["--batch", "2", "--embeddings", "host"]] {
            let bundle = repaired(&checkpoint, folder.path(), more);
            let found = bundle.manifest().range_repair.clone().unwrap();
            assert!(found.stream < 1.0 && found.largest > 65_504.0, "{found:?}");
            assert!(found.stream.log2().fract() == 0.0);
            for &wanted in &large {
                assert!(found.repaired.iter().any(|tensor| tensor.tensor == wanted), "{wanted}: {found:?}");
            }
            for tensor in &found.repaired {
                assert!(tensor.largest * tensor.factor <= LIMIT, "{tensor:?}");
            }
            is_right(&bundle, &checkpoint, &format!("{} {more:?}", tiny.name));
        }
    }
}

#[test]
fn compressed_weights_with_factors_are_what_the_checkpoint_says() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = loud().write(folder.path());
    let config = folder.path().join("precision.yaml");
    let rules = "coreml: {range_repair: true, precision: {default: fp16, rules: [{match: \"layers_*\", precision: int8}]}}\n";
    crate::support::checkpoints::write_text(&config, rules);
    let config = config.to_str().unwrap().to_owned();
    let bundle = repaired(&checkpoint, folder.path(), &["--config", &config]);
    assert!(!bundle.manifest().range_repair.as_ref().unwrap().weights.is_empty());
    let (_, report) = verify_json(bundle.folder(), &checkpoint, &FEW);
    assert!(report["reference"].as_str().unwrap().contains("weights as stored"));
    for cell in report["cells"].as_array().unwrap() {
        assert!(cell["cosine_min"].as_f64().unwrap() >= 0.999, "{cell}");
    }
}

#[test]
fn nothing_is_changed_where_nothing_is_large() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = architectures::llama("llama", &json!({})).write(folder.path());
    let found = repaired(&checkpoint, folder.path(), &[]).manifest().range_repair.clone().unwrap();
    assert_eq!((found.stream, found.repaired.len(), found.weights.len()), (1.0, 0, 0));
    assert!(found.largest > 0.0 && found.tokens > 100 && found.digest.is_none());
}

#[test]
fn models_that_no_calibration_computes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = lfm2("lfm2", &json!({})).write(folder.path());
    let output = folder.path().join("bundle");
    let outcome =
        anemeter(&["export", arg(&checkpoint), "-o", arg(&output), "--shapes", "16", "--range-repair"]);
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("layer 0 has a convolution or a delta rule"), "{}", outcome.stderr);
    assert!(!output.exists());
}
