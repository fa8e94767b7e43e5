//! The contract of ANEMLL: token vectors, chunks of layers with the functions `infer` and `prefill` and one state for
//! all of them, a head whose logits are slices of the vocabulary; or all of it in one package.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::features::{ModelFunction, sizes};
use super::{Packages, beside};
use crate::bundle::BundleError;
use crate::bundle::contract::{
    ArgMax, Contract, ContractFunction, ContractInputs, ContractMask, ContractName, ContractOutputs,
    ContractPackage, ContractRole, MaskKeys, MaskKind,
};
use anemeter_mil::Model;

/// The file that describes the model.
const META: &str = "meta.yaml";
const INFER: &str = "infer";
const PREFILL: &str = "prefill";
const HIDDEN: &str = "hidden_states";
const IDS: &str = "input_ids";
/// Most slices of a vocabulary; ANEMLL's heads have up to 16.
const MOST_SLICES: usize = 1024;

/// What is read of the file. It has much more, which says nothing about driving the packages.
#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default)]
    model_info: ModelInfo,
}

#[derive(Default, Deserialize)]
struct ModelInfo {
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    vocab_size: Option<usize>,
    #[serde(default)]
    sliding_window: Option<usize>,
    #[serde(default)]
    lm_head_chunk_sizes: Option<Vec<usize>>,
}

pub(super) fn recognise(packages: &Packages<'_>) -> Result<Option<Contract>, BundleError> {
    let mut found: Vec<_> =
        packages.packages.iter().filter_map(|(name, model)| Part::of(name, model)).collect();
    // Chunks are named `…_chunk_01of02`, so that the order of names is that of layers.
    found.sort_by(|a, b| a.rank.cmp(&b.rank).then_with(|| a.package.cmp(b.package)));
    let count = |rank: Rank| found.iter().filter(|part| part.rank == rank).count();
    let is_whole = (count(Rank::Embed), count(Rank::Head)) == (1, 1) && count(Rank::Chunk) > 0;
    let is_one = found.len() == 1 && count(Rank::Monolithic) == 1;
    if found.len() != packages.packages.len() || !(is_whole || is_one) {
        return Ok(None);
    }
    let parameters = parameters(packages)?;
    let head = found.last().and_then(Part::head);
    if head.is_some_and(|head| logits_outputs(head).is_empty()) && parameters.vocab_size.is_none() {
        let problem = "does not say `vocab_size`, which is needed where the head gives no logits";
        return Err(BundleError::new(&packages.folder.join(META), problem).with_help("give a contract file"));
    }
    Ok(contract(&found, &parameters))
}

/// Where a package stands in the order of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Embed,
    Chunk,
    Head,
    Monolithic,
}

/// A package of the model.
struct Part<'a> {
    package: &'a str,
    model: &'a Model,
    rank: Rank,
}

impl<'a> Part<'a> {
    fn of(package: &'a str, model: &'a Model) -> Option<Part<'a>> {
        let rank = match ModelFunction::of(model, INFER) {
            Some(infer)
                if infer.input(HIDDEN).is_some() && infer.output("output_hidden_states").is_some() =>
            {
                Rank::Chunk
            }
            Some(infer) if infer.input(IDS).is_some() && !head_outputs(infer).is_empty() => Rank::Monolithic,
            Some(_) => return None,
            None => {
                let only = ModelFunction::of(model, model.default_function())?;
                match () {
                    () if only.takes_only(&[IDS]) && only.output(HIDDEN).is_some() => Rank::Embed,
                    () if only.takes_only(&[HIDDEN]) && !head_outputs(only).is_empty() => Rank::Head,
                    () => return None,
                }
            }
        };
        Some(Part { package, model, rank })
    }

    /// The function that gives logits, if it is the last package.
    fn head(&self) -> Option<ModelFunction<'a>> {
        ModelFunction::of(self.model, INFER)
            .or_else(|| ModelFunction::of(self.model, self.model.default_function()))
    }

    /// Its functions, by name and role.
    fn functions(&self, parameters: &Parameters) -> Option<Vec<ContractFunction>> {
        match self.rank {
            Rank::Embed => Some(vec![self.plain(ContractRole::Embed, None, parameters)?]),
            Rank::Head => Some(vec![self.plain(ContractRole::Head, Some(1), parameters)?]),
            Rank::Chunk | Rank::Monolithic => {
                let infer =
                    self.cached(ModelFunction::of(self.model, INFER)?, ContractRole::Decode, parameters)?;
                let prefill = ModelFunction::of(self.model, PREFILL);
                let prefill = prefill.and_then(|seen| self.cached(seen, ContractRole::Prefill, parameters));
                Some(prefill.into_iter().chain([infer]).collect())
            }
        }
    }

    /// A function without a state.
    fn plain(
        &self,
        role: ContractRole,
        tokens: Option<usize>,
        parameters: &Parameters,
    ) -> Option<ContractFunction> {
        let seen = ModelFunction::of(self.model, self.model.default_function())?;
        let outputs = match role {
            ContractRole::Embed => {
                ContractOutputs { hidden: Some(HIDDEN.to_owned()), ..ContractOutputs::default() }
            }
            _ => outputs(seen, parameters),
        };
        let named = |name: &str| seen.input(name).map(|_| name.to_owned());
        Some(ContractFunction {
            function: seen.interface.function.clone(),
            role,
            tokens,
            whole_pieces_to: None,
            inputs: ContractInputs { ids: named(IDS), hidden: named(HIDDEN), ..ContractInputs::default() },
            caches: Vec::new(),
            states: Vec::new(),
            states_are_shared: false,
            outputs,
        })
    }

    /// A function with the state. What `prefill` gives is of its first token, so that nothing but the state counts.
    fn cached(
        &self,
        seen: ModelFunction<'_>,
        role: ContractRole,
        parameters: &Parameters,
    ) -> Option<ContractFunction> {
        let named = |name: &str| seen.input(name).map(|_| name.to_owned());
        let tokens = sizes(seen.input(IDS).or_else(|| seen.input(HIDDEN))?, 1)?.most()?;
        let mask = |input| ContractMask { input, kind: MaskKind::CausalAdditive, keys: MaskKeys::Context };
        let hidden = "output_hidden_states";
        let outputs = match role {
            _ if seen.output(hidden).is_some() => {
                ContractOutputs { hidden: Some(hidden.to_owned()), ..ContractOutputs::default() }
            }
            ContractRole::Prefill => ContractOutputs::default(),
            _ => outputs(seen, parameters),
        };
        Some(ContractFunction {
            function: seen.interface.function.clone(),
            role,
            tokens: Some(tokens),
            whole_pieces_to: None,
            inputs: ContractInputs {
                ids: named(IDS),
                hidden: named(HIDDEN),
                masks: named("causal_mask").map(mask).into_iter().collect(),
                positions: named("position_ids"),
                current_position: named("current_pos"),
                update_mask: named("update_mask"),
                ..ContractInputs::default()
            },
            caches: Vec::new(),
            states: seen.interface.states.iter().map(|state| state.name.clone()).collect(),
            states_are_shared: self.rank == Rank::Chunk,
            outputs,
        })
    }
}

