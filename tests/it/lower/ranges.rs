//! Factors on activations change nothing in real arithmetic.

use anemeter::model::{Decoder, LayerRange, RangeScales};

use super::features::{capped_scores, inner, side_by_side, wide_norms};
use super::models::{TINY, llama};
use super::reference;
use super::{PROMPT, gemma, gpt2};

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
