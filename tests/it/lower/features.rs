//! Decoders with the parts that only some architectures have, one part each.

use anemeter::model::{Activation, Decoder, Gate, Mlp, Norm, NormKind, Residual};

use super::models::{Random, Sizes, TINY, llama};

/// Every other layer without rotation or any position.
pub(super) fn without_positions() -> Decoder {
    let mut decoder = llama(TINY, 13);
    decoder.layers.iter_mut().step_by(2).for_each(|layer| layer.mixer.attention_mut().unwrap().rope = None);
    decoder
}

/// Scores capped so low that the cap matters.
pub(super) fn capped_scores() -> Decoder {
    let mut decoder = llama(TINY, 14);
    decoder.layers.iter_mut().for_each(|layer| layer.mixer.attention_mut().unwrap().softcap = Some(0.6));
    decoder
}

/// One norm of all query heads and one of all key heads, and norms after attention and MLP alone.
pub(super) fn wide_norms() -> Decoder {
    let mut decoder = llama(TINY, 15);
    let mut random = Random { seed: 150_000 };
    for layer in &mut decoder.layers {
        let Sizes { heads, kv_heads, head_dim, hidden, .. } = TINY;
        layer.mixer.attention_mut().unwrap().query_norm = Some(random.norm(NormKind::Rms, heads * head_dim));
        layer.mixer.attention_mut().unwrap().key_norm = Some(random.norm(NormKind::Rms, kv_heads * head_dim));
        layer.attention_norm = None;
        layer.mlp_norm = None;
        layer.post_attention_norm = Some(random.norm(NormKind::Rms, hidden));
        layer.post_mlp_norm = Some(random.norm(NormKind::Rms, hidden));
    }
    decoder
}

/// Attention and MLP side by side: with one norm for both, which has no bias, and with one each.
pub(super) fn side_by_side() -> Decoder {
    let mut decoder = llama(TINY, 16);
    let mut random = Random { seed: 160_000 };
    for (i, layer) in decoder.layers.iter_mut().enumerate() {
        let centred = random.norm(NormKind::Layer, TINY.hidden);
        layer.attention_norm = Some(Norm { bias: None, ..centred });
        layer.residual = Residual::Parallel;
        if i != 1 {
            layer.mlp_norm = None;
        }
    }
    decoder
}

/// What layers add, and logits, times numbers that are folded into weights.
pub(super) fn multiplied() -> Decoder {
    let mut decoder = llama(TINY, 17);
    for layer in &mut decoder.layers {
        let attention = layer.mixer.attention_mut().unwrap();
        attention.output = attention.output.clone().scaled(0.22);
        if let Mlp::Gated { down, .. } = &mut layer.mlp {
            *down = down.clone().scaled(0.22);
        }
    }
    decoder.final_norm = decoder.final_norm.clone().scaled(1.0 / 8.0);
    decoder
}

/// Gates inside the MLP, each layer another one.
pub(super) fn inner() -> Decoder {
    let mut decoder = llama(TINY, 8);
    let mut random = Random { seed: 80_000 };
    let gates = [(Activation::Sigmoid, 0.7), (Activation::Relu, 0.4), (Activation::Silu, 1.0)];
    for (i, (layer, (activation, alpha))) in decoder.layers.iter_mut().zip(gates).enumerate() {
        layer.mlp = Mlp::Inner {
            into: random.linear(TINY.wide, TINY.hidden, false),
            value: random.linear(20, TINY.wide, true),
            gate: random.linear(20, TINY.wide, false),
            how: Gate { activation, alpha },
            gate_norm: (i == 1).then(|| random.norm(NormKind::Layer, 20)),
            out: random.linear(TINY.hidden, 20, false),
        };
    }
    decoder
}
