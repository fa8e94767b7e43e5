//! Inputs of each layer besides the residual stream (per-layer embeddings, Gemma 3n and 4).
//!
//! A token's input of all layers is looked up in a table of its own. To it is added a norm of a projection of the token's
//! vector. Each layer multiplies its part by a gate that it computes from the residual stream.

use super::graph::{Activation, Linear, Norm};
use super::weight::Weight;

/// How the inputs of all layers are made.
#[derive(Debug, Clone)]
pub struct PerLayerInputs {
    /// Numbers of each layer.
    pub width: usize,
    /// What is looked up for a token, `[tokens, layers * width]`.
    pub table: Weight,
    /// Factor on what is looked up.
    pub scale: f32,
    /// From a token's vector, `[layers * width, hidden]`.
    pub projection: Linear,
    /// Norm of each layer's part of the projection. What is looked up is added to it.
    pub norm: Norm,
}

/// What a layer makes of its input: `norm(projection(activation(gate(x)) * input))`, added to the residual stream.
#[derive(Debug, Clone)]
pub struct PerLayerMix {
    /// From the residual stream, `[width, hidden]`.
    pub gate: Linear,
    /// Applied to the gate.
    pub activation: Activation,
    /// Back to the residual stream, `[hidden, width]`.
    pub projection: Linear,
    /// Before the addition.
    pub norm: Norm,
}

impl PerLayerInputs {
    /// Numbers of all layers.
    pub fn all(&self) -> usize {
        self.table.shape.get(1).copied().unwrap_or(0)
    }
}

impl PerLayerMix {
    /// Its matrices and its norm, for what counts them.
    pub fn parts(&self) -> ([&Linear; 2], &Norm) {
        ([&self.gate, &self.projection], &self.norm)
    }
}
