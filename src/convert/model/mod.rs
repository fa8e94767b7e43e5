//! Decoder language models and encoders, whatever their architecture: what is computed, and which tensor each weight is.

mod arch;
mod encoder;
mod error;
mod graph;
mod keys;
mod mixer;
mod per_layer;
mod range;
mod rope;
mod rotate;
mod tensors;
#[cfg(test)]
pub(crate) mod testing;
mod weight;

pub use arch::{ARCHITECTURES, Architecture, ENCODERS, EncoderArchitecture, Structure, build, build_any};
pub use encoder::{Attends, Encoder, EncoderLayer, Gives, ModelGraph, Pooling, Readout, Stage, Sublayer};
pub use error::{Expected, ModelError, TensorProblem};
pub use graph::{
    Activation, Attention, Decoder, Gate, Head, Layer, Linear, Mlp, Norm, NormKind, Position, QueryGrowth,
    Residual,
};
pub use mixer::{CausalConv, DeltaNet, Mixer, ShortConv};
pub use per_layer::{PerLayerInputs, PerLayerMix};
pub use range::{LayerRange, RangeScales};
pub use rope::{LongFrequencies, Rope, RopeScaling};
pub use rotate::{Mapped, Rotated, rotate};
pub use weight::{Pairs, Source, Stripes, Weight};
