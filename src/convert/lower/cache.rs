//! The KV cache: collected for the caller, read from a cache input, or kept in a state.
//!
//! A state has slots of one size. Where heads differ in number or width, a slot is as large as what divides them all, and keys
//! of a layer take several.

use super::apple_llm::PairedState;
use super::attention::{Heads, Tokens};
use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Graph};
use super::pieces::Pieces;
use crate::model::Layer;
use anemeter_mil::ValueId;

/// Keys and values that attention is to see.
#[derive(Debug, Clone)]
pub(super) enum AttendedKv {
    /// Those of this prediction, sequence last.
    Channels { key: ValueId, value: ValueId },
    /// Those of a cache, sequence last, and those of this prediction's one token.
    Past { key: ValueId, value: ValueId, own_key: ValueId, own_value: ValueId },
    /// Those of a state, which holds this prediction's already, width last.
    Positions { key: ValueId, value: ValueId },
    /// The same where slots are narrower than heads.
    Pieces(Pieces),
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

/// A state, `[2 * slots * batch, kv_heads, context, width]`: keys and values of a layer lie side by side.
pub(super) struct KvState {
    pub(super) state: ValueId,
    /// The state as it was last read.
    pub(super) content: ValueId,
    /// Where this prediction's tokens begin and end.
    pub(super) begin: ValueId,
    pub(super) end: ValueId,
    /// Slots of the layers before the next one.
    pub(super) slot: usize,
    /// What a slot holds.
    pub(super) unit: StateUnit,
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
        let unit = self.unit;
        let slots = unit.slots(heads);
        let key = unit.by_position(graph, "key", key, (slots, tokens))?;
        let value = unit.by_position(graph, "value", value, (slots, tokens))?;
        let update = graph.concat("update", &[key, value], 0)?;
        let batch = tokens.batch * slots;
        let first = 2 * self.slot * tokens.batch;
        self.slot += slots;
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
        unit.seen(graph, (key, value), (heads, tokens.batch))
    }
}

/// Key and value heads that a slot of a state holds, and their width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StateUnit {
    pub(super) kv_heads: usize,
    pub(super) width: usize,
}

impl StateUnit {
    /// What divides the heads of all layers.
    pub(super) fn of(cached: &[(usize, Heads)]) -> Result<StateUnit> {
        let units =
            cached.iter().map(|(_, heads)| StateUnit { kv_heads: heads.kv_heads, width: heads.width });
        let divisor = |a: StateUnit, b: StateUnit| StateUnit {
            kv_heads: common_divisor(a.kv_heads, b.kv_heads),
            width: common_divisor(a.width, b.width),
        };
        units.reduce(divisor).ok_or_else(|| LowerError::model("layers", "there are none"))
    }

    /// How many slots the keys of a layer take.
    pub(super) fn slots(self, heads: Heads) -> usize {
        heads.kv_channels() / (self.kv_heads * self.width).max(1)
    }

    /// `[batch * slots, kv_heads, tokens, width]`.
    fn by_position(
        self,
        graph: &mut Graph<'_>,
        label: &str,
        x: ValueId,
        (slots, tokens): (usize, &Tokens),
    ) -> Result {
        let (rows, kv_heads, width) = (Some(tokens.batch * slots), Some(self.kv_heads), Some(self.width));
        graph.within(label, |graph| {
            if tokens.is_one() {
                return graph.reshape("row", x, [rows, kv_heads, Some(1), width]);
            }
            let x = graph.reshape("columns", x, [rows, kv_heads, width, tokens.count])?;
            graph.transpose("rows", x, [0, 1, 3, 2])
        })
    }

    /// What attention sees of the slots of a layer.
    fn seen(
        self,
        graph: &mut Graph<'_>,
        (key, value): (ValueId, ValueId),
        (heads, batch): (Heads, usize),
    ) -> Result<AttendedKv> {
        if heads.width == self.width {
            return Ok(AttendedKv::Positions { key, value });
        }
        let (rows, count) = (batch * heads.kv_heads, heads.width / self.width);
        let mut pieces = |label: &str, x: ValueId| -> Result<Vec<ValueId>> {
            graph.within(label, |graph| {
                let shape = [Some(rows), Some(count), None, Some(self.width)];
                let all = graph.reshape("pieces", x, shape)?;
                (0..count).map(|index| graph.slice("piece", all, CHANNELS, index..index + 1)).collect()
            })
        };
        Ok(AttendedKv::Pieces(Pieces { keys: pieces("key", key)?, values: pieces("value", value)? }))
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Channels of the keys of some layers.
pub(super) fn channels(cached: &[(usize, Heads)]) -> Result<usize> {
    let sum = |sum: usize, (layer, heads): &(usize, Heads)| {
        let fits = sum.checked_add(heads.kv_channels()).filter(|&n| i32::try_from(n).is_ok());
        let at = format!("layers_{layer}_attention");
        fits.ok_or_else(|| LowerError::model(&at, "the caches of all layers are too large together"))
    };
    cached.iter().try_fold(0, sum)
}

/// `[batch, kv_heads, tokens, width]`.
pub(super) fn by_position(
    graph: &mut Graph<'_>,
    label: &str,
    x: ValueId,
    (heads, tokens): (Heads, &Tokens),
) -> Result {
    let unit = StateUnit { kv_heads: heads.kv_heads, width: heads.width };
    unit.by_position(graph, label, x, (1, tokens))
}

/// The heads that all layers of a state have alike, where a state has one slot for each.
pub(super) fn shared_heads(layers: &[Layer]) -> Result<(usize, usize)> {
    let mut shared = None;
    for (index, layer) in layers.iter().enumerate() {
        let at = format!("layers_{index}_attention");
        let Some(attention) = layer.attention() else { continue };
        let heads = Heads::of(&at, attention)?;
        let sizes = (heads.kv_heads, heads.width);
        let &mut (kv_heads, width) = shared.get_or_insert(sizes);
        if (kv_heads, width) != sizes {
            let message = format!(
                "has {} KV heads of width {}, other layers {kv_heads} of {width}; one state cannot hold both here",
                sizes.0, sizes.1
            );
            return Err(LowerError::model(&at, message));
        }
    }
    shared.ok_or_else(|| LowerError::model("layers", "there are none"))
}
