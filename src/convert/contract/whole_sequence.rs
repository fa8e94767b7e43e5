//! Whole sequences: ids to the logits of every position, nothing cached. What tracing a transformers model and
//! converting it gives.

use super::Packages;
use super::features::{ModelFunction, sizes};
use crate::bundle::BundleError;
use crate::bundle::contract::{
    Contract, ContractFunction, ContractInputs, ContractMask, ContractName, ContractOutputs, ContractPackage,
    ContractRole, MaskKeys, MaskKind,
};

const IDS: &str = "input_ids";
const MASK: &str = "attention_mask";
const POSITIONS: &str = "position_ids";

pub(super) fn recognise(packages: &Packages<'_>) -> Result<Option<Contract>, BundleError> {
    let [(package, model)] = packages.packages else { return Ok(None) };
    let function = ModelFunction::of(model, model.default_function());
    Ok(function.and_then(|function| {
        let contract = of_function(package, function, ContractName::WholeSequence, [IDS, MASK, POSITIONS])?;
        // Classifiers of tokens have the same names, but no logit per token of a vocabulary.
        function.looks_up(contract.vocabulary).then_some(contract)
    }))
}

/// The contract of one function that takes ids, maybe a mask and positions, under these names.
pub(super) fn of_function(
    package: &str,
    function: ModelFunction<'_>,
    name: ContractName,
    [ids, mask, positions]: [&str; 3],
) -> Option<Contract> {
    let lengths = sizes(function.input(ids)?, -1)?.lengths();
    let has = |name: &str| function.input(name).map(|_| name.to_owned());
    if !function.interface.states.is_empty() || !function.takes_only(&[ids, mask, positions]) {
        return None;
    }
    if function.output_rank("logits")? != 3 {
        return None;
    }
    let masks =
        has(mask).map(|input| ContractMask { input, kind: MaskKind::Padding, keys: MaskKeys::Context });
    Some(Contract {
        name,
        context_length: *lengths.last()?,
        vocabulary: function.output_width("logits")?,
        lengths,
        packages: vec![ContractPackage {
            package: package.to_owned(),
            functions: vec![ContractFunction {
                function: function.interface.function.clone(),
                role: ContractRole::WholeSequence,
                tokens: None,
                whole_pieces_to: None,
                inputs: ContractInputs {
                    ids: has(ids),
                    masks: masks.into_iter().collect(),
                    positions: has(positions),
                    ..ContractInputs::default()
                },
                caches: Vec::new(),
                states: Vec::new(),
                states_are_shared: false,
                outputs: ContractOutputs { logits: vec!["logits".to_owned()], ..ContractOutputs::default() },
            }],
        }],
        tokenizer: None,
    })
}
