//! The contracts of swift-transformers: keys and values in states, as inputs and outputs, or not cached.

use super::Packages;
use super::features::{ModelFunction, Sizes, sizes};
use super::whole_sequence;
use crate::bundle::BundleError;
use crate::bundle::contract::{
    CachePair, Contract, ContractFunction, ContractInputs, ContractMask, ContractName, ContractOutputs,
    ContractPackage, ContractRole, MaskKeys, MaskKind,
};

const IDS: &str = "inputIds";
const MASKS: [&str; 2] = ["causalMask", "attentionMask"];
const CACHES: [&str; 2] = ["keyCache", "valueCache"];
/// Outputs with the caches after a prediction.
const NEW_CACHES: [[&str; 2]; 3] =
    [["presentKeys", "presentValues"], ["newKeyCache", "newValueCache"], ["keyCacheOut", "valueCacheOut"]];

pub(super) fn recognise(packages: &Packages<'_>) -> Result<Option<Contract>, BundleError> {
    let [(package, model)] = packages.packages else { return Ok(None) };
    let Some(function) = ModelFunction::of(model, model.default_function()) else { return Ok(None) };
    if function.input(IDS).is_none() || function.output("logits").is_none() {
        return Ok(None);
    }
    if CACHES.iter().all(|name| function.state(name).is_some()) {
        return Ok(cached(package, function, ContractName::SwiftTransformers, &[]));
    }
    if CACHES.iter().all(|name| function.input(name).is_some()) {
        return Ok(cache_pairs(function)
            .and_then(|pairs| cached(package, function, ContractName::SwiftTransformersCaches, &pairs)));
    }
    let names = [IDS, "attentionMask", "positionIds"];
    Ok(whole_sequence::of_function(package, function, ContractName::SwiftTransformersStateless, names))
}

/// The caches that go in and come out.
fn cache_pairs(function: ModelFunction<'_>) -> Option<Vec<CachePair>> {
    let new = NEW_CACHES.iter().find(|new| new.iter().all(|name| function.output(name).is_some()))?;
    let pairs = CACHES
        .iter()
        .zip(new)
        .map(|(input, output)| CachePair { input: (*input).to_owned(), output: (*output).to_owned() });
    Some(pairs.collect())
}

/// One function that takes some tokens after those that are cached.
fn cached(
    package: &str,
    function: ModelFunction<'_>,
    name: ContractName,
    caches: &[CachePair],
) -> Option<Contract> {
    let is_state = caches.is_empty();
    let caches_in: &[&str] = if is_state { &[] } else { &CACHES };
    let known = [&[IDS], &MASKS[..], caches_in].concat();
    if !function.takes_only(&known) {
        return None;
    }
    let tokens = sizes(function.input(IDS)?, -1)?;
    let cache = function.state(CACHES[0]).or_else(|| function.input(CACHES[0]))?;
    // Caches are [layers, batch, heads, positions, width].
    let positions = sizes(cache, -2)?.most();
    let masks: Vec<ContractMask> = MASKS.iter().filter_map(|mask| of_mask(function, mask)).collect();
    let seen = masks.iter().filter_map(|mask| sizes(function.input(&mask.input)?, -1)?.most());
    let one = |role, tokens| ContractFunction {
        function: function.interface.function.clone(),
        role,
        tokens,
        whole_pieces_to: None,
        inputs: ContractInputs {
            ids: Some(IDS.to_owned()),
            masks: masks.clone(),
            ..ContractInputs::default()
        },
        caches: caches.to_vec(),
        states: if is_state { CACHES.map(str::to_owned).to_vec() } else { Vec::new() },
        states_are_shared: false,
        outputs: ContractOutputs { logits: vec!["logits".to_owned()], ..ContractOutputs::default() },
    };
    let prefill = match &tokens {
        Sizes::Fixed(_) => None,
        Sizes::Listed(sizes) => Some(one(ContractRole::Prefill, sizes.iter().copied().max())),
        Sizes::Between(..) => Some(one(ContractRole::Prefill, None)),
    };
    let decode = tokens.allows(1).then(|| one(ContractRole::Decode, Some(1)))?;
    Some(Contract {
        name,
        context_length: seen.chain(positions).min()?,
        vocabulary: function.output_width("logits")?,
        lengths: Vec::new(),
        packages: vec![ContractPackage {
            package: package.to_owned(),
            functions: prefill.into_iter().chain([decode]).collect(),
        }],
        tokenizer: None,
    })
}

/// A mask that is added to scores. Where its last size is open, it says how many positions there are.
fn of_mask(function: ModelFunction<'_>, name: &str) -> Option<ContractMask> {
    let keys = match sizes(function.input(name)?, -1)? {
        Sizes::Fixed(_) => MaskKeys::Context,
        Sizes::Listed(_) | Sizes::Between(..) => MaskKeys::Seen,
    };
    Some(ContractMask { input: name.to_owned(), kind: MaskKind::CausalAdditive, keys })
}
