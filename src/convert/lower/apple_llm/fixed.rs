//! The functions of fixed sizes that Apple's engine for the Neural Engine calls: the table of embeddings is an output of one
//! of them and an input of all others.

use half::f16;

use super::cache::PairedState;
use super::rotary::{TokenPositions, as_int32};
use super::table::EmbeddingTable;
use crate::lower::attention::{Tokens, remember};
use crate::lower::cache::Cache;
use crate::lower::error::Result;
use crate::lower::function::{Memory, capped, layer};
use crate::lower::graph::{CHANNELS, Finished, Graph};
use crate::lower::norm::norm;
use crate::lower::weights::Weights;
use crate::model::{Decoder, Position};
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{Literal, Model, Opset, ValueId};

/// The first whose inputs may be int8.
const OPSET: Opset = Opset::Ios26;
const TABLE: &str = "embedding_table";

/// A function that runs the layers.
#[derive(Clone, Copy)]
struct Call {
    context: usize,
    query: usize,
    /// Whether it fills the caches and gives no logits.
    fills: bool,
}

/// All functions, of each context and each number of tokens.
pub(super) fn model(
    decoder: &Decoder,
    (contexts, queries): (&[usize], &[usize]),
    weights: &mut Weights,
) -> Result<Model> {
    let table = EmbeddingTable::of(decoder);
    let longest = contexts.iter().max().copied().unwrap_or(0);
    let mut functions = vec![load(&table, weights)];
    for &query in queries {
        functions.push(gather(decoder, &table, query, weights)?.function);
    }
    for fills in [false, true] {
        for &context in contexts {
            for &query in queries {
                let call = Call { context, query, fills };
                functions.push(extend(decoder, &table, (call, longest), weights)?.function);
            }
        }
    }
    Ok(Model::multi(functions))
}

/// The table of embeddings, as it is.
fn load(table: &EmbeddingTable, weights: &mut Weights) -> anemeter_mil::Function {
    let mut graph = Graph::new("load_embeddings", OPSET, &[1], weights);
    let id = graph.constant(TABLE, table.literal());
    graph.finish(&[(TABLE.to_owned(), id)]).function
}

/// The table as floats, where it is an input.
fn floats(graph: &mut Graph<'_>, label: &str, codes: ValueId, scale: f16) -> Result<ValueId> {
    graph.push("dequantize", label, |op| op.arg("input", codes).arg("scale", scale))
}

/// Ids to vectors.
fn gather(
    decoder: &Decoder,
    table: &EmbeddingTable,
    query: usize,
    weights: &mut Weights,
) -> Result<Finished> {
    let mut graph = Graph::new(&format!("gather_embeddings_{query}"), OPSET, &[query], weights);
    let ids = graph.fixed("in_new_token_ids", DType::I32, &[1, query]);
    let codes = graph.fixed(TABLE, DType::I8, &[decoder.vocabulary, 1, decoder.hidden]);
    let rows = graph.gather("rows", codes, ids)?;
    let rows = floats(&mut graph, "vectors", rows, table.scale())?;
    let rows = graph.scaled("vectors_scaled", rows, decoder.embedding_scale)?;
    Ok(graph.finish(&[("gathered_embeddings".to_owned(), rows)]))
}

fn extend(
    decoder: &Decoder,
    table: &EmbeddingTable,
    (call, longest): (Call, usize),
    weights: &mut Weights,
) -> Result<Finished> {
    let Call { context, query, fills } = call;
    let name = if fills { "prompt_opt" } else { "extend" };
    let mut graph = Graph::new(&format!("{name}_{context}_{query}"), OPSET, &[query], weights);
    let hidden = decoder.hidden;
    let x = graph.fixed("transformer_input", DType::F16, &[1, query, 1, hidden]);
    let positions = graph.fixed("position_ids", DType::U16, &[1, query]);
    let step = graph.fixed("in_step", DType::I32, &[1]);
    let mask = graph.fixed("causal_mask", DType::F16, &[1, context, 1, query]);
    let shape = PairedState::channels(decoder, context)?;
    let states = (graph.state("key_cache", &shape), graph.state("value_cache", &shape));
    let codes = graph.fixed(TABLE, DType::I8, &[decoder.vocabulary, 1, hidden]);

    let x = graph.transpose("columns", x, [0, 3, 2, 1])?;
    let positions = as_int32(&mut graph, "positions", positions)?;
    let x = placed_by(&mut graph, x, positions, (decoder, query))?;
    let mask = graph.transpose("mask", mask, [0, 2, 3, 1])?;
    let keys: Vec<i32> = (0..context).map(|at| i32::try_from(at).unwrap_or(i32::MAX)).collect();
    let keys = Tensor::from_slice(&[1, 1, 1, context], &keys).expect("one number for each position");
    let key_positions = graph.constant("key_positions", Literal::blob(&keys));
    let layout = TokenPositions { positions, count: Some(query), mask, key_positions, context: longest };
    let tokens = layout.tokens(&mut graph, decoder)?;
    let query_size = i32::try_from(query).unwrap_or(i32::MAX);
    let end = graph.binary("add", "step_end", step, [query_size])?;
    let cache = Cache::Pair(PairedState::by_channel(&mut graph, states, (step, end))?);
    let out = match fills {
        true => fill(&mut graph, x, decoder, (&tokens, cache))?,
        false => {
            let x = layers(&mut graph, x, decoder, (&tokens, cache))?;
            logits(&mut graph, x, (decoder, table), (codes, query))?
        }
    };
    Ok(graph.finish(&[("out_logits".to_owned(), out)]))
}

