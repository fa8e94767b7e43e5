//! Grouped-query attention (Ainslie et al. 2023), decomposed into products and a softmax.
//!
//! Queries of heads that share keys and values are grouped along an axis of their own instead of repeating keys
//! and values. With several tokens, `[batch * kv_heads, group, width, tokens]` queries meet
//! `[batch * kv_heads, 1, ...]` keys; with one token, `[batch, kv_heads, group, width]` queries meet
//! `[batch, kv_heads, ...]` keys. Scores have keys on the last axis; nothing is transposed on the way.

use super::cache::AttendedKv;
use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Graph};
use super::norm::norm;
use super::sharing::KeysAndValues;
use crate::model::{Attention, Norm, QueryGrowth};
use anemeter_mil::ValueId;

/// The axis of a head's width while heads have an axis of their own.
const WIDTH: usize = 2;

/// What a function knows about the tokens it sees.
pub(super) struct Tokens {
    pub(super) batch: usize,
    /// How many there are, unless several counts are possible.
    pub(super) count: Option<usize>,
    /// Masks by window.
    pub(super) masks: Vec<(Option<usize>, ValueId)>,
    /// Cosines and sines, `[1 or batch, 1, width, tokens]`, by rotation.
    pub(super) rotations: Vec<(crate::model::Rope, ValueId, ValueId)>,
    /// Factors of queries, `[1 or batch, 1, 1, tokens]`, by how they grow.
    pub(super) growths: Vec<(QueryGrowth, ValueId)>,
}

impl Tokens {
    pub(super) fn is_one(&self) -> bool {
        self.count == Some(1)
    }
}

/// A head's sizes, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) kv_heads: usize,
    pub(super) group: usize,
    pub(super) width: usize,
}

impl Heads {
    pub(super) fn of(at: &str, attention: &Attention) -> Result<Heads> {
        let Attention { heads, kv_heads, head_dim, .. } = *attention;
        let sizes = heads.checked_mul(head_dim).filter(|&n| n > 0 && i32::try_from(n).is_ok());
        if sizes.is_none() || kv_heads == 0 || heads % kv_heads != 0 {
            let message = format!("{heads} query heads of width {head_dim} cannot share {kv_heads} KV heads");
            return Err(LowerError::model(at, message));
        }
        if let Some(rope) = &attention.rope
            && (rope.dims == 0 || rope.dims % 2 != 0 || rope.dims > head_dim)
        {
            let message = format!("{} dimensions of heads of width {head_dim} cannot be rotated", rope.dims);
            return Err(LowerError::model(at, message));
        }
        Ok(Heads { kv_heads, group: heads / kv_heads, width: head_dim })
    }

    fn queries(self) -> usize {
        self.kv_heads * self.group
    }

    /// Channels of keys, and of values.
    pub(super) fn kv_channels(self) -> usize {
        self.kv_heads * self.width
    }
}

/// Attention of a layer over `x`, with its output projection.
pub(super) fn attention(
    graph: &mut Graph<'_>,
    x: ValueId,
    (index, attention): (usize, &Attention),
    (hidden, tokens): (usize, &Tokens),
    kept: &mut KeysAndValues,
) -> Result {
    let heads = Heads::of(graph.scope(), attention)?;
    let q_channels = heads.queries() * heads.width;
    let query = graph.linear("query", x, &attention.query, (q_channels, hidden))?;
    let place = Placing { attention, tokens, width: heads.width };
    let query = place.place(graph, "query", query, (heads.queries(), attention.query_norm.as_ref()))?;
    let query = graph.scaled("query_scaled", query, attention.scale / cap(graph.scope(), attention)?)?;
    let query = grown(graph, query, attention.growth, tokens)?;

    let seen = match attention.shared_from {
        Some(source) => kept.seen(graph.scope(), source)?,
        None => remember(graph, x, (index, attention), (hidden, tokens), kept)?,
    };
    let mask = tokens.masks.iter().find(|(window, _)| *window == attention.window).map(|&(_, id)| id);
    let mask = mask.ok_or_else(|| LowerError::model(graph.scope(), "the layer's mask is not an input"))?;
    let scoring = Scoring { mask, softcap: attention.softcap };
    let mixed = match tokens.is_one() {
        true => attend_one(graph, query, &seen, scoring, (heads, tokens.batch))?,
        false => attend_many(graph, query, &seen, scoring, (heads, tokens))?,
    };
    let mixed =
        graph.reshape("mixed", mixed, [Some(tokens.batch), Some(q_channels), Some(1), tokens.count])?;
    let mixed = match &attention.output_gate {
        Some(gate) => {
            let gate = graph.linear("gate", x, gate, (q_channels, hidden))?;
            let gate = graph.unary("sigmoid", "gate_open", gate)?;
            graph.binary("mul", "gated", mixed, gate)?
        }
        None => mixed,
    };
    graph.linear("output", mixed, &attention.output, (hidden, q_channels))
}

