//! GPT-2: learned positions, layer norms, fused projections stored as `[in, out]`, biases everywhere.

use super::{Architecture, activation, head};
use crate::checkpoint::Config;
use crate::model::graph::{Activation, Attention, Decoder, Layer, Mlp, Position, Residual};
use crate::model::keys::{Keys, Result, Size};
use crate::model::tensors::{Prefix, Tensors};

/// The embedding.
const PROBE: &str = "wte.weight";

pub(super) const DEF: Architecture = Architecture {
    name: "gpt2",
    classes: &["GPT2LMHeadModel"],
    model_types: &["gpt2"],
    marker: None,
    // The first releases had no prefix.
    prefixes: &[Prefix { body: "transformer.", head: "" }, Prefix { body: "", head: "" }],
    probe: PROBE,
    // Causal masks, which were stored as buffers.
    harmless: |name| name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"),
    build,
};

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let keys = Keys::new(config, &[]);
    let trunk = Trunk::read(&keys, tensors)?;
    let activation = activation(&keys, "activation_function", Activation::GeluTanh)?;
    trunk.decoder(DEF.name, &keys, tensors, |tensors, at| Mlp::Plain {
        up: tensors.conv1d(&format!("{at}.c_fc"), &trunk.inner, &trunk.hidden),
        activation,
        down: tensors.conv1d(&format!("{at}.c_proj"), &trunk.hidden, &trunk.inner),
    })
}

/// Everything but the MLPs.
pub(super) struct Trunk {
    pub(super) hidden: Size,
    /// Width inside an MLP.
    pub(super) inner: Size,
    vocabulary: Size,
    positions: Size,
    heads: Size,
    head_dim: Size,
    layers: usize,
    epsilon: f32,
    scales_scores: bool,
    scales_by_layer: bool,
}

impl Trunk {
    pub(super) fn read(keys: &Keys, tensors: &Tensors<'_>) -> Result<Trunk> {
        let (hidden, heads) = (keys.size("n_embd")?, keys.size("n_head")?);
        let four = Size { value: 4, from: "4".to_owned() };
        Ok(Trunk {
            inner: keys.opt_size("n_inner")?.unwrap_or_else(|| four.times(&hidden)),
            vocabulary: keys.size("vocab_size")?,
            positions: keys.size("n_positions")?,
            head_dim: keys.head_dim(None, &hidden, &heads)?,
            layers: keys.layers("n_layer", tensors.count())?,
            epsilon: keys.epsilon("layer_norm_epsilon", 1e-5)?,
            scales_scores: keys.bool_or("scale_attn_weights", true)?,
            scales_by_layer: keys.bool_or("scale_attn_by_inverse_layer_idx", false)?,
            hidden,
            heads,
        })
    }

    /// The whole model, given how to build an MLP from the start of its names.
    pub(super) fn decoder(
        &self,
        architecture: &'static str,
        keys: &Keys,
        tensors: &mut Tensors<'_>,
        mut mlp: impl FnMut(&mut Tensors<'_>, &str) -> Mlp,
    ) -> Result<Decoder> {
        let tied = keys.bool_or("tie_word_embeddings", true)?;
        let embedding = tensors.weight(PROBE, &[&self.vocabulary, &self.hidden]);
        let position = tensors.weight("wpe.weight", &[&self.positions, &self.hidden]);
        let layers = (0..self.layers).map(|i| {
            let at = format!("h.{i}");
            Layer {
                attention_norm: Some(tensors.layer_norm(&format!("{at}.ln_1"), &self.hidden, self.epsilon)),
                mixer: self.attention(tensors, &at, i).into(),
                post_attention_norm: None,
                mlp_norm: Some(tensors.layer_norm(&format!("{at}.ln_2"), &self.hidden, self.epsilon)),
                mlp: mlp(tensors, &format!("{at}.mlp")),
                post_mlp_norm: None,
                residual: Residual::Sequential,
                per_layer: None,
                scale: 1.0,
            }
        });
        Ok(Decoder {
            architecture,
            hidden: self.hidden.value,
            vocabulary: self.vocabulary.value,
            max_positions: self.positions.value,
            embedding_scale: 1.0,
            position: Position::Learned(position),
            per_layer: None,
            layers: layers.collect(),
            final_norm: tensors.layer_norm("ln_f", &self.hidden, self.epsilon),
            head: head(tied, tensors, &embedding, [&self.vocabulary, &self.hidden]),
            embedding,
        })
    }

    fn attention(&self, tensors: &mut Tensors<'_>, at: &str, layer: usize) -> Attention {
        let parts = [("query", &self.hidden), ("key", &self.hidden), ("value", &self.hidden)];
        let [query, key, value] = tensors.fused_conv1d(&format!("{at}.attn.c_attn"), parts, &self.hidden);
        let root = if self.scales_scores { (self.head_dim.value as f64).sqrt() } else { 1.0 };
        let depth = if self.scales_by_layer { (layer + 1) as f64 } else { 1.0 };
        Attention {
            heads: self.heads.value,
            kv_heads: self.heads.value,
            head_dim: self.head_dim.value,
            scale: (1.0 / (root * depth)) as f32,
            query,
            key,
            value,
            output: tensors.conv1d(&format!("{at}.attn.c_proj"), &self.hidden, &self.hidden),
            query_norm: None,
            key_norm: None,
            rope: None,
            window: None,
            softcap: None,
            growth: None,
            value_norm: None,
            shared_from: None,
            output_gate: None,
        }
    }
}
