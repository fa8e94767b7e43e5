//! `cargo xtask check smollm2`: a real model through the whole export, in every form, whole and in three packages.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::bundle::Bundle;
use anyhow::{Context, Result, ensure};
use pico_args::Arguments;
use serde_json::Value;

use crate::check::conformance::validator::Validator;
use crate::fetch_smollm2::{Fetched, fetch};
use xtask::outcome::Outcome;
use xtask::process::{read, succeed};
use xtask::project::Project;

const WHAT: &str = "SmolLM2";
const CHUNKS: [usize; 2] = [1, 3];
/// A question, and a word of every sensible answer.
const QUESTION: (&str, &str) = ("What is the capital of France?", "Paris");

/// Exports, validates, verifies and generates.
pub(crate) fn run(project: &Project, _: Arguments) -> Result<Outcome> {
    let model = match fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Outcome::not_checked(WHAT, &why)),
    };
    let validator = Validator::find(project)?;
    let program = project.release("anemeter")?;
    let folder = project.target.join("smollm2/bundles");
    fs::create_dir_all(&folder)?;
    for chunks in CHUNKS {
        println!("\n{chunks} package(s)");
        let bundle = folder.join(format!("{chunks}"));
        export(project, &program, &model, &bundle, chunks)?;
        let packages = packages(&bundle)?;
        if let Some(validator) = &validator {
            validator.accepts(&packages)?;
            println!("valid");
        }
        for package in &packages {
            succeed(project.command(&program).arg("lint").arg(package))?;
        }
        succeed(
            project
                .command(&program)
                .arg("verify")
                .arg(&bundle)
                .arg("--checkpoint")
                .arg(&model)
                .args(["--shapes", "128"]),
        )?;
        for form in ["io", "state"] {
            answer(project, &program, &bundle, form)?;
        }
    }
    let text = "three forms in one package and in three, verified against candle";
    Ok(match validator {
        Some(_) => Outcome::Checked(format!("{text}, valid")),
        None => Outcome::not_checked(WHAT, &format!("{text}, but there is no validator of packages")),
    })
}

fn export(project: &Project, program: &Path, model: &Path, bundle: &Path, chunks: usize) -> Result<()> {
    let mut export = project.command(program);
    export.arg("export").arg(model).arg("-o").arg(bundle).args(["--overwrite", "--kv", "io,state,none"]);
    succeed(export.args(["--shapes", "128,256", "--chunks", &chunks.to_string()]))
}

fn packages(bundle: &Path) -> Result<Vec<PathBuf>> {
    let bundle = Bundle::open(bundle)?;
    Ok(bundle.manifest().chunks.iter().map(|chunk| bundle.path(&chunk.file.name)).collect())
}

/// The model must make sense.
fn answer(project: &Project, program: &Path, bundle: &Path, form: &str) -> Result<()> {
    let (question, word) = QUESTION;
    let mut generate = project.command(program);
    generate.arg("generate").arg(bundle).args([
        "--prompt",
        question,
        "--max-tokens",
        "24",
        "--kv",
        form,
        "--json",
    ]);
    let document: Value = serde_json::from_str(&read(&mut generate)?)?;
    let text = document.pointer("/sequences/0/text").and_then(Value::as_str);
    let text = text.context("`generate --json` has no text")?;
    println!("{form}: {question} {text}");
    ensure!(text.contains(word), "the answer does not contain `{word}`");
    Ok(())
}
