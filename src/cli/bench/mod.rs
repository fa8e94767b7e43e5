//! `anemeter bench`: measures a bundle and writes a report.

mod progress;

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::output::write_file;
use super::report::terminal_table;
use super::{Failure, Output, Status};
use crate::bundle::Bundle;
use crate::generate::SystemClock;
use crate::hardware::{Conditions, Machine, Profiles, System, match_profile};
use crate::harness::{
    BenchConfig, Context, Plan, PlanError, Processes, Surroundings, assemble, folder_name, header,
    run as run_plan,
};
use crate::render::{html, markdown, tables};
use crate::report::{LeakVerdict, Outcome, Report};
use crate::runtime;
use progress::Progress;

/// Measure a bundle and write a report.
#[derive(clap::Args)]
#[command(
    after_help = "Every launch is a fresh process. The report folder gets report.json with every sample, report.html and \
report.md. Figures of the `cpu` runtime are never figures of a Neural Engine. Exit code 1: a launch failed, memory leaks, \
or an output was not a number.\n\n\
Examples:\n  anemeter bench smollm2\n  anemeter bench smollm2 --shapes 512 --launches 3 --out report\n  \
anemeter bench smollm2 --config configs/bench.yaml --soak 2000"
)]
pub(super) struct Args {
    /// The bundle, as `anemeter export` writes it.
    bundle: PathBuf,
    /// The workload [default: that of configs/bench.yaml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for the report [default: reports/<date>-<model>-<profile>].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What executes the bundle; `auto` takes the first that is available and says which.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cpu", "coreml"])]
    runtime: String,
    /// Run so many steps in one process after the launches: does memory grow, does speed fall?
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    soak: Option<u32>,
    /// Measure only these shapes.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    shapes: Option<Vec<usize>>,
    /// Fresh processes, in place of the configuration's number.
    #[arg(long, value_name = "N")]
    launches: Option<usize>,
    /// Measured requests per shape and launch, in place of the configuration's number.
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Threads of the `cpu` runtime; the number of physical cores if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Hardware profiles [default: those of configs/hardware_profiles.yaml].
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    let bundle = Bundle::open(&args.bundle)?;
    let config = config(args)?;
    let runtime = runtime::choose(&args.runtime)?;
    if args.runtime == "auto" {
        note(format_args!("runtime: {}", runtime.name()));
    }
    let profiles = profiles(args.profiles.as_deref())?;
    let machine = Machine::detect(&System);
    let profile = match_profile(&profiles, &machine);
    let soak = args.soak.map(|steps| steps as usize);
    let plan = Plan::new(config, &bundle, runtime.name(), &profile.profile.shape_mix, soak)?;

    let header = header(&profile, SystemTime::now(), &System);
    let folder = match &args.out {
        Some(folder) => folder.clone(),
        None => Path::new("reports").join(folder_name(&header, &bundle.manifest().name)),
    };
    std::fs::create_dir_all(&folder).map_err(|e| Failure::bad_input(format!("{}: {e}", folder.display())))?;
    let at_start = Conditions::observe(&System);
    let observed = observe(&plan)?;
    let at_end = Conditions::observe(&System);
    let manifest = bundle.manifest();
    let context = Context { plan: &plan, manifest, machine, profile: &profile, header, at_start, at_end };
    let report = assemble(context, observed);

    write(&folder, &report)?;
    match args.json {
        true => output.json(&report)?,
        false => print(&report, &folder, output)?,
    }
    Ok(verdict(&report))
}

fn config(args: &Args) -> Result<BenchConfig, Failure> {
    let mut config = match &args.config {
        Some(path) => BenchConfig::read(path)?,
        None => BenchConfig::built_in()?,
    };
    config.shapes = args.shapes.clone().or(config.shapes);
    config.threads = args.threads.or(config.threads);
    config.launches = args.launches.unwrap_or(config.launches);
    config.requests_per_shape = args.requests.unwrap_or(config.requests_per_shape);
    match config.problem() {
        Some(problem) => Err(Failure::bad_input(problem)),
        None => Ok(config),
    }
}

/// Profiles of a file, or those that come with the program.
pub(super) fn profiles(path: Option<&Path>) -> Result<Profiles, Failure> {
    Ok(path.map_or_else(Profiles::built_in, Profiles::read)?)
}

fn observe(plan: &Plan) -> Result<crate::harness::Observations, Failure> {
    let mut launcher = Processes::of_this_program()
        .map_err(|e| Failure::bad_input(format!("cannot find this program: {e}")))?;
    let clock = SystemClock::default();
    let progress = Progress::new();
    let mut around = Surroundings {
        launcher: &mut launcher,
        clock: &clock,
        source: &System,
        rest: &mut |time: Duration| std::thread::sleep(time),
    };
    let observed = run_plan(plan, &mut around, &mut |event| progress.show(&event));
    progress.finish();
    Ok(observed)
}

fn write(folder: &Path, report: &Report) -> Result<(), Failure> {
    let json = serde_json::to_vec(report).map_err(|e| Failure::bad_input(format!("report.json: {e}")))?;
    write_file(&folder.join("report.json"), &json)?;
    let one = std::slice::from_ref(report);
    write_file(&folder.join("report.html"), html(one)?.as_bytes())?;
    write_file(&folder.join("report.md"), markdown(one).as_bytes())
}

fn print(report: &Report, folder: &Path, output: &mut Output) -> Result<(), Failure> {
    for table in tables(report).iter().filter(|table| table.title != "Provenance") {
        output.text(terminal_table(table))?;
        output.line("")?;
    }
    output.line(&report.residency_note)?;
    output.line(format_args!("report: {}", folder.join("report.html").display()))
}

/// Failed launches, leaks and outputs that are not numbers make a benchmark fail; a machine that
/// slows down does not.
fn verdict(report: &Report) -> Status {
    let soak_failed = report.soak.as_ref().is_some_and(|soak| {
        let leaks = soak.memory.as_ref().is_some_and(|memory| memory.verdict == LeakVerdict::Leak);
        leaks || soak.not_finite.is_some() || soak.outcome != Outcome::Completed
    });
    let failed = soak_failed || report.failures().next().is_some();
    if failed { Status::Failed } else { Status::Good }
}

fn note(line: impl std::fmt::Display) {
    // Nobody to hear it is not a failure.
    let _ = writeln!(stderr(), "{line}");
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        Failure::bad_input(error.problem).with_help(error.help)
    }
}
