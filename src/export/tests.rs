//! Exports of quantised checkpoints, and of weights whose codes are chosen by data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::bundle::Chunk;
use crate::calibrate::{CalibrateError, Hidden, Inputs, LoadedLinear, Observer, head_input, run_layer};
use crate::checkpoint::testing::{QuantFormat, TestTensor, write};
use crate::compress::{Candidate, Choice, Plan, Precision, Rule};
use crate::generate::{Input, Text};
use crate::harness::BUILT_IN_TEXT;
use crate::mil::op::{KnownValue, Numerics, decode_all};
use crate::mil::propagate::{Options, propagate};
use crate::package::Package;
use crate::runtime::{self, LoadOptions, Runtime};

/// Modules of a layer, with outputs and inputs.
const MODULES: &[(&str, [usize; 2])] = &[
    ("self_attn.q_proj", [64, 64]),
    ("self_attn.k_proj", [32, 64]),
    ("self_attn.v_proj", [32, 64]),
    ("self_attn.o_proj", [64, 64]),
    ("mlp.gate_proj", [128, 64]),
    ("mlp.up_proj", [128, 64]),
    ("mlp.down_proj", [64, 128]),
];

fn config(quantised: Value) -> Value {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 40,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "hidden_act": "silu",
    });
    if !quantised.is_null() {
        config["quantization_config"] = quantised;
    }
    config
}

/// A checkpoint of one layer whose matrices are quantised in some way.
fn checkpoint(folder: &Path, way: QuantFormat) {
    let numbers = |count: usize| (0..count).map(|i| (i % 13) as f32 * 0.05 - 0.3).collect::<Vec<f32>>();
    let mut parts = vec![
        TestTensor::halves("model.embed_tokens.weight", &[40, 64], &numbers(40 * 64)),
        TestTensor::halves("model.norm.weight", &[64], &[1.0; 64]),
    ];
    for norm in ["input_layernorm", "post_attention_layernorm"] {
        parts.push(TestTensor::halves(&format!("model.layers.0.{norm}.weight"), &[64], &[1.0; 64]));
    }
    for &(module, shape) in MODULES {
        parts.extend(way.matrix(&format!("model.layers.0.{module}"), shape).parts);
    }
    write(folder, &config(way.config()), &parts);
}

fn request(checkpoint: &Path, output: PathBuf, precision: &str) -> Request {
    let options = ExportOptions {
        enumerate_shapes: Some(vec![16]),
        chunks: Some(Chunking::Count(1)),
        precision: Some(precision.parse::<Precision>().unwrap().into()),
        ..ExportOptions::default()
    };
    Request {
        checkpoint: checkpoint.to_owned(),
        output,
        overwrite: false,
        name: None,
        options,
        training_lengths: None,
        config: None,
        precision: PrecisionPlan::Fixed,
    }
}

/// The weights of a bundle's packages as they are decoded, as bytes.
fn weights(bundle: &Bundle) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for chunk in &bundle.manifest().chunks {
        let package = Package::open(bundle.path(&chunk.file.name)).unwrap();
        for function in &package.model().program.functions {
            let options = Options { fold_bytes: 0, trust_declared: true, numerics: Numerics::Fast };
            let (facts, _) = propagate(function, &[], options);
            for (value, known) in function.values.iter().zip(&facts.known) {
                let tensor = match known {
                    Some(KnownValue::Packed(packed)) => decode_all(&**packed).unwrap(),
                    Some(KnownValue::Tensor(tensor)) => tensor.clone(),
                    None => continue,
                };
                if value.name.ends_with("_weight") {
                    found.insert(value.name.clone(), tensor.bytes().to_vec());
                }
            }
        }
    }
    found
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| half::f16::from_le_bytes(bytes).to_f32()).collect()
}

