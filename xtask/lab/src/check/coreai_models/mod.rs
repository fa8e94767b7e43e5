//! `cargo xtask check coreai-models` and `check coreai-smollm2`: bundles of Core AI assets, exported by this program and
//! executed by Apple's runtime, against the checkpoint and against the CPU runtime.

mod bounds;
mod commands;
mod program;
mod verification;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use super::coreai_assets;
use crate::fetch_smollm2::{Fetched, fetch};
use crate::python;
use bounds::Sizes;
use program::Anemeter;
use verification::{Asked, Effort, verify};
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};

const WHAT: &str = "bundles of Core AI assets";
/// The checkpoint that `anemeter quickstart` uses.
const SMALL: &str = "src/quickstart/model";
/// The largest distance from a cosine of one that fp32 may have.
const FP32_LEAST: f64 = 0.99999;
/// Ways to store weights, none first.
const PRECISIONS: [&str; 4] = ["fp16", "int8", "int4", "lut4:group=16"];
/// The length of the small model. Products of fp16 take the interpreter a second from here on.
const SMALL_LENGTH: usize = 128;
/// Tokens after each prompt.
const TOKENS: usize = 32;
/// Tokens after each prompt where it has to be quick, and the prompts.
const QUICK: (usize, &str) =
    (8, "Once upon a time\nThe little girl saw a dog and\nIt was a sunny day. Tom and his mother went\n");
/// Every prompt of `verify` with its answer fits.
const SMOLLM2_LENGTH: usize = 256;

/// A small model in every precision, and every command on a bundle of assets.
pub(crate) fn small(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    let quick = arguments.contains("--quick");
    xtask::finish(arguments)?;
    let Some((anemeter, pythons)) = anemeter(project)? else { return Ok(not_installed()) };
    let checkpoint = project.root.join(SMALL);
    let folder = project.target.join("coreai/models");
    make_empty(&folder)?;
    let sizes = Sizes::read(&checkpoint)?;
    let effort = if quick { quick_effort(&folder)? } else { Effort { tokens: TOKENS, prompts: None } };
    let wanted = |what: &str| only.as_deref().is_none_or(|only| only == what);
    let (mut done, mut assets) = (Vec::new(), Vec::new());
    for activations in ["fp32", "fp16"] {
        let least = match activations {
            "fp32" => FP32_LEAST,
            _ => sizes.least_cosine(SMALL_LENGTH),
        };
        for precision in PRECISIONS.into_iter().filter(|precision| wanted(precision)) {
            let bundle = folder.join(format!("{activations}-{precision}").replace(':', "-"));
            export(&anemeter, &checkpoint, &bundle, (activations, precision), SMALL_LENGTH)?;
            assets.extend(assets_in(&bundle)?);
            let asked = Asked {
                bundle: &bundle,
                checkpoint: &checkpoint,
                runtime: "coreai",
                length: SMALL_LENGTH,
                effort: &effort,
            };
            let found = verify(&anemeter, &asked)?;
            ensure!(
                found.remarks().iter().any(|said| said.contains(&format!("with {activations} activations"))),
                "`verify` does not say which twin it used: {:?}",
                found.remarks()
            );
            println!(
                "  {precision} weights, {activations} activations: {found}; at least {least:.6} is right"
            );
            found.judge(least, activations == "fp32").with_context(|| bundle.display().to_string())?;
            done.push(found);
        }
    }
    if wanted("commands") {
        commands::all(&anemeter, &checkpoint, &folder, SMALL_LENGTH)?;
        assets.extend(assets_in(&folder.join("assets"))?);
    }
    let versions = coreai_assets::read_by_all(project, &pythons, &assets)?;
    let positions: usize = done.iter().map(|found| found.positions).sum();
    Ok(Outcome::Checked(format!(
        "{} bundles of a small model, {positions} positions against the checkpoint{}; {} assets are accepted by {versions}",
        done.len(),
        if wanted("commands") { "; every command takes a bundle of assets" } else { "" },
        assets.len()
    )))
}

