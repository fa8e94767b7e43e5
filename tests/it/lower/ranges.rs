//! Factors on activations change nothing in real arithmetic.

use anemeter::calibrate::{Hidden, head_input, run_layer};
use anemeter::checkpoint;
use anemeter::model::{self, Decoder, LayerRange, RangeScales};

use super::features::{capped_scores, inner, side_by_side, wide_norms};
use super::models::{TINY, llama};
use super::reference;
use super::{PROMPT, gemma, gpt2};
use crate::support::gemma4;

/// A different factor for every part.
fn scales(decoder: &Decoder) -> RangeScales {
    let power = |n: i32| 2f32.powi(-n);
    let layer = |index: usize| {
        let n = i32::try_from(index).unwrap();
        LayerRange {
            query: power(n + 1),
            key: power(n + 2),
            value: power(3),
            attended: power(4 - n),
            product: power(2 + n),
            mlp: power(5),
            per_layer: power(1),
        }
    };
    RangeScales { stream: power(6), layers: (0..decoder.layers.len()).map(layer).collect() }
}

#[test]
fn factors_change_nothing_that_comes_out() {
    let decoders = [
        ("llama", llama(TINY, 31)),
        ("gpt2", gpt2()),
        ("gemma", gemma()),
        ("capped", capped_scores()),
        ("inner", inner()),
        ("side by side", side_by_side()),
        ("wide norms", wide_norms()),
    ];
    for (name, decoder) in decoders {
        let expected = reference::logits(&decoder, PROMPT);
        let scales = scales(&decoder);
        let scaled = decoder.clone().with_ranges(&scales);
        let found = reference::logits(&scaled, PROMPT);
        assert_eq!(expected.len(), found.len(), "{name}");
        for (a, b) in expected.iter().flatten().zip(found.iter().flatten()) {
            assert!((a - b).abs() < 2e-5 * (1.0 + a.abs()), "{name}: {b}, expected {a}");
        }
        let factors = RangeScales::weight_factors(&decoder, &scaled);
        assert!(factors.len() >= decoder.layers.len() * 4, "{name}: {factors:?}");
        assert!(factors.values().all(|factor| factor.log2().fract() == 0.0), "{name}: {factors:?}");
        let same = decoder.clone().with_ranges(&RangeScales::none(decoder.layers.len()));
        assert!(RangeScales::weight_factors(&decoder, &same).is_empty());
    }
}

/// What the head takes of a text.
fn last_hidden(decoder: &Decoder) -> Vec<f32> {
    let ids = PROMPT.iter().map(|&id| u32::try_from(id).unwrap()).collect();
    let mut hidden = Hidden::embed(decoder, &[ids], |_, _| ()).unwrap();
    for (index, layer) in decoder.layers.iter().enumerate() {
        run_layer(&mut hidden, index, layer, &mut ()).unwrap();
    }
    head_input(&hidden, decoder, &mut ()).unwrap()
}

#[test]
fn factors_of_inputs_of_layers_and_of_shared_keys_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for tiny in gemma4::all() {
        let decoder = model::build(&checkpoint::open(tiny.write(folder.path())).unwrap()).unwrap();
        let mut scales = scales(&decoder);
        for (layer, own) in decoder.layers.iter().zip(&mut scales.layers) {
            // Keys and values of another layer have its factors, which its norms take back.
            if layer.attention().is_some_and(|attention| attention.shared_from.is_some()) {
                (own.key, own.value) = (1.0, 1.0);
            }
        }
        let expected = last_hidden(&decoder);
        let found = last_hidden(&decoder.clone().with_ranges(&scales));
        assert_eq!(expected.len(), found.len(), "{}", tiny.name);
        for (a, b) in expected.iter().zip(&found) {
            assert!((a - b).abs() < 2e-5 * (1.0 + a.abs()), "{}: {b}, expected {a}", tiny.name);
        }
        assert!(expected.iter().any(|x| x.abs() > 0.1), "{}", tiny.name);
    }
}