#[test]
fn stored_integers_give_the_elements_to_the_last_bit() {
    let gptq = |bits, size, zero, by_act| QuantFormat::Gptq { bits, size, zero, by_act, is_second: false };
    let packed = |bits, size, has_zeros| QuantFormat::Packed { bits, size, has_zeros };
    let cases = [
        (gptq(4, Some(32), Some(8), false), "int4:block=32, carried over"),
        (gptq(4, Some(32), None, false), "int4:block=32:asym, carried over"),
        (gptq(8, None, Some(128), false), "int8:block=64, carried over"),
        (gptq(4, Some(32), Some(16), false), "int4:block=32 with fp16 offsets, carried over"),
        (QuantFormat::Awq { size: 32 }, "int4:block=32:asym, carried over"),
        (packed(4, Some(32), false), "int4:block=32, carried over"),
        (packed(8, Some(32), true), "int8:block=32:asym, carried over"),
        (QuantFormat::Bytes, "int8:block=64, carried over"),
        (QuantFormat::Fake { is_exact: true }, "int4:block=64, carried over"),
        (gptq(4, Some(16), None, true), "int4:block=16:asym, requantised"),
        (QuantFormat::Fake { is_exact: false }, "int4:block=64, requantised"),
    ];
    for (way, form) in cases {
        let (folder, bundles) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        checkpoint(folder.path(), way);
        let exported = |name: &str, precision: &str| {
            export(&request(folder.path(), bundles.path().join(name), precision), &()).unwrap()
        };
        let (plain, stored) = (exported("plain", "fp16"), exported("stored", "stored"));
        let log = stored.manifest().compression.clone().unwrap();
        let query =
            log.tensors.iter().find(|tensor| tensor.name == "layers_0_attention_query_weight").unwrap();
        assert_eq!(query.precision, form, "{way:?}");
        assert_eq!(log.totals.compressed, MODULES.len(), "{way:?}");
        let is_exact = form.ends_with("carried over");
        assert_eq!(query.snr_db.is_none(), is_exact, "what is lost is told: {way:?}");
        let (plain, stored) = (weights(&plain), weights(&stored));
        assert!(plain.len() > MODULES.len() && plain.keys().eq(stored.keys()));
        for (name, elements) in &plain {
            let is_norm_or_same = *elements == stored[name];
            assert!(is_norm_or_same || !is_exact, "{way:?}: {name}");
        }
        let matrix = way.matrix("model.layers.0.self_attn.q_proj", [64, 64]);
        let expected: Vec<f32> = matrix.elements.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect();
        assert_eq!(halves(&plain[&query.name]), expected, "{way:?}");
    }
}

#[test]
fn scales_that_are_no_numbers_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), QuantFormat::Bytes);
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let whole = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<TestTensor> = whole
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let mut bytes = view.data().to_vec();
            if name.ends_with("down_proj.weight_scale") {
                bytes[..2].copy_from_slice(&half::f16::INFINITY.to_le_bytes());
            }
            TestTensor { name, dtype: view.dtype(), shape: view.shape().to_vec(), bytes }
        })
        .collect();
    write(folder.path(), &config(QuantFormat::Bytes.config()), &changed);
    let output = tempfile::tempdir().unwrap().path().join("out");
    let error = export(&request(folder.path(), output, "stored"), &()).unwrap_err();
    assert!(error.to_string().contains("has an element that is inf and cannot be compressed"), "{error}");
}

fn quickstart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/quickstart/model")
}

/// The text that the model was trained on.
const TEXT: &str = include_str!("../quickstart/merrow.txt");

/// The weights of a bundle in place of the checkpoint's.
struct Stored(BTreeMap<String, Vec<u8>>);

impl Observer for Stored {
    fn before(&mut self, _: &Inputs<'_>, maps: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        maps.iter_mut().for_each(|map| map.weight = halves(&self.0[&map.name]));
        Ok(())
    }
}

/// What the head takes on the whole text, with the linear maps of a bundle if there is one.
fn last_hidden(bundle: Option<&Bundle>) -> Vec<f32> {
    let checkpoint = checkpoint::open(quickstart()).unwrap();
    let decoder = model::build(&checkpoint).unwrap();
    let json = checkpoint.tokenizer.unwrap();
    let tokenizer = crate::generate::Tokenizer::from_bytes(&json, Path::new("tokenizer.json")).unwrap();
    let sequences: Vec<Vec<u32>> =
        tokenizer.encode(TEXT, true).unwrap().chunks(128).map(<[u32]>::to_vec).collect();
    let mut hidden = Hidden::embed(&decoder, &sequences, |_, _| ()).unwrap();
    let mut stored = bundle.map(|bundle| Stored(weights(bundle)));
    for (index, layer) in decoder.layers.iter().enumerate() {
        match &mut stored {
            Some(stored) => run_layer(&mut hidden, index, layer, stored).unwrap(),
            None => run_layer(&mut hidden, index, layer, &mut ()).unwrap(),
        }
    }
    head_input(&hidden, &decoder, &mut ()).unwrap()
}

