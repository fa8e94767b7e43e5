//! Quantised checkpoints, whole and broken.

use serde_json::{Value, json};

use super::testing::{Matrix, QuantFormat, TestTensor, golden, write};
use crate::checkpoint::tests::{all, put};
use crate::checkpoint::{Checkpoint, CheckpointError, open};
use anemeter_base::advice::Advice;
use anemeter_mil::QuantizedSource;

/// A checkpoint of one matrix `a`, changed before it is written.
fn opened(
    way: QuantFormat,
    shape: [usize; 2],
    change: impl Fn(&mut Vec<TestTensor>, &mut Value),
) -> (Result<Checkpoint, CheckpointError>, Vec<f32>) {
    let folder = tempfile::tempdir().unwrap();
    let Matrix { mut parts, elements } = way.matrix("a", shape);
    let mut config = json!({"model_type": "llama", "quantization_config": way.config()});
    change(&mut parts, &mut config["quantization_config"]);
    write(folder.path(), &config, &parts);
    (open(folder.path()), elements)
}

const GPTQ: QuantFormat =
    QuantFormat::Gptq { bits: 4, size: Some(32), zero: None, by_act: false, is_second: false };
const PACKED: QuantFormat = QuantFormat::Packed { bits: 4, size: Some(32), has_zeros: true };
const FP8: QuantFormat = QuantFormat::Golden("compressed-tensors", "fp8");

#[test]
fn every_way_gives_the_elements_and_their_integers() {
    let fake = [true, false].map(|is_exact| QuantFormat::Fake { is_exact });
    for way in golden().into_iter().chain(fake) {
        let integers = match way {
            QuantFormat::Golden(_, "fp8") => continue,
            QuantFormat::Golden(_, "bytes" | "bytes-asymmetric") => Some((8, true, 64)),
            QuantFormat::Golden(_, case) => {
                let (bits, size) = case.split_once('-').unwrap();
                let size = size.split('-').next().unwrap().parse().unwrap_or(64);
                Some((bits.parse().unwrap(), false, size)).filter(|form: &(u32, _, _)| form.0 % 4 == 0)
            }
            _ => Some((4, true, 64)),
        };
        let (checkpoint, elements) = opened(way, [32, 64], |_, _| {});
        let checkpoint = checkpoint.unwrap();
        assert_eq!(checkpoint.tensors.keys().collect::<Vec<_>>(), ["a.weight"], "{way:?}");
        let stored = &checkpoint.tensors["a.weight"];
        assert_eq!(stored.shape[..], [32, 64]);
        assert_eq!(all(stored), elements, "{way:?}");
        for range in [0..0, 3..5, 60..200, 2047..2048] {
            let mut part = vec![f32::NAN; range.len()];
            stored.read(range.clone(), &mut part);
            assert_eq!(part, elements[range]);
        }
        let found = stored.quantized_blocks();
        assert_eq!(found.as_ref().map(|i| (i.bits(), i.is_signed(), i.block())), integers, "{way:?}");
        let Some(found) = found.filter(|found| !found.is_scattered()) else { continue };
        let (size, blocks) = (found.block(), 2048 / found.block());
        let (mut codes, mut scales, mut minimums) = (vec![0; 2048], vec![0.0; blocks], vec![0.0; blocks]);
        found.read(0..blocks, &mut codes, &mut scales, &mut minimums);
        let number =
            |code: u8| if found.is_signed() { f32::from(code.cast_signed()) } else { f32::from(code) };
        let value = |at: usize| scales[at / size] * number(codes[at]) + minimums[at / size];
        let got: Vec<f32> = (0..2048).map(value).collect();
        assert_eq!(got == elements, !found.is_rounded(), "{way:?}");
        assert_eq!(found.is_rounded(), matches!(way, QuantFormat::Fake { is_exact: false }));
    }
}

#[test]
fn inputs_in_any_order_are_told() {
    for file in ["gptq", "compressed-tensors-0.17"] {
        let (checkpoint, _) = opened(QuantFormat::Golden(file, "4-16-by-act"), [32, 64], |_, _| {});
        assert!(checkpoint.unwrap().tensors["a.weight"].quantized_blocks().unwrap().is_scattered(), "{file}");
    }
    let (unlisted, elements) = opened(GPTQ, [32, 64], |parts, _| parts.retain(|part| part.name != "a.g_idx"));
    assert_eq!(all(&unlisted.unwrap().tensors["a.weight"]), elements);
}

#[test]
fn weights_beyond_eight_bits_have_no_integers() {
    let (checkpoint, _) = opened(QuantFormat::Fake { is_exact: true }, [32, 64], |parts, _| {
        let scale = parts.iter_mut().find(|part| part.name.ends_with(".scale")).unwrap();
        scale.bytes.as_chunks_mut().0.iter_mut().for_each(|bytes| {
            *bytes = (f32::from_le_bytes(*bytes) / 64.0).to_le_bytes();
        });
    });
    assert!(checkpoint.unwrap().tensors["a.weight"].quantized_blocks().is_none());
}

fn resize(parts: &mut [TestTensor], name: &str, shape: &[usize]) {
    let part = parts.iter_mut().find(|part| part.name == name).unwrap();
    let width = part.bytes.len() / part.shape.iter().product::<usize>();
    part.bytes.resize(shape.iter().product::<usize>() * width, 0);
    part.shape = shape.to_vec();
}

