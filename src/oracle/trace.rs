//! Hidden states of a checkpoint, layer by layer.

use std::fmt;

use candle_core::{Device, Result, Tensor};
use serde::{Serialize, Serializer};

use super::{Choice, OracleError, Reference};
use crate::checkpoint::Checkpoint;

/// A place in a decoder where the residual stream can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Token vectors, before the first layer.
    Embedding,
    /// In a layer, after its attention is added.
    Attention(usize),
    /// After a layer.
    Layer(usize),
}

impl Point {
    /// The layer whose work shows here first; none before the first layer.
    pub fn layer(self) -> Option<usize> {
        match self {
            Point::Embedding => None,
            Point::Attention(layer) | Point::Layer(layer) => Some(layer),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Embedding => f.pad("embedding"),
            Point::Attention(layer) => f.pad(&format!("layer {layer} attention")),
            Point::Layer(layer) => f.pad(&format!("layer {layer}")),
        }
    }
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Hidden states of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// What computed them, in words.
    pub reference: String,
    /// Tokens.
    pub tokens: usize,
    /// Width of a hidden state.
    pub hidden: usize,
    /// The states of all tokens at each point, in order: `tokens * hidden` numbers, token by token.
    pub points: Vec<(Point, Vec<f32>)>,
}

/// Computes the hidden states of a sequence by the plain reference of a checkpoint.
pub fn trace(checkpoint: &Checkpoint, ids: &[u32]) -> std::result::Result<Trace, OracleError> {
    let mut reference = Reference::open(checkpoint, ids.len(), Choice::Plain)?;
    reference.check(ids)?;
    let architecture = reference.architecture;
    let points = watched(&mut reference, ids);
    let points = points.map_err(|error| OracleError::computation(architecture, &error))?;
    let hidden = points.first().map_or(0, |(_, values)| values.len() / ids.len());
    Ok(Trace { reference: super::Oracle::describe(&reference), tokens: ids.len(), hidden, points })
}

fn watched(reference: &mut Reference, ids: &[u32]) -> Result<Vec<(Point, Vec<f32>)>> {
    let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
    let mut points = Vec::new();
    reference.network.forward_watched(&ids, 0, &mut |point, states| {
        points.push((point, states.flatten_all()?.to_vec1()?));
        Ok(())
    })?;
    Ok(points)
}