/// By how much the head's inputs are off, in squares, with codes chosen without and with data.
fn losses(folder: &Path, precision: &str, text: &str) -> [f64; 2] {
    let exact = last_hidden(None);
    let plans = [PrecisionPlan::Fixed, PrecisionPlan::Calibrated { text: text.to_owned() }];
    plans.map(|plan| {
        let mut wanted = request(&quickstart(), folder.join("codes"), precision);
        (wanted.precision, wanted.overwrite) = (plan, true);
        let found = last_hidden(Some(&export(&wanted, &()).unwrap()));
        let squares = exact.iter().zip(&found).map(|(a, b)| f64::from(a - b).powi(2));
        squares.sum::<f64>() / exact.len() as f64
    })
}

#[test]
fn codes_that_are_chosen_by_data_lose_less() {
    let folder = tempfile::tempdir().unwrap();
    for precision in ["int4", "lut3:group=16", "lut4:group=16", "lut3:scale"] {
        let [blind, calibrated] = losses(folder.path(), precision, TEXT);
        assert!(calibrated < 0.8 * blind, "{precision}: {calibrated}, {blind} without data");
    }
    let ten: String = TEXT.split_inclusive(' ').take(8).collect();
    let [blind, calibrated] = losses(folder.path(), "lut3:group=16", &ten);
    assert!(calibrated < 2.0 * blind, "a few tokens: {calibrated}, {blind} without data");
}

#[test]
fn what_was_chosen_by_data_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let mut wanted = request(&quickstart(), folder.path().join("out"), "lut4:group=16");
    wanted.precision = PrecisionPlan::Calibrated { text: TEXT.to_owned() };
    wanted.options.head_split = Some(2);
    let bundle = export(&wanted, &()).unwrap();
    let log = bundle.manifest().compression.as_ref().unwrap();
    assert!(log.calibration.as_ref().is_some_and(|calibration| calibration.tokens > 1000));
    for tensor in &log.tensors {
        assert_eq!(tensor.weighted, tensor.precision.starts_with("lut"), "{}", tensor.name);
    }
    let rules = "{default: fp16, rules: [{match: '*embedding*', precision: lut4}, {match: '*down*', precision: int8}]}";
    wanted.options.precision = Some(serde_yaml::from_str(rules).unwrap());
    wanted.options.head_split = None;
    wanted.overwrite = true;
    let bundle = export(&wanted, &()).unwrap();
    let log = bundle.manifest().compression.as_ref().unwrap();
    for tensor in &log.tensors {
        let is_chosen = tensor.name.contains("embedding") || tensor.name.contains("down");
        assert_eq!(tensor.weighted, is_chosen, "{}", tensor.name);
    }
}

/// What the model loses with a plan when all of it runs, token by token.
fn whole_model_loss(folder: &Path, wanted: &Request, reference: Option<&[Vec<f32>]>) -> (f64, Vec<Vec<f32>>) {
    let mut wanted = Request { output: folder.join("whole"), overwrite: true, ..wanted.clone() };
    wanted.options.enumerate_shapes = Some(vec![Automatic::TOKENS]);
    let bundle = export(&wanted, &()).unwrap();
    let text = Text::open(&bundle, None).unwrap().unwrap();
    let ids = text.tokens(Input::Raw(BUILT_IN_TEXT), usize::MAX).unwrap();
    let session = |chunk: &Chunk| {
        let package = Package::open(bundle.path(&chunk.file.name)).unwrap();
        runtime::cpu().load(&package, &LoadOptions::default()).unwrap().session()
    };
    let sessions = bundle.manifest().chunks.iter().map(session).collect();
    let clock = Arc::new(crate::generate::SystemClock::default());
    let mut driver = crate::generate::Driver::new(&bundle, sessions, None, clock).unwrap();
    let mut logits = Vec::new();
    let prompt = Automatic::TOKENS + 1 - automatic::COMPARED;
    driver
        .teacher_force(&ids[..Automatic::TOKENS], prompt, None, &mut |_, found| {
            logits.push(found.to_vec());
            Ok(())
        })
        .unwrap();
    let pairs = reference.unwrap_or(&logits).iter().zip(&logits);
    let nats: Vec<f64> =
        pairs.map(|(reference, found)| crate::stats::kl_divergence(reference, found)).collect();
    assert_eq!(nats.len(), automatic::COMPARED);
    (nats.iter().sum::<f64>() / nats.len() as f64, logits)
}

