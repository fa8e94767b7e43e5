//! The KV cache: collected for the caller, read from a cache input, or kept in a state.

use super::apple_llm::PairedState;
use super::attention::{Heads, Tokens};
use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Graph};
use crate::model::Layer;
use anemeter_mil::ValueId;

/// Keys and values that attention is to see.
pub(super) enum AttendedKv {
    /// Those of this prediction, sequence last.
    Channels { key: ValueId, value: ValueId },
    /// Those of a cache, sequence last, and those of this prediction's one token.
    Past { key: ValueId, value: ValueId, own_key: ValueId, own_value: ValueId },
    /// Those of a state, which holds this prediction's already, width last.
    Positions { key: ValueId, value: ValueId },
}

/// Where keys and values go to and come from.
pub(super) enum Cache {
    /// Nowhere.
    None,
    /// Out of the function, after reading earlier ones from inputs if there are any.
    Io { keys: Vec<ValueId>, values: Vec<ValueId>, past: Option<Past> },
    /// Into a state.
    State(KvState),
    /// Into a state of keys and one of values, as Apple's language models have them.
    Pair(PairedState),
}

/// Cache inputs, `[batch, channels of all layers, 1, context]`.
pub(super) struct Past {
    pub(super) keys: ValueId,
    pub(super) values: ValueId,
    /// Channels of the layers before the next one.
    pub(super) offset: usize,
}

/// A state, `[2 * layers * batch, kv_heads, context, width]`: keys and values of a layer lie side by side.
pub(super) struct KvState {
    pub(super) state: ValueId,
    /// The state as it was last read.
    pub(super) content: ValueId,
    /// Where this prediction's tokens begin and end.
    pub(super) begin: ValueId,
    pub(super) end: ValueId,
    pub(super) layer: usize,
}

impl Cache {
    /// Takes a layer's new keys and values and gives what its attention is to see.
    pub(super) fn exchange(
        &mut self,
        graph: &mut Graph<'_>,
        heads: Heads,
        tokens: &Tokens,
        (key, value): (ValueId, ValueId),
    ) -> Result<AttendedKv> {
        match self {
            Cache::None => Ok(AttendedKv::Channels { key, value }),
            Cache::Io { keys, values, past } => {
                let channels = heads.kv_channels();
                let flat = [Some(tokens.batch), Some(channels), Some(1), tokens.count];
                let key = graph.reshape("key_new", key, flat)?;
                keys.push(key);
                values.push(value);
                let Some(past) = past else { return Ok(AttendedKv::Channels { key, value }) };
                let range = past.offset..past.offset + channels;
                past.offset = range.end;
                let past_key = graph.slice("key_past", past.keys, CHANNELS, range.clone())?;
                let past_value = graph.slice("value_past", past.values, CHANNELS, range)?;
                Ok(AttendedKv::Past { key: past_key, value: past_value, own_key: key, own_value: value })
            }
            Cache::State(state) => state.exchange(graph, heads, tokens, (key, value)),
            Cache::Pair(state) => state.exchange(graph, heads, tokens, (key, value)),
        }
    }
}

impl KvState {
    fn exchange(
        &mut self,
        graph: &mut Graph<'_>,
        heads: Heads,
        tokens: &Tokens,
        (key, value): (ValueId, ValueId),
    ) -> Result<AttendedKv> {
        let key = by_position(graph, "key", key, (heads, tokens))?;
        let value = by_position(graph, "value", value, (heads, tokens))?;
        let update = graph.concat("update", &[key, value], 0)?;
        let batch = tokens.batch;
        let first = 2 * self.layer * batch;
        self.layer += 1;
        let size = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let begin =
            graph.indices("update_begin", [[size(first), 0].into(), self.begin.into(), [0].into()])?;
        let end = graph
            .indices("update_end", [[size(first + 2 * batch), 0].into(), self.end.into(), [0].into()])?;
        let updated = graph.slice_update("updated", (self.content, update), (begin, end))?;
        graph.write_state(self.state, updated)?;
        self.content = graph.read_state("kept", self.state)?;
        let key = graph.slice("key_kept", self.content, 0, first..first + batch)?;
        let value = graph.slice("value_kept", self.content, 0, first + batch..first + 2 * batch)?;
        Ok(AttendedKv::Positions { key, value })
    }
}

/// `[batch, kv_heads, tokens, width]`.
pub(super) fn by_position(
    graph: &mut Graph<'_>,
    label: &str,
    x: ValueId,
    (heads, tokens): (Heads, &Tokens),
) -> Result {
    let Heads { kv_heads, width, .. } = heads;
    graph.within(label, |graph| {
        if tokens.is_one() {
            return graph.reshape("row", x, [Some(tokens.batch), Some(kv_heads), Some(1), Some(width)]);
        }
        let x =
            graph.reshape("columns", x, [Some(tokens.batch), Some(kv_heads), Some(width), tokens.count])?;
        graph.transpose("rows", x, [0, 1, 3, 2])
    })
}

/// Channels of the keys of some layers.
pub(super) fn channels(layers: &[Layer], first: usize) -> Result<usize> {
    let mut sum = 0usize;
    for (i, layer) in layers.iter().enumerate() {
        let at = format!("layers_{}_attention", first + i);
        let Some(attention) = layer.attention() else { continue };
        let heads = Heads::of(&at, attention)?;
        sum = sum
            .checked_add(heads.kv_channels())
            .filter(|&n| i32::try_from(n).is_ok())
            .ok_or_else(|| LowerError::model(&at, "the caches of all layers are too large together"))?;
    }
    Ok(sum)
}

/// The head sizes that all layers of a state share.
pub(super) fn shared_heads(layers: &[Layer], first: usize) -> Result<(usize, usize)> {
    let mut shared = None;
    for (i, layer) in layers.iter().enumerate() {
        let at = format!("layers_{}_attention", first + i);
        let Some(attention) = layer.attention() else { continue };
        let heads = Heads::of(&at, attention)?;
        let sizes = (heads.kv_heads, heads.width);
        let &mut (kv_heads, width) = shared.get_or_insert(sizes);
        if (kv_heads, width) != sizes {
            let message = format!(
                "has {} KV heads of width {}, other layers of the chunk {kv_heads} of {width}; one \
                 state cannot hold both",
                sizes.0, sizes.1
            );
            return Err(LowerError::model(&at, message));
        }
    }
    shared.ok_or_else(|| LowerError::model("layers", "there are none"))
}