fn refused(way: QuantFormat, change: impl Fn(&mut Vec<TestTensor>, &mut Value), expected: &str) {
    let error = opened(way, [32, 64], change).0.unwrap_err();
    assert!(error.to_string().contains(expected), "{error}\nexpected {expected}");
    assert!(error.file().is_some());
}

#[test]
fn bad_settings_are_one_clear_error() {
    let awq = QuantFormat::Awq { size: 32 };
    for (way, key, value, expected) in [
        (GPTQ, "bits", json!(5), "bits` is 5, which is not supported"),
        (GPTQ, "bits", json!("x"), "bits` is \"x\", expected a size"),
        (GPTQ, "group_size", json!(0), "group_size` is 0, expected a size, or -1"),
        (GPTQ, "checkpoint_format", json!("marlin"), "checkpoint_format` is `marlin`"),
        (awq, "version", json!("gemv"), "version` is `gemv`"),
        (awq, "bits", json!(8), "bits` is 8, which is not supported"),
        (PACKED, "format", json!("float-quantized"), "format` is `float-quantized`"),
        (FP8, "ignore", json!([]), "config_groups.group_0.weights.type` is `float`"),
    ] {
        let expected = format!("config key `quantization_config.{expected}");
        refused(way, |_, config| config[key] = value.clone(), &expected);
    }
    let groups = "tensor `a.qweight`: has 64 inputs, which cannot be divided into groups of 24";
    refused(GPTQ, |_, config| config["group_size"] = 24.into(), groups);
    let wider = "tensor `a.qzeros`: is [2, 4], expected [1, 8]";
    refused(GPTQ, |_, config| config["bits"] = 8.into(), wider);
    let unlisted = |parts: &mut Vec<TestTensor>, config: &mut Value| {
        parts.retain(|part| part.name != "a.g_idx");
        config["desc_act"] = true.into();
    };
    refused(GPTQ, unlisted, "tensor `a.g_idx`: is missing");
}

#[test]
fn bad_parts_are_one_clear_error() {
    let packed = "is [32, 7], which [4] bits by a shape of [32, 64] do not give";
    for (way, part, shape, expected) in [
        (GPTQ, "scales", &[2, 31][..], "is [2, 31], expected [2, 32]"),
        (GPTQ, "qzeros", &[1, 4], "is [1, 4], expected [2, 4]"),
        (QuantFormat::Awq { size: 32 }, "qweight", &[64], "is [64], expected inputs by words"),
        (PACKED, "weight_packed", &[32, 7], packed),
        (PACKED, "weight_scale", &[32, 3], "has 3 groups, which do not divide 64 inputs"),
    ] {
        let name = format!("a.{part}");
        refused(way, |parts, _| resize(parts, &name, shape), &format!("tensor `{name}`: {expected}"));
    }
    let missing = "tensor `a.scales`: is missing, and its matrix is quantised";
    refused(GPTQ, |parts, _| parts.retain(|part| part.name != "a.scales"), missing);
    let twice = "tensor `a.weight`: is there, and in quantised parts as well";
    refused(GPTQ, |parts, _| parts.push(TestTensor::halves("a.weight", &[1], &[0.0])), twice);
    let index = |parts: &mut Vec<TestTensor>, _: &mut Value| {
        parts.iter_mut().find(|part| part.name == "a.g_idx").unwrap().bytes[4] = 9;
    };
    refused(GPTQ, index, "tensor `a.g_idx`: says that input 1 is in group 9, and there are 2 groups");
}

#[test]
fn groups_are_those_of_the_scales_and_not_empty() {
    let (empty, _) = opened(QuantFormat::Bytes, [32, 64], |parts, _| resize(parts, "a.weight", &[32, 0]));
    let error = empty.unwrap_err().to_string();
    let expected = "tensor `a.weight_scale`: has 1 groups, which do not divide 0 inputs";
    assert!(error.ends_with(expected), "{error}");
    let (other, _) = opened(QuantFormat::Fake { is_exact: true }, [32, 64], |parts, _| {
        resize(parts, "a.weight_fake_quant.scale", &[32, 4]);
        resize(parts, "a.weight_fake_quant.zero_point", &[32, 2]);
    });
    let error = other.unwrap_err().to_string();
    assert!(error.ends_with("is for groups of 32 inputs, and its scales are for groups of 16"), "{error}");
}

#[test]
fn ways_that_are_not_known_are_named_before_weights_are_read() {
    for (method, known) in [("bitsandbytes", true), ("fp8", true), ("awq", false)] {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({"quantization_config": {"quant_method": method, "bits": 4}});
        put(folder.path(), "config.json", config.to_string());
        let error = open(folder.path()).unwrap_err();
        assert_eq!(error.to_string().contains("quant_method"), known, "{error}");
        if known {
            let expected = format!(
                "config key `quantization_config.quant_method` is `{method}`, which is not supported"
            );
            assert!(error.to_string().ends_with(&expected), "{error}");
            let help = error.remedy().unwrap().to_string();
            let known = ["`awq`", "`compressed-tensors`", "`gptq`"];
            assert!(known.iter().all(|name| help.contains(name)), "{help}");
        }
    }
}
