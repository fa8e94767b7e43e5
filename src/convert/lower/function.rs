//! Functions of one chunk: tokens or vectors in, vectors or logits out.

use std::ops::Range;

use super::attention::{Tokens, attention};
use super::cache::{self, Cache, KvState, Past};
use super::carried::Carried;
use super::delta_net::delta_net;
use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Finished, Graph, SEQUENCE};
use super::mlp::mlp;
use super::norm::norm;
use super::options::Options;
use super::positions::Positions;
use super::short_conv::short_conv;
use super::weights::{WeightRequest, Weights};
use crate::model::{Decoder, Layer, Mixer, Norm, Position, Residual};
use anemeter_base::function_name::at_length;
use anemeter_base::vocabulary::{Embeddings, FunctionRole, ShapesAs, kv_state_name};
use anemeter_kernels::tensor::DType;
use anemeter_mil::ValueId;

/// A chunk whose functions are being built.
pub(super) struct ChunkBuilder<'a> {
    pub(super) decoder: &'a Decoder,
    pub(super) options: &'a Options,
    pub(super) layers: Range<usize>,
    /// The inputs its layers use.
    pub(super) positions: Positions,
    pub(super) weights: Weights,
}

/// What is known of earlier tokens, and what later ones are to know.
pub(super) struct Memory {
    pub(super) cache: Cache,
    carried: Carried,
}

impl Memory {
    /// A cache, and no other states.
    pub(super) fn of(cache: Cache) -> Memory {
        Memory { cache, carried: Carried::none() }
    }
}

/// What a function does with a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// The whole sequence; keys and values are forgotten.
    Whole,
    /// The whole sequence; its keys and values come out, and other states after it.
    Prefill,
    /// One token after those of the cache inputs; its keys and values come out, and other states after it.
    Decode,
    /// Some tokens after those of a state of this length.
    Extend { context: usize, query: usize },
}

impl Task {
    /// The function's name, with the only length that it takes if it takes one.
    fn name(self, only: Option<usize>) -> String {
        let role = match self {
            Task::Whole => FunctionRole::Main,
            Task::Prefill => FunctionRole::Prefill,
            Task::Decode => FunctionRole::Decode,
            Task::Extend { context, query: 1 } => FunctionRole::DecodeState { context },
            Task::Extend { context, query } => FunctionRole::PrefillState { context, query },
        };
        match only {
            Some(length) => at_length(&role.to_string(), length),
            None => role.to_string(),
        }
    }

    /// Lengths that flexible inputs pair by, function by function.
    pub(super) fn functions(self, options: &Options) -> Vec<Lengths> {
        match self {
            Task::Extend { context, .. } => vec![Lengths { all: vec![context], only: None }],
            Task::Whole | Task::Prefill | Task::Decode => Lengths::of(&options.seq_lens, options.shapes_as),
        }
    }

    /// How many tokens it takes at a length.
    pub(super) fn tokens(self, length: usize) -> usize {
        match self {
            Task::Whole | Task::Prefill => length,
            Task::Decode => 1,
            Task::Extend { query, .. } => query,
        }
    }

    fn is_one(self) -> bool {
        self.tokens(0) == 1
    }
}

/// The lengths of one function.
pub(super) struct Lengths {
    pub(super) all: Vec<usize>,
    /// The length that is part of its name.
    pub(super) only: Option<usize>,
}

impl Lengths {
    /// One function for all lengths, or one for each.
    pub(super) fn of(lengths: &[usize], shapes_as: ShapesAs) -> Vec<Lengths> {
        match shapes_as {
            ShapesAs::Enumerated => vec![Lengths { all: lengths.to_vec(), only: None }],
            ShapesAs::Functions => {
                lengths.iter().map(|&length| Lengths { all: vec![length], only: Some(length) }).collect()
            }
        }
    }
}

