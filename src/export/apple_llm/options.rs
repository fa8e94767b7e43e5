//! Which functions Apple's programs are to find, from the options of an export.

use crate::compress::{Plan, Precision};
use crate::export::error::ExportError;
use crate::export::options::{Chunking, ExportOptions};
use crate::lower::AppleLlm;
use crate::model::Decoder;
use crate::vocabulary::{Activations, Layout, ModelFormat};

/// An export for Apple's programs with every default filled in.
#[derive(Debug, Clone)]
pub(in crate::export) struct AppleLlmOptions {
    pub(in crate::export) form: AppleLlm,
    pub(in crate::export) precision: Plan,
    pub(in crate::export) activations: Activations,
    pub(in crate::export) warnings: Vec<String>,
}

impl AppleLlmOptions {
    /// What follows from the model, the options and the defaults.
    pub(in crate::export) fn resolve(
        options: &ExportOptions,
        decoder: &Decoder,
    ) -> Result<AppleLlmOptions, ExportError> {
        check(options)?;
        let mut warnings = Vec::new();
        let contexts = match &options.contexts {
            Some(contexts) if contexts.is_empty() => {
                return Err(ExportError::option("contexts", "names none"));
            }
            Some(contexts) => contexts.clone(),
            None => contexts(decoder, &mut warnings),
        };
        let longest = contexts.iter().max().copied().unwrap_or_default();
        if longest > decoder.max_positions {
            warnings.push(format!(
                "context {longest} is longer than the {} positions of the model",
                decoder.max_positions
            ));
        }
        let form = match options.layout() {
            Layout::AppleLlmDynamic => AppleLlm::Dynamic { context: longest },
            Layout::AppleLlm | Layout::Anemeter => {
                let shortest = contexts.iter().min().copied().unwrap_or_default();
                let queries = match options.query {
                    Some(query) => vec![query],
                    None => AppleLlm::QUERIES.into_iter().filter(|&query| query <= shortest).collect(),
                };
                AppleLlm::Static { contexts, queries }
            }
        };
        Ok(AppleLlmOptions {
            form,
            precision: options.precision.clone().unwrap_or_else(|| Precision::Keep.into()),
            activations: options.activations.unwrap_or_default(),
            warnings,
        })
    }
}

/// The lengths of Apple's recipe, each twice the one before, as far as the model has positions.
fn contexts(decoder: &Decoder, warnings: &mut Vec<String>) -> Vec<usize> {
    let most = decoder.max_positions;
    let ladder = std::iter::successors(Some(AppleLlm::SHORTEST_CONTEXT), |length| Some(length * 2));
    let longest = most.min(AppleLlm::LONGEST_CONTEXT);
    let fitting: Vec<usize> = ladder.take_while(|&length| length <= longest).collect();
    match fitting.is_empty() {
        true => {
            warnings.push(format!(
                "the model has {most} positions, fewer than the shortest context of Apple's recipe, {}",
                AppleLlm::SHORTEST_CONTEXT
            ));
            vec![most]
        }
        false => fitting,
    }
}

/// Refuses options that the functions of Apple's programs have no place for.
fn check(options: &ExportOptions) -> Result<(), ExportError> {
    let is_other = |format: &Vec<ModelFormat>| format.iter().any(|&format| format != ModelFormat::CoreAi);
    let chunked = !matches!(options.chunks, None | Some(Chunking::Auto | Chunking::Count(1)));
    let refused = [
        ("enumerate_shapes", options.enumerate_shapes.is_some(), "lengths of caches are contexts"),
        ("format", options.format.as_ref().is_some_and(is_other), "its models are Core AI assets"),
        ("kv", options.kv.is_some(), "its caches are states"),
        ("batch", options.batch.is_some_and(|batch| batch != 1), "it takes one sequence at once"),
        ("embeddings", options.embeddings.is_some(), "they have functions of their own, or are in `main`"),
        ("head_split", options.head_split.is_some_and(|parts| parts != 1), "logits are one output"),
        ("chunks", chunked, "all layers are in one asset"),
        (
            "query",
            options.query.is_some() && options.layout() == Layout::AppleLlmDynamic,
            "`main` takes any number",
        ),
    ];
    match refused.into_iter().find(|(_, is_given, _)| *is_given) {
        Some((option, _, why)) => {
            let layout = crate::vocabulary::Choice::name(options.layout());
            Err(ExportError::option(option, format!("has no meaning for the layout {layout}: {why}")))
        }
        None => Ok(()),
    }
}
