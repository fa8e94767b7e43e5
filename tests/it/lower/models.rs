//! Small decoders with random weights.

use anemeter::checkpoint::{Encoding, Stored};
use anemeter::model::{
    Activation, Attention, Decoder, Head, Layer, Linear, Mixer, Mlp, Norm, NormKind, Position, Residual,
    Rope, RopeScaling, Source, Weight,
};
use anemeter::tensor::{AlignedBuf, DType};
use half::f16;

use crate::support::fixtures::numbers;

/// Sizes of a decoder.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) wide: usize,
    pub(crate) layers: usize,
    pub(crate) vocabulary: usize,
}

pub(crate) const TINY: Sizes =
    Sizes { hidden: 24, heads: 4, kv_heads: 2, head_dim: 8, wide: 40, layers: 3, vocabulary: 37 };

/// Gives weights, each different.
pub(crate) struct Random {
    pub(crate) seed: u32,
}

impl Random {
    /// A weight with elements up to `scale`, exact in fp16.
    pub(crate) fn weight(&mut self, shape: &[usize], scale: f32) -> Weight {
        self.seed += 1;
        let values = numbers(shape.iter().product(), self.seed);
        let values: Vec<f32> = values.iter().map(|v| f16::from_f32(v.to_f32() * scale).to_f32()).collect();
        stored(&format!("weight_{}", self.seed), shape, &values)
    }

    pub(crate) fn linear(&mut self, out: usize, into: usize, biased: bool) -> Linear {
        let weight = self.weight(&[out, into], 1.5 / (into as f32).sqrt());
        Linear { weight, bias: biased.then(|| self.weight(&[out], 0.3)) }
    }

    /// Scales are around one.
    pub(crate) fn norm(&mut self, kind: NormKind, size: usize) -> Norm {
        self.seed += 1;
        let values = numbers(size, self.seed);
        let values: Vec<f32> =
            values.iter().map(|v| f16::from_f32(1.0 + v.to_f32() * 0.3).to_f32()).collect();
        let weight = stored(&format!("norm_{}", self.seed), &[size], &values);
        let bias = (kind == NormKind::Layer).then(|| self.weight(&[size], 0.2));
        Norm { kind, weight, bias, epsilon: 1e-5 }
    }
}

/// A weight over f32 bytes.
pub(crate) fn stored(name: &str, shape: &[usize], values: &[f32]) -> Weight {
    let bytes = AlignedBuf::from_slice(bytemuck::cast_slice(values)).into();
    let stored = Stored { shape: shape.into(), encoding: Encoding::Plain(DType::F32), bytes, shard: 0 };
    Weight { name: name.to_owned(), shape: shape.into(), source: Source::Stored(stored) }
}

/// Like Llama: RMS norms, gated SiLU, rotary positions, grouped queries.
pub(crate) fn llama(sizes: Sizes, seed: u32) -> Decoder {
    let mut random = Random { seed: seed * 1000 };
    let Sizes { hidden, heads, kv_heads, head_dim, wide, vocabulary, .. } = sizes;
    let layers = (0..sizes.layers).map(|_| Layer {
        attention_norm: Some(random.norm(NormKind::Rms, hidden)),
        mixer: Mixer::Attention(Attention {
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            query: random.linear(heads * head_dim, hidden, false),
            key: random.linear(kv_heads * head_dim, hidden, false),
            value: random.linear(kv_heads * head_dim, hidden, false),
            output: random.linear(hidden, heads * head_dim, false),
            query_norm: None,
            key_norm: None,
            rope: Some(rope(10_000.0, head_dim)),
            window: None,
            softcap: None,
            growth: None,
            value_norm: None,
            shared_from: None,
            output_gate: None,
        }),
        post_attention_norm: None,
        mlp_norm: Some(random.norm(NormKind::Rms, hidden)),
        mlp: Mlp::Gated {
            gate: random.linear(wide, hidden, false),
            up: random.linear(wide, hidden, false),
            activation: Activation::Silu,
            down: random.linear(hidden, wide, false),
        },
        post_mlp_norm: None,
        residual: Residual::Sequential,
        per_layer: None,
        scale: 1.0,
    });
    let layers = layers.collect();
    Decoder {
        architecture: "llama",
        hidden,
        vocabulary,
        max_positions: 64,
        embedding: random.weight(&[vocabulary, hidden], 1.0),
        embedding_scale: 1.0,
        position: Position::Rotary,
        per_layer: None,
        layers,
        final_norm: random.norm(NormKind::Rms, hidden),
        head: Head {
            map: None,
            weight: random.weight(&[vocabulary, hidden], 0.5),
            tied: false,
            softcap: None,
        },
    }
}

pub(crate) fn rope(base: f64, dims: usize) -> Rope {
    Rope { base, dims, scaling: RopeScaling::None }
}
