//! The model graph: plain data between a checkpoint and a MIL program.

use super::mixer::Mixer;
use super::per_layer::{PerLayerInputs, PerLayerMix};
use super::rope::Rope;
use super::weight::{Pairs, Weight};

/// A decoder-only language model.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// The architecture it was built from, such as `llama`.
    pub architecture: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Longest sequence it was trained for.
    pub max_positions: usize,
    /// Token embeddings, `[vocabulary, hidden]`.
    pub embedding: Weight,
    /// Factor on the embeddings; 1 for most.
    pub embedding_scale: f32,
    /// How token positions enter: RoPE or learned embeddings.
    pub position: Position,
    /// Inputs of each layer besides the residual stream, if layers have them.
    pub per_layer: Option<PerLayerInputs>,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// The norm before the head.
    pub final_norm: Norm,
    /// From hidden states to logits.
    pub head: Head,
}

/// How positions enter a model.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a model has one")]
pub enum Position {
    /// Rotation of queries and keys; each layer says which.
    Rotary,
    /// Learned vectors added to the embeddings, `[positions, hidden]`.
    Learned(Weight),
}

/// The output projection (LM head) and what is done to its logits.
#[derive(Debug, Clone)]
pub struct Head {
    /// A map of the hidden size after the last norm, if rotations left one.
    pub map: Option<Linear>,
    /// `[vocabulary, hidden]`; the embedding itself if it is tied.
    pub weight: Weight,
    /// Whether it is the embedding.
    pub tied: bool,
    /// Cap of the logits through `cap * tanh(x / cap)`.
    pub softcap: Option<f32>,
}

/// One layer: attention or another mixer of tokens, then the MLP, each between norms and added to the residual stream.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Norm before the mixer.
    pub attention_norm: Option<Norm>,
    /// Self-attention, or what is in its place.
    pub mixer: Mixer,
    /// After the mixer, before the addition.
    pub post_attention_norm: Option<Norm>,
    /// Norm before the MLP.
    pub mlp_norm: Option<Norm>,
    /// The MLP.
    pub mlp: Mlp,
    /// After the MLP, before the addition.
    pub post_mlp_norm: Option<Norm>,
    /// What the MLP sees.
    pub residual: Residual,
    /// What the layer adds of its own input, after the MLP.
    pub per_layer: Option<PerLayerMix>,
    /// Factor on what leaves the layer; 1 for most.
    pub scale: f32,
}

impl Layer {
    /// Its attention, if it has any.
    pub fn attention(&self) -> Option<&Attention> {
        self.mixer.attention()
    }
}

/// How attention and MLP follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residual {
    /// The MLP sees what attention has added.
    Sequential,
    /// Both see the layer's input (Wang and Komatsuzaki 2021). An MLP without a norm of its own shares attention's.
    Parallel,
}

/// Causal self-attention with grouped keys and values.
#[derive(Debug, Clone)]
pub struct Attention {
    /// Number of query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Query, key, value and output projections; those of keys and values have no rows where an earlier layer's are seen.
    pub query: Linear,
    #[expect(missing_docs, reason = "see query")]
    pub key: Linear,
    #[expect(missing_docs, reason = "see query")]
    pub value: Linear,
    #[expect(missing_docs, reason = "see query")]
    pub output: Linear,
    /// Norm of queries before they are rotated: one as wide as a head is taken of each head, one as wide as all heads of
    /// all of them together.
    pub query_norm: Option<Norm>,
    /// Norm of keys, as that of queries.
    pub key_norm: Option<Norm>,
    /// Norm of each head's values.
    pub value_norm: Option<Norm>,
    /// The earlier layer whose keys and values are seen, in place of own ones.
    pub shared_from: Option<usize>,
    /// Rotation of queries and keys; none in layers without positions (NoPE).
    pub rope: Option<Rope>,
    /// Only this many latest positions are seen, a query's own among them.
    pub window: Option<usize>,
    /// Cap of the scores through `cap * tanh(x / cap)`, before the mask.
    pub softcap: Option<f32>,
    /// Projects to what is multiplied, through a sigmoid, by what each query saw, if anything is.
    pub output_gate: Option<Linear>,
    /// How queries grow with their position.
    pub growth: Option<QueryGrowth>,
}

