//! `cargo xtask check coreai`: every operation that has an aicode form, on random shapes and values, computed by this
//! program's CPU runtime and by Apple's runtime for Core AI.
//!
//! A case is a function of one operation in fp32, written as a package and as an asset. Apple's code ends its process
//! where it meets what it does not take, so every case runs in a process of its own.

mod cases;
mod compare;
mod compressed;
mod inline;
mod made;
mod products;
mod schemes;

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
use anemeter::mil::verify::{Verified, verify};
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
/// The asset of a case, in its folder.
const ASSET: &str = "case.aimodel";

/// What came of a case.
enum Verdict {
    Same,
    /// Both gave something, and it differs.
    Differs(String),
    /// Apple's runtime gave nothing.
    Failed(String),
}

/// A folder that Apple's runtime gets, and the case that it has.
struct Place<'c> {
    folder: PathBuf,
    case: &'c Case,
    /// The composites that are replaced by their regions in it.
    inlined: Vec<String>,
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let seed: u64 = arguments.opt_value_from_str("--seed")?.unwrap_or(1);
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    let quick = arguments.contains("--quick");
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
    if quick {
        // One case of each is left.
        cases.dedup_by(|next, first| next.op == first.op);
    }
    let folder = project.target.join("coreai/cases");
    make_empty(&folder)?;
    let (mut places, mut unwritten) = (Vec::new(), 0);
    for (index, case) in cases.iter().enumerate() {
        match write(&folder.join(format!("{index:04}")), case) {
            Ok(written) => places.extend(written),
            Err(error) => {
                unwritten += 1;
                println!("failed {} ({}): {error:#}", case.op, case.name);
            }
        }
    }
    succeed(project.command(&pythons[1]).arg(project.root.join(SCRIPT)).arg(&folder))?;
    let counted = judge(&places)?;
    ensure!(unwritten == 0, "{unwritten} cases cannot be written; {counted}");
    let assets: Vec<PathBuf> = places.iter().map(|place| place.folder.join(ASSET)).collect();
    let versions = coreai_assets::read_by_all(project, &pythons, &assets)?;
    Ok(Outcome::Checked(format!("{counted}; Apple's parser and verifier accept all of them ({versions})")))
}

/// Writes a case as an asset with its inputs, and what the CPU runtime computes of it. What has composites is written once more
/// with their regions in place of them.
fn write<'c>(folder: &Path, case: &'c Case) -> Result<Vec<Place<'c>>> {
    fs::create_dir_all(folder)?;
    let verified = verify(Model::single(case.function.clone()))?;
    let program = convert::from_mil(&verified)?;
    asset::write(&program, &AssetMetadata::default(), folder.join(ASSET))?;
    expect(folder, case, &verified)?;
    let mut places = vec![Place { folder: folder.to_owned(), case, inlined: Vec::new() }];
    if let Some((twin, inlined)) = inline::inlined(&program) {
        let folder = folder.with_extension("inlined");
        fs::create_dir_all(&folder)?;
        asset::write(&twin, &AssetMetadata::default(), folder.join(ASSET))?;
        expect(&folder, case, &verified)?;
        places.push(Place { folder, case, inlined });
    }
    Ok(places)
}

/// Writes the inputs of a case, and what the CPU runtime computes of it.
fn expect(folder: &Path, case: &Case, verified: &Verified) -> Result<()> {
    let path = folder.join("case.mlpackage");
    package::write(verified, &path, WriteOptions::default())?;
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

/// Prints what came of every case; an error unless all are the same in both runtimes.
fn judge(places: &[Place<'_>]) -> Result<String> {
    let mut by_op: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut by_composite: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for Place { folder, case, inlined } in places {
        let verdict = compare::compare(folder, case.tolerance)?;
        let is_same = matches!(verdict, Verdict::Same);
        let count = |entry: &mut (usize, usize)| *entry = (entry.0 + usize::from(is_same), entry.1 + 1);
        match &inlined[..] {
            [] => count(by_op.entry(&case.op).or_default()),
            names => names.iter().for_each(|name| count(by_composite.entry(name).or_default())),
        }
        match verdict {
            Verdict::Same => {}
            Verdict::Differs(how) => {
                println!("differs {} ({}): {how} [{}]", case.op, case.name, folder.display());
            }
            Verdict::Failed(why) => {
                println!("failed {} ({}): {why} [{}]", case.op, case.name, folder.display());
            }
        }
    }
    for (op, (same, all)) in by_op.iter().chain(&by_composite) {
        println!("  {op}: {same} of {all}");
    }
    let sum = |counts: &BTreeMap<&str, (usize, usize)>| {
        counts.values().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    };
    let (same, all) = sum(&by_op);
    let operations = convert::ops::supported().filter(|op| by_op.contains_key(op)).count();
    let counted = format!(
        "{same} of {all} cases of {operations} operations and {} ways to store weights give the same in both runtimes; \
         {} composites are what their regions say",
        by_op.len() - operations,
        by_composite.len()
    );
    let (same_inlined, all_inlined) = sum(&by_composite);
    ensure!(
        same == all && same_inlined == all_inlined,
        "{counted}, with {} exceptions",
        all_inlined - same_inlined
    );
    Ok(counted)
}
