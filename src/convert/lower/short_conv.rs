//! Gated short convolutions, as LFM2 has them in place of most of its attention.

use super::attention::Tokens;
use super::causal_conv::causal_conv;
use super::error::Result;
use super::graph::Graph;
use super::recurrent::RecurrentStates;
use crate::model::ShortConv;
use anemeter_mil::ValueId;

/// A gated short convolution over `x`.
pub(super) fn short_conv(
    graph: &mut Graph<'_>,
    x: ValueId,
    mixer: &ShortConv,
    (hidden, tokens): (usize, &Tokens),
    recurrent: &mut RecurrentStates,
) -> Result {
    let (channels, _) = mixer.conv.sizes();
    let before = graph.linear("before", x, &mixer.before, (channels, hidden))?;
    let after = graph.linear("after", x, &mixer.after, (channels, hidden))?;
    let value = graph.linear("value", x, &mixer.value, (channels, hidden))?;
    let gated = graph.binary("mul", "gated", before, value)?;
    let mixed = graph.within("conv", |graph| causal_conv(graph, gated, &mixer.conv, tokens, recurrent))?;
    let mixed = graph.binary("mul", "mixed", after, mixed)?;
    graph.linear("output", mixed, &mixer.output, (hidden, channels))
}
