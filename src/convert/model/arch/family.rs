//! What Llama and its descendants share: sizes, grouped attention, gated MLPs and RMS norms under Llama's names.

use super::rotary::{self, Rotary};
use super::{activation, head};
use crate::model::graph::{
    Activation, Attention, Decoder, Layer, Linear, Mlp, Norm, NormKind, Position, Residual,
};
use crate::model::keys::{Keys, Result, Size};
use crate::model::mixer::Mixer;
use crate::model::rope::Rope;
use crate::model::tensors::{Prefix, Tensors};
use crate::model::weight::Pairs;

/// Where the names start.
pub(super) const PREFIXES: &[Prefix] = &[Prefix { body: "model.", head: "" }, Prefix { body: "", head: "" }];

/// The embedding.
pub(super) const PROBE: &str = "embed_tokens.weight";

/// Buffers that older versions of transformers stored.
pub(super) fn harmless(name: &str) -> bool {
    name.ends_with("rotary_emb.inv_freq")
}

/// The sizes and habits of a model of the family.
pub(super) struct Family {
    pub(super) architecture: &'static str,
    pub(super) hidden: Size,
    pub(super) vocabulary: Size,
    pub(super) intermediate: Size,
    pub(super) heads: Size,
    pub(super) kv_heads: Size,
    pub(super) head_dim: Size,
    pub(super) layers: usize,
    pub(super) epsilon: f32,
    pub(super) activation: Activation,
    /// Whether norms centre what they scale.
    pub(super) norm_kind: NormKind,
    /// Whether norms add a bias.
    pub(super) norm_bias: bool,
    /// Whether norms scale by one more than their weight.
    pub(super) adds_one: bool,
    /// The norm before the head.
    pub(super) final_norm: &'static str,
    /// Whether the head is the embedding where the configuration is silent.
    pub(super) tied_by_default: bool,
    /// Whether it is, whatever the configuration says.
    pub(super) tied: Option<bool>,
}

/// Projections into and out of attention.
pub(super) struct Projections {
    pub(super) query: Linear,
    pub(super) key: Linear,
    pub(super) value: Linear,
    pub(super) output: Linear,
}