#[test]
fn running_from_a_layer_on_finds_what_the_whole_model_loses() {
    let folder = tempfile::tempdir().unwrap();
    let mut wanted = request(&quickstart(), folder.path().join("auto"), "fp16");
    wanted.precision = PrecisionPlan::Auto(Automatic::new(Budget::Bits(4.5), None).unwrap());
    let found = export(&wanted, &()).unwrap().manifest().sensitivity.clone().unwrap();
    let plain = request(&quickstart(), folder.path().join("plain"), "fp16");
    let (_, reference) = whole_model_loss(folder.path(), &plain, None);
    let (mut ours, mut exhaustive) = (Vec::new(), Vec::new());
    for layer in &found.layers {
        let pattern = match layer.name.strip_prefix("layer ") {
            Some(number) => format!("layers_{number}_*_weight"),
            None => "embedding_weight*".to_owned(),
        };
        let choice = |losses: Vec<(Precision, f64)>| Choice {
            name: layer.name.clone(),
            elements: layer.elements,
            candidates: losses
                .into_iter()
                .map(|(precision, loss)| Candidate {
                    precision,
                    bytes: bytes(precision, layer.elements),
                    loss,
                })
                .collect(),
        };
        let (mut quick, mut whole) = (Vec::new(), Vec::new());
        for (precision, loss) in &layer.divergence {
            let precision: Precision = precision.parse().unwrap();
            let rules = vec![Rule { pattern: pattern.clone(), precision }];
            let plan = Plan { default: Precision::Keep, rules };
            let mut compressed = plain.clone();
            compressed.options.precision = Some(plan);
            let (expected, _) = whole_model_loss(folder.path(), &compressed, Some(&reference));
            // The engine computes in fp32 and searches other clipping ranges; single tokens have activations of fifteen bits.
            assert!(
                (loss - expected).abs() <= 0.1 * expected + 2e-4,
                "{} as {precision}: {loss} nats from the layer on, {expected} of the whole model",
                layer.name
            );
            quick.push((precision, *loss));
            whole.push((precision, expected));
        }
        ours.push(choice(quick));
        exhaustive.push(choice(whole));
    }
    for bits in [3.5, 4.5, 6.0] {
        let lost = |chosen: &[usize]| -> f64 {
            exhaustive.iter().zip(chosen).map(|(choice, &chosen)| choice.candidates[chosen].loss).sum()
        };
        let [quick, whole] =
            [&ours, &exhaustive].map(|choices| lost(&crate::compress::choose(choices, bits).unwrap()));
        assert!(
            quick <= whole * 1.02,
            "{bits} bits: {quick} nats, {whole} if every candidate runs the whole model"
        );
    }
}

/// About what a weight takes; the same for both ways of measuring.
fn bytes(precision: Precision, elements: u64) -> u64 {
    let bits = [("lut3", 3), ("lut4", 4), ("lut6", 6), ("int8", 8)];
    let name = precision.to_string();
    let (_, bits) = bits.iter().find(|(start, _)| name.starts_with(start)).unwrap();
    elements * bits / 8
}

#[test]
fn calibration_is_for_forms_that_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |precision: &str, text: &str| {
        let mut wanted = request(&quickstart(), folder.path().join("out"), precision);
        wanted.precision = PrecisionPlan::Calibrated { text: text.to_owned() };
        export(&wanted, &()).unwrap_err().to_string()
    };
    for precision in ["fp16", "stored", "lut4:vector=2", "sparse:0.5+lut4"] {
        let error = refused(precision, TEXT);
        assert!(
            error.contains("option `calibration`: is for automatic precision, for int4 and int8"),
            "{error}"
        );
    }
    let error = refused("lut4", "");
    assert!(error.contains("option `calibration`: needs a text of 2 tokens, this one has"), "{error}");
    let error = refused("lut4:group=7", TEXT);
    assert!(error.contains("cannot be divided into groups of 7"), "{error}");
    let mixed: Plan =
        serde_yaml::from_str("{default: int8, rules: [{match: '*mlp*', precision: lut4}]}").unwrap();
    assert!(mixed.is_solvable());
}

#[test]
fn lint_rules_name_keys_that_a_configuration_has() {
    let schema = serde_json::to_value(schemars::schema_for!(ExportOptions)).unwrap();
    let keys = schema["properties"].as_object().unwrap();
    let named: Vec<&str> = crate::lint::rules().iter().filter_map(|rule| rule.decided_by).collect();
    assert!(!named.is_empty());
    for key in named {
        assert!(keys.contains_key(key), "{key}");
    }
}