/// SmolLM2 in fp32 activations: the tokens of the CPU runtime and of the checkpoint.
pub(crate) fn smollm2(project: &Project, arguments: Arguments) -> Result<Outcome> {
    xtask::finish(arguments)?;
    let checkpoint = match fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Outcome::not_checked("SmolLM2 as a Core AI asset", &why)),
    };
    let Some((anemeter, pythons)) = anemeter(project)? else { return Ok(not_installed()) };
    let folder = project.target.join("coreai/smollm2");
    make_empty(&folder)?;
    let bundle = folder.join("fp32");
    export(&anemeter, &checkpoint, &bundle, ("fp32", "fp16"), SMOLLM2_LENGTH)?;
    let effort = Effort { tokens: TOKENS, prompts: None };
    let mut found = Vec::new();
    for runtime in ["cpu", "coreai"] {
        let began = Instant::now();
        let asked = Asked {
            bundle: &bundle,
            checkpoint: &checkpoint,
            runtime,
            length: SMOLLM2_LENGTH,
            effort: &effort,
        };
        let verified = verify(&anemeter, &asked)?;
        println!("  {runtime}: {verified} ({:.0} s)", began.elapsed().as_secs_f64());
        found.push(verified);
    }
    for verified in &found {
        verified.judge(FP32_LEAST, true)?;
    }
    let Some([cpu, coreai]) = found.first_chunk::<2>() else { return Ok(Outcome::Checked(String::new())) };
    ensure!(cpu.positions == coreai.positions, "the two runtimes were asked for different positions");
    let versions = coreai_assets::read_by_all(project, &pythons, &assets_in(&bundle)?)?;
    Ok(Outcome::Checked(format!("SmolLM2 in fp32 by Apple's runtime: {coreai}; accepted by {versions}")))
}

/// What the continuous integration has the time for.
fn quick_effort(folder: &Path) -> Result<Effort> {
    let (tokens, prompts) = QUICK;
    let path = folder.join("prompts.txt");
    fs::write(&path, prompts).with_context(|| format!("write {}", path.display()))?;
    Ok(Effort { tokens, prompts: Some(path) })
}

fn not_installed() -> Outcome {
    Outcome::not_checked(WHAT, "Apple's wheel coreai-core cannot be installed here")
}

/// This program with the newest of Apple's modules, and the Pythons with the oldest and the newest; nothing where those cannot be
/// installed.
fn anemeter(project: &Project) -> Result<Option<(Anemeter, [PathBuf; 2])>> {
    let Some(pythons) = python::interpreters_with_coreai(project)? else { return Ok(None) };
    let python = pythons[1].clone();
    Ok(Some((Anemeter { program: program::build(project)?, python }, pythons)))
}

/// The assets of a bundle.
fn assets_in(bundle: &Path) -> Result<Vec<PathBuf>> {
    let mut assets = Vec::new();
    for entry in fs::read_dir(bundle).with_context(|| format!("read {}", bundle.display()))? {
        assets.push(entry?.path());
    }
    assets.retain(|path| path.extension().is_some_and(|extension| extension == "aimodel"));
    ensure!(!assets.is_empty(), "{} has no asset", bundle.display());
    Ok(assets)
}

fn export(
    anemeter: &Anemeter,
    checkpoint: &Path,
    bundle: &Path,
    (activations, precision): (&str, &str),
    length: usize,
) -> Result<()> {
    let (checkpoint, bundle, length) = (text(checkpoint), text(bundle), length.to_string());
    // The packages beside the assets tell the reference which weights are stored.
    let arguments = [
        "export",
        &checkpoint,
        "-o",
        &bundle,
        "--format",
        "coreml,coreai",
        "--activations",
        activations,
        "--precision",
        precision,
        "--shapes",
        &length,
        "--kv",
        "io,state",
    ];
    anemeter.good(&arguments)?;
    Ok(())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
