//! `anemeter doctor`: what this machine is, what works here, what disturbs a measurement.

mod fit;

use std::path::PathBuf;

use serde::Serialize;

use super::inputs::{ProfilesFile, read_report};
use super::python::PythonArg;
use super::units::Bytes;
use super::{Output, Result, Status};
use crate::bundle::Bundle;
use crate::hardware::{Bandwidth, Conditions, Machine, Noise, System, match_profile, newer_than_known};
use crate::render::Table;
use crate::report::advice;
use crate::runtime::{Availability, Runtime, runtimes};
use crate::vocabulary::RuntimeName;
use fit::BundleFit;

/// Check the machine before a benchmark: hardware profile, available runtimes, memory budget, sources of noise.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  anemeter doctor\n  anemeter doctor smollm2 --report reports/a\n  anemeter doctor --json"
)]
pub(super) struct Args {
    /// Bundles; shows which of their sequence lengths fit into memory.
    #[arg(value_name = "BUNDLE")]
    bundles: Vec<PathBuf>,
    /// A report, by path or URL; shows advice derived from it.
    #[arg(long, value_name = "REPORT")]
    report: Option<PathBuf>,
    #[command(flatten)]
    python: PythonArg,
    #[command(flatten)]
    profiles: ProfilesFile,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Everything there is to say.
#[derive(Serialize)]
struct Examination {
    machine: Machine,
    /// What about the machine is newer than anything known.
    newer: Vec<String>,
    profile: ProfileUse,
    runtimes: Vec<RuntimeState>,
    memory: MemoryBudget,
    conditions: Conditions,
    noise: Vec<Noise>,
    bundles: Vec<BundleFit>,
    suggestions: Vec<Noise>,
}

#[derive(Serialize)]
struct ProfileUse {
    key: String,
    listed: bool,
    reason: String,
    memory_bandwidth: Option<Bandwidth>,
    ane_bandwidth: Option<Bandwidth>,
    has_speed_targets: bool,
}

#[derive(Serialize)]
struct RuntimeState {
    name: RuntimeName,
    available: bool,
    why_not: Option<String>,
    /// What stands behind it, where that is another program.
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<String>,
}

#[derive(Serialize)]
struct MemoryBudget {
    total_bytes: Option<u64>,
    /// Three quarters: what a program may fill without pressing the system.
    safe_bytes: Option<u64>,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    let examination = examine(args)?;
    match args.json {
        true => output.json(&examination)?,
        false => print(&examination, output)?,
    }
    Ok(Status::Good)
}

fn examine(args: &Args) -> Result<Examination> {
    let machine = Machine::detect(&System);
    let profiles = args.profiles.read()?;
    let found = match_profile(&profiles, &machine);
    let conditions = Conditions::observe(&System);
    let memory = MemoryBudget { total_bytes: machine.memory_bytes, safe_bytes: machine.safe_memory_bytes() };
    let safe = memory.safe_bytes;
    let bundles = args.bundles.iter().map(|path| Ok(BundleFit::of(&Bundle::open_any(path)?, safe)));
    let suggestions = match &args.report {
        Some(path) => advice(&read_report(path)?),
        None => Vec::new(),
    };
    Ok(Examination {
        newer: newer_than_known(&profiles, &machine),
        profile: ProfileUse {
            key: found.profile.key,
            listed: found.listed,
            reason: found.reason,
            memory_bandwidth: found.profile.memory_bandwidth,
            ane_bandwidth: found.profile.ane_bandwidth,
            has_speed_targets: found.profile.speed_targets.is_some(),
        },
        runtimes: runtimes().into_iter().map(state).collect(),
        memory,
        noise: conditions.noise(&machine),
        conditions,
        bundles: bundles.collect::<Result<_>>()?,
        suggestions,
        machine,
    })
}

fn state(runtime: &dyn Runtime) -> RuntimeState {
    let why_not = match runtime.availability() {
        Availability::Ready => None,
        Availability::Unavailable(why) => Some(why),
    };
    let about = runtime.about().filter(|_| why_not.is_none());
    RuntimeState { name: runtime.name(), available: why_not.is_none(), why_not, about }
}

fn print(found: &Examination, output: &mut Output) -> Result<()> {
    let Examination { machine, profile, memory, .. } = found;
    let unknown = || "unknown".to_owned();
    let bytes = |value: Option<u64>| value.map_or_else(unknown, |value| Bytes(value).to_string());
    let text = |value: &Option<String>| value.clone().unwrap_or_else(unknown);
    output.line("machine")?;
    let mut facts = Table::new(&["", ""]).indented(2);
    let mut fact = |name: &str, value: String| facts.row([name.to_owned(), value]);
    fact("chip", text(&machine.chip));
    fact("model", text(&machine.model));
    fact("cores", format!("{} ({} logical)", machine.physical_cores, machine.logical_cores));
    fact("memory", format!("{}, safe to use: {}", bytes(memory.total_bytes), bytes(memory.safe_bytes)));
    fact("system", format!("{} {} {}", machine.os, text(&machine.os_version), machine.architecture));
    let listed = if profile.listed { "listed" } else { "not listed: no expectations, its own baselines" };
    fact("profile", format!("{} ({listed})", profile.key));
    fact("because", profile.reason.clone());
    found.newer.iter().for_each(|what| fact("note", what.clone()));
    output.text(facts)?;

    output.line("runtimes")?;
    let mut runtimes = Table::new(&["", ""]).indented(2);
    for runtime in &found.runtimes {
        let state = match (&runtime.why_not, &runtime.about) {
            (Some(why), _) => format!("unavailable: {why}"),
            (None, Some(about)) => format!("available: {about}"),
            (None, None) => "available".to_owned(),
        };
        runtimes.row([runtime.name.to_string(), state]);
    }
    output.text(runtimes)?;
    for bundle in &found.bundles {
        output.line("")?;
        output.text(bundle.table())?;
    }
    remarks("what disturbs a measurement now", "nothing that the system tells", &found.noise, output)?;
    if !found.suggestions.is_empty() {
        remarks("what the report suggests", "", &found.suggestions, output)?;
    }
    Ok(())
}

fn remarks(title: &str, otherwise: &str, remarks: &[Noise], output: &mut Output) -> Result<()> {
    output.line(format_args!("\n{title}"))?;
    if remarks.is_empty() {
        return output.line(format_args!("  {otherwise}"));
    }
    for remark in remarks {
        output.line(format_args!("  {}", remark.found))?;
        output.line(format_args!("    {}", remark.advice))?;
    }
    Ok(())
}