/// Queries times the factor of their position.
fn grown(graph: &mut Graph<'_>, query: ValueId, growth: Option<QueryGrowth>, tokens: &Tokens) -> Result {
    let Some(growth) = growth else { return Ok(query) };
    let factor = tokens.growths.iter().find(|(kind, _)| *kind == growth).map(|&(_, id)| id);
    let missing = || LowerError::model(graph.scope(), "the layer's factor of queries is not an input");
    let factor = factor.ok_or_else(missing)?;
    graph.binary("mul", "query_grown", query, factor)
}

/// Keys and values of a layer over `x`, into the cache; gives what attention is to see.
pub(super) fn remember(
    graph: &mut Graph<'_>,
    x: ValueId,
    (index, attention): (usize, &Attention),
    (hidden, tokens): (usize, &Tokens),
    kept: &mut KeysAndValues,
) -> Result<AttendedKv> {
    let heads = Heads::of(graph.scope(), attention)?;
    let channels = heads.kv_channels();
    let key = graph.linear("key", x, &attention.key, (channels, hidden))?;
    let value = graph.linear("value", x, &attention.value, (channels, hidden))?;
    let place = Placing { attention, tokens, width: heads.width };
    let key = place.place(graph, "key", key, (heads.kv_heads, attention.key_norm.as_ref()))?;
    let value = place.normed_value(graph, value, heads)?;
    kept.exchange(graph, (index, heads), tokens, (key, value))
}

/// What queries are divided by so that scores come out as shares of their cap; 1 without a cap.
fn cap(at: &str, attention: &Attention) -> Result<f32> {
    match attention.softcap {
        None => Ok(1.0),
        Some(cap) if cap > 0.0 && cap.is_finite() => Ok(cap),
        Some(cap) => Err(LowerError::model(at, format!("scores cannot be capped at {cap}"))),
    }
}

/// What is done to scores before the softmax.
#[derive(Clone, Copy)]
pub(super) struct Scoring {
    mask: ValueId,
    softcap: Option<f32>,
}

impl Scoring {
    /// Scores within their cap.
    fn capped(self, graph: &mut Graph<'_>, scores: ValueId) -> Result {
        let Some(cap) = self.softcap else { return Ok(scores) };
        let bent = graph.unary("tanh", "scores_bent", scores)?;
        graph.scaled("scores_capped", bent, cap)
    }

    /// Capped scores of what is seen.
    pub(super) fn masked(self, graph: &mut Graph<'_>, scores: ValueId) -> Result {
        let scores = self.capped(graph, scores)?;
        graph.binary("add", "masked", scores, self.mask)
    }
}

/// Norm and rotation of query or key heads.
struct Placing<'a> {
    attention: &'a Attention,
    tokens: &'a Tokens,
    width: usize,
}

impl Placing<'_> {
    /// Values after the norm of their heads, in the shape that caches take.
    fn normed_value(&self, graph: &mut Graph<'_>, value: ValueId, heads: Heads) -> Result {
        let Some(by) = &self.attention.value_norm else { return Ok(value) };
        let (batch, count) = (self.tokens.batch, self.tokens.count);
        graph.within("value", |graph| {
            let shape = [Some(batch), Some(heads.kv_heads), Some(heads.width), count];
            let by_head = graph.reshape("heads", value, shape)?;
            let normal = norm(graph, "norm", by_head, by, (WIDTH, heads.width))?;
            graph.reshape("together", normal, [Some(batch), Some(heads.kv_channels()), Some(1), count])
        })
    }

    fn place(
        &self,
        graph: &mut Graph<'_>,
        label: &str,
        x: ValueId,
        (heads, head_norm): (usize, Option<&Norm>),
    ) -> Result {
        let Placing { attention, tokens, width } = *self;
        if head_norm.is_none() && attention.rope.is_none() {
            return Ok(x);
        }
        graph.within(label, |graph| {
            let shape = [Some(tokens.batch), Some(heads), Some(width), tokens.count];
            let (whole, each) = match head_norm {
                Some(head_norm) if head_norm.weight.shape[..] == [width] => (None, Some(head_norm)),
                other => (other, None),
            };
            let mut x = x;
            if let Some(whole) = whole {
                x = norm(graph, "norm", x, whole, (CHANNELS, heads * width))?;
            }
            x = graph.reshape("heads", x, shape)?;
            if let Some(each) = each {
                x = norm(graph, "norm", x, each, (WIDTH, width))?;
            }
            match &attention.rope {
                Some(rope) => {
                    let tables = tokens.rotations.iter().find(|(kind, ..)| kind == rope);
                    let &(_, cos, sin) = tables.ok_or_else(|| {
                        LowerError::model(graph.scope(), "the layer's rotation is not an input")
                    })?;
                    rotate(graph, x, (rope.dims, width), (cos, sin))
                }
                None => Ok(x),
            }
        })
    }
}

