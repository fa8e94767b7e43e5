//! `--tokenizer`: the tokenizer rebuilt from a GGUF file against SmolLM2's own rules.

use anemeter::checkpoint;
use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use tokenizers::Tokenizer;

use crate::fetch_smollm2::{self, Fetched};
use crate::python;
use xtask::outcome::Outcome;
use xtask::process::read;
use xtask::project::Project;

const WHAT: &str = "tokenizer of a GGUF file";

/// A text and its tokens.
#[derive(Debug, Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

/// Tokenizes the texts of the script and compares; what is decoded must be the text again.
pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    let model = match fetch_smollm2::fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Outcome::not_checked(WHAT, &why)),
    };
    let Some(python) = python::interpreter_with_transformers(project)? else {
        return Ok(Outcome::not_checked(WHAT, "there is no python3"));
    };
    let cases = read(project.command(python).arg("xtask/python/smollm2_tokens.py").arg(&model))?;
    let cases: Vec<Case> = cases
        .lines()
        .take(limit.unwrap_or(usize::MAX))
        .map(|line| serde_json::from_str(line).with_context(|| format!("read the case {line}")))
        .collect::<Result<_>>()?;
    let json = checkpoint::open(&model)?.tokenizer.context("the file has no tokenizer")?;
    let tokenizer = Tokenizer::from_bytes(json).map_err(|error| anyhow!("load the tokenizer: {error}"))?;
    let text = judge(&cases, &tokenizer)?;
    Ok(Outcome::Checked(text))
}

fn judge(cases: &[Case], tokenizer: &Tokenizer) -> Result<String> {
    let (mut wrong, mut tokens) = (0, 0);
    for Case { text, ids } in cases {
        let found = tokenizer.encode(text.as_str(), true).map_err(|error| anyhow!("{text:?}: {error}"))?;
        let back = tokenizer.decode(found.get_ids(), false).map_err(|error| anyhow!("{text:?}: {error}"))?;
        tokens += ids.len();
        if found.get_ids() != ids {
            eprintln!("{text:?} gives {:?}, expected {ids:?}", found.get_ids());
            wrong += 1;
        } else if back != *text {
            eprintln!("{text:?} comes back as {back:?}");
            wrong += 1;
        }
    }
    ensure!(!cases.is_empty(), "there are no texts");
    ensure!(wrong == 0, "{wrong} of {} texts are tokenized otherwise", cases.len());
    Ok(format!("{} texts give the same {tokens} tokens and come back from them", cases.len()))
}
