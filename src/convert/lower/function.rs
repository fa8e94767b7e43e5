//! Functions of one chunk: tokens or vectors in, vectors or logits out.

use std::collections::BTreeSet;
use std::ops::Range;

use super::attention::{Heads, Tokens, attention};
use super::cache::{self, Cache, KvState, Past, StateUnit};
use super::delta_net::delta_net;
use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Finished, Graph, SEQUENCE};
use super::mlp::mlp;
use super::norm::norm;
use super::options::Options;
use super::per_layer::{self, LayerInputs};
use super::positions::Positions;
use super::recurrent::RecurrentStates;
use super::sharing::{self, KeysAndValues, Sharing};
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
    pub(super) kept: KeysAndValues,
    recurrent: RecurrentStates,
}

impl Memory {
    /// A cache, and no other states.
    pub(super) fn of(cache: Cache) -> Memory {
        Memory { kept: KeysAndValues::new(cache, BTreeSet::new()), recurrent: RecurrentStates::none() }
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
        let embedded = embed(&mut graph, decoder, |length| [options.batch, length])?;
        let looked_up = embedded.looked_up.map(|id| (per_layer::LOOKED_UP.to_owned(), id));
        let vectors = ("hidden".to_owned(), embedded.vectors);
        Ok(graph.finish(&std::iter::once(vectors).chain(looked_up).collect::<Vec<_>>()))
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
        let sharing = Sharing::of(&decoder.layers, range.clone())?;
        let cache_sizes = CacheSizes::of(&sharing.cached, task, options.batch)?;
        let recurrent_sizes = RecurrentStates::sizes(self.own_layers(), self.layers.start)?;
        let is_first = self.is_first();
        let mut graph = Graph::new(&task.name(lengths.only), options.opset, &lengths.all, &mut self.weights);

        let batch = options.batch;
        let embedded = match embeds {
            true => embed(&mut graph, decoder, |length| [batch, task.tokens(length)])?,
            false => taken_vectors(&mut graph, decoder, is_first, (batch, task)),
        };
        let tokens = tokens(&mut graph, task, &lengths.all, (batch, &positions))?;
        let inputs = layer_inputs(&mut graph, decoder, embedded, (options.chunks, task, &tokens))?;
        let cache = open_cache(&mut graph, task, cache_sizes)?;
        let mut kept = KeysAndValues::new(cache, sharing.exported.clone());
        take_in(&mut graph, &sharing, task, &tokens, &mut kept)?;
        let recurrent = RecurrentStates::open(&mut graph, task, recurrent_sizes, batch);
        let mut memory = Memory { kept, recurrent };
        let select = is_last && !task.is_one();
        let select =
            select.then(|| graph.input("select", DType::F16, |length| [batch, 1, 1, task.tokens(length)]));

        let mut x = embedded.vectors;
        for index in range.clone() {
            let block = &decoder.layers[index];
            x = graph.within(&format!("layers_{index}"), |graph| {
                layer(graph, x, (index, block), (decoder.hidden, &tokens, inputs), &mut memory)
            })?;
        }
        let mut outputs = match is_last {
            true => head(&mut graph, x, select, (decoder, options.head_split))?,
            false => vec![("hidden_out".to_owned(), x)],
        };
        if let Some(inputs) = inputs.filter(|_| is_first && !is_last) {
            let rest = inputs.from(&mut graph, range.end..decoder.layers.len())?;
            outputs.push((per_layer::INPUTS.to_owned(), rest));
        }
        let Memory { mut kept, recurrent } = memory;
        outputs.append(&mut kept.outputs);
        if let Some((keys, values)) = kept.new_of_io() {
            outputs.push(("k_new".to_owned(), graph.concat("keys_new", &keys, CHANNELS)?));
            outputs.push(("v_new".to_owned(), graph.concat("values_new", &values, CHANNELS)?));
        }
        outputs.extend(recurrent.outputs(&mut graph)?);
        Ok(graph.finish(&outputs))
    }
}

/// What the cache of a function holds.
#[derive(Clone, Copy)]
struct CacheSizes {
    batch: usize,
    /// Channels of the keys of all layers; none if no layer attends.
    channels: usize,
    /// The shape of the state of the form that has one, and what a slot of it holds.
    state: Option<([usize; 4], StateUnit)>,
}

impl CacheSizes {
    fn of(cached: &[(usize, Heads)], task: Task, batch: usize) -> Result<CacheSizes> {
        let channels = cache::channels(cached)?;
        let state = match task {
            Task::Whole | Task::Prefill | Task::Decode => None,
            Task::Extend { context, .. } => {
                let unit = StateUnit::of(cached)?;
                let slots: usize = cached.iter().map(|&(_, heads)| unit.slots(heads)).sum();
                Some(([2 * slots * batch, unit.kv_heads, context, unit.width], unit))
            }
        };
        Ok(CacheSizes { batch, channels, state })
    }
}

fn open_cache(graph: &mut Graph<'_>, task: Task, sizes: CacheSizes) -> Result<Cache> {
    let CacheSizes { batch, channels, state } = sizes;
    match (task, state) {
        // No layer of the chunk attends.
        (Task::Prefill | Task::Decode, _) if channels == 0 => Ok(Cache::None),
        (Task::Extend { context, query }, Some((shape, unit))) => {
            let begin = graph.index("position");
            let state = graph.state(&kv_state_name(context), &shape);
            let query = i32::try_from(query).unwrap_or(i32::MAX);
            let end = graph.binary("add", "position_end", begin, [query])?;
            let content = graph.read_state("kept", state)?;
            Ok(Cache::State(KvState { state, content, begin, end, slot: 0, unit }))
        }
        (Task::Whole | Task::Extend { .. }, _) => Ok(Cache::None),
        (Task::Prefill, _) => Ok(Cache::Io { keys: Vec::new(), values: Vec::new(), past: None }),
        (Task::Decode, _) => {
            let keys = graph.input("k_cache", DType::F16, |context| [batch, channels, 1, context]);
            let values = graph.input("v_cache", DType::F16, |context| [batch, channels, 1, context]);
            let past = Some(Past { keys, values, offset: 0 });
            Ok(Cache::Io { keys: Vec::new(), values: Vec::new(), past })
        }
    }
}