/// Rotates the first `dims` of `width` dimensions, halves against each other.
fn rotate(
    graph: &mut Graph<'_>,
    x: ValueId,
    (dims, width): (usize, usize),
    (cos, sin): (ValueId, ValueId),
) -> Result {
    let turning = if dims < width { graph.slice("turning", x, WIDTH, 0..dims)? } else { x };
    let low = graph.slice("low", turning, WIDTH, 0..dims / 2)?;
    let high = graph.slice("high", turning, WIDTH, dims / 2..dims)?;
    let high = graph.scaled("negative", high, -1.0)?;
    let crossed = graph.concat("crossed", &[high, low], WIDTH)?;
    let along = graph.binary("mul", "along", turning, cos)?;
    let across = graph.binary("mul", "across", crossed, sin)?;
    let turned = graph.binary("add", "turned", along, across)?;
    if dims == width {
        return Ok(turned);
    }
    let still = graph.slice("still", x, WIDTH, dims..width)?;
    graph.concat("placed", &[turned, still], WIDTH)
}

/// Several tokens: `[batch * kv_heads, group, width, tokens]`.
fn attend_many(
    graph: &mut Graph<'_>,
    query: ValueId,
    seen: &AttendedKv,
    scoring: Scoring,
    (heads, tokens): (Heads, &Tokens),
) -> Result {
    let rows = tokens.batch * heads.kv_heads;
    let (key, value, by_position) = match *seen {
        AttendedKv::Channels { key, value } => (key, value, false),
        AttendedKv::Positions { key, value } => (key, value, true),
        AttendedKv::Pieces(ref pieces) => return pieces.attend_many(graph, query, scoring, (heads, tokens)),
        AttendedKv::Past { .. } => {
            return Err(LowerError::model(graph.scope(), "a cache input is read one token at a time"));
        }
    };
    let shape = match by_position {
        true => [Some(rows), Some(1), None, Some(heads.width)],
        false => [Some(rows), Some(1), Some(heads.width), None],
    };
    let query =
        graph.reshape("queries", query, [Some(rows), Some(heads.group), Some(heads.width), tokens.count])?;
    let key = graph.reshape("keys", key, shape)?;
    let value = graph.reshape("values", value, shape)?;
    let scores = graph.matmul("scores", (query, true), (key, by_position))?;
    let scores = scoring.masked(graph, scores)?;
    let shares = graph.softmax("shares", scores)?;
    graph.matmul("attended", (value, by_position), (shares, true))
}

/// One token: `[batch, kv_heads, group, width]`.
fn attend_one(
    graph: &mut Graph<'_>,
    query: ValueId,
    seen: &AttendedKv,
    scoring: Scoring,
    (heads, batch): (Heads, usize),
) -> Result {
    let Heads { kv_heads, group, width } = heads;
    let (key, value, by_position) = match *seen {
        AttendedKv::Positions { key, value } => (key, value, true),
        AttendedKv::Channels { key, value } | AttendedKv::Past { key, value, .. } => (key, value, false),
        AttendedKv::Pieces(ref pieces) => return pieces.attend_one(graph, query, scoring, (heads, batch)),
    };
    let query = graph.reshape("queries", query, [Some(batch), Some(kv_heads), Some(group), Some(width)])?;
    let shape = match by_position {
        true => [Some(batch), Some(kv_heads), None, Some(width)],
        false => [Some(batch), Some(kv_heads), Some(width), None],
    };
    let key = graph.reshape("keys", key, shape)?;
    let value = graph.reshape("values", value, shape)?;
    let scores = graph.matmul("scores", (query, false), (key, by_position))?;
    let scores = scoring.masked(graph, scores)?;
    let AttendedKv::Past { own_key, own_value, .. } = *seen else {
        let shares = graph.softmax("shares", scores)?;
        return graph.matmul("attended", (shares, false), (value, !by_position));
    };
    // Joining scores instead of keys and values leaves the caches uncopied.
    let column = [Some(batch), Some(kv_heads), Some(width), Some(1)];
    let own_key = graph.reshape("own_keys", own_key, column)?;
    let own_scores = graph.matmul("own_scores", (query, false), (own_key, false))?;
    let own_scores = scoring.capped(graph, own_scores)?;
    let scores = graph.concat("joined", &[scores, own_scores], 3)?;
    let shares = graph.softmax("shares", scores)?;
    let (past_shares, own_shares) = graph.split_last(shares, 1)?;
    let past = graph.matmul("attended_past", (past_shares, false), (value, true))?;
    let row = [Some(batch), Some(kv_heads), Some(1), Some(width)];
    let own_value = graph.reshape("own_values", own_value, row)?;
    let own = graph.binary("mul", "attended_own", own_shares, own_value)?;
    graph.binary("add", "attended", past, own)
}
