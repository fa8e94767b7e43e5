//! Decoder language models, whatever their architecture: what is computed, and which tensor each weight is.

mod graph;

pub use graph::{
    Activation, Attention, Decoder, Gate, GateNorm, Head, Layer, Linear, Mlp, Norm, NormKind, Position, Rope,
    RopeScaling, Source, Weight,
};
