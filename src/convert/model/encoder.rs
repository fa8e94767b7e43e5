//! Encoders: models that read a whole text at once and give vectors or scores, as plain data. They share attention,
//! MLPs and norms with decoders, and have no cache and no head over the vocabulary.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::graph::{Activation, Attention, Decoder, Layer, Linear, Mlp, Norm, Position, Residual};
use super::mixer::Mixer;
use super::weight::Weight;

/// A model of either kind.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "an export has one")]
pub enum ModelGraph {
    /// Generates text.
    Decoder(Decoder),
    /// Gives vectors or scores.
    Encoder(Encoder),
}

/// A model that reads a whole text at once.
#[derive(Debug, Clone)]
pub struct Encoder {
    /// The architecture it was built from, such as `bert`.
    pub architecture: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Longest sequence it was trained for.
    pub max_positions: usize,
    /// Token embeddings, `[vocabulary, hidden]`.
    pub embedding: Weight,
    /// Factor on the token embeddings; 1 for most.
    pub embedding_scale: f32,
    /// Learned positions from the first on, `[max_positions, hidden]`.
    pub positions: Option<Weight>,
    /// Vectors of the kinds of segments, `[kinds, hidden]`.
    pub token_types: Option<Weight>,
    /// Norm of the sum of all embeddings.
    pub embedding_norm: Option<Norm>,
    /// What a token sees of the others.
    pub attends: Attends,
    /// The layers, first to last.
    pub layers: Vec<EncoderLayer>,
    /// The norm after the last layer.
    pub final_norm: Option<Norm>,
    /// What is made of the hidden states; without it they are the output.
    pub readout: Option<Readout>,
}

/// What a token sees of the others. A window of a layer counts to each side that is seen, the token itself included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attends {
    /// All of them.
    BothSides,
    /// Those before it.
    Causally,
}

/// One layer.
#[derive(Debug, Clone)]
pub struct EncoderLayer {
    /// Self-attention.
    pub attention: Sublayer<Attention>,
    /// The MLP.
    pub mlp: Sublayer<Mlp>,
}

/// A part that is added to the residual stream: `of_sum(x + after(part(before(x))))`.
#[derive(Debug, Clone)]
pub struct Sublayer<T> {
    /// Norm of what the part takes.
    pub before: Option<Norm>,
    /// The part.
    pub part: T,
    /// Norm of what it gives, before the addition.
    pub after: Option<Norm>,
    /// Norm of the sum.
    pub of_sum: Option<Norm>,
}

/// How hidden states become one vector per text.
#[derive(Debug, Clone)]
pub struct Readout {
    /// How the hidden states of a text become one.
    pub pooling: Pooling,
    /// What is done to that one, in order.
    pub stages: Vec<Stage>,
    /// What the result is.
    pub gives: Gives,
}

/// How the hidden states of a text become one: weights of its tokens, which the host computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The first token.
    First,
    /// The last token.
    Last,
    /// All tokens alike.
    Mean,
    /// The sum over the root of their number.
    MeanSqrtLen,
    /// Later tokens more, in proportion to their place.
    WeightedMean,
}

/// What is done to a pooled vector.
#[derive(Debug, Clone)]
pub enum Stage {
    /// A linear map and what follows it.
    Dense {
        /// The map.
        linear: Linear,
        /// Applied to its outputs, if anything is.
        activation: Option<Activation>,
    },
    /// A norm with a weight.
    Norm(Norm),
    /// Division by the length.
    Normalize,
}

/// What a readout gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// A vector that stands for the text.
    Embedding,
    /// A score for each label.
    Scores,
}

impl<T> Sublayer<T> {
    /// A part with a norm of the sum, as BERT has them.
    pub fn post_norm(part: T, norm: Norm) -> Sublayer<T> {
        Sublayer { before: None, part, after: None, of_sum: Some(norm) }
    }

    /// A part behind a norm, if there is one.
    pub fn pre_norm(norm: Option<Norm>, part: T) -> Sublayer<T> {
        Sublayer { before: norm, part, after: None, of_sum: None }
    }
}

