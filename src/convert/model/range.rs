//! Powers of two that keep activations within fp16, folded into weights.
//!
//! A norm gives the same for an input times a number if its epsilon is multiplied by the square of the number. The
//! residual stream may therefore carry any factor that embeddings and whatever is added to it carry as well. Values
//! within a layer may have factors of their own where a later map takes them back. In real arithmetic nothing changes, and
//! powers of two change no digit of a weight but at the very end of fp16's range.

use std::collections::BTreeMap;

use super::graph::{Activation, Attention, Decoder, Layer, Linear, Mlp, Norm, Position, Residual};
use super::mixer::{DeltaNet, Mixer, ShortConv};
use super::per_layer::{PerLayerInputs, PerLayerMix};
use super::weight::Weight;

/// Factors on the activations of a decoder, powers of two.
#[derive(Debug, Clone, PartialEq)]
pub struct RangeScales {
    /// Factor on the residual stream.
    pub stream: f32,
    /// Factors within each layer.
    pub layers: Vec<LayerRange>,
}

/// Factors on activations within a layer. Keys and values that other layers see as well have none, unless they are normed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerRange {
    /// On queries before their norm or their scale.
    pub query: f32,
    /// On keys before their norm, or for good where they have none.
    pub key: f32,
    /// On values before their norm; without one, on what attention mixes as well.
    pub value: f32,
    /// On what attention gives before its norm; without one it is part of the residual stream.
    pub attended: f32,
    /// On what the gate multiplies, and on the product; only where the activation or the gate lets it through.
    pub product: f32,
    /// On what the MLP gives before its norm, as [`LayerRange::attended`].
    pub mlp: f32,
    /// On what the layer makes of its own input before its norm.
    pub per_layer: f32,
}

impl LayerRange {
    /// No change.
    pub const NONE: LayerRange = LayerRange {
        query: 1.0,
        key: 1.0,
        value: 1.0,
        attended: 1.0,
        product: 1.0,
        mlp: 1.0,
        per_layer: 1.0,
    };
}

impl RangeScales {
    /// No change to a decoder of so many layers.
    pub fn none(layers: usize) -> RangeScales {
        RangeScales { stream: 1.0, layers: vec![LayerRange::NONE; layers] }
    }

    /// The factors other than 1 that the matrices of a decoder got, by their names in the packages.
    pub fn weight_factors(before: &Decoder, after: &Decoder) -> BTreeMap<String, f32> {
        let pairs = matrices(before).into_iter().zip(matrices(after));
        let factors = pairs.map(|((name, before), (_, after))| (name, after.factor() / before.factor()));
        factors.filter(|(_, factor)| *factor != 1.0).collect()
    }

    /// Whether nothing changes.
    pub fn is_none(&self) -> bool {
        *self == RangeScales::none(self.layers.len())
    }
}

impl Decoder {
    /// The same decoder with factors on its activations.
    #[must_use]
    pub fn with_ranges(self, scales: &RangeScales) -> Decoder {
        if scales.is_none() {
            return self;
        }
        let stream = scales.stream;
        let position = match self.position {
            Position::Rotary => Position::Rotary,
            Position::Learned(weight) => Position::Learned(weight.scaled(stream)),
        };
        let none = LayerRange::NONE;
        let factors = scales.layers.iter().copied().chain(std::iter::repeat(none));
        let layers = self.layers.into_iter().zip(factors);
        Decoder {
            embedding_scale: self.embedding_scale * stream,
            position,
            per_layer: self
                .per_layer
                .map(|inputs| PerLayerInputs { norm: of_scaled(inputs.norm, stream), ..inputs }),
            layers: layers.map(|(layer, own)| layer.with_ranges(stream, own)).collect(),
            final_norm: of_scaled(self.final_norm, stream),
            ..self
        }
    }
}

/// The matrices of all layers, and learned positions.
fn matrices(decoder: &Decoder) -> Vec<(String, &Weight)> {
    let mut all = Vec::new();
    if let Position::Learned(weight) = &decoder.position {
        all.push(("positions_weight".to_owned(), weight));
    }
    for (index, Layer { mixer, mlp, per_layer, .. }) in decoder.layers.iter().enumerate() {
        let mut maps = match mlp {
            Mlp::Plain { up, down, .. } => vec![("mlp_up", up), ("mlp_down", down)],
            Mlp::Gated { gate, up, down, .. } => vec![("mlp_gate", gate), ("mlp_up", up), ("mlp_down", down)],
            Mlp::Inner { into, value, gate, out, .. } => {
                vec![("mlp_into", into), ("mlp_value", value), ("mlp_gate", gate), ("mlp_out", out)]
            }
        };
        if let Some(mix) = per_layer {
            maps.extend([("per_layer_gate", &mix.gate), ("per_layer_projection", &mix.projection)]);
        }
        let part = mixer.name();
        let mixing = mixer.matrices().into_iter().map(|(name, map)| (format!("{part}_{name}"), map));
        let others = maps.into_iter().map(|(name, map)| (name.to_owned(), map));
        all.extend(
            mixing.chain(others).map(|(name, map)| (format!("layers_{index}_{name}_weight"), &map.weight)),
        );
    }
    all
}

/// The norm of an input that has a factor.
fn of_scaled(norm: Norm, factor: f32) -> Norm {
    Norm { epsilon: norm.epsilon * factor * factor, ..norm }
}

