//! Contracts of published language models: which one packages keep, by the names and types of their functions and by
//! the files beside them. Each is written down as a [`Contract`], so that one driver serves all of them.

mod anemll;
mod check;
mod coreml_llm;
mod coreml_llm_chunks;
mod features;
mod swift_transformers;
mod whole_sequence;

use std::path::Path;

use crate::bundle::BundleError;
use crate::bundle::contract::Contract;
use anemeter_base::{config, files};
use anemeter_mil::Model;

/// A tokenizer beside the packages.
const TOKENIZER: &str = "tokenizer.json";
/// The most that a file beside the packages may take.
const LARGEST_FILE: u64 = 16 << 20;

/// Packages that may be a language model together.
#[derive(Debug, Clone, Copy)]
pub struct Packages<'a> {
    /// Name of each in its bundle, and what it says.
    pub packages: &'a [(&'a str, &'a Model)],
    /// The folder that they were found in.
    pub folder: &'a Path,
}

/// Recognises a contract. An error is a file beside the packages that contradicts them or cannot be read.
type Recognise = fn(&Packages<'_>) -> Result<Option<Contract>, BundleError>;

/// All that are known, the most particular first.
const CONTRACTS: &[Recognise] = &[
    anemll::recognise,
    coreml_llm::recognise,
    coreml_llm_chunks::recognise,
    swift_transformers::recognise,
    whole_sequence::recognise,
];

/// The contract that packages keep; none if they are no language model that is known.
pub fn recognise(packages: &Packages<'_>) -> Result<Option<Contract>, BundleError> {
    for recognise in CONTRACTS {
        if let Some(mut contract) = recognise(packages)? {
            let beside = packages.folder.join(TOKENIZER).is_file().then(|| TOKENIZER.to_owned());
            contract.tokenizer = contract.tokenizer.or(beside);
            return Ok(Some(contract));
        }
    }
    Ok(None)
}

/// Reads a contract file and checks that the packages can keep it.
pub fn read(path: &Path, packages: &Packages<'_>) -> Result<Contract, BundleError> {
    let contract: Contract = config::load(path)?;
    // Files that it names are beside it, wherever the packages are.
    let folder = path.parent().unwrap_or(Path::new("."));
    match check::problem(&contract, &Packages { folder, ..*packages }) {
        Some(problem) => Err(BundleError::new(path, problem)),
        None => Ok(contract),
    }
}

/// The text of a file beside the packages; none if there is no such file.
fn beside(path: &Path) -> Result<Option<String>, BundleError> {
    let unreadable = |e: std::io::Error| BundleError::new(path, format!("cannot be read: {e}"));
    if !path.is_file() {
        return Ok(None);
    }
    files::read_text(path, LARGEST_FILE).map(Some).map_err(unreadable)
}

#[cfg(test)]
mod tests;