/// A factor on queries by their position (Llama 4, Ministral 3): `1 + beta * ln(1 + floor(position / length))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryGrowth {
    /// How fast the factor grows.
    pub beta: f64,
    /// Positions before the first step; the factor is 1 up to there.
    pub length: usize,
}

impl QueryGrowth {
    /// The factor at a position, in f32 as transformers computes it.
    pub fn factor(self, position: usize) -> f32 {
        let steps = (position / self.length.max(1)) as f32;
        1.0 + self.beta as f32 * (1.0 + steps).ln()
    }
}

/// The MLP of a layer.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a model has one per layer")]
pub enum Mlp {
    /// `down(activation(up(x)))`.
    Plain {
        /// Into the wide space.
        up: Linear,
        /// Applied to the wide activations.
        activation: Activation,
        /// Projects back to the hidden size.
        down: Linear,
    },
    /// `down(activation(gate(x)) * up(x))`.
    Gated {
        /// Projects to the gate, which the activation is applied to.
        gate: Linear,
        /// Projects to what the gate multiplies.
        up: Linear,
        /// Applied to the gate.
        activation: Activation,
        /// Projects back to the hidden size.
        down: Linear,
    },
    /// `out(gated)` with `h = into(x)`, where `gate(h)` acts on `value(h)` as `how` says.
    Inner {
        /// Into the wide space.
        into: Linear,
        /// Projects to what the gate multiplies.
        value: Linear,
        /// Projects to the gate.
        gate: Linear,
        /// How the gate acts on the value.
        how: Gate,
        /// A norm of the activated gate.
        gate_norm: Option<Norm>,
        /// Projects back to the hidden size.
        out: Linear,
    },
}

/// How an inner gate acts on the value: `value * (alpha * activation(gate) + 1 - alpha)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// Applied to the gate.
    pub activation: Activation,
    /// The share of the value that is gated; 1 for all of it.
    pub alpha: f32,
}

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names")]
pub enum Activation {
    Relu,
    Silu,
    Sigmoid,
    Tanh,
    Gelu,
    GeluTanh,
}

/// A norm over the last dimension.
#[derive(Debug, Clone)]
pub struct Norm {
    /// RMS norm or layer norm.
    pub kind: NormKind,
    /// Its scale; any `1 +` is already part of it.
    pub weight: Weight,
    /// Added after scaling, if any.
    pub bias: Option<Weight>,
    /// Added under the root.
    pub epsilon: f32,
}

/// The formula of a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names")]
pub enum NormKind {
    Rms,
    Layer,
}

impl Norm {
    /// The norm times a number.
    pub fn scaled(self, factor: f32) -> Norm {
        let bias = self.bias.map(|bias| bias.scaled(factor));
        Norm { weight: self.weight.scaled(factor), bias, ..self }
    }
}

/// A linear map, `[out, in]`.
#[derive(Debug, Clone)]
pub struct Linear {
    /// Weights, `[outputs, inputs]`.
    pub weight: Weight,
    /// Added to the product, if any.
    pub bias: Option<Weight>,
}

impl Linear {
    /// The map times a number.
    pub fn scaled(self, factor: f32) -> Linear {
        Linear { weight: self.weight.scaled(factor), bias: self.bias.map(|bias| bias.scaled(factor)) }
    }

    /// The map into heads whose neighbouring dimensions are rotated against each other, in the order in which halves of a
    /// head are.
    pub fn by_halves(self, pairs: Pairs) -> Linear {
        Linear { weight: self.weight.by_halves(pairs), bias: self.bias.map(|bias| bias.by_halves(pairs)) }
    }
}