impl ChunkBuilder<'_> {
    fn is_first(&self) -> bool {
        self.layers.start == 0
    }

    fn is_last(&self) -> bool {
        self.layers.end == self.decoder.layers.len()
    }

    fn own_layers(&self) -> &[Layer] {
        &self.decoder.layers[self.layers.clone()]
    }

    /// The function `embed`: ids to vectors.
    pub(super) fn embed(&mut self, lengths: &Lengths) -> Result<Finished> {
        let (decoder, options) = (self.decoder, self.options);
        let name = match lengths.only {
            Some(length) => at_length(FunctionRole::EMBED, length),
            None => FunctionRole::EMBED.to_owned(),
        };
        let mut graph = Graph::new(&name, options.opset, &lengths.all, &mut self.weights);
        let hidden = embed(&mut graph, decoder, |length| [options.batch, length])?;
        Ok(graph.finish(&[("hidden".to_owned(), hidden)]))
    }

    /// A function that runs the layers.
    pub(super) fn function(&mut self, task: Task, lengths: &Lengths) -> Result<Finished> {
        let (decoder, options, is_last) = (self.decoder, self.options, self.is_last());
        let embeds = self.is_first()
            && match options.embeddings {
                Embeddings::Host => false,
                Embeddings::Function => task == Task::Whole,
                Embeddings::Graph => true,
            };
        let (range, positions) = (self.layers.clone(), self.positions.clone());
        let cache_shape = self.cache_shape(task)?;
        let carried_sizes = Carried::sizes(self.own_layers(), self.layers.start)?;
        let mut graph =
            Graph::new(&task.name(lengths.only), options.opset, &lengths.all, &mut self.weights);

        let batch = options.batch;
        let mut x = match embeds {
            true => embed(&mut graph, decoder, |length| [batch, task.tokens(length)])?,
            false => {
                graph.input("hidden", DType::F16, |length| [batch, decoder.hidden, 1, task.tokens(length)])
            }
        };
        let tokens = tokens(&mut graph, task, &lengths.all, (batch, &positions))?;
        let cache = open_cache(&mut graph, task, cache_shape)?;
        let carried = Carried::open(&mut graph, task, carried_sizes, batch);
        let mut memory = Memory { cache, carried };
        let select = is_last && !task.is_one();
        let select =
            select.then(|| graph.input("select", DType::F16, |length| [batch, 1, 1, task.tokens(length)]));

        for index in range {
            let block = &decoder.layers[index];
            x = graph.within(&format!("layers_{index}"), |graph| {
                layer(graph, x, block, (decoder.hidden, &tokens), &mut memory)
            })?;
        }
        let mut outputs = match is_last {
            true => head(&mut graph, x, select, (decoder, options.head_split))?,
            false => vec![("hidden_out".to_owned(), x)],
        };
        if let Cache::Io { keys, values, .. } = memory.cache {
            outputs.push(("k_new".to_owned(), graph.concat("keys_new", &keys, CHANNELS)?));
            outputs.push(("v_new".to_owned(), graph.concat("values_new", &values, CHANNELS)?));
        }
        outputs.extend(memory.carried.outputs(&mut graph)?);
        Ok(graph.finish(&outputs))
    }

    /// The shape of a cache input at context 0, or of the state.
    fn cache_shape(&self, task: Task) -> Result<[usize; 4]> {
        let (layers, first, batch) = (self.own_layers(), self.layers.start, self.options.batch);
        match task {
            Task::Whole | Task::Prefill | Task::Decode => Ok([batch, cache::channels(layers, first)?, 1, 0]),
            Task::Extend { context, .. } => {
                let (kv_heads, width) = cache::shared_heads(layers, first)?;
                Ok([2 * layers.len() * batch, kv_heads, context, width])
            }
        }
    }
}

