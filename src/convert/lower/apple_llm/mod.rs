//! Functions with the names, inputs and states that Apple's programs for language models take (`llm-runner`,
//! `llm-benchmark`): the static ones of its recipe for the Neural Engine, or the one function of its recipe for the GPU.
//!
//! Both keep keys and values in a state each. What a layer computes is that of every other form; only what is around the
//! layers differs: masks and rotations are made in the graph, from positions.

mod cache;
mod fixed;
mod open;
mod rotary;
mod table;

use std::sync::Arc;

pub(super) use cache::PairedState;

use super::error::{LowerError, Result};
use super::read_stats::ReadStats;
use super::weights::Weights;
use crate::model::{Attention, Decoder, Layer};
use anemeter_mil::Model;

/// What the constants of rotations are called; no precision is for them.
pub const ROTARY_TABLES: &str = "rotary_*";

/// What Apple's programs for language models are to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppleLlm {
    /// Functions of fixed sizes, for the Neural Engine.
    Static {
        /// Lengths of the caches; the longest is that of the model's context.
        contexts: Vec<usize>,
        /// Tokens of a call.
        queries: Vec<usize>,
    },
    /// One function of open sizes, for the GPU.
    Dynamic {
        /// The length of the caches.
        context: usize,
    },
}

impl AppleLlm {
    /// Tokens of a call of Apple's recipe.
    pub const QUERIES: [usize; 3] = [8, 16, 64];
    /// The shortest cache of Apple's recipe; others are twice as long as the one before.
    pub const SHORTEST_CONTEXT: usize = 256;
    /// The longest cache of Apple's recipe, unless another is asked for.
    pub const LONGEST_CONTEXT: usize = 4096;

    /// The longest context.
    pub fn max_context(&self) -> usize {
        match self {
            AppleLlm::Static { contexts, .. } => contexts.iter().max().copied().unwrap_or(0),
            AppleLlm::Dynamic { context } => *context,
        }
    }

    fn check(&self, decoder: &Decoder) -> Result<()> {
        let contexts = match self {
            AppleLlm::Static { contexts, .. } => &contexts[..],
            AppleLlm::Dynamic { context } => std::slice::from_ref(context),
        };
        let longest = contexts.iter().max().copied().unwrap_or(0);
        let grows = |own: &Attention| own.growth.is_some_and(|growth| longest > growth.length);
        let special = |own: &Attention| own.shared_from.is_some() || grows(own);
        let is_special = decoder.layers.iter().filter_map(Layer::attention).any(special);
        if decoder.per_layer.is_some() || is_special {
            let message = "is for models without inputs of layers, shared keys and values, and queries that grow within the \
                           longest context";
            return Err(LowerError::option("layout", message));
        }
        if decoder.layers.iter().any(|layer| layer.attention().is_none()) {
            let message =
                "is for models all of whose layers attend; anemeter's own takes states of convolutions";
            return Err(LowerError::option("layout", message));
        }
        super::options::check_decoder_lengths("contexts", contexts, decoder)?;
        if let AppleLlm::Static { contexts, queries } = self {
            let shortest = contexts.iter().min().copied().unwrap_or(0);
            let fits = |&query: &usize| (2..=shortest).contains(&query);
            if queries.is_empty() || !queries.iter().all(fits) {
                let message = format!("has {queries:?}, should be 2 to {shortest}, the shortest context");
                return Err(LowerError::option("query", message));
            }
        }
        Ok(())
    }
}

/// A language model for Apple's programs.
#[derive(Debug, Clone)]
pub struct AppleLlmModel {
    /// Its functions.
    pub model: Model,
    /// Whether the sizes of `main` are open: the shapes that it enumerates are there to tell them apart.
    pub is_open: bool,
}

/// Lowers a decoder to the functions that Apple's programs take.
pub fn lower_apple_llm(decoder: &Decoder, form: &AppleLlm, stats: &Arc<ReadStats>) -> Result<AppleLlmModel> {
    form.check(decoder)?;
    let decoder = &without_growth(decoder);
    let mut weights = Weights::new(stats.clone());
    match form {
        AppleLlm::Static { contexts, queries } => {
            let model = fixed::model(decoder, (contexts, queries), &mut weights)?;
            Ok(AppleLlmModel { model, is_open: false })
        }
        AppleLlm::Dynamic { context } => {
            Ok(AppleLlmModel { model: open::model(decoder, *context, &mut weights)?, is_open: true })
        }
    }
}

/// The same model for contexts in which no query grows.
fn without_growth(decoder: &Decoder) -> Decoder {
    let mut decoder = decoder.clone();
    for attention in decoder.layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut()) {
        attention.growth = None;
    }
    decoder
}
