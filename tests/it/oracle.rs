//! References against each other: candle-transformers and the plain ones, prefill and single steps.

use anemeter::checkpoint;
use anemeter::oracle::{self, Oracle};

use crate::architectures;

const IDS: &[u32] = &[5, 9, 2, 30, 11, 7, 36, 1, 0, 22];
const POSITIONS: usize = 16;

/// Logits after the first tokens at once and after each of the others.
fn logits(oracle: &mut dyn Oracle, first: usize) -> Vec<Vec<f32>> {
    oracle.reset();
    let mut logits = vec![oracle.feed(&IDS[..first]).unwrap()];
    logits.extend(IDS[first..].iter().map(|&id| oracle.feed(&[id]).unwrap()));
    logits
}

fn farthest(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs
        .map(|(a, b)| if a.is_finite() && b.is_finite() { (a - b).abs() } else { f32::NAN })
        .fold(0.0, f32::max)
}

#[test]
fn both_references_agree_however_tokens_are_fed() {
    let folder = tempfile::tempdir().unwrap();
    let mut ready = Vec::new();
    for tiny in architectures::all() {
        let checkpoint = checkpoint::open(tiny.write(folder.path())).unwrap();
        let mut best = oracle::open(&checkpoint, POSITIONS).unwrap();
        let mut plain = oracle::open_plain(&checkpoint, POSITIONS).unwrap();
        if !best.describe().starts_with("plain") {
            ready.push(tiny.name);
        }
        assert_eq!(best.vocabulary(), 37);
        let whole = logits(plain.as_mut(), 6);
        assert!(whole.iter().flatten().any(|x| x.abs() > 0.5), "{} computes something", tiny.name);
        for (what, found) in [
            ("candle", logits(best.as_mut(), 6)),
            ("plain, token by token", logits(plain.as_mut(), 1).split_off(5)),
            ("candle, token by token", logits(best.as_mut(), 1).split_off(5)),
        ] {
            let distance = farthest(&found, &whole);
            assert!(distance < 2e-4, "{} {what}: {distance}", tiny.name);
        }
    }
    let expected = [
        "llama",
        "llama3",
        "student",
        "mistral",
        "mistral-tied",
        "qwen2",
        "qwen3",
        "qwen3-biased",
        "gemma3",
        "phi3",
    ];
    assert_eq!(ready, expected, "what candle-transformers is trusted with");
}