impl Encoder {
    /// The layers of a decoder without its head, read as a whole; nothing if a layer has no attention, an MLP beside it, or
    /// anything that layers of encoders have not.
    pub fn of_decoder(decoder: Decoder, attends: Attends) -> Option<Encoder> {
        let layer = |layer: Layer| {
            let Mixer::Attention(part) = layer.mixer else { return None };
            let adds_more = layer.per_layer.is_some() || layer.scale != 1.0;
            let is_plain = part.shared_from.is_none() && part.growth.is_none() && !adds_more;
            let (after, of_sum) = (layer.post_attention_norm, None);
            let attention = Sublayer { before: layer.attention_norm, part, after, of_sum };
            let (part, after) = (layer.mlp, layer.post_mlp_norm);
            let mlp = Sublayer { before: layer.mlp_norm, part, after, of_sum: None };
            (is_plain && layer.residual == Residual::Sequential).then_some(EncoderLayer { attention, mlp })
        };
        Some(Encoder {
            architecture: decoder.architecture,
            hidden: decoder.hidden,
            vocabulary: decoder.vocabulary,
            max_positions: decoder.max_positions,
            embedding: decoder.embedding,
            embedding_scale: decoder.embedding_scale,
            positions: match decoder.position {
                Position::Learned(weight) => Some(weight),
                Position::Rotary => None,
            },
            token_types: None,
            embedding_norm: None,
            attends,
            layers: decoder.layers.into_iter().map(layer).collect::<Option<_>>()?,
            final_norm: Some(decoder.final_norm),
            readout: None,
        })
    }

    /// Kinds of segments that it tells apart.
    pub fn segment_kinds(&self) -> usize {
        self.token_types.as_ref().and_then(|weight| weight.shape.first().copied()).unwrap_or(1)
    }

    /// Numbers of one output vector: of the readout, or of a hidden state.
    pub fn width(&self) -> usize {
        let stages = self.readout.iter().flat_map(|readout| &readout.stages);
        let mut widths = stages.filter_map(|stage| match stage {
            Stage::Dense { linear, .. } => linear.weight.shape.first().copied(),
            Stage::Norm(_) | Stage::Normalize => None,
        });
        widths.next_back().unwrap_or(self.hidden)
    }

    /// All weights, for what counts them.
    pub fn weights(&self) -> Vec<&Weight> {
        let mut all = vec![&self.embedding];
        all.extend(self.positions.iter().chain(&self.token_types));
        let mut norms: Vec<&Norm> = self.embedding_norm.iter().chain(&self.final_norm).collect();
        let mut linears: Vec<&Linear> = Vec::new();
        for EncoderLayer { attention, mlp } in &self.layers {
            let Attention { query, key, value, output, query_norm, key_norm, .. } = &attention.part;
            linears.extend([query, key, value, output]);
            norms.extend(query_norm.iter().chain(key_norm));
            match &mlp.part {
                Mlp::Plain { up, down, .. } => linears.extend([up, down]),
                Mlp::Gated { gate, up, down, .. } => linears.extend([gate, up, down]),
                Mlp::Inner { into, value, gate, out, gate_norm, .. } => {
                    linears.extend([into, value, gate, out]);
                    norms.extend(gate_norm);
                }
            }
            norms.extend([&attention.before, &attention.after, &attention.of_sum].into_iter().flatten());
            norms.extend([&mlp.before, &mlp.after, &mlp.of_sum].into_iter().flatten());
        }
        for stage in self.readout.iter().flat_map(|readout| &readout.stages) {
            match stage {
                Stage::Dense { linear, .. } => linears.push(linear),
                Stage::Norm(norm) => norms.push(norm),
                Stage::Normalize => {}
            }
        }
        all.extend(linears.iter().map(|linear| &linear.weight));
        all.extend(linears.iter().filter_map(|linear| linear.bias.as_ref()));
        all.extend(norms.iter().map(|norm| &norm.weight));
        all.extend(norms.iter().filter_map(|norm| norm.bias.as_ref()));
        all
    }
}
