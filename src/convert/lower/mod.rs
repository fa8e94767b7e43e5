//! The model graph as MIL functions in the form the Neural Engine takes: `docs/graph.md` shows it and says why.
//!
//! [`lower`] gives one model per chunk. Weights are streams that are converted to fp16 while a package is
//! written; all functions of a chunk share them.

mod apple_llm;
mod attention;
mod cache;
mod causal_conv;
mod delta_chunks;
mod delta_net;
mod encoder;
mod enumerated;
mod error;
mod fp16_stream;
mod function;
mod graph;
mod mlp;
mod norm;
mod options;
mod per_layer;
mod pieces;
mod positions;
mod read_stats;
mod recurrent;
mod sharing;
mod short_conv;
mod weights;

use std::ops::Range;
use std::sync::Arc;

use enumerated::Enumerated;
use fp16_stream::Fp16Stream;
use function::{ChunkBuilder, Lengths, Task, share};
use weights::Weights;

use crate::model::{Decoder, Weight};
use anemeter_base::vocabulary::{Embeddings, FunctionRole, KvForm};
use anemeter_mil::{Function, Model, Payload};

pub use apple_llm::{AppleLlm, AppleLlmModel, ROTARY_TABLES, lower_apple_llm};
pub use encoder::lower_encoder;
pub use error::LowerError;
use error::Result;
pub use options::Options;
pub use positions::{GrowthInput, MaskInput, Positions, RotationInput};
pub use read_stats::{ReadStats, Reading};

/// A part of a model that becomes a package.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Its name, such as `model` or `model_02of04`.
    pub name: String,
    /// Its place among the chunks, from 0.
    pub index: usize,
    /// The layers in it.
    pub layers: Range<usize>,
    /// The masks and rotations its functions take.
    pub positions: Positions,
    /// The functions of the chunk.
    pub model: Model,
}

/// Lowers a model to the functions that the options ask for.
pub fn lower(decoder: &Decoder, options: &Options) -> Result<Vec<Chunk>> {
    lower_counted(decoder, options, &Arc::default())
}

/// As [`lower`]; the stats counts what is read when the weights are written.
pub fn lower_counted(decoder: &Decoder, options: &Options, stats: &Arc<ReadStats>) -> Result<Vec<Chunk>> {
    options.check(decoder)?;
    let positions = Positions::of(&decoder.layers);
    let chunk = |index: usize| {
        let layers = share(decoder.layers.len(), index, options.chunks);
        let positions = positions.used_by(&decoder.layers[layers.clone()]);
        let (weights, own) = (Weights::new(stats.clone()), positions.clone());
        let model =
            model(ChunkBuilder { decoder, options, layers: layers.clone(), positions: own, weights })?;
        Ok(Chunk { name: chunk_name(index, options.chunks), index, layers, positions, model })
    };
    (0..options.chunks).map(chunk).collect()
}

/// What a chunk is called among others.
fn chunk_name(index: usize, count: usize) -> String {
    match count {
        1 => "model".to_owned(),
        count => format!("model_{:02}of{count:02}", index + 1),
    }
}

/// All of a weight as fp16, row by row, converted while it is written.
pub fn fp16_payload(weight: &Weight, stats: &Arc<ReadStats>) -> Arc<dyn Payload> {
    Arc::new(Fp16Stream::new(weight.clone(), 0..weight.element_count(), stats.clone()))
}

fn model(mut chunk: ChunkBuilder<'_>) -> Result<Model, LowerError> {
    let options = chunk.options;
    let mut tasks = Vec::new();
    for form in &options.kv {
        match form {
            KvForm::Io => tasks.extend([Task::Prefill, Task::Decode]),
            KvForm::State => {
                for &context in &options.contexts {
                    let extend = |query| Task::Extend { context, query };
                    tasks.extend([extend(options.query), extend(1)]);
                }
            }
            KvForm::None => tasks.push(Task::Whole),
        }
    }
    let mut finished = Vec::new();
    for task in tasks {
        for lengths in task.functions(options) {
            finished.push(chunk.function(task, &lengths)?);
        }
    }
    let takes_vectors = options.kv.iter().any(|&form| form != KvForm::None);
    if chunk.layers.start == 0 && options.embeddings == Embeddings::Function && takes_vectors {
        for lengths in Lengths::of(&options.embedded_lengths(), options.shapes_as) {
            finished.push(chunk.embed(&lengths)?);
        }
    }
    let names: Vec<String> = finished.iter().map(|f| f.function.name.clone()).collect();
    let (functions, shapes): (Vec<Function>, Vec<Enumerated>) =
        finished.into_iter().map(|finished| (finished.function, finished.shapes)).unzip();
    let mut model = match <[Function; 1]>::try_from(functions) {
        Ok([main]) if main.name == FunctionRole::MAIN => Model::single(main),
        Ok([only]) => Model::multi(vec![only]),
        Err(functions) => Model::multi(functions),
    };
    for (name, shapes) in names.iter().zip(shapes) {
        if let Some(interface) = model.interface_mut(name) {
            shapes.declare(interface);
        }
    }
    Ok(model)
}

#[cfg(test)]
mod tests;
