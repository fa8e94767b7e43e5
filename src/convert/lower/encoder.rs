//! Encoders as one function `main` per chunk: token ids or vectors in; vectors of tokens, of texts or scores out.
//!
//! What is seen of padding and of other tokens comes in as masks, and how much each token counts in a pooled vector
//! as the input `pool`: first, last, mean and weighted mean are one product and one sum in the graph.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::attention::{Tokens, attention};
use super::cache::Cache;
use super::error::{LowerError, Result};
use super::function::share;
use super::graph::{CHANNELS, Finished, Graph, SEQUENCE};
use super::mlp::{activate, mlp};
use super::norm::{norm, unit_length};
use super::options::Options;
use super::positions::Positions;
use super::read_stats::ReadStats;
use super::sharing::KeysAndValues;
use super::weights::Weights;
use super::{Chunk, chunk_name};
use crate::model::{
    Attends, Attention, Encoder, EncoderLayer, Gives, Norm, Readout, Stage, Sublayer, Weight,
};
use anemeter_base::vocabulary::FunctionRole;
use anemeter_kernels::tensor::DType;
use anemeter_mil::{Model, ValueId};

/// Lowers an encoder; the options' forms of the cache and parts of the head have no meaning for it.
pub fn lower_encoder(encoder: &Encoder, options: &Options, stats: &Arc<ReadStats>) -> Result<Vec<Chunk>> {
    options.check_encoder(encoder)?;
    let attentions: Vec<&Attention> = encoder.layers.iter().map(|layer| &layer.attention.part).collect();
    let positions = Positions::of_attentions(&attentions);
    let chunk = |index: usize| {
        let layers = share(encoder.layers.len(), index, options.chunks);
        let positions = positions.used_by_attentions(&attentions[layers.clone()]);
        let mut weights = Weights::new(stats.clone());
        let builder = EncoderBuilder { encoder, options, layers: layers.clone(), positions: &positions };
        let Finished { function, shapes } = builder.main(&mut weights)?;
        let mut model = Model::single(function);
        if let Some(interface) = model.interface_mut(FunctionRole::MAIN) {
            shapes.declare(interface);
        }
        Ok(Chunk { name: chunk_name(index, options.chunks), index, layers, positions, model })
    };
    (0..options.chunks).map(chunk).collect()
}

/// A chunk whose function is being built.
struct EncoderBuilder<'a> {
    encoder: &'a Encoder,
    options: &'a Options,
    layers: Range<usize>,
    /// The inputs its layers use.
    positions: &'a Positions,
}