/// Takes keys and values of layers of earlier chunks in.
fn take_in(
    graph: &mut Graph<'_>,
    sharing: &Sharing,
    task: Task,
    tokens: &Tokens,
    kept: &mut KeysAndValues,
) -> Result<()> {
    for &(layer, heads) in sharing.cached.iter().filter(|(layer, _)| sharing.imported.contains(layer)) {
        let shape = |length: usize| [tokens.batch, heads.kv_channels(), 1, task.tokens(length)];
        let [key, value] = sharing::names(layer).map(|name| graph.input(&name, DType::F16, shape));
        graph.within(&format!("shared_{layer}"), |graph| {
            // What comes in must not go out under another name as it is.
            let flat = [Some(tokens.batch), Some(heads.kv_channels()), Some(1), tokens.count];
            let value = graph.reshape("value_taken", value, flat)?;
            kept.exchange(graph, (layer, heads), tokens, (key, value))
        })?;
    }
    Ok(())
}

/// The inputs of layers, made or taken.
fn layer_inputs(
    graph: &mut Graph<'_>,
    decoder: &Decoder,
    embedded: Embedded,
    (chunks, task, tokens): (usize, Task, &Tokens),
) -> Result<Option<LayerInputs>> {
    let Some(inputs) = &decoder.per_layer else { return Ok(None) };
    if let Some(looked_up) = embedded.looked_up {
        let extent = (tokens.batch, tokens.count);
        let parts = (looked_up, embedded.vectors);
        return per_layer::inputs_of_all(graph, inputs, parts, (decoder.hidden, extent)).map(Some);
    }
    let (first, width) = (share(decoder.layers.len(), 0, chunks).end, inputs.width);
    let channels = (decoder.layers.len() - first) * width;
    let shape = |length: usize| [tokens.batch, channels, 1, task.tokens(length)];
    let all = graph.input(per_layer::INPUTS, DType::F16, shape);
    Ok(Some(LayerInputs { all, first, width }))
}

/// Declares masks, rotations and factors of queries.
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
    let growths = positions.growths.iter().map(|input| {
        (input.growth, graph.input(&input.name, DType::F16, |length| [rows, 1, 1, task.tokens(length)]))
    });
    let growths = growths.collect();
    Ok(Tokens { batch, count, masks, rotations, growths })
}

/// What a function begins with.
#[derive(Clone, Copy)]
struct Embedded {
    /// Vectors of the tokens, or what the chunk before gave.
    vectors: ValueId,
    /// What is looked up for each token besides.
    looked_up: Option<ValueId>,
}

/// What a function begins with that takes no ids.
fn taken_vectors(
    graph: &mut Graph<'_>,
    decoder: &Decoder,
    is_first: bool,
    (batch, task): (usize, Task),
) -> Embedded {
    let width = |channels: usize| move |length: usize| [batch, channels, 1, task.tokens(length)];
    let vectors = graph.input("hidden", DType::F16, width(decoder.hidden));
    let inputs = decoder.per_layer.as_ref().filter(|_| is_first);
    let looked_up = inputs.map(|inputs| graph.input(per_layer::LOOKED_UP, DType::F16, width(inputs.all())));
    Embedded { vectors, looked_up }
}

/// Ids to vectors, scale and learned positions included.
fn embed(graph: &mut Graph<'_>, decoder: &Decoder, shape: impl Fn(usize) -> [usize; 2]) -> Result<Embedded> {
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
    let vectors = graph.expand("embedded", columns, 2)?;
    let looked_up = decoder.per_layer.as_ref().map(|inputs| per_layer::looked_up(graph, inputs, ids));
    Ok(Embedded { vectors, looked_up: looked_up.transpose()? })
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
    (index, layer): (usize, &Layer),
    (hidden, tokens, inputs): (usize, &Tokens, Option<LayerInputs>),
    memory: &mut Memory,
) -> Result {
    let normed = |graph: &mut Graph<'_>, label: &str, x: ValueId, by: Option<&Norm>| match by {
        Some(by) => norm(graph, label, x, by, (CHANNELS, hidden)),
        None => Ok(x),
    };
    let into = normed(graph, "attention_norm", x, layer.attention_norm.as_ref())?;
    let sizes = (hidden, tokens);
    let mixed = graph.within(layer.mixer.name(), |graph| match &layer.mixer {
        Mixer::Attention(own) => attention(graph, into, (index, own), sizes, &mut memory.kept),
        Mixer::ShortConv(own) => short_conv(graph, into, own, sizes, &mut memory.recurrent),
        Mixer::DeltaNet(own) => delta_net(graph, into, own, sizes, &mut memory.recurrent),
    })?;
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
    let mut out = graph.binary("add", "out", attended, wide)?;
    if let Some(mix) = &layer.per_layer {
        let at = graph.scope().to_owned();
        let inputs = inputs.ok_or_else(|| LowerError::model(&at, "the layer has no inputs of its own"))?;
        out = inputs.mixed(graph, out, mix, (index, hidden))?;
    }
    graph.scaled("scaled", out, layer.scale)
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
