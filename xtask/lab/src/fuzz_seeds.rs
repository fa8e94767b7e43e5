//! `cargo xtask fuzz-seeds`: what fuzz targets start from, written by the library.

use std::fs;
use std::path::Path;

use anemeter::mil::verify::verify;
use anemeter::package::{self, WriteOptions, decode_model};
use anyhow::{Result, bail};
use coreml_proto::proto;
use pico_args::Arguments;
use prost::Message as _;

use xtask::fuzz::PROGRAM_SEED_LENGTH;
use xtask::outcome::Outcome;
use xtask::project::Project;

use crate::mil_compiler::{Dialect, compile};

#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "a crate of its own for the fuzz targets")]
mod shared_by_targets;

/// Gives every target the files of a small package to start from.
pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let mut targets = Vec::new();
    while let Some(target) = arguments.opt_free_from_str::<String>()? {
        targets.push(target);
    }
    xtask::finish(arguments)?;
    let package = project.target.join("fuzz-seeds/tiny.mlpackage");
    fs::create_dir_all(project.target.join("fuzz-seeds"))?;
    let tiny = shared_by_targets::tiny_model();
    let model = decode_model(&tiny.model, &shared_by_targets::weight_files(&tiny.weights))?;
    package::write(&verify(model)?, &package, WriteOptions { overwrite: true, ..WriteOptions::default() })?;
    let manifest = fs::read(package.join("Manifest.json"))?;
    let whole = shared_by_targets::join(&manifest, &tiny.model, &tiny.weights);
    let (text, description) = compile(&proto::Model::decode(&tiny.model[..])?, Dialect::Scalars);
    let compiled = shared_by_targets::join(&description, text.as_bytes(), &tiny.weights);
    for target in &targets {
        let folder = project.root.join("fuzz/corpus").join(target);
        fs::create_dir_all(&folder)?;
        let seed = match target.as_str() {
            "manifest" => &manifest,
            "protobuf" => &tiny.model,
            "weights" => &tiny.weights,
            "package" | "run" => &whole,
            "tensor_files" => {
                copy_files(&project.root.join(ARRAYS_OF_NUMPY), &folder)?;
                continue;
            }
            "aimodel" => {
                copy_programs(&project.root.join(ASSETS_OF_APPLE), &folder)?;
                continue;
            }
            "compiled" => &compiled,
            "tokenizer" => {
                fs::copy(project.root.join("src/quickstart/model/tokenizer.json"), folder.join("tiny"))?;
                continue;
            }
            "chat_template" => {
                write_templates(project, &folder)?;
                continue;
            }
            "report" => {
                let report =
                    anemeter::import::llm_benchmark(LLM_BENCHMARK, "2026-01-31T12:00:00Z".to_owned())?;
                fs::write(folder.join("tiny"), serde_json::to_string(&report)?)?;
                continue;
            }
            "configuration" => {
                copy_files(&project.root.join("src/base/configs"), &folder)?;
                continue;
            }
            other => bail!("there is no seed for the fuzz target `{other}`"),
        };
        fs::write(folder.join("tiny"), seed)?;
        if target == "run" {
            for index in 0..PROGRAM_SEEDS {
                fs::write(folder.join(format!("noise-{index:02}")), noise(index))?;
            }
        }
    }
    Ok(Outcome::Checked(format!("seeds of {} targets", targets.len())))
}

/// What the tests of the readers have.
const ARRAYS_OF_NUMPY: &str = "src/harness/tensor_files/testdata";

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// Assets that Apple's tools made.
const ASSETS_OF_APPLE: &str = "src/coreai/testdata";

/// The programs of small assets; large ones slow every execution down.
fn copy_programs(from: &Path, to: &Path) -> Result<()> {
    const LARGEST: u64 = 4096;
    for asset in fs::read_dir(from)? {
        let asset = asset?;
        let program = asset.path().join("main.mlirb");
        if fs::metadata(&program)?.len() <= LARGEST {
            fs::copy(program, to.join(asset.file_name()))?;
        }
    }
    Ok(())
}

/// The templates of the tests.
fn write_templates(project: &Project, folder: &Path) -> Result<()> {
    let cases = fs::read(project.root.join("src/harness/generate/testdata/chat.json"))?;
    let cases: serde_json::Value = serde_json::from_slice(&cases)?;
    for (name, text) in cases["templates"].as_object().into_iter().flatten() {
        fs::write(folder.join(name), text.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// A result of Apple's llm-benchmark, which becomes a small report.
const LLM_BENCHMARK: &[u8] = include_bytes!("llm_benchmark.json");

/// `run` makes a program of any bytes, but of few bytes only a short one, so it starts from long noise as well.
const PROGRAM_SEEDS: u64 = 64;

/// The same noise for the same index (SplitMix64).
fn noise(index: u64) -> Vec<u8> {
    let word = |step: u64| {
        let mut x = (index << 32 | step).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    (0..).flat_map(|step| word(step).to_le_bytes()).take(PROGRAM_SEED_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_long_and_reproducible() {
        assert_eq!(noise(3).len(), PROGRAM_SEED_LENGTH);
        assert_eq!(noise(3), noise(3));
        assert_ne!(noise(3), noise(4));
    }
}