fn open_cache(graph: &mut Graph<'_>, task: Task, shape: [usize; 4]) -> Result<Cache> {
    let [batch, channels, ..] = shape;
    match task {
        // No layer of the chunk attends.
        Task::Prefill | Task::Decode if channels == 0 => Ok(Cache::None),
        Task::Whole => Ok(Cache::None),
        Task::Prefill => Ok(Cache::Io { keys: Vec::new(), values: Vec::new(), past: None }),
        Task::Decode => {
            let keys = graph.input("k_cache", DType::F16, |context| [batch, channels, 1, context]);
            let values = graph.input("v_cache", DType::F16, |context| [batch, channels, 1, context]);
            let past = Some(Past { keys, values, offset: 0 });
            Ok(Cache::Io { keys: Vec::new(), values: Vec::new(), past })
        }
        Task::Extend { context, query } => {
            let begin = graph.index("position");
            let state = graph.state(&kv_state_name(context), &shape);
            let query = i32::try_from(query).unwrap_or(i32::MAX);
            let end = graph.binary("add", "position_end", begin, [query])?;
            let content = graph.read_state("kept", state)?;
            Ok(Cache::State(KvState { state, content, begin, end, layer: 0 }))
        }
    }
}

/// Declares masks and rotations.
fn tokens(
    graph: &mut Graph<'_>,
    task: Task,
    lengths: &[usize],
    (batch, positions): (usize, &Positions),
) -> Result<Tokens> {
    let first = *lengths.first().expect("a function has a length");
    let same = lengths.iter().all(|&length| task.tokens(length) == task.tokens(first));
    let count = same.then(|| task.tokens(first));
    // A single token may be at another position in each sequence; several are at the same ones.
    let rows = if task.is_one() { batch } else { 1 };
    let mut rotations = Vec::new();
    for rotation in &positions.rotations {
        let width = rotation.rope.dims;
        let table = |graph: &mut Graph<'_>, name: &str| {
            let id = graph.input(name, DType::F16, |length| [rows, width, 1, task.tokens(length)]);
            graph.reshape(&format!("{name}_by_head"), id, [Some(rows), Some(1), Some(width), count])
        };
        let (cos, sin) = (table(graph, &rotation.cos)?, table(graph, &rotation.sin)?);
        rotations.push((rotation.rope.clone(), cos, sin));
    }
    let masks = positions.masks.iter().map(|mask| {
        let id = graph.input(&mask.name, DType::F16, |length| [rows, 1, task.tokens(length), length]);
        (mask.window, id)
    });
    let masks = masks.collect();
    Ok(Tokens { batch, count, masks, rotations })
}

/// Ids to vectors, scale and learned positions included.
fn embed(graph: &mut Graph<'_>, decoder: &Decoder, shape: impl Fn(usize) -> [usize; 2]) -> Result {
    let ids = graph.ids("input_ids", &shape);
    let table = embedding_table(graph, decoder)?;
    let rows = graph.gather("embedding_rows", table, ids)?;
    let mut rows = graph.scaled("embedding_scaled", rows, decoder.embedding_scale)?;
    if let Position::Learned(weight) = &decoder.position {
        let ids = graph.ids("position_ids", &shape);
        let shape = [decoder.max_positions, decoder.hidden];
        let table = graph.within("positions", |graph| graph.whole("weight", weight, &shape, &shape))?;
        let positions = graph.gather("position_rows", table, ids)?;
        rows = graph.binary("add", "placed_rows", rows, positions)?;
    }
    let columns = graph.transpose("embedding_columns", rows, [0, 2, 1])?;
    graph.expand("embedded", columns, 2)
}

/// The embedding as a constant.
pub(super) fn embedding_table(graph: &mut Graph<'_>, decoder: &Decoder) -> Result {
    let shape = [decoder.vocabulary, decoder.hidden];
    graph.within("embedding", |graph| graph.whole("weight", &decoder.embedding, &shape, &shape))
}

