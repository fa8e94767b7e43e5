//! Attention over a state whose positions are narrower than a head: scores are sums over the pieces of a head, and what is
//! mixed is joined again.

use super::attention::{Heads, Scoring, Tokens};
use super::error::Result;
use super::graph::Graph;
use anemeter_mil::ValueId;

/// Keys and values of heads in pieces, each `[batch * kv_heads, 1, context, width / pieces]`.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    pub(super) keys: Vec<ValueId>,
    pub(super) values: Vec<ValueId>,
}

impl Pieces {
    /// Several tokens: `[batch * kv_heads, group, width, tokens]` of queries of the same shape.
    pub(super) fn attend_many(
        &self,
        graph: &mut Graph<'_>,
        query: ValueId,
        scoring: Scoring,
        (heads, tokens): (Heads, &Tokens),
    ) -> Result {
        const WIDTH: usize = 2;
        let rows = tokens.batch * heads.kv_heads;
        let shape = [Some(rows), Some(heads.group), Some(heads.width), tokens.count];
        let query = graph.reshape("queries", query, shape)?;
        let width = heads.width / self.keys.len().max(1);
        let mut scores = None;
        for (index, &key) in self.keys.iter().enumerate() {
            let own = graph.slice("query_piece", query, WIDTH, index * width..(index + 1) * width)?;
            let part = graph.matmul("score_piece", (own, true), (key, true))?;
            scores = Some(sum(graph, scores, part)?);
        }
        let scores = scoring.masked(graph, scores.unwrap_or(query))?;
        let shares = graph.softmax("shares", scores)?;
        let mixed = self.values.iter().map(|&value| graph.matmul("piece", (value, true), (shares, true)));
        let mixed = mixed.collect::<Result<Vec<ValueId>>>()?;
        graph.concat("attended", &mixed, WIDTH)
    }

    /// One token: `[batch, kv_heads, group, width]`.
    pub(super) fn attend_one(
        &self,
        graph: &mut Graph<'_>,
        query: ValueId,
        scoring: Scoring,
        (heads, batch): (Heads, usize),
    ) -> Result {
        const WIDTH: usize = 3;
        let Heads { kv_heads, group, width } = heads;
        let query =
            graph.reshape("queries", query, [Some(batch), Some(kv_heads), Some(group), Some(width)])?;
        let width = width / self.keys.len().max(1);
        let by_head = [Some(batch), Some(kv_heads), None, Some(width)];
        let mut scores = None;
        for (index, &key) in self.keys.iter().enumerate() {
            let own = graph.slice("query_piece", query, WIDTH, index * width..(index + 1) * width)?;
            let key = graph.reshape("keys", key, by_head)?;
            let part = graph.matmul("score_piece", (own, false), (key, true))?;
            scores = Some(sum(graph, scores, part)?);
        }
        let scores = scoring.masked(graph, scores.unwrap_or(query))?;
        let shares = graph.softmax("shares", scores)?;
        let mut mixed = Vec::with_capacity(self.values.len());
        for &value in &self.values {
            let value = graph.reshape("values", value, by_head)?;
            mixed.push(graph.matmul("piece", (shares, false), (value, false))?);
        }
        graph.concat("attended", &mixed, WIDTH)
    }
}

fn sum(graph: &mut Graph<'_>, before: Option<ValueId>, part: ValueId) -> Result {
    match before {
        Some(before) => graph.binary("add", "score_sum", before, part),
        None => Ok(part),
    }
}
