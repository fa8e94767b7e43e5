//! Quantised checkpoints, whole and broken.

use serde_json::{Value, json};

use super::testing::{Matrix, Part, Way, write};
use crate::checkpoint::tests::{all, put};
use crate::checkpoint::{Checkpoint, CheckpointError, open};

/// A checkpoint of one matrix `a`, changed before it is written.
fn opened(
    way: Way,
    shape: [usize; 2],
    change: impl Fn(&mut Vec<Part>, &mut Value),
) -> (Result<Checkpoint, CheckpointError>, Vec<f32>) {
    let folder = tempfile::tempdir().unwrap();
    let Matrix { mut parts, elements } = way.matrix("a", shape);
    let mut config = json!({"model_type": "llama", "quantization_config": way.config()});
    change(&mut parts, &mut config["quantization_config"]);
    write(folder.path(), &config, &parts);
    (open(folder.path()), elements)
}

const GPTQ: Way = Way::Gptq { bits: 4, size: Some(32), zero: None, by_act: false, is_second: false };
const PACKED: Way = Way::Packed { bits: 4, size: Some(32), has_zeros: true };

#[test]
fn every_way_gives_the_elements_and_their_integers() {
    let gptq = |bits, size, by_act, is_second| Way::Gptq { bits, size, zero: None, by_act, is_second };
    let cases = [
        (gptq(4, Some(32), false, false), Some((4, false, 32))),
        (gptq(4, Some(32), false, true), Some((4, false, 32))),
        (gptq(8, None, false, false), Some((8, false, 64))),
        (gptq(3, Some(32), false, false), None),
        (gptq(2, Some(64), false, false), None),
        (gptq(4, Some(16), true, false), Some((4, false, 16))),
        (
            Way::Gptq { bits: 4, size: Some(32), zero: Some(16), by_act: false, is_second: false },
            Some((4, false, 32)),
        ),
        (Way::Awq { size: 32 }, Some((4, false, 32))),
        (PACKED, Some((4, false, 32))),
        (Way::Packed { bits: 8, size: None, has_zeros: false }, Some((8, false, 64))),
        (Way::Packed { bits: 3, size: Some(64), has_zeros: true }, None),
        (Way::Bytes, Some((8, true, 64))),
        (Way::Fake { is_exact: true }, Some((4, true, 64))),
        (Way::Fake { is_exact: false }, Some((4, true, 64))),
    ];
    for (way, integers) in cases {
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
        let found = stored.integers();
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
        assert_eq!(found.is_rounded(), matches!(way, Way::Fake { is_exact: false }));
    }
}

#[test]
fn inputs_in_any_order_are_told() {
    let by_act = Way::Gptq { bits: 4, size: Some(16), zero: None, by_act: true, is_second: false };
    let (checkpoint, _) = opened(by_act, [32, 64], |_, _| {});
    assert!(checkpoint.unwrap().tensors["a.weight"].integers().unwrap().is_scattered());
    let (unlisted, elements) = opened(GPTQ, [32, 64], |parts, _| parts.retain(|part| part.name != "a.g_idx"));
    assert_eq!(all(&unlisted.unwrap().tensors["a.weight"]), elements);
}

#[test]
fn weights_beyond_eight_bits_have_no_integers() {
    let (checkpoint, _) = opened(Way::Fake { is_exact: true }, [32, 64], |parts, _| {
        let scale = parts.iter_mut().find(|part| part.name.ends_with(".scale")).unwrap();
        scale.bytes.as_chunks_mut().0.iter_mut().for_each(|bytes| {
            *bytes = (f32::from_le_bytes(*bytes) / 64.0).to_le_bytes();
        });
    });
    assert!(checkpoint.unwrap().tensors["a.weight"].integers().is_none());
}

fn resize(parts: &mut [Part], name: &str, shape: &[usize]) {
    let part = parts.iter_mut().find(|part| part.name == name).unwrap();
    let width = part.bytes.len() / part.shape.iter().product::<usize>();
    part.bytes.resize(shape.iter().product::<usize>() * width, 0);
    part.shape = shape.to_vec();
}

