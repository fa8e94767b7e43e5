//! Factors that keep activations within fp16, from the largest that a calibration meets.

use std::collections::BTreeMap;

use half::f16;

use super::error::CalibrateError;
use super::hidden::Hidden;
use super::layer::run_layer;
use super::linear::{Inputs, LoadedLinear, Observer};
use crate::model::{Attention, Decoder, Layer, LayerRange, RangeScales};

/// No activation of the calibration is to be larger than this: half of what fp16 holds.
const LIMIT: f32 = f16::MAX.to_f32_const() / 2.0;

/// An activation that is larger than it may be.
#[derive(Debug, Clone, PartialEq)]
pub struct LargeActivation {
    /// The tensor, as the program names the part that gives it, such as `layers_3_mlp_down`.
    pub tensor: String,
    /// Its largest magnitude without factors.
    pub largest: f32,
    /// The factor that it gets; 1 if nothing can be done about it.
    pub factor: f32,
}

/// What a calibration found, and the factors that follow from it.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeRepair {
    /// The factors.
    pub scales: RangeScales,
    /// The tensor with the largest magnitude, and that magnitude.
    pub largest: (String, f32),
    /// Activations beyond half of what fp16 holds, largest first.
    pub large: Vec<LargeActivation>,
}

/// Takes sequences through a decoder and chooses factors for what becomes too large.
pub fn repair_range(
    decoder: &Decoder,
    sequences: &[Vec<u32>],
    began: &dyn Fn(&str),
) -> Result<RangeRepair, CalibrateError> {
    let mut peaks = Peaks::default();
    let mut hidden = Hidden::embed(decoder, sequences, |_, _| ())?;
    peaks.saw("embedded", &hidden.rows);
    for (index, layer) in decoder.layers.iter().enumerate() {
        began(&format!("range of layer {index}"));
        rayon::scope(|_| run_layer(&mut hidden, index, layer, &mut peaks))?;
    }
    Ok(peaks.repair(decoder))
}

/// The largest magnitude of every tensor.
#[derive(Default)]
struct Peaks(BTreeMap<String, f32>);

impl Observer for Peaks {
    fn before(&mut self, _: &Inputs<'_>, _: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        Ok(())
    }

    fn saw(&mut self, place: &str, values: &[f32]) {
        let largest =
            values.iter().fold(0.0f32, |most, x| if x.is_nan() { f32::INFINITY } else { most.max(x.abs()) });
        let entry = self.0.entry(place.to_owned()).or_insert(0.0);
        *entry = entry.max(largest);
    }
}

/// What of a layer is in one factor.
type Part = (fn(&mut LayerRange) -> &mut f32, &'static [&'static str]);

/// The factors of a layer, and the tensors that have them.
const PARTS: &[Part] = &[
    (|range| &mut range.query, &["attention_query"]),
    (|range| &mut range.key, &["attention_key"]),
    (|range| &mut range.value, &["attention_value"]),
    (|range| &mut range.attended, &["attention_output"]),
    (|range| &mut range.product, &["mlp_up", "mlp_value", "mlp_product"]),
    (|range| &mut range.mlp, &["mlp_down", "mlp_out"]),
    (|range| &mut range.per_layer, &["per_layer_projection"]),
];

/// Tensors of the residual stream.
const STREAM: &[&str] = &["attended", "mixed", "out"];

impl Peaks {
    fn of(&self, tensor: &str) -> f32 {
        self.0.get(tensor).copied().unwrap_or(0.0)
    }

    fn repair(&self, decoder: &Decoder) -> RangeRepair {
        let name = |index: usize, tensor: &str| format!("layers_{index}_{tensor}");
        let mut factors: BTreeMap<String, f32> = BTreeMap::new();
        let mut stream: Vec<String> = vec!["embedded".to_owned()];
        let mut scales = RangeScales::none(decoder.layers.len());
        for (index, layer) in decoder.layers.iter().enumerate() {
            stream.extend(STREAM.iter().map(|tensor| name(index, tensor)));
            for (part, (of, tensors)) in PARTS.iter().enumerate() {
                match home(decoder, layer, (index, part)) {
                    Home::Stream => stream.extend(tensors.iter().map(|tensor| name(index, tensor))),
                    Home::Own => {
                        let tensors: Vec<String> = tensors.iter().map(|tensor| name(index, tensor)).collect();
                        let factor = self.factor(&tensors);
                        *of(&mut scales.layers[index]) = factor;
                        factors.extend(tensors.into_iter().map(|tensor| (tensor, factor)));
                    }
                    Home::None => {}
                }
            }
        }
        scales.stream = self.factor(&stream);
        factors.extend(stream.into_iter().map(|tensor| (tensor, scales.stream)));
        let mut large: Vec<LargeActivation> = self
            .0
            .iter()
            .filter(|(_, largest)| **largest > LIMIT)
            .map(|(tensor, &largest)| {
                let factor = factors.get(tensor).copied().unwrap_or(1.0);
                LargeActivation { tensor: tensor.clone(), largest, factor }
            })
            .collect();
        large.sort_by(|a, b| b.largest.total_cmp(&a.largest));
        let largest = self.0.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let largest =
            largest.map_or_else(|| ("embedded".to_owned(), 0.0), |(name, &value)| (name.clone(), value));
        RangeRepair { scales, largest, large }
    }

    /// The largest power of two, 1 at most, that brings tensors within the limit.
    fn factor(&self, tensors: &[String]) -> f32 {
        let most = tensors.iter().map(|tensor| self.of(tensor)).fold(0.0, f32::max);
        let mut factor = 1.0;
        while most * factor > LIMIT && factor > f32::MIN_POSITIVE && most.is_finite() {
            factor /= 2.0;
        }
        factor
    }
}

/// Which factor tensors of a part have.
enum Home {
    /// That of the residual stream.
    Stream,
    /// One of their own.
    Own,
    /// None.
    None,
}

/// By the place of the part in [`PARTS`].
fn home(decoder: &Decoder, layer: &Layer, (index, part): (usize, usize)) -> Home {
    let is_shared = || {
        let mut sources = decoder.layers.iter().filter_map(|other| other.attention()?.shared_from);
        sources.any(|source| source == index)
    };
    let own = |is_own: bool| if is_own { Home::Own } else { Home::None };
    let own_of_attention = |has_norm: fn(&Attention) -> bool| {
        own(layer.attention().is_some_and(|attention| has_norm(attention) || !is_shared()))
    };
    match part {
        0 => own_of_attention(|_| true),
        1 => own_of_attention(|attention| attention.key_norm.is_some()),
        2 => own_of_attention(|attention| attention.value_norm.is_some()),
        3 if layer.post_attention_norm.is_none() => Home::Stream,
        4 => own(layer.mlp.scales_product()),
        5 if layer.post_mlp_norm.is_none() => Home::Stream,
        _ => Home::Own,
    }
}
