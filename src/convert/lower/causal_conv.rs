//! A convolution over a token and those before it, with what the caller carries between predictions.

use super::attention::Tokens;
use super::error::{LowerError, Result};
use super::graph::{Graph, SEQUENCE};
use super::recurrent::RecurrentStates;
use crate::model::CausalConv;
use anemeter_mil::ValueId;

/// Convolves every channel of `x` with its own kernel. Kernels keep their width: padded ones gain noise in fp16.
pub(super) fn causal_conv(
    graph: &mut Graph<'_>,
    x: ValueId,
    conv: &CausalConv,
    tokens: &Tokens,
    recurrent: &mut RecurrentStates,
) -> Result {
    let (channels, kernel) = conv.sizes();
    let past = recurrent.conv.past(graph, channels)?;
    let (window, zeros) = match past {
        Some(past) => {
            let window = graph.concat("window", &[past, x], SEQUENCE)?;
            let new = graph.slice("state_new", window, SEQUENCE, 1..kernel)?;
            recurrent.conv.keep(new);
            (window, 0)
        }
        None => {
            if recurrent.conv.keeps() {
                let new = latest(graph, x, (channels, kernel), tokens, recurrent)?;
                recurrent.conv.keep(new);
            }
            (x, kernel - 1)
        }
    };
    let weight = graph.whole("weight", &conv.weight, &[channels, 1, kernel], &[channels, 1, 1, kernel])?;
    let bias =
        conv.bias.as_ref().map(|bias| graph.whole("bias", bias, &[channels], &[channels])).transpose()?;
    graph.depthwise("out", window, (weight, bias), (channels, zeros))
}

/// The columns of a sequence's last tokens, which may be before padding.
fn latest(
    graph: &mut Graph<'_>,
    x: ValueId,
    (channels, kernel): (usize, usize),
    tokens: &Tokens,
    recurrent: &RecurrentStates,
) -> Result {
    let missing = || LowerError::model(graph.scope(), "the selection of the latest tokens is not an input");
    let select = recurrent.latest.ok_or_else(missing)?;
    let batch = Some(tokens.batch);
    let rows = graph.reshape("channels", x, [batch, Some(1), Some(channels), tokens.count])?;
    let chosen = graph.matmul("latest", (rows, false), (select, false))?;
    graph.reshape("state_new", chosen, [batch, Some(channels), Some(1), Some(kernel - 1)])
}
