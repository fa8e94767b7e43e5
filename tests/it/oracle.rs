//! The oracle against itself: prompts at once and token by token. `check conformance --oracle` has candle-transformers.

use anemeter::checkpoint;
use anemeter::oracle;
use anemeter::verify::Oracle;

use crate::support::architectures;

const IDS: &[u32] = &[5, 9, 2, 30, 11, 7, 36, 1, 0, 22];
const POSITIONS: usize = 16;

/// Logits after the first tokens at once and after each of the others.
fn logits(oracle: &mut dyn Oracle, first: usize) -> Vec<Vec<f32>> {
    oracle.reset();
    let mut logits = vec![oracle.feed(&IDS[..first]).unwrap()];
    logits.extend(IDS[first..].iter().map(|&id| oracle.feed(&[id]).unwrap()));
    logits
}

#[test]
fn prefill_and_single_steps_agree() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in architectures::all() {
        let checkpoint = checkpoint::open(tiny.write(folder.path())).unwrap();
        let mut oracle = oracle::open(&checkpoint, POSITIONS).unwrap();
        assert_eq!(oracle.vocabulary(), 37);
        let whole = logits(oracle.as_mut(), 6);
        assert!(whole.iter().flatten().any(|x| x.abs() > 0.5), "{} computes something", tiny.name);
        let steps = logits(oracle.as_mut(), 1).split_off(5);
        let distance = architectures::max_abs_difference(&steps, &whole);
        assert!(distance < 2e-4, "{}: {distance}", tiny.name);
    }
}

#[test]
fn logits_that_are_not_numbers_are_infinitely_far_apart() {
    let (nan, one) = (vec![vec![1.0, f32::NAN, 1.0]], vec![vec![1.0; 3]]);
    assert_eq!(architectures::max_abs_difference(&nan, &one), f32::INFINITY);
    assert_eq!(architectures::max_abs_difference(&nan, &nan), f32::INFINITY);
    assert_eq!(architectures::max_abs_difference(&one, &one), 0.0);
}