fn contract(parts: &[Part<'_>], parameters: &Parameters) -> Option<Contract> {
    let infer = parts.iter().find_map(|part| ModelFunction::of(part.model, INFER))?;
    let columns = sizes(infer.input("causal_mask")?, -1)?.most()?;
    // States are [layers, heads, positions, width].
    let states = infer.interface.states.iter().filter_map(|state| infer.state(&state.name));
    let positions = states.filter_map(|state| sizes(state, -2)?.most());
    let context = positions.chain([columns]).min()?;
    let head = parts.last()?.head()?;
    let widths =
        logits_outputs(head).into_iter().map(|name| head.output_width(&name)).sum::<Option<usize>>()?;
    let packages = parts.iter().map(|part| {
        Some(ContractPackage { package: part.package.to_owned(), functions: part.functions(parameters)? })
    });
    Some(Contract {
        name: ContractName::Anemll,
        // Beyond the window other functions rotate the cache.
        context_length: context.min(parameters.sliding_window.unwrap_or(context)),
        vocabulary: if widths > 0 { widths } else { parameters.vocab_size? },
        lengths: Vec::new(),
        packages: packages.collect::<Option<_>>()?,
        tokenizer: None,
    })
}

/// What a head gives: logits in slices, or the largest of each slice.
fn outputs(head: ModelFunction<'_>, parameters: &Parameters) -> ContractOutputs {
    let logits = logits_outputs(head);
    if !logits.is_empty() {
        return ContractOutputs { logits, ..ContractOutputs::default() };
    }
    // More are no slices of a vocabulary; what does not fit the indices is found when they come.
    let slices = head.output_width("argmax_idx").unwrap_or(1).clamp(1, MOST_SLICES);
    let sizes = parameters
        .lm_head_chunk_sizes
        .clone()
        .unwrap_or_else(|| vec![parameters.vocab_size.unwrap_or(0).div_ceil(slices); slices]);
    let offsets = sizes.iter().scan(0usize, |next, size| {
        let offset = *next;
        *next = next.saturating_add(*size);
        Some(offset)
    });
    let argmax = ArgMax {
        index: "argmax_idx".to_owned(),
        value: head.output("argmax_val").map(|_| "argmax_val".to_owned()),
        offsets: offsets.collect(),
    };
    ContractOutputs { argmax: vec![argmax], ..ContractOutputs::default() }
}

/// Names of what a head gives.
fn head_outputs(head: ModelFunction<'_>) -> Vec<String> {
    let largest = head.output("argmax_idx").map(|_| "argmax_idx".to_owned());
    logits_outputs(head).into_iter().chain(largest).collect()
}

/// `logits`, or `logits1` and so on in the order of their numbers.
fn logits_outputs(head: ModelFunction<'_>) -> Vec<String> {
    let numbered = head.interface.outputs.iter().filter_map(|output| {
        let number = output.name.strip_prefix("logits")?;
        let number = if number.is_empty() { 0 } else { number.parse::<u32>().ok()? };
        Some((number, output.name.clone()))
    });
    numbered.collect::<BTreeMap<_, _>>().into_values().collect()
}

fn parameters(packages: &Packages<'_>) -> Result<Parameters, BundleError> {
    let path = packages.folder.join(META);
    let Some(text) = beside(&path)? else { return Ok(Parameters::default()) };
    let meta: Meta = serde_yaml::from_str(&text).map_err(|e| BundleError::new(&path, e.to_string()))?;
    Ok(meta.model_info.parameters)
}
