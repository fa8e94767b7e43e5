//! `cargo xtask check coreai`: every operation that has an aicode form, on random shapes and values, computed by this
//! program's CPU runtime and by Apple's runtime for Core AI.
//!
//! A case is a function of one operation in fp32, written as a package and as an asset. Apple's code ends its process
//! where it meets what it does not take, so every case runs in a process of its own.

mod cases;
mod compare;
mod compressed;
mod made;
mod products;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use super::coreai_assets;
use crate::python;
use anemeter::coreai::asset::{self, AssetMetadata};
use anemeter::coreai::convert;
use anemeter::mil::Model;
use anemeter::mil::verify::verify;
use anemeter::package::{self, Package, WriteOptions};
use anemeter::runtime::{self, LoadOptions, Runtime};
use made::Case;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::{Project, make_empty};

const WHAT: &str = "Core AI assets";
const SCRIPT: &str = "xtask/python/coreai_cases.py";
/// Cases that there have to be.
const LEAST_CASES: usize = 300;

/// What came of a case.
enum Verdict {
    Same,
    /// Both gave something, and it differs.
    Differs(String),
    /// Apple's runtime gave nothing.
    Failed(String),
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let seed: u64 = arguments.opt_value_from_str("--seed")?.unwrap_or(1);
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    xtask::finish(arguments)?;
    let Some(pythons) = python::interpreters_with_coreai(project)? else {
        return Ok(Outcome::not_checked(WHAT, "Apple's wheels coreai-core cannot be installed here"));
    };
    let mut cases = cases::all(seed)?;
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.op.as_str()).collect();
    let missing: Vec<&str> = convert::ops::supported().filter(|op| !covered.contains(op)).collect();
    ensure!(missing.is_empty(), "no case has {}", missing.join(", "));
    ensure!(cases.len() >= LEAST_CASES, "only {} cases, {LEAST_CASES} are wanted", cases.len());
    if let Some(only) = &only {
        cases.retain(|case| case.op == *only);
    }
    let folder = project.target.join("coreai/cases");
    make_empty(&folder)?;
    for (index, case) in cases.iter().enumerate() {
        write(&folder.join(format!("{index:04}")), case)
            .with_context(|| format!("{}: {}", case.op, case.name))?;
    }
    succeed(project.command(&pythons[1]).arg(project.root.join(SCRIPT)).arg(&folder))?;
    let Outcome::Checked(counted) = judge(&folder, &cases)? else { unreachable!("it was checked") };
    let assets: Vec<PathBuf> =
        (0..cases.len()).map(|index| folder.join(format!("{index:04}/case.aimodel"))).collect();
    let versions = coreai_assets::read_by_all(project, &pythons, &assets)?;
    Ok(Outcome::Checked(format!("{counted}; Apple's parser and verifier accept all of them ({versions})")))
}

/// Writes a case as an asset with its inputs, and what the CPU runtime computes of it.
fn write(folder: &Path, case: &Case) -> Result<()> {
    fs::create_dir_all(folder)?;
    let verified = verify(Model::single(case.function.clone()))?;
    let program = convert::from_mil(&verified)?;
    asset::write(&program, &AssetMetadata::default(), folder.join("case.aimodel"))?;
    let path = folder.join("case.mlpackage");
    package::write(&verified, &path, WriteOptions::default())?;
    let package = Package::open(&path)?;
    let loaded = runtime::cpu().load(&package, &LoadOptions::default())?;
    let mut session = loaded.session();
    for (name, state) in &case.states {
        session.set_state(name, state)?;
    }
    let inputs: Vec<_> = case.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
    session.predict("main", &inputs)?;
    let given = case.inputs.iter().map(|(name, tensor)| ("in", name, tensor));
    let states = case.states.iter().map(|(name, tensor)| ("st", name, tensor));
    compare::write_tensors(
        folder,
        "given",
        given.chain(states).map(|(kind, name, t)| (kind, name.as_str(), t.view())),
    )?;
    let outputs: Vec<String> =
        case.function.body.outputs.iter().map(|&id| case.function.value(id).name.clone()).collect();
    let outputs = outputs.iter().map(|name| ("out", name.as_str(), session.output(name)));
    let states = case.states.iter().map(|(name, _)| ("st", name.as_str(), session.state(name)));
    let computed: Option<Vec<_>> =
        outputs.chain(states).map(|(kind, name, view)| Some((kind, name, view?))).collect();
    compare::write_tensors(folder, "expected", computed.context("an output is missing")?)
}

fn judge(folder: &Path, cases: &[Case]) -> Result<Outcome> {
    let mut by_op: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong = 0;
    for (index, case) in cases.iter().enumerate() {
        let place = folder.join(format!("{index:04}"));
        let entry = by_op.entry(&case.op).or_default();
        entry.1 += 1;
        match compare::compare(&place, case.tolerance)? {
            Verdict::Same => entry.0 += 1,
            Verdict::Differs(how) => {
                wrong += 1;
                println!("differs {} ({}): {how} [{}]", case.op, case.name, place.display());
            }
            Verdict::Failed(why) => {
                wrong += 1;
                println!("failed {} ({}): {why} [{}]", case.op, case.name, place.display());
            }
        }
    }
    let same: usize = by_op.values().map(|(same, _)| same).sum();
    for (op, (same, all)) in &by_op {
        println!("  {op}: {same} of {all}");
    }
    let counted = format!(
        "{same} of {} cases of {} operations give the same in both runtimes",
        cases.len(),
        by_op.len()
    );
    ensure!(wrong == 0, "{counted}");
    Ok(Outcome::Checked(counted))
}