impl EncoderBuilder<'_> {
    fn main(&self, weights: &mut Weights) -> Result<Finished> {
        let EncoderBuilder { encoder, options, layers, .. } = self;
        let (batch, hidden) = (options.batch, encoder.hidden);
        let mut graph = Graph::new(FunctionRole::MAIN, options.opset, &options.seq_lens, weights);
        let mut x = match layers.start {
            0 => embed(&mut graph, encoder, batch)?,
            _ => graph.input("hidden", DType::F16, |length| [batch, hidden, 1, length]),
        };
        let tokens = self.tokens(&mut graph)?;
        let is_last = layers.end == encoder.layers.len();
        let pools = is_last && encoder.readout.is_some();
        let pool = pools.then(|| graph.input("pool", DType::F16, |length| [batch, 1, 1, length]));
        for index in layers.clone() {
            x = graph.within(&format!("layers_{index}"), |graph| {
                layer(graph, x, &encoder.layers[index], (hidden, &tokens))
            })?;
        }
        if !is_last {
            return Ok(graph.finish(&[("hidden_out".to_owned(), x)]));
        }
        if let Some(last) = &encoder.final_norm {
            x = norm(&mut graph, "final_norm", x, last, (CHANNELS, hidden))?;
        }
        let output = match (&encoder.readout, pool) {
            (Some(readout), Some(pool)) => read_out(&mut graph, x, pool, (readout, hidden))?,
            _ => ("hidden_states", x),
        };
        Ok(graph.finish(&[(output.0.to_owned(), output.1)]))
    }

    /// Declares masks and rotations.
    fn tokens(&self, graph: &mut Graph<'_>) -> Result<Tokens> {
        let EncoderBuilder { encoder, options, positions, .. } = self;
        let count = match options.seq_lens[..] {
            [only] => Some(only),
            _ => None,
        };
        let mut rotations = Vec::new();
        for rotation in &positions.rotations {
            let width = rotation.rope.dims;
            let table = |graph: &mut Graph<'_>, name: &str| {
                let id = graph.input(name, DType::F16, |length| [1, width, 1, length]);
                graph.reshape(&format!("{name}_by_head"), id, [Some(1), Some(1), Some(width), count])
            };
            let (cos, sin) = (table(graph, &rotation.cos)?, table(graph, &rotation.sin)?);
            rotations.push((rotation.rope.clone(), cos, sin));
        }
        let batch = options.batch;
        let mut masks = Vec::new();
        for mask in &positions.masks {
            // Every query sees the same keys unless its own position matters.
            let by_query = mask.window.is_some() || encoder.attends == Attends::Causally;
            let id = graph.input(&mask.name, DType::F16, |length| {
                [batch, 1, if by_query { length } else { 1 }, length]
            });
            masks.push((mask.window, by_head(graph, &mask.name, id, (batch, self.kv_heads()?))?));
        }
        Ok(Tokens { batch, count, masks, rotations, growths: Vec::new() })
    }

    /// Key and value heads, which all layers have alike.
    fn kv_heads(&self) -> Result<usize> {
        let mut heads = self.encoder.layers.iter().map(|layer| layer.attention.part.kv_heads);
        let first = heads.next().ok_or_else(|| LowerError::model("layers", "there are none"))?;
        match heads.find(|&other| other != first) {
            Some(other) => {
                let message = format!("have {first} and {other} KV heads, expected the same in all");
                Err(LowerError::model("layers", message))
            }
            None => Ok(first),
        }
    }
}

/// A mask `[batch, 1, …]` as scores are laid out, `[batch * kv_heads, …]`.
fn by_head(graph: &mut Graph<'_>, name: &str, mask: ValueId, (batch, kv_heads): (usize, usize)) -> Result {
    if batch == 1 {
        return Ok(mask);
    }
    let mut rows = Vec::with_capacity(batch * kv_heads);
    for row in 0..batch {
        let own = graph.slice(&format!("{name}_of_{row}"), mask, 0, row..row + 1)?;
        rows.extend(std::iter::repeat_n(own, kv_heads));
    }
    graph.concat(&format!("{name}_by_head"), &rows, 0)
}

/// Ids to vectors: tokens, positions and kinds of segments, and the norm of their sum.
fn embed(graph: &mut Graph<'_>, encoder: &Encoder, batch: usize) -> Result {
    let hidden = encoder.hidden;
    let shape = |length: usize| [batch, length];
    let ids = graph.ids("input_ids", shape);
    let sizes = [encoder.vocabulary, hidden];
    let table =
        graph.within("embedding", |graph| graph.whole("weight", &encoder.embedding, &sizes, &sizes))?;
    let rows = graph.gather("embedding_rows", table, ids)?;
    // All lookups come before any sum, so that they are one stretch off the Neural Engine and not several.
    let places = match &encoder.positions {
        Some(weight) => Some(looked_up(graph, ["position_ids", "positions"], weight, (shape, hidden))?),
        None => None,
    };
    let kinds = match &encoder.token_types {
        // Nothing to choose from.
        Some(weight) if encoder.segment_kinds() == 1 => {
            Some(graph.within("token_types", |graph| {
                graph.whole("weight", weight, &[1, hidden], &[1, 1, hidden])
            })?)
        }
        Some(weight) => Some(looked_up(graph, ["token_type_ids", "token_types"], weight, (shape, hidden))?),
        None => None,
    };
    let mut rows = graph.scaled("embedding_scaled", rows, encoder.embedding_scale)?;
    if let Some(places) = places {
        rows = graph.binary("add", "placed_rows", rows, places)?;
    }
    if let Some(kinds) = kinds {
        rows = graph.binary("add", "typed_rows", rows, kinds)?;
    }
    let columns = graph.transpose("embedding_columns", rows, [0, 2, 1])?;
    let x = graph.expand("embedded", columns, 2)?;
    match &encoder.embedding_norm {
        Some(first) => norm(graph, "embedding_norm", x, first, (CHANNELS, hidden)),
        None => Ok(x),
    }
}