#[test]
fn bad_parts_are_one_clear_error() {
    type Change = fn(&mut Vec<Part>, &mut Value);
    let cases: [(Way, Change, &str); 18] = [
        (
            GPTQ,
            |_, c| c["bits"] = 5.into(),
            "config key `quantization_config.bits` is 5, which is not supported",
        ),
        (
            GPTQ,
            |_, c| c["bits"] = "x".into(),
            "config key `quantization_config.bits` is \"x\", expected a size",
        ),
        (
            GPTQ,
            |_, c| c["group_size"] = 0.into(),
            "config key `quantization_config.group_size` is 0, expected a size, or -1",
        ),
        (
            GPTQ,
            |_, c| c["group_size"] = 24.into(),
            "tensor `a.qweight`: has 64 inputs, which cannot be divided into groups of 24",
        ),
        (GPTQ, |_, c| c["bits"] = 8.into(), "tensor `a.qzeros`: is [2, 4], expected [1, 8]"),
        (
            GPTQ,
            |_, c| c["checkpoint_format"] = "marlin".into(),
            "config key `quantization_config.checkpoint_format` is `marlin`",
        ),
        (
            GPTQ,
            |p, _| p.retain(|part| part.name != "a.scales"),
            "tensor `a.scales`: is missing, and its matrix is quantised",
        ),
        (GPTQ, |p, _| resize(p, "a.scales", &[2, 31]), "tensor `a.scales`: is [2, 31], expected [2, 32]"),
        (GPTQ, |p, _| resize(p, "a.qzeros", &[1, 4]), "tensor `a.qzeros`: is [1, 4], expected [2, 4]"),
        (
            GPTQ,
            |p, _| p[3].bytes[4] = 9,
            "tensor `a.g_idx`: says that input 1 is in group 9, and there are 2 groups",
        ),
        (
            GPTQ,
            |p, c| {
                p.pop();
                c["desc_act"] = true.into();
            },
            "tensor `a.g_idx`: is missing",
        ),
        (
            GPTQ,
            |p, _| p.push(Part::halves("a.weight", &[1], &[0.0])),
            "tensor `a.weight`: is there, and in quantised parts as well",
        ),
        (
            Way::Awq { size: 32 },
            |_, c| c["version"] = "gemv".into(),
            "config key `quantization_config.version` is `gemv`",
        ),
        (
            Way::Awq { size: 32 },
            |_, c| c["bits"] = 8.into(),
            "config key `quantization_config.bits` is 8, which is not supported",
        ),
        (
            Way::Awq { size: 32 },
            |p, _| resize(p, "a.qweight", &[64]),
            "tensor `a.qweight`: is [64], expected inputs by words",
        ),
        (
            PACKED,
            |p, _| resize(p, "a.weight_packed", &[32, 7]),
            "tensor `a.weight_packed`: is [32, 7], which [4] bits by a shape of [32, 64] do not give",
        ),
        (
            PACKED,
            |p, _| resize(p, "a.weight_scale", &[32, 3]),
            "tensor `a.weight_scale`: has 3 groups, which do not divide 64 inputs",
        ),
        (
            PACKED,
            |_, c| c["format"] = "float-quantized".into(),
            "config key `quantization_config.format` is `float-quantized`",
        ),
    ];
    for (way, change, expected) in cases {
        let error = opened(way, [32, 64], change).0.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\nexpected {expected}");
        assert!(error.file().is_some());
    }
}

#[test]
fn groups_are_those_of_the_scales_and_not_empty() {
    let (empty, _) = opened(Way::Bytes, [32, 64], |parts, _| resize(parts, "a.weight", &[32, 0]));
    let error = empty.unwrap_err().to_string();
    assert!(
        error.ends_with("tensor `a.weight_scale`: has 1 groups, which do not divide 0 inputs"),
        "{error}"
    );
    let (other, _) = opened(Way::Fake { is_exact: true }, [32, 64], |parts, _| {
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
            let help = error.help().unwrap();
            assert!(
                ["`awq`", "`compressed-tensors`", "`gptq`"].iter().all(|name| help.contains(name)),
                "{help}"
            );
        }
    }
}
