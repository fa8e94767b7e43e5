//! The model graph: plain data between a checkpoint and a MIL program.

use crate::checkpoint::Stored;
use crate::tensor::Shape;

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
    /// How positions enter.
    pub position: Position,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// The norm before the head.
    pub final_norm: Norm,
    /// The head.
    pub head: Head,
}

/// How positions enter a model.
#[derive(Debug, Clone)]
pub enum Position {
    /// Rotation of queries and keys; each layer says which.
    Rotary,
    /// Learned vectors added to the embeddings, `[positions, hidden]`.
    Learned(Weight),
}

/// The output projection.
#[derive(Debug, Clone)]
pub struct Head {
    /// `[vocabulary, hidden]`; the embedding itself if it is tied.
    pub weight: Weight,
    /// Whether it is the embedding.
    pub tied: bool,
    /// Cap of the logits through `cap * tanh(x / cap)`.
    pub softcap: Option<f32>,
}

/// One layer: attention, then the MLP, each behind a norm and added to the residual stream.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Before attention.
    pub attention_norm: Norm,
    /// Attention.
    pub attention: Attention,
    /// After attention, before the addition.
    pub post_attention_norm: Option<Norm>,
    /// Before the MLP.
    pub mlp_norm: Norm,
    /// The MLP.
    pub mlp: Mlp,
    /// After the MLP, before the addition.
    pub post_mlp_norm: Option<Norm>,
}

/// Causal self-attention with grouped keys and values.
#[derive(Debug, Clone)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Query, key, value and output projections.
    pub query: Linear,
    #[expect(missing_docs, reason = "see query")]
    pub key: Linear,
    #[expect(missing_docs, reason = "see query")]
    pub value: Linear,
    #[expect(missing_docs, reason = "see query")]
    pub output: Linear,
    /// Norm of each query head.
    pub query_norm: Option<Norm>,
    /// Norm of each key head.
    pub key_norm: Option<Norm>,
    /// Rotation of queries and keys.
    pub rope: Option<Rope>,
    /// Only this many latest positions are seen.
    pub window: Option<usize>,
}

/// Rotary positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub base: f64,
    /// How many of a head's dimensions are rotated.
    pub dims: usize,
    /// Change of the frequencies for long contexts.
    pub scaling: RopeScaling,
}

/// Change of rotary frequencies for long contexts.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// None.
    None,
    /// Positions divided by a factor.
    Linear(f64),
    /// Llama 3's smooth change between two wavelengths.
    Llama3 {
        /// Division of low frequencies.
        factor: f64,
        /// Wavelength bounds, as fractions of the original length.
        low_freq_factor: f64,
        #[expect(missing_docs, reason = "see low_freq_factor")]
        high_freq_factor: f64,
        /// Length the model was first trained for.
        original_positions: usize,
    },
    /// A factor per frequency (Phi-3's short factors) and one on sine and cosine.
    Factors {
        /// Division of each frequency.
        factors: Vec<f64>,
        /// Factor on sine and cosine.
        magnitude: f64,
    },
}

/// The MLP of a layer.
#[derive(Debug, Clone)]
pub enum Mlp {
    /// `down(activation(up(x)))`.
    Plain {
        /// Into the wide space.
        up: Linear,
        /// Applied there.
        activation: Activation,
        /// Back again.
        down: Linear,
    },
    /// `down(activation(gate(x)) * up(x))`.
    Gated {
        /// The gate.
        gate: Linear,
        /// The value.
        up: Linear,
        /// Applied to the gate.
        activation: Activation,
        /// Back again.
        down: Linear,
    },
    /// `out(value(h) * gate(h))` with `h = into(x)`.
    Inner {
        /// Into the wide space.
        into: Linear,
        /// The value projection.
        value: Linear,
        /// The gate projection.
        gate: Linear,
        /// How the gate acts on the value.
        how: Gate,
        /// A norm of the activated gate.
        gate_norm: Option<GateNorm>,
        /// Back again.
        out: Linear,
    },
}

/// How an inner gate acts on the value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Gate {
    /// `alpha * sigmoid(gate) + 1 - alpha`.
    Partial {
        /// The share that is gated.
        alpha: f32,
    },
    /// `activation(gate)`.
    Full(Activation),
}

/// A norm of an activated gate.
#[derive(Debug, Clone)]
pub struct GateNorm {
    /// Layer norm parameters.
    pub norm: Norm,
}

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names")]
pub enum Activation {
    Relu,
    Silu,
    Sigmoid,
    Gelu,
    GeluTanh,
}

/// A norm over the last dimension.
#[derive(Debug, Clone)]
pub struct Norm {
    /// Which.
    pub kind: NormKind,
    /// Its scale; any `1 +` is already part of it.
    pub weight: Weight,
    /// Its shift.
    pub bias: Option<Weight>,
    /// Added under the root.
    pub epsilon: f32,
}

/// Which norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names")]
pub enum NormKind {
    Rms,
    Layer,
}

/// A linear map, `[out, in]`.
#[derive(Debug, Clone)]
pub struct Linear {
    /// Its matrix.
    pub weight: Weight,
    /// Its shift.
    pub bias: Option<Weight>,
}

/// A weight of the model: a name, a shape, and the stored tensor behind it.
#[derive(Debug, Clone)]
pub struct Weight {
    /// Name in the checkpoint.
    pub name: String,
    /// Shape as the model uses it.
    pub shape: Shape,
    /// Where the elements come from.
    pub source: Source,
}

/// How the elements of a weight come from a stored tensor.
#[derive(Debug, Clone)]
pub enum Source {
    /// As they are.
    Stored(Stored),
    /// Rows of a fused tensor, from the given row on.
    Rows(Stored, usize),
    /// The transpose of a matrix.
    Transposed(Stored),
    /// Columns of a matrix that is to be transposed, from the given column on.
    TransposedColumns(Stored, usize),
    /// One added to each element.
    PlusOne(Stored),
}