/// Rows of a table by an input of ids.
fn looked_up(
    graph: &mut Graph<'_>,
    [input, name]: [&str; 2],
    weight: &Weight,
    (shape, hidden): (impl Fn(usize) -> [usize; 2], usize),
) -> Result {
    let ids = graph.ids(input, shape);
    let sizes = [weight.shape.first().copied().unwrap_or(0), hidden];
    graph.within(name, |graph| {
        let table = graph.whole("weight", weight, &sizes, &sizes)?;
        graph.gather("rows", table, ids)
    })
}

fn layer(
    graph: &mut Graph<'_>,
    x: ValueId,
    layer: &EncoderLayer,
    (hidden, tokens): (usize, &Tokens),
) -> Result {
    let EncoderLayer { attention: mixing, mlp: widening } = layer;
    let x = residual(graph, x, mixing, (["attention", "attended"], hidden), |graph, x, part| {
        let mut nothing = KeysAndValues::new(Cache::None, BTreeSet::new());
        attention(graph, x, (0, part), (hidden, tokens), &mut nothing)
    })?;
    residual(graph, x, widening, (["mlp", "out"], hidden), |graph, x, part| mlp(graph, x, part, hidden))
}

/// A part with its norms, added to the residual stream.
fn residual<T>(
    graph: &mut Graph<'_>,
    x: ValueId,
    of: &Sublayer<T>,
    ([name, sum], hidden): ([&str; 2], usize),
    build: impl FnOnce(&mut Graph<'_>, ValueId, &T) -> Result,
) -> Result {
    let optional = |graph: &mut Graph<'_>, label: &str, x: ValueId, of: &Option<Norm>| match of {
        Some(of) => norm(graph, label, x, of, (CHANNELS, hidden)),
        None => Ok(x),
    };
    let taken = optional(graph, &format!("{name}_norm"), x, &of.before)?;
    let given = graph.within(name, |graph| build(graph, taken, &of.part))?;
    let given = optional(graph, &format!("post_{name}_norm"), given, &of.after)?;
    let x = graph.binary("add", sum, x, given)?;
    optional(graph, &format!("{sum}_norm"), x, &of.of_sum)
}

/// One vector per text, and the name of the output that it is.
fn read_out(
    graph: &mut Graph<'_>,
    x: ValueId,
    pool: ValueId,
    (readout, hidden): (&Readout, usize),
) -> Result<(&'static str, ValueId)> {
    let counted = graph.binary("mul", "counted", x, pool)?;
    let mut x = graph.reduce("reduce_sum", "pooled", counted, SEQUENCE)?;
    let mut width = hidden;
    for (index, stage) in readout.stages.iter().enumerate() {
        x = graph.within(&format!("readout_{index}"), |graph| match stage {
            Stage::Dense { linear, activation } => {
                let out = linear.weight.shape.first().copied().unwrap_or(0);
                let x = graph.linear("dense", x, linear, (out, width))?;
                width = out;
                match activation {
                    Some(activation) => activate(graph, "active", x, *activation),
                    None => Ok(x),
                }
            }
            Stage::Norm(of) => norm(graph, "norm", x, of, (CHANNELS, width)),
            Stage::Normalize => unit_length(graph, "unit", x, (CHANNELS, width)),
        })?;
    }
    Ok((output_name(readout), x))
}

/// The output of a readout.
fn output_name(readout: &Readout) -> &'static str {
    match readout.gives {
        Gives::Embedding => "embedding",
        Gives::Scores => "scores",
    }
}