impl Family {
    pub(super) fn read(architecture: &'static str, keys: &Keys, tensors: &Tensors<'_>) -> Result<Family> {
        let (hidden, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
        let kv_heads = keys.opt_size("num_key_value_heads")?.unwrap_or_else(|| heads.clone());
        if !heads.value.is_multiple_of(kv_heads.value) {
            let problem =
                format!("is {}, which does not divide {} {}", kv_heads.value, heads.from, heads.value);
            return Err(keys.wrong("num_key_value_heads", &problem));
        }
        Ok(Family {
            architecture,
            vocabulary: keys.size("vocab_size")?,
            intermediate: keys.size("intermediate_size")?,
            head_dim: keys.head_dim(Some("head_dim"), &hidden, &heads)?,
            layers: keys.layers("num_hidden_layers", tensors.count())?,
            epsilon: keys.epsilon("rms_norm_eps", 1e-6)?,
            activation: activation(keys, "hidden_act", Activation::Silu)?,
            hidden,
            heads,
            kv_heads,
            norm_kind: NormKind::Rms,
            norm_bias: false,
            adds_one: false,
            final_norm: "norm",
            tied_by_default: false,
            tied: None,
        })
    }

    pub(super) fn rotary(&self, keys: &Keys) -> Result<Rotary> {
        self.rotary_or(keys, rotary::USUAL)
    }

    /// The rotation, with what the architecture takes where the configuration is silent.
    pub(super) fn rotary_or(&self, keys: &Keys, defaults: rotary::Defaults) -> Result<Rotary> {
        rotary::read(keys, &self.head_dim, defaults)
    }

    /// The width of all query heads.
    pub(super) fn query_width(&self) -> Size {
        self.heads.times(&self.head_dim)
    }

    /// The width of all key heads, and of all value heads.
    pub(super) fn key_width(&self) -> Size {
        self.kv_heads.times(&self.head_dim)
    }

    pub(super) fn norm(&self, tensors: &mut Tensors<'_>, module: &str, width: &Size) -> Norm {
        let name = format!("{module}.weight");
        let weight = if self.adds_one {
            tensors.weight_plus_one(&name, &[width])
        } else {
            tensors.weight(&name, &[width])
        };
        let bias = self.norm_bias.then(|| tensors.weight(&format!("{module}.bias"), &[width]));
        Norm { kind: self.norm_kind, weight, bias, epsilon: self.epsilon }
    }

    /// Four projections, with biases on the first three and on the last as told.
    pub(super) fn projections(
        &self,
        tensors: &mut Tensors<'_>,
        at: &str,
        (inner_bias, output_bias): (bool, bool),
    ) -> Projections {
        let (query, key) = (self.query_width(), self.key_width());
        let mut into = |name: &str, width: &Size| {
            tensors.linear(&format!("{at}.self_attn.{name}"), width, &self.hidden, inner_bias)
        };
        Projections {
            query: into("q_proj", &query),
            key: into("k_proj", &key),
            value: into("v_proj", &key),
            output: tensors.linear(&format!("{at}.self_attn.o_proj"), &self.hidden, &query, output_bias),
        }
    }

    /// The projections of heads whose neighbouring dimensions are rotated against each other, with the rows of queries and
    /// keys in the order in which halves of a head are: their products stay the same.
    pub(super) fn pairs_by_halves(&self, parts: Projections, rope: &Rope) -> Projections {
        let pairs = Pairs { head_dim: self.head_dim.value, dims: rope.dims };
        Projections { query: parts.query.by_halves(pairs), key: parts.key.by_halves(pairs), ..parts }
    }

    /// Attention without norms of heads, scaled by the root of their width.
    pub(super) fn attention(&self, parts: Projections, rope: &Rope, window: Option<usize>) -> Attention {
        let Projections { query, key, value, output } = parts;
        Attention {
            heads: self.heads.value,
            kv_heads: self.kv_heads.value,
            head_dim: self.head_dim.value,
            scale: (self.head_dim.value as f64).powf(-0.5) as f32,
            query,
            key,
            value,
            output,
            query_norm: None,
            key_norm: None,
            rope: Some(rope.clone()),
            window,
            softcap: None,
            growth: None,
            value_norm: None,
            shared_from: None,
            output_gate: None,
        }
    }

    pub(super) fn gated_mlp(&self, tensors: &mut Tensors<'_>, at: &str, bias: bool) -> Mlp {
        let mut linear = |name: &str, out: &Size, input: &Size| {
            tensors.linear(&format!("{at}.mlp.{name}"), out, input, bias)
        };
        Mlp::Gated {
            gate: linear("gate_proj", &self.intermediate, &self.hidden),
            up: linear("up_proj", &self.intermediate, &self.hidden),
            activation: self.activation,
            down: linear("down_proj", &self.hidden, &self.intermediate),
        }
    }

    /// A gated MLP whose gate and value are stored one after the other in one matrix.
    pub(super) fn fused_mlp(&self, tensors: &mut Tensors<'_>, at: &str) -> Mlp {
        let parts = [("gate", &self.intermediate), ("up", &self.intermediate)];
        let [gate, up] = tensors.fused(&format!("{at}.mlp.gate_up_proj"), parts, &self.hidden);
        let down = tensors.linear(&format!("{at}.mlp.down_proj"), &self.hidden, &self.intermediate, false);
        Mlp::Gated { gate, up, activation: self.activation, down }
    }

    /// A layer with a norm before attention and one before the MLP.
    pub(super) fn layer(
        &self,
        tensors: &mut Tensors<'_>,
        at: &str,
        mixer: impl Into<Mixer>,
        mlp: Mlp,
    ) -> Layer {
        Layer {
            attention_norm: Some(self.norm(tensors, &format!("{at}.input_layernorm"), &self.hidden)),
            mixer: mixer.into(),
            post_attention_norm: None,
            mlp_norm: Some(self.norm(tensors, &format!("{at}.post_attention_layernorm"), &self.hidden)),
            mlp,
            post_mlp_norm: None,
            residual: Residual::Sequential,
            per_layer: None,
            scale: 1.0,
        }
    }

    /// The whole model around its layers, each built from its index and the start of its names.
    pub(super) fn decoder(
        &self,
        keys: &Keys,
        tensors: &mut Tensors<'_>,
        max_positions: usize,
        mut layer: impl FnMut(&mut Tensors<'_>, usize, &str) -> Layer,
    ) -> Result<Decoder> {
        let tied = match self.tied {
            Some(tied) => tied,
            None => keys.bool_or("tie_word_embeddings", self.tied_by_default)?,
        };
        let embedding = tensors.weight(PROBE, &[&self.vocabulary, &self.hidden]);
        let layers = (0..self.layers).map(|i| layer(tensors, i, &format!("layers.{i}"))).collect();
        Ok(Decoder {
            architecture: self.architecture,
            hidden: self.hidden.value,
            vocabulary: self.vocabulary.value,
            max_positions,
            embedding_scale: 1.0,
            position: Position::Rotary,
            per_layer: None,
            layers,
            final_norm: self.norm(tensors, self.final_norm, &self.hidden),
            head: head(tied, tensors, &embedding, [&self.vocabulary, &self.hidden]),
            embedding,
        })
    }
}
