//! The one function that Apple's engine for the GPU calls, with any number of tokens after any number of others.
//!
//! MIL has no sizes that stay open, so the function enumerates a few shapes. They stand for all: whoever writes the function
//! for open sizes tells from them which size is a multiple of what.

use super::cache::PairedState;
use super::rotary::{TokenPositions, hidden_where};
use crate::lower::cache::Cache;
use crate::lower::error::Result;
use crate::lower::function::{Memory, embedding_table, head, layer};
use crate::lower::graph::Graph;
use crate::lower::weights::Weights;
use crate::model::{Decoder, Position};
use anemeter_base::vocabulary::FunctionRole;
use anemeter_kernels::tensor::DType;
use anemeter_mil::{Model, Opset, ValueId};

/// Tokens of a call and positions after it, at the shapes that are enumerated: a beginning, what follows it, and others that
/// no sum of multiples fits by chance.
const SHAPES: [(usize, usize); 5] = [(6, 6), (5, 11), (7, 19), (3, 17), (11, 13)];

/// The function `main`.
pub(super) fn model(decoder: &Decoder, context: usize, weights: &mut Weights) -> Result<Model> {
    let lengths: Vec<usize> = (0..SHAPES.len()).collect();
    let mut graph = Graph::new(FunctionRole::MAIN, Opset::Ios18, &lengths, weights);
    let ids = graph.flexible("input_ids", DType::I32, |shape| vec![1, SHAPES[shape].0]);
    let all = graph.flexible("position_ids", DType::I32, |shape| vec![1, SHAPES[shape].1]);
    let shape = PairedState::positions(decoder, context)?;
    let states = (graph.state("keyCache", &shape), graph.state("valueCache", &shape));

    let begin = earlier(&mut graph, ids, all)?;
    let end = length(&mut graph, "positions", all)?;
    let positions = own_positions(&mut graph, all, (begin, end))?;
    let mut x = embedded(&mut graph, decoder, (ids, positions))?;
    let key_positions = graph.reshape("key_positions", all, [Some(1), Some(1), Some(1), None])?;
    let mask = causal(&mut graph, positions, key_positions)?;
    let layout = TokenPositions { positions, count: None, mask, key_positions, context };
    let tokens = layout.tokens(&mut graph, decoder)?;
    let mut memory = Memory::of(Cache::Pair(PairedState::by_position(&mut graph, states, (begin, end))?));
    for (index, block) in decoder.layers.iter().enumerate() {
        x = graph.within(&format!("layers_{index}"), |graph| {
            layer(graph, x, (index, block), (decoder.hidden, &tokens, None), &mut memory)
        })?;
    }
    let out = head(&mut graph, x, None, (decoder, 1))?[0].1;
    let rows = graph.transpose("logit_rows", out, [0, 3, 1, 2])?;
    let logits = graph.reshape("logits_of_tokens", rows, [Some(1), None, Some(decoder.vocabulary)])?;
    let finished = graph.finish(&[("logits".to_owned(), logits)]);
    let mut model = Model::single(finished.function);
    if let Some(interface) = model.interface_mut(FunctionRole::MAIN) {
        finished.shapes.declare(interface);
    }
    Ok(model)
}

/// The second size of a matrix, as a list of one.
fn length(graph: &mut Graph<'_>, label: &str, x: ValueId) -> Result<ValueId> {
    let shape = graph.push("shape", &format!("{label}_shape"), |op| op.arg("x", x))?;
    graph.push("slice_by_size", &format!("{label}_length"), |op| {
        op.arg("x", shape).arg("begin", [1]).arg("size", [1])
    })
}

/// How many positions are there already.
fn earlier(graph: &mut Graph<'_>, ids: ValueId, all: ValueId) -> Result<ValueId> {
    let (own, all) = (length(graph, "ids", ids)?, length(graph, "all", all)?);
    graph.binary("sub", "earlier", all, own)
}

/// The positions of this call's tokens, which are the last ones.
fn own_positions(graph: &mut Graph<'_>, all: ValueId, (begin, end): (ValueId, ValueId)) -> Result<ValueId> {
    let corner = |graph: &mut Graph<'_>, label: &str, row: i32, at: ValueId| {
        graph.push("concat", label, |op| op.arg("axis", 0).arg("values", [row]).arg("values", at))
    };
    let begin = corner(graph, "own_begin", 0, begin)?;
    let end = corner(graph, "own_end", 1, end)?;
    graph.push("slice_by_index", "own_positions", |op| op.arg("x", all).arg("begin", begin).arg("end", end))
}

/// Ids to vectors, scale and learned positions included.
fn embedded(
    graph: &mut Graph<'_>,
    decoder: &Decoder,
    (ids, positions): (ValueId, ValueId),
) -> Result<ValueId> {
    let table = embedding_table(graph, decoder)?;
    let rows = graph.gather("embedding_rows", table, ids)?;
    let mut rows = graph.scaled("embedding_scaled", rows, decoder.embedding_scale)?;
    if let Position::Learned(weight) = &decoder.position {
        let shape = [decoder.max_positions, decoder.hidden];
        let table = graph.within("positions", |graph| graph.whole("weight", weight, &shape, &shape))?;
        let placed = graph.gather("position_rows", table, positions)?;
        rows = graph.binary("add", "placed_rows", rows, placed)?;
    }
    let columns = graph.transpose("embedding_columns", rows, [0, 2, 1])?;
    graph.expand("embedded", columns, 2)
}

/// The mask that hides what comes after a token, `[1, 1, tokens, positions]`.
fn causal(graph: &mut Graph<'_>, positions: ValueId, key_positions: ValueId) -> Result<ValueId> {
    let rows = graph.reshape("query_positions", positions, [Some(1), Some(1), None, Some(1)])?;
    let is_later = graph.binary("greater", "is_later", key_positions, rows)?;
    hidden_where(graph, "mask", is_later)
}
