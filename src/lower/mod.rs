//! The model graph as MIL functions in the form the Neural Engine takes: `docs/graph.md` shows it and says why.
//!
//! [`lower`] gives one model per chunk. Weights are streams that are converted to fp16 while a package is
//! written; all functions of a chunk share them.

mod attention;
mod cache;
mod enumerated;
mod error;
mod function;
mod graph;
mod half;
mod meter;
mod mlp;
mod norm;
mod options;
mod positions;
mod weights;

use std::ops::Range;
use std::sync::Arc;

use enumerated::Enumerated;
use function::{Part, Task, share};
use half::Half;
use weights::Weights;

use crate::bundle::{Embeddings, KvForm};
use crate::mil::{Function, Model, Payload};
use crate::model::{Decoder, Weight};

pub use error::LowerError;
pub use meter::{Meter, Reading};
pub use options::Options;
pub use positions::{MaskInput, Positions, RotationInput};

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
    /// Its functions.
    pub model: Model,
}

/// Lowers a model to the functions that the options ask for.
pub fn lower(decoder: &Decoder, options: &Options) -> Result<Vec<Chunk>, LowerError> {
    lower_metered(decoder, options, &Arc::default())
}

/// As [`lower`]; the meter counts what is read when the weights are written.
pub fn lower_metered(
    decoder: &Decoder,
    options: &Options,
    meter: &Arc<Meter>,
) -> Result<Vec<Chunk>, LowerError> {
    options.check(decoder)?;
    let positions = Positions::of(&decoder.layers);
    let chunk = |index: usize| {
        let layers = share(decoder.layers.len(), index, options.chunks);
        let positions = positions.used_by(&decoder.layers[layers.clone()]);
        let part = Part {
            decoder,
            options,
            layers: layers.clone(),
            positions,
            weights: Weights::new(meter.clone()),
        };
        let positions = part.positions.clone();
        let model = model(part)?;
        let name = match options.chunks {
            1 => "model".to_owned(),
            count => format!("model_{:02}of{count:02}", index + 1),
        };
        Ok(Chunk { name, index, layers, positions, model })
    };
    (0..options.chunks).map(chunk).collect()
}

/// All of a weight as fp16, row by row, converted while it is written.
pub fn half(weight: &Weight, meter: &Arc<Meter>) -> Arc<dyn Payload> {
    Arc::new(Half::new(weight.clone(), 0..weight.element_count(), meter.clone()))
}

fn model(mut part: Part<'_>) -> Result<Model, LowerError> {
    let options = part.options;
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
    let mut finished = tasks.into_iter().map(|task| part.function(task)).collect::<Result<Vec<_>, _>>()?;
    let takes_vectors = options.kv.iter().any(|&form| form != KvForm::None);
    if part.layers.start == 0 && options.embeddings == Embeddings::Function && takes_vectors {
        finished.push(part.embed()?);
    }
    let names: Vec<String> = finished.iter().map(|f| f.function.name.clone()).collect();
    let (functions, shapes): (Vec<Function>, Vec<Enumerated>) =
        finished.into_iter().map(|finished| (finished.function, finished.shapes)).unzip();
    let mut model = match <[Function; 1]>::try_from(functions) {
        Ok([main]) if main.name == "main" => Model::single(main),
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
