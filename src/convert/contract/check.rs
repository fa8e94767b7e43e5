//! A contract against the packages that are to keep it: names and types, before anything runs.

use super::Packages;
use super::features::Seen;
use crate::bundle::contract::{Contract, ContractFunction, ContractOutputs, ContractRole};
use anemeter_kernels::tensor::DType;
use anemeter_mil::{ArrayType, Model};

/// What is wrong with a contract, if anything.
pub(super) fn problem(contract: &Contract, packages: &Packages<'_>) -> Option<String> {
    if contract.context_length == 0 || contract.vocabulary == 0 {
        return Some("`context_length` and `vocabulary` must be 1 or more".to_owned());
    }
    for package in &contract.packages {
        let Some((_, model)) = packages.packages.iter().find(|(name, _)| *name == package.package) else {
            let names: Vec<String> =
                packages.packages.iter().map(|(name, _)| name.escape_debug().to_string()).collect();
            let (name, known) = (package.package.escape_debug(), names.join(", "));
            return Some(format!("names the package `{name}`, which is not among {known}"));
        };
        if let Some(problem) = package.functions.iter().find_map(|function| of_function(model, function)) {
            return Some(format!("package `{}`, {problem}", package.package));
        }
    }
    roles(contract)
}

/// What is wrong with a function, if anything.
fn of_function(model: &Model, function: &ContractFunction) -> Option<String> {
    let problem = match Seen::of(model, &function.function) {
        Some(seen) => inputs(seen, function).or_else(|| outputs(seen, function))?,
        None => {
            let names: Vec<String> = model.interfaces().iter().map(|i| format!("`{}`", i.function)).collect();
            format!("the package has no such function, but {}", names.join(", "))
        }
    };
    Some(format!("function `{}`: {problem}", function.function))
}

/// Every input must be named once, and be of a type that can be filled.
fn inputs(seen: Seen<'_>, function: &ContractFunction) -> Option<String> {
    let inputs = &function.inputs;
    let caches = || function.caches.iter().map(|cache| cache.input.as_str());
    let named: Vec<&str> = inputs.names().chain(caches()).collect();
    if let Some(name) = named.iter().find(|name| seen.input(name).is_none()) {
        return Some(format!("it has no input `{name}`"));
    }
    let unnamed = seen
        .interface
        .inputs
        .iter()
        .find(|feature| !feature.optional && !named.contains(&feature.name.as_str()));
    if let Some(feature) = unnamed {
        return Some(format!("the contract does not say what the input `{}` is", feature.name));
    }
    if let Some(name) = function.states.iter().find(|name| seen.state(name).is_none()) {
        return Some(format!("it has no state `{name}`"));
    }
    let whole = [&inputs.ids, &inputs.positions, &inputs.current_position, &inputs.full_sequence_length];
    let is_int = |array: &ArrayType| array.dtype == DType::I32;
    let not_int = whole.into_iter().flatten().find(|name| !seen.input(name).is_some_and(is_int));
    not_int.map(|name| format!("the input `{name}` is not int32"))
}

fn outputs(seen: Seen<'_>, function: &ContractFunction) -> Option<String> {
    let ContractOutputs { hidden, logits, argmax } = &function.outputs;
    let picked = argmax.iter().flat_map(|argmax| [Some(&argmax.index), argmax.value.as_ref()]).flatten();
    let caches = function.caches.iter().map(|cache| &cache.output);
    let mut named = hidden.iter().chain(logits).chain(picked).chain(caches);
    let missing = named.find(|name| seen.output(name).is_none());
    missing.map(|name| format!("it has no output `{name}`"))
}

/// There must be something that gives logits for the next token.
fn roles(contract: &Contract) -> Option<String> {
    let gives = |(_, function): (_, &ContractFunction)| {
        !function.outputs.logits.is_empty() || !function.outputs.argmax.is_empty()
    };
    let next = [ContractRole::Decode, ContractRole::WholeSequence];
    match () {
        () if !contract.functions().any(|(_, function)| next.contains(&function.role)) => {
            Some("no function has the role `decode` or `whole-sequence`".to_owned())
        }
        () if !contract.functions().any(gives) => Some("no function gives `logits` or `argmax`".to_owned()),
        () => None,
    }
}
