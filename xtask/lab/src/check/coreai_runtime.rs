//! `cargo xtask check coreai-runtime`: the runtime `coreai` with Apple's own module: every asset of the tests that Apple's tools
//! made, by `anemeter run`. Each gives its outputs, or fails as it is known to.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;

use super::coreai_assets;
use crate::python;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::{Project, make_empty};

const WHAT: &str = "the runtime coreai";
/// The assets of Apple's tools.
const SAMPLES: &str = "src/coreai/testdata";

/// Functions that are run besides the default one, or instead of it where that is not one to be called.
const FUNCTIONS: &[(&str, &[&str])] =
    &[("qwen_ios_none_float16.aimodel", &["load_embeddings", "gather_embeddings_8", "extend_512_8"])];

/// Functions that are known to fail, and words of the error. Inputs of Apple's iOS recipe lie interleaved in memory, and the
/// module takes such arrays only from other functions.
const KNOWN_FAILURES: &[(&str, &str, &str)] = &[
    ("qwen_ios_none_float16.aimodel", "gather_embeddings_8", "embedding_table has an invalid interleave"),
    ("qwen_ios_none_float16.aimodel", "extend_512_8", "embedding_table has an invalid interleave"),
];

/// What a prediction came to.
#[derive(Debug, PartialEq)]
enum PredictionOutcome {
    Ran,
    KnownFailure,
}

pub(crate) fn run(project: &Project, arguments: Arguments) -> Result<Outcome> {
    xtask::finish(arguments)?;
    let samples = project.root.join(SAMPLES);
    let Some(pythons) = python::interpreters_with_coreai(project)? else {
        return Ok(Outcome::not_checked(WHAT, "Apple's wheels coreai-core cannot be installed here"));
    };
    let python = &pythons[1];
    succeed(&mut project.cargo(&["build", "--quiet", "--package", "anemeter", "--bin", "anemeter"]))?;
    let folder = project.target.join("coreai/samples");
    make_empty(&folder)?;
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&samples)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name.ends_with(".aimodel"));
    names.sort();
    ensure!(!names.is_empty(), "{} has no assets", samples.display());
    let (mut ran, mut known) = (0, 0);
    for name in &names {
        for function in functions(name) {
            match predict(project, python, &samples.join(name), function, &folder)
                .with_context(|| format!("{name}, function {}", function.unwrap_or("by default")))?
            {
                PredictionOutcome::Ran => ran += 1,
                PredictionOutcome::KnownFailure => known += 1,
            }
        }
    }
    let paths: Vec<PathBuf> = names.iter().map(|name| samples.join(name)).collect();
    let rewritten = coreai_assets::rewritten(project, &pythons, &paths, &folder)?;
    Ok(Outcome::Checked(format!(
        "{} assets of Apple's tools: {ran} functions ran, {known} failed as they are known to; {rewritten}",
        names.len()
    )))
}

/// The functions of an asset that are run; without a name the default one.
fn functions(asset: &str) -> Vec<Option<&'static str>> {
    let named = FUNCTIONS.iter().find(|(name, _)| *name == asset);
    named.map_or_else(|| vec![None], |(_, functions)| functions.iter().copied().map(Some).collect())
}

fn predict(
    project: &Project,
    python: &Path,
    asset: &Path,
    function: Option<&str>,
    folder: &Path,
) -> Result<PredictionOutcome> {
    let name = asset.file_name().context("an asset has no name")?.to_string_lossy().into_owned();
    let outputs = folder.join(format!("{name}-{}.safetensors", function.unwrap_or("default")));
    let mut command = project.command(project.target.join("debug/anemeter"));
    command.arg("run").arg(asset).arg("--outputs").arg(&outputs).arg("--python").arg(python);
    if let Some(function) = function {
        command.args(["--function", function]);
    }
    let Output { status, stderr, .. } = command.output().context("start anemeter")?;
    let said = String::from_utf8_lossy(&stderr);
    let known = KNOWN_FAILURES.iter().find(|(of, known, _)| *of == name && Some(*known) == function);
    match (status.success(), known) {
        (true, None) => {
            ensure!(said.contains("Apple's CPU interpreter"), "does not say what executed it:\n{said}");
            ensure!(outputs.is_file(), "gave no outputs");
            println!("  ran    {name} {}", function.unwrap_or(""));
            Ok(PredictionOutcome::Ran)
        }
        (true, Some(_)) => bail!("runs, and is known to fail: the table of this check is out of date"),
        (false, Some((.., words))) if said.contains(words) => {
            println!("  known  {name} {}: {words}", function.unwrap_or(""));
            Ok(PredictionOutcome::KnownFailure)
        }
        (false, _) => bail!("failed ({status}):\n{said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_failure_is_of_a_function_that_is_run() {
        for (asset, function, words) in KNOWN_FAILURES {
            assert!(functions(asset).contains(&Some(*function)), "{asset} {function}");
            assert!(!words.is_empty());
        }
        assert_eq!(functions("mm_float32.aimodel"), [None]);
    }
}