/// A layer over `x`.
pub(super) fn layer(
    graph: &mut Graph<'_>,
    x: ValueId,
    layer: &Layer,
    (hidden, tokens): (usize, &Tokens),
    memory: &mut Memory,
) -> Result {
    let normed = |graph: &mut Graph<'_>, label: &str, x: ValueId, by: Option<&Norm>| match by {
        Some(by) => norm(graph, label, x, by, (CHANNELS, hidden)),
        None => Ok(x),
    };
    let into = normed(graph, "attention_norm", x, layer.attention_norm.as_ref())?;
    let sizes = (hidden, tokens);
    let mixed = match &layer.mixer {
        Mixer::Attention(own) => graph
            .within("attention", |graph| attention(graph, into, own, sizes, &mut memory.cache))?,
        Mixer::ShortConv(own) => graph
            .within("short_conv", |graph| short_conv(graph, into, own, sizes, &mut memory.carried))?,
        Mixer::DeltaNet(own) => {
            graph.within("delta_net", |graph| delta_net(graph, into, own, sizes, &mut memory.carried))?
        }
    };
    let mixed = normed(graph, "post_attention_norm", mixed, layer.post_attention_norm.as_ref())?;
    let attended = graph.binary("add", "attended", x, mixed)?;
    let into = match (layer.residual, &layer.mlp_norm) {
        (Residual::Sequential, _) => attended,
        (Residual::Parallel, Some(_)) => x,
        (Residual::Parallel, None) => into,
    };
    let into = normed(graph, "mlp_norm", into, layer.mlp_norm.as_ref())?;
    let wide = graph.within("mlp", |graph| mlp(graph, into, &layer.mlp, hidden))?;
    let wide = normed(graph, "post_mlp_norm", wide, layer.post_mlp_norm.as_ref())?;
    graph.binary("add", "out", attended, wide)
}

/// Logits of the selected position, or of all, in as many parts as asked for.
pub(super) fn head(
    graph: &mut Graph<'_>,
    mut x: ValueId,
    select: Option<ValueId>,
    (decoder, parts): (&Decoder, usize),
) -> Result<Vec<(String, ValueId)>> {
    if let Some(select) = select {
        let chosen = graph.binary("mul", "chosen", x, select)?;
        x = graph.reduce("reduce_sum", "last", chosen, SEQUENCE)?;
    }
    let (hidden, vocabulary) = (decoder.hidden, decoder.vocabulary);
    let mut x = norm(graph, "final_norm", x, &decoder.final_norm, (CHANNELS, hidden))?;
    if let Some(map) = &decoder.head.map {
        x = graph.linear("head_map", x, map, (hidden, hidden))?;
    }
    let (at, weight) = match decoder.head.tied {
        true => ("embedding_weight", &decoder.embedding),
        false => ("head_weight", &decoder.head.weight),
    };
    let mut logits = Vec::with_capacity(parts);
    for part in 0..parts {
        let rows = share(vocabulary, part, parts);
        let shape = [rows.len(), hidden, 1, 1];
        let expected = [vocabulary, hidden];
        let weight = graph.weight(&WeightRequest { at, weight, expected: &expected, rows, shape: &shape })?;
        let out = graph.conv("head", x, weight, None)?;
        let out = capped(graph, out, decoder.head.softcap)?;
        let name = if parts == 1 { "logits".to_owned() } else { format!("logits_{part}") };
        logits.push((name, out));
    }
    Ok(logits)
}

/// Logits within their cap, if they have one.
pub(super) fn capped(graph: &mut Graph<'_>, logits: ValueId, cap: Option<f32>) -> Result {
    let Some(cap) = cap else { return Ok(logits) };
    if !(cap > 0.0 && cap.is_finite()) {
        return Err(LowerError::model("head", format!("logits cannot be capped at {cap}")));
    }
    let shares = graph.scaled("head_share", logits, 1.0 / cap)?;
    let bent = graph.unary("tanh", "head_bent", shares)?;
    graph.scaled("head_capped", bent, cap)
}

/// The `index`-th of `parts` near-equal parts of `0..total`.
pub(super) fn share(total: usize, index: usize, parts: usize) -> Range<usize> {
    let (size, more) = (total / parts, total % parts);
    let start = index * size + index.min(more);
    start..start + size + usize::from(index < more)
}
