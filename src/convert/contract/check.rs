//! A contract against the packages that are to keep it: names and types, before anything runs.

use std::path::Path;

use super::Packages;
use super::features::ModelFunction;
use crate::bundle::contract::{Contract, ContractFunction, ContractOutputs, ContractPackage, ContractRole};
use anemeter_kernels::tensor::DType;
use anemeter_mil::{ArrayType, Model};

/// What is wrong with a contract, if anything.
pub(super) fn problem(contract: &Contract, packages: &Packages<'_>) -> Option<String> {
    if contract.context_length == 0 || contract.vocabulary == 0 {
        return Some("`context_length` and `vocabulary` must be 1 or more".to_owned());
    }
    if let Some(problem) = contract.files().find_map(|file| of_file(packages.folder, file)) {
        return Some(problem);
    }
    for (at, package) in contract.packages.iter().enumerate() {
        let Some((_, model)) = packages.packages.iter().find(|(name, _)| *name == package.package) else {
            let names: Vec<String> =
                packages.packages.iter().map(|(name, _)| name.escape_debug().to_string()).collect();
            let (name, known) = (package.package.escape_debug(), names.join(", "));
            return Some(format!("names the package `{name}`, which is not among {known}"));
        };
        let before = &contract.packages[..at];
        let problem = package
            .functions
            .iter()
            .find_map(|function| of_function(model, function).or_else(|| passed(packages, before, function)));
        if let Some(problem) = problem {
            return Some(format!("package `{}`, {problem}", package.package));
        }
    }
    roles(contract)
}

/// What is wrong with a file beside the packages, if anything.
fn of_file(folder: &Path, file: &str) -> Option<String> {
    let plain = Path::new(file).components().count() == 1 && !file.contains(['/', '\\']) && file != "..";
    match () {
        () if !plain => Some(format!("names the file `{file}`, which is not a plain name")),
        () if !folder.join(file).is_file() => {
            Some(format!("needs the file `{file}`, which is not beside it"))
        }
        () => None,
    }
}

/// What is wrong with outputs that a function takes from those before it, if anything.
fn passed(
    packages: &Packages<'_>,
    before: &[ContractPackage],
    function: &ContractFunction,
) -> Option<String> {
    let gives = |package: &ContractPackage, output: &str| {
        let model =
            packages.packages.iter().find(|(name, _)| *name == package.package).map(|(_, model)| model);
        let functions = || package.functions.iter().map(|function| &function.function);
        model.is_some_and(|model| {
            functions()
                .any(|name| ModelFunction::of(model, name).is_some_and(|seen| seen.output(output).is_some()))
        })
    };
    let mut passed = function.inputs.passed.iter();
    let missing = passed.find(|passed| !before.iter().any(|package| gives(package, &passed.output)))?;
    let (name, output) = (&function.function, &missing.output);
    Some(format!("function `{name}`: no package before it gives `{output}`"))
}

/// What is wrong with a function, if anything.
fn of_function(model: &Model, function: &ContractFunction) -> Option<String> {
    let problem = match ModelFunction::of(model, &function.function) {
        Some(seen) => inputs(seen, function).or_else(|| outputs(seen, function))?,
        None => {
            let names: Vec<String> = model.interfaces().iter().map(|i| format!("`{}`", i.function)).collect();
            format!("the package has no such function, but {}", names.join(", "))
        }
    };
    Some(format!("function `{}`: {problem}", function.function))
}

/// Every input must be named once, and be of a type that can be filled.
fn inputs(seen: ModelFunction<'_>, function: &ContractFunction) -> Option<String> {
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
    let ring = inputs.ring_position.iter().map(|ring| &ring.input);
    let mut whole = whole.into_iter().flatten().chain(ring);
    let not_int = whole.find(|name| !seen.input(name).is_some_and(is_int));
    if inputs.ring_position.as_ref().is_some_and(|ring| ring.window == 0) {
        return Some("`ring_position.window` must be 1 or more".to_owned());
    }
    not_int.map(|name| format!("the input `{name}` is not int32"))
}

fn outputs(seen: ModelFunction<'_>, function: &ContractFunction) -> Option<String> {
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