/// Learned positions, where the model has such.
fn placed_by(
    graph: &mut Graph<'_>,
    x: ValueId,
    positions: ValueId,
    (decoder, query): (&Decoder, usize),
) -> Result<ValueId> {
    let Position::Learned(weight) = &decoder.position else { return Ok(x) };
    let shape = [decoder.max_positions, decoder.hidden];
    let table = graph.within("positions", |graph| graph.whole("weight", weight, &shape, &shape))?;
    let rows = graph.gather("position_rows", table, positions)?;
    let columns = graph.transpose("position_columns", rows, [0, 2, 1])?;
    let shape = [Some(1), Some(decoder.hidden), Some(1), Some(query)];
    let columns = graph.reshape("position_vectors", columns, shape)?;
    graph.binary("add", "placed", x, columns)
}

fn layers(
    graph: &mut Graph<'_>,
    mut x: ValueId,
    decoder: &Decoder,
    (tokens, cache): (&Tokens, Cache),
) -> Result<ValueId> {
    let mut memory = Memory::of(cache);
    for (index, block) in decoder.layers.iter().enumerate() {
        x = graph.within(&format!("layers_{index}"), |graph| {
            layer(graph, x, (index, block), (decoder.hidden, tokens, None), &mut memory)
        })?;
    }
    Ok(x)
}

/// Runs the layers for what they leave in the caches; gives a number that depends on both, so that no pass drops them.
fn fill(
    graph: &mut Graph<'_>,
    mut x: ValueId,
    decoder: &Decoder,
    (tokens, cache): (&Tokens, Cache),
) -> Result<ValueId> {
    let hidden = decoder.hidden;
    let mut memory = Memory::of(cache);
    for (index, block) in decoder.layers.iter().enumerate() {
        let is_last = index + 1 == decoder.layers.len();
        x = graph.within(&format!("layers_{index}"), |graph| {
            if !is_last {
                return layer(graph, x, (index, block), (hidden, tokens, None), &mut memory);
            }
            let into = match &block.attention_norm {
                Some(by) => norm(graph, "attention_norm", x, by, (CHANNELS, hidden))?,
                None => x,
            };
            graph.within("attention", |graph| match block.attention() {
                Some(attention) => {
                    let own = (index, attention);
                    remember(graph, into, own, (hidden, tokens), &mut memory.kept).map(drop)
                }
                None => Ok(()),
            })?;
            Ok(x)
        })?;
    }
    let Cache::Pair(state) = memory.kept.into_cache() else { return Ok(x) };
    let (keys, values) = state.kept();
    let mut first = |label: &str, x: ValueId| {
        graph.push("slice_by_size", label, |op| op.arg("x", x).arg("begin", [0; 5]).arg("size", [1; 5]))
    };
    let (key, value) = (first("first_key", keys)?, first("first_value", values)?);
    let sum = graph.binary("add", "first", key, value)?;
    graph.push("squeeze", "filled", |op| op.arg("x", sum).arg("axes", [0, 1, 2, 3, 4]))
}

/// Logits of all tokens, `[1, 1, tokens, vocabulary]`.
fn logits(
    graph: &mut Graph<'_>,
    x: ValueId,
    (decoder, table): (&Decoder, &EmbeddingTable),
    (codes, query): (ValueId, usize),
) -> Result<ValueId> {
    let (hidden, vocabulary) = (decoder.hidden, decoder.vocabulary);
    let x = norm(graph, "final_norm", x, &decoder.final_norm, (CHANNELS, hidden))?;
    let out = match decoder.head.tied {
        true => {
            let weight = floats(graph, "embedding_floats", codes, table.scale())?;
            let shape = [Some(1), Some(1), Some(vocabulary), Some(hidden)];
            let weight = graph.reshape("head_weight", weight, shape)?;
            let rows = graph.transpose("head_rows", x, [0, 2, 3, 1])?;
            graph.matmul("head", (rows, false), (weight, true))?
        }
        false => {
            let (expected, shape) = ([vocabulary, hidden], [vocabulary, hidden, 1, 1]);
            let weight = graph.whole("head_weight", &decoder.head.weight, &expected, &shape)?;
            let out = graph.conv("head", x, weight, None)?;
            graph.transpose("head_rows", out, [0, 2, 3, 1])?
        }
    };
    let out = graph.reshape("head_out", out, [Some(1), Some(1), Some(query), Some(vocabulary)])?;
    capped(graph, out, decoder.head.softcap)
}
