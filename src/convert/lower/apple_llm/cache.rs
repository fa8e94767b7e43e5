//! Keys and values in a state each, layers along the first axis.

use crate::lower::attention::{Heads, Tokens};
use crate::lower::cache::{AttendedKv, by_position, shared_heads};
use crate::lower::error::Result;
use crate::lower::graph::Graph;
use crate::model::Decoder;
use anemeter_mil::{Arg, ValueId};

/// How keys and values of a layer lie in their states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// `[layers, 1, kv_heads * width, 1, context]`.
    ByChannel,
    /// `[layers, 1, kv_heads, context, width]`.
    ByPosition,
}

/// A state of keys and one of values.
pub(in crate::lower) struct PairedState {
    keys: Content,
    values: Content,
    lies: Lies,
    /// Where this prediction's tokens begin and end.
    begin: ValueId,
    end: ValueId,
    layer: usize,
}

/// A state and what it held when it was last read.
#[derive(Clone, Copy)]
struct Content {
    state: ValueId,
    kept: ValueId,
}

impl PairedState {
    /// The shape of states that hold channels.
    pub(super) fn channels(decoder: &Decoder, context: usize) -> Result<[usize; 5]> {
        let (kv_heads, width) = shared_heads(&decoder.layers)?;
        Ok([decoder.layers.len(), 1, kv_heads * width, 1, context])
    }

    /// The shape of states that hold positions.
    pub(super) fn positions(decoder: &Decoder, context: usize) -> Result<[usize; 5]> {
        let (kv_heads, width) = shared_heads(&decoder.layers)?;
        Ok([decoder.layers.len(), 1, kv_heads, context, width])
    }

    /// Reads states that hold channels.
    pub(super) fn by_channel(
        graph: &mut Graph<'_>,
        states: (ValueId, ValueId),
        range: (ValueId, ValueId),
    ) -> Result<PairedState> {
        PairedState::open(graph, states, range, Lies::ByChannel)
    }

    /// Reads states that hold positions.
    pub(super) fn by_position(
        graph: &mut Graph<'_>,
        states: (ValueId, ValueId),
        range: (ValueId, ValueId),
    ) -> Result<PairedState> {
        PairedState::open(graph, states, range, Lies::ByPosition)
    }

    fn open(
        graph: &mut Graph<'_>,
        (keys, values): (ValueId, ValueId),
        (begin, end): (ValueId, ValueId),
        lies: Lies,
    ) -> Result<PairedState> {
        let keys = Content { state: keys, kept: graph.read_state("keys_kept", keys)? };
        let values = Content { state: values, kept: graph.read_state("values_kept", values)? };
        Ok(PairedState { keys, values, lies, begin, end, layer: 0 })
    }

    /// What the states hold now.
    pub(super) fn kept(&self) -> (ValueId, ValueId) {
        (self.keys.kept, self.values.kept)
    }

    /// Takes a layer's new keys and values and gives what its attention is to see.
    pub(in crate::lower) fn exchange(
        &mut self,
        graph: &mut Graph<'_>,
        heads: Heads,
        tokens: &Tokens,
        (key, value): (ValueId, ValueId),
    ) -> Result<AttendedKv> {
        let place = Place { heads, layer: self.layer, lies: self.lies, range: (self.begin, self.end) };
        self.layer += 1;
        let key = place.exchange(graph, "key", &mut self.keys, (key, tokens))?;
        let value = place.exchange(graph, "value", &mut self.values, (value, tokens))?;
        Ok(match self.lies {
            Lies::ByChannel => AttendedKv::Channels { key, value },
            Lies::ByPosition => AttendedKv::Positions { key, value },
        })
    }
}

/// Where a layer's part of a state is.
struct Place {
    heads: Heads,
    layer: usize,
    lies: Lies,
    range: (ValueId, ValueId),
}

impl Place {
    fn exchange(
        &self,
        graph: &mut Graph<'_>,
        label: &str,
        content: &mut Content,
        (x, tokens): (ValueId, &Tokens),
    ) -> Result<ValueId> {
        let Heads { kv_heads, width, .. } = self.heads;
        let (count, channels) = (tokens.count, kv_heads * width);
        let update = match self.lies {
            Lies::ByChannel => {
                let shape = [Some(1), Some(1), Some(channels), Some(1), count];
                graph.reshape(&format!("{label}_update"), x, shape)?
            }
            Lies::ByPosition => {
                let rows = by_position(graph, label, x, (self.heads, tokens))?;
                let shape = [Some(1), Some(1), Some(kv_heads), count, Some(width)];
                graph.reshape(&format!("{label}_update"), rows, shape)?
            }
        };
        let (begin, end) = (self.corner(graph, label, false)?, self.corner(graph, label, true)?);
        let updated = graph.push("slice_update", &format!("{label}_updated"), |op| {
            op.arg("x", content.kept).arg("update", update).arg("begin", begin).arg("end", end)
        })?;
        graph.write_state(content.state, updated)?;
        content.kept = graph.read_state(&format!("{label}_kept"), content.state)?;
        self.layer_of(graph, label, content.kept)
    }

    /// The first or the last corner of what is written.
    fn corner(&self, graph: &mut Graph<'_>, label: &str, is_end: bool) -> Result<ValueId> {
        let Heads { kv_heads, width, .. } = self.heads;
        let (layer, at) =
            (int(self.layer) + i32::from(is_end), if is_end { self.range.1 } else { self.range.0 });
        let size = |size: usize| if is_end { int(size) } else { 0 };
        let one = i32::from(is_end);
        let label = format!("{label}_{}", if is_end { "end" } else { "begin" });
        let parts: (Vec<i32>, Vec<i32>) = match self.lies {
            Lies::ByChannel => (vec![layer, one, size(kv_heads * width), one], Vec::new()),
            Lies::ByPosition => (vec![layer, one, size(kv_heads)], vec![size(width)]),
        };
        graph.push("concat", &label, |op| {
            let op = op.arg("axis", 0).arg("values", Arg::from(&parts.0[..])).arg("values", at);
            if parts.1.is_empty() { op } else { op.arg("values", Arg::from(&parts.1[..])) }
        })
    }

    /// What a state holds of the layer.
    fn layer_of(&self, graph: &mut Graph<'_>, label: &str, kept: ValueId) -> Result<ValueId> {
        let Heads { kv_heads, width, .. } = self.heads;
        let layer = int(self.layer);
        let seen = match self.lies {
            Lies::ByChannel => graph.push("slice_by_size", &format!("{label}_seen"), |op| {
                op.arg("x", kept).arg("begin", [layer, 0, 0, 0, 0]).arg("size", [1, -1, -1, -1, -1])
            })?,
            // No further than to the last position there is.
            Lies::ByPosition => {
                let begin = [layer, 0, 0, 0, 0];
                let (first, last) = ([layer + 1, 1, int(kv_heads)], [int(width)]);
                let end = graph.push("concat", &format!("{label}_seen_end"), |op| {
                    let op = op.arg("axis", 0).arg("values", first).arg("values", self.range.1);
                    op.arg("values", last)
                })?;
                graph.push("slice_by_index", &format!("{label}_seen"), |op| {
                    op.arg("x", kept).arg("begin", begin).arg("end", end)
                })?
            }
        };
        let shape = match self.lies {
            Lies::ByChannel => [Some(1), Some(kv_heads * width), Some(1), None],
            Lies::ByPosition => [Some(1), Some(kv_heads), None, Some(width)],
        };
        graph.reshape(&format!("{label}_of_layer"), seen, shape)
    }
}

fn int(size: usize) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}