/// The map of an input that has a factor, giving one with another.
fn between(linear: Linear, from: f32, to: f32) -> Linear {
    Linear { weight: linear.weight.scaled(to / from), bias: linear.bias.map(|bias| bias.scaled(to)) }
}

impl Layer {
    fn with_ranges(self, stream: f32, own: LayerRange) -> Layer {
        // What a part takes: the stream, or a norm of it, which has no factor.
        let taken = |norm: &Option<Norm>| if norm.is_some() { 1.0 } else { stream };
        let into_attention = taken(&self.attention_norm);
        let into_mlp = match (&self.mlp_norm, self.residual) {
            (None, Residual::Parallel) => into_attention,
            (norm, _) => taken(norm),
        };
        let (attended, post_attention_norm) = added(self.post_attention_norm, own.attended, stream);
        let (mlp, post_mlp_norm) = added(self.post_mlp_norm, own.mlp, stream);
        Layer {
            attention_norm: self.attention_norm.map(|norm| of_scaled(norm, stream)),
            mixer: self.mixer.with_ranges((into_attention, attended), own),
            post_attention_norm,
            mlp_norm: self.mlp_norm.map(|norm| of_scaled(norm, stream)),
            mlp: self.mlp.with_ranges((into_mlp, mlp), own.product),
            post_mlp_norm,
            residual: self.residual,
            per_layer: self.per_layer.map(|mix| mix.with_ranges(stream, own.per_layer)),
            scale: self.scale,
        }
    }
}

/// The factor of what is added, before its norm if it has one, and that norm.
fn added(norm: Option<Norm>, own: f32, stream: f32) -> (f32, Option<Norm>) {
    match norm {
        Some(norm) => (own, Some(of_scaled(norm, own).scaled(stream))),
        None => (stream, None),
    }
}

impl Mixer {
    /// Only attention has factors between its maps.
    fn with_ranges(self, (into, out): (f32, f32), own: LayerRange) -> Mixer {
        match self {
            Mixer::Attention(attention) => Mixer::Attention(attention.with_ranges((into, out), own)),
            Mixer::ShortConv(mixer) => Mixer::ShortConv(ShortConv {
                before: between(mixer.before, into, 1.0),
                after: between(mixer.after, into, 1.0),
                value: between(mixer.value, into, 1.0),
                output: between(mixer.output, 1.0, out),
                ..mixer
            }),
            Mixer::DeltaNet(mixer) => Mixer::DeltaNet(DeltaNet {
                qkv: between(mixer.qkv, into, 1.0),
                gate: between(mixer.gate, into, 1.0),
                beta: between(mixer.beta, into, 1.0),
                decay: between(mixer.decay, into, 1.0),
                output: between(mixer.output, 1.0, out),
                ..mixer
            }),
        }
    }
}

impl Attention {
    fn with_ranges(self, (into, out): (f32, f32), own: LayerRange) -> Attention {
        let scale = [(&self.query_norm, own.query), (&self.key_norm, own.key)];
        let scale = scale.into_iter().filter(|(norm, _)| norm.is_none()).fold(self.scale, |s, (_, f)| s / f);
        let mixed = if self.value_norm.is_some() { 1.0 } else { own.value };
        Attention {
            scale,
            query: between(self.query, into, own.query),
            key: between(self.key, into, own.key),
            value: between(self.value, into, own.value),
            output: between(self.output, mixed, out),
            output_gate: self.output_gate.map(|gate| between(gate, into, 1.0)),
            query_norm: self.query_norm.map(|norm| of_scaled(norm, own.query)),
            key_norm: self.key_norm.map(|norm| of_scaled(norm, own.key)),
            value_norm: self.value_norm.map(|norm| of_scaled(norm, own.value)),
            ..self
        }
    }
}

impl Mlp {
    /// Whether a factor on the product reaches what the last map takes.
    pub(crate) fn scales_product(&self) -> bool {
        match self {
            Mlp::Plain { activation, .. } => *activation == Activation::Relu,
            Mlp::Gated { .. } | Mlp::Inner { .. } => true,
        }
    }

    fn with_ranges(self, (into, out): (f32, f32), product: f32) -> Mlp {
        let product = if self.scales_product() { product } else { 1.0 };
        match self {
            Mlp::Plain { up, activation, down } => {
                Mlp::Plain { up: between(up, into, product), activation, down: between(down, product, out) }
            }
            Mlp::Gated { gate, up, activation, down } => Mlp::Gated {
                gate: between(gate, into, 1.0),
                up: between(up, into, product),
                activation,
                down: between(down, product, out),
            },
            Mlp::Inner { into: first, value, gate, how, gate_norm, out: last } => Mlp::Inner {
                into: between(first, into, 1.0),
                value: between(value, 1.0, product),
                gate,
                how,
                gate_norm,
                out: between(last, product, out),
            },
        }
    }
}

impl PerLayerMix {
    fn with_ranges(self, stream: f32, own: f32) -> PerLayerMix {
        PerLayerMix {
            gate: between(self.gate, stream, 1.0),
            activation: self.activation,
            projection: between(self.projection, 1.0, own),
            norm: of_scaled(self.norm, own).scaled(stream),
        }
    }
}
