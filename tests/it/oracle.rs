//! The oracle against itself, prompts at once and token by token, and against the layer-by-layer engine of calibration.
//! `check conformance --oracle` has candle-transformers.

use anemeter::calibrate::{Hidden, head_input, run_layer};
use anemeter::checkpoint;
use anemeter::model::{self, Decoder, rotate};
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

/// Logits of all positions of several sequences, layer by layer.
fn layer_by_layer(decoder: &Decoder, sequences: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let mut hidden = Hidden::embed(decoder, sequences, |_, _| ()).unwrap();
    for (index, layer) in decoder.layers.iter().enumerate() {
        run_layer(&mut hidden, index, layer, &mut ()).unwrap();
    }
    let mut head = vec![0.0; decoder.vocabulary * decoder.hidden];
    decoder.head.weight.read(0..head.len(), &mut head);
    let cap = |x: f32| decoder.head.softcap.map_or(x, |cap| cap * (x / cap).tanh());
    let inputs = head_input(&hidden, decoder, &mut ()).unwrap();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let row = |input: &[f32]| head.chunks(decoder.hidden).map(|row| cap(dot(row, input))).collect();
    inputs.chunks(decoder.hidden).map(row).collect()
}

#[test]
fn layer_by_layer_is_what_the_reference_computes_with_rotations_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut has_stream = Vec::new();
    for tiny in architectures::all() {
        let checkpoint = checkpoint::open(tiny.write(folder.path())).unwrap();
        let decoder = model::build(&checkpoint).unwrap();
        let mut oracle = oracle::open(&checkpoint, POSITIONS).unwrap();
        let expected = logits(oracle.as_mut(), 1);
        // Sums run in another order, and gemma3 has the largest ones.
        let largest = expected.iter().flatten().fold(1.0f32, |most, x| most.max(x.abs()));
        // The second sequence sees nothing of the first.
        let sequences = [IDS.to_vec(), IDS[..4].to_vec()];
        let rotated = rotate(&decoder);
        has_stream.push(rotated.stream.is_ok());
        for (form, decoder) in [("as it is", &decoder), ("rotated", &rotated.decoder)] {
            let found = layer_by_layer(decoder, &sequences);
            // Only at the last positions: with LongRoPE the others depend on how long the sequence becomes.
            let last = IDS.len() - 1;
            let pairs =
                [(&found[last..=last], &expected[last..=last]), (&found[last + 4..], &expected[3..4])];
            for (found, expected) in pairs {
                let distance = architectures::max_abs_difference(found, expected);
                assert!(distance < 2e-4 * largest, "{} {form}: {distance} of {largest}", tiny.name);
            }
        }
    }
    assert!(
        has_stream.contains(&true) && has_stream.contains(&false),
        "norms after a layer keep a stream as it is"
    );
}