#[test]
fn configurations_are_named_from_the_folder_of_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("configs")).unwrap();
    fs::create_dir_all(at("else/where")).unwrap();
    for (output, file, expected) in [
        ("exports/model", "configs/a.yaml", "../../configs/a.yaml"),
        ("model", "a.yaml", "../a.yaml"),
        ("configs/model", "configs/../configs/a.yaml", "../a.yaml"),
    ] {
        crate::atomic::write_file(&at(file), b"{}").unwrap();
        assert_eq!(destination::from_bundle(&at(output), &at(file)), expected);
    }
    // A link to a folder is the folder.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(at("else/where"), at("link")).unwrap();
        let found = destination::from_bundle(&at("link/model"), &at("configs/a.yaml"));
        assert_eq!(found, "../../../configs/a.yaml");
    }
}

#[test]
fn rotated_models_compute_the_same_and_say_how_they_are_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let plain = request(&quickstart(), folder.path().join("plain"), "fp16");
    let (_, reference) = whole_model_loss(folder.path(), &plain, None);
    let mut turned = plain.clone();
    turned.options.rotate = Some(Rotate::On);
    let (lost, _) = whole_model_loss(folder.path(), &turned, Some(&reference));
    assert!(lost < 1e-3, "{lost} nats");
    turned.output = folder.path().join("turned");
    let rotated = export(&turned, &()).unwrap().manifest().rotated.clone().unwrap();
    assert!(rotated.is_used && rotated.reason.is_none() && rotated.divergence.is_none());
    assert!(rotated.stream.unwrap().starts_with("Hadamard "));
    assert!(rotated.values.unwrap().starts_with("Hadamard "));
}

#[test]
fn rotations_are_judged_by_text_that_no_code_was_chosen_by() {
    let folder = tempfile::tempdir().unwrap();
    let mut wanted = request(&quickstart(), folder.path().join("out"), "int4");
    wanted.options.rotate = Some(Rotate::Auto);
    let error = export(&wanted, &()).unwrap_err().to_string();
    assert!(error.contains("option `rotate`: is `auto`, which compares"), "{error}");
    wanted.precision = PrecisionPlan::Calibrated { text: "a word".to_owned() };
    let error = export(&wanted, &()).unwrap_err().to_string();
    assert!(error.contains("judges by a part of the calibration text"), "{error}");
    let mut repaired = request(&quickstart(), folder.path().join("out"), "fp16");
    (repaired.options.rotate, repaired.options.range_repair) = (Some(Rotate::Auto), Some(true));
    repaired.precision = PrecisionPlan::Calibrated { text: TEXT.to_owned() };
    let error = export(&repaired, &()).unwrap_err().to_string();
    assert!(error.ends_with("and fp16 has no codes that a text chooses: give `on` or `off`"), "{error}");
    wanted.precision = PrecisionPlan::Calibrated { text: TEXT.repeat(8) };
    let manifest = export(&wanted, &()).unwrap().manifest().clone();
    let rotated = manifest.rotated.unwrap();
    let [plain, turned] = rotated.divergence.unwrap();
    assert!(plain > 0.0 && turned > 0.0 && plain.is_finite() && turned.is_finite());
    assert_eq!(rotated.is_used, turned < plain);
    let log = manifest.compression.unwrap();
    let has_map = log.tensors.iter().any(|tensor| tensor.name == "head_map_weight");
    assert_eq!(has_map, rotated.is_used, "a tied head keeps its table");
}

#[test]
fn codes_that_were_chosen_for_another_precision_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let decoder = model::build(&checkpoint::open(quickstart()).unwrap()).unwrap();
    let sequences = [(1..60).collect::<Vec<u32>>()];
    let text = crate::calibrate::Text { calibration: &sequences, held_out: &[] };
    let int4 = Plan::from("int4".parse::<Precision>().unwrap());
    let method = crate::calibrate::Method::default();
    let found = crate::calibrate::quantize(&decoder, &int4, &text, method, folder.path(), &|_| ()).unwrap();
    let wanted = request(&quickstart(), folder.path().join("out"), "lut4:group=16").options;
    let options = wanted.resolve(&decoder).unwrap().options;
    let chunk = crate::lower::lower(&decoder, &options).unwrap().into_iter().next().unwrap();
    let plan = wanted.precision.unwrap();
    let error = crate::compress::apply_solved(chunk.model, &plan, &found.solutions).err().unwrap();
    assert!(error.to_string().contains("they are int4:block=32 and it is to be lut4:group=16"), "{error}");
}
