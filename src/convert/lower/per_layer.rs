//! Inputs of each layer besides the residual stream, and what a layer makes of its own.
//!
//! The first chunk takes what was looked up for each token as `per_layer`, or looks it up, and computes the inputs of all
//! layers. Later chunks take theirs as `per_layer_inputs`.

use std::ops::Range;

use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Graph};
use super::mlp::activate;
use super::norm::norm;
use crate::model::{PerLayerInputs, PerLayerMix};
use anemeter_mil::ValueId;

/// What is looked up for each token, `[batch, layers * width, 1, tokens]`: an input, and an output of `embed`.
pub(super) const LOOKED_UP: &str = "per_layer";
/// The inputs of layers, `[batch, layers * width, 1, tokens]`: an output of the first chunk and an input of the others.
pub(super) const INPUTS: &str = "per_layer_inputs";

/// The axis of one layer's numbers while layers have an axis of their own.
const WIDTH: usize = 2;

/// The inputs of some layers in a function.
#[derive(Clone, Copy)]
pub(super) struct LayerInputs {
    pub(super) all: ValueId,
    /// The layer that they begin with.
    pub(super) first: usize,
    pub(super) width: usize,
}

/// The sequences of a function and their tokens, unless several counts are possible.
type Extent = (usize, Option<usize>);

/// Rows of the table for ids, as columns.
pub(super) fn looked_up(graph: &mut Graph<'_>, inputs: &PerLayerInputs, ids: ValueId) -> Result {
    let shape = inputs.table.shape.clone();
    graph.within("per_layer_embedding", |graph| {
        let table = graph.whole("weight", &inputs.table, &shape, &shape)?;
        let rows = graph.gather("rows", table, ids)?;
        let rows = graph.scaled("scaled", rows, inputs.scale)?;
        let columns = graph.transpose("columns", rows, [0, 2, 1])?;
        graph.expand("out", columns, 2)
    })
}

/// The inputs of all layers, from what was looked up and the tokens' vectors.
pub(super) fn inputs_of_all(
    graph: &mut Graph<'_>,
    inputs: &PerLayerInputs,
    (looked_up, vectors): (ValueId, ValueId),
    (hidden, (batch, count)): (usize, Extent),
) -> Result<LayerInputs> {
    let (all, width) = (inputs.all(), inputs.width);
    if width == 0 || all % width != 0 {
        let message = format!("{all} inputs cannot be divided by {width} of each layer");
        return Err(LowerError::model("per_layer", message));
    }
    let all = graph.within("per_layer", |graph| {
        let projected = graph.linear("projection", vectors, &inputs.projection, (all, hidden))?;
        let by_layer = [Some(batch), Some(all / width), Some(width), count];
        let projected = graph.reshape("by_layer", projected, by_layer)?;
        let normal = norm(graph, "norm", projected, &inputs.norm, (WIDTH, width))?;
        let normal = graph.reshape("together", normal, [Some(batch), Some(all), Some(1), count])?;
        graph.binary("add", "sum", normal, looked_up)
    })?;
    Ok(LayerInputs { all, first: 0, width })
}

impl LayerInputs {
    /// The inputs of layers from one on.
    pub(super) fn from(self, graph: &mut Graph<'_>, layers: Range<usize>) -> Result {
        let channels = |layer: usize| (layer - self.first) * self.width;
        graph.slice("per_layer_rest", self.all, CHANNELS, channels(layers.start)..channels(layers.end))
    }

    /// The residual stream with what a layer makes of its input.
    pub(super) fn mixed(
        self,
        graph: &mut Graph<'_>,
        x: ValueId,
        mix: &PerLayerMix,
        (index, hidden): (usize, usize),
    ) -> Result {
        let width = self.width;
        graph.within("per_layer", |graph| {
            let from = (index - self.first) * width;
            let own = graph.slice("input", self.all, CHANNELS, from..from + width)?;
            let gate = graph.linear("gate", x, &mix.gate, (width, hidden))?;
            let gate = activate(graph, "active", gate, mix.activation)?;
            let product = graph.binary("mul", "product", gate, own)?;
            let made = graph.linear("projection", product, &mix.projection, (hidden, width))?;
            let made = norm(graph, "norm", made, &mix.norm, (CHANNELS, hidden))?;
            graph.binary("add", "out", x, made)
        })
    }
}
