//! The contract of CoreML-LLM's models of one package: a token per prediction, the likeliest next token as output.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::features::{ModelFunction, sizes};
use super::{Packages, beside};
use crate::bundle::BundleError;
use crate::bundle::contract::{
    ArgMax, CachePair, Contract, ContractFunction, ContractInputs, ContractMask, ContractName,
    ContractOutputs, ContractPackage, ContractRole, MaskKeys, MaskKind,
};

/// The file that describes the model.
pub(super) const CONFIG: &str = "model_config.json";
/// Where its tokenizer is.
pub(super) const TOKENIZER: &str = "hf_model/tokenizer.json";

/// What is read of the file.
#[derive(Deserialize)]
struct Config {
    context_length: usize,
    vocab_size: usize,
}

pub(super) fn recognise(packages: &Packages<'_>) -> Result<Option<Contract>, BundleError> {
    let [(package, model)] = packages.packages else { return Ok(None) };
    let Some(function) = ModelFunction::of(model, model.default_function()) else { return Ok(None) };
    let needed = ["input_ids", "position_ids", "causal_mask", "update_mask"];
    let is_it = needed.iter().all(|name| function.input(name).is_some())
        && function.takes_only(&[&needed[..], &["conv_state_in"]].concat())
        && function.output("token_id").is_some()
        && !function.interface.states.is_empty();
    if !is_it {
        return Ok(None);
    }
    let config: Config = config(packages)?;
    let columns = function.input("causal_mask").and_then(|mask| sizes(mask, -1)?.most());
    let context_length = columns.unwrap_or(config.context_length);
    let conv = CachePair { input: "conv_state_in".to_owned(), output: "conv_state_out".to_owned() };
    let name = |name: &str| Some(name.to_owned());
    let contract = ContractFunction {
        function: function.interface.function.clone(),
        role: ContractRole::Decode,
        tokens: Some(1),
        whole_pieces_to: None,
        inputs: ContractInputs {
            ids: name("input_ids"),
            masks: vec![ContractMask {
                input: "causal_mask".to_owned(),
                kind: MaskKind::CausalAdditive,
                keys: MaskKeys::Context,
            }],
            positions: name("position_ids"),
            update_mask: name("update_mask"),
            ..ContractInputs::default()
        },
        caches: function.input("conv_state_in").map(|_| conv).into_iter().collect(),
        states: function.interface.states.iter().map(|state| state.name.clone()).collect(),
        states_are_shared: false,
        outputs: ContractOutputs {
            argmax: vec![ArgMax {
                index: "token_id".to_owned(),
                value: function.output("token_logit").and(name("token_logit")),
                offsets: Vec::new(),
            }],
            ..ContractOutputs::default()
        },
    };
    Ok(Some(Contract {
        name: ContractName::CoremlLlm,
        context_length,
        vocabulary: config.vocab_size,
        lengths: Vec::new(),
        packages: vec![ContractPackage { package: (*package).to_owned(), functions: vec![contract] }],
        tokenizer: packages.folder.join(TOKENIZER).is_file().then(|| TOKENIZER.to_owned()),
    }))
}

/// Reads what is needed of the file beside the packages.
pub(super) fn config<T: DeserializeOwned>(packages: &Packages<'_>) -> Result<T, BundleError> {
    let path = packages.folder.join(CONFIG);
    let problem = |problem: String| {
        let help = "it comes with the package and says how large its vocabulary is; or give a contract file";
        BundleError::new(&path, problem).with_help(help)
    };
    let text = beside(&path)?.ok_or_else(|| problem("is not there".to_owned()))?;
    serde_json::from_str(&text).map_err(|e| problem(e.to_string()))
}
