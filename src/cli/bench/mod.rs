//! `anemeter bench`: measures a bundle and writes a report.

mod progress;
mod sweep;
mod upload;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::output::{create_folder, note, write_file};
use super::report::{is_url, terminal_table};
use super::{Failure, Output, Status};
use crate::bundle::{Bundle, ComputeUnits, KvForm};
use crate::evaluate::{self, EvaluateError, Wishes};
use crate::hardware::Profiles;
use crate::harness::{BenchConfig, PlanError, Processes, folder_name};
use crate::render::{html, markdown, tables};
use crate::report::{LeakVerdict, Outcome, Report};
pub(super) use progress::Progress;
use upload::Upload;

/// Where reports go unless a folder is given.
const REPORTS: &str = "reports";

/// Measure a bundle and write a report.
#[derive(clap::Args)]
#[command(
    after_help = "Every launch is a fresh process. The report folder gets report.json with every sample, report.html and \
report.md. Figures of the `cpu` runtime are never figures of a Neural Engine. Exit code 1: a launch failed, memory leaks, \
or an output was not a number.\n\n\
Examples:\n  anemeter bench smollm2\n  anemeter bench smollm2 --shapes 512 --launches 3 --out report\n  \
anemeter bench smollm2 --out s3://bucket/reports/monday\n  \
anemeter bench smollm2 --config configs/bench.yaml --soak 2000\n  anemeter bench --sweep configs/sweep.yaml"
)]
pub(super) struct Args {
    /// The bundle, as `anemeter export` writes it.
    #[arg(required_unless_present = "sweep")]
    bundle: Option<PathBuf>,
    /// Measure several configurations and put them side by side: bundles, compute units, cache forms, threads.
    #[arg(long, value_name = "FILE", conflicts_with = "bundle")]
    sweep: Option<PathBuf>,
    /// The workload [default: that of configs/bench.yaml].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for the report [default: reports/DATE-MODEL-PROFILE]; with a URL it is copied there from the default folder.
    #[arg(long, value_name = "DIR or URL")]
    out: Option<PathBuf>,
    /// What executes the bundle; `auto` takes the first that is available and says which.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cpu", "coreml"])]
    runtime: String,
    /// Form of the key-value cache; `auto` tries `state` and takes another form if that fails or is not on the Neural Engine
    /// [default: the configuration's, or the bundle's first].
    #[arg(long, value_name = "FORM", value_parser = ["auto", "io", "state", "none"])]
    kv: Option<String>,
    /// Where Core ML may place operations [default: as the bundle says].
    #[arg(long, value_name = "UNITS")]
    compute_units: Option<ComputeUnits>,
    /// Longest time that Core ML may take to load a function; the first time on a machine takes minutes.
    #[arg(long, value_name = "SECONDS")]
    load_limit: Option<f64>,
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
    /// Make each prediction slower by so many percent, to see a gate fail. The report says so and cannot be blessed.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    slow_down: Option<u16>,
    /// Hardware profiles [default: those of configs/hardware_profiles.yaml].
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status, Failure> {
    if let Some(sweep) = &args.sweep {
        return sweep::run(args, sweep, output);
    }
    let Some(path) = &args.bundle else { return Err(Failure::bad_input("no bundle is given")) };
    let bundle = Bundle::open(path)?;
    // What cannot be written is better known before the measurement than after it.
    let upload = Upload::open(args.out.as_deref(), "report.json")?;
    create_folder(local(args).unwrap_or(Path::new(REPORTS)))?;
    let report = measure(args, &bundle, config(args)?, &profiles(args.profiles.as_deref())?)?;
    let folder = match local(args) {
        Some(folder) => folder.to_owned(),
        None => Path::new(REPORTS).join(folder_name(&report.header, &bundle.manifest().name)),
    };
    write(&folder, &report)?;
    if let Some(upload) = &upload {
        upload.copy(&folder, "", &upload::REPORT)?;
        note(format_args!("copied to {}", upload.place("report.json")));
    }
    match args.json {
        true => output.json(&report)?,
        false => print(&report, &folder, output)?,
    }
    Ok(verdict(&report))
}

/// The folder that was asked for; none if it is a URL.
fn local(args: &Args) -> Option<&Path> {
    args.out.as_deref().filter(|out| !is_url(out))
}

/// Measures in workers of this very program.
fn measure(
    args: &Args,
    bundle: &Bundle,
    config: BenchConfig,
    profiles: &Profiles,
) -> Result<Report, Failure> {
    let mut launcher = launcher()?;
    let soak = args.soak.map(|steps| steps as usize);
    let slow_down_pct = args.slow_down;
    let probe_kv = args.kv.as_deref() == Some("auto");
    let wishes = Wishes { config, runtime: &args.runtime, probe_kv, soak, slow_down_pct, profiles };
    let progress = Progress::new();
    let report = evaluate::measure(bundle, &wishes, &mut launcher, &mut |event| progress.show(&event));
    progress.finish();
    let report = report?;
    if args.runtime == "auto" {
        note(format_args!("runtime: {}", report.runtime.name));
    }
    if let Some(choice) = &report.kv_choice {
        note(format_args!("key-value form: {}, since {}", choice.form, choice.reason));
    }
    report.runtime.remarks.iter().for_each(note);
    Ok(report)
}

fn config(args: &Args) -> Result<BenchConfig, Failure> {
    let mut config = args.config.as_deref().map_or_else(BenchConfig::built_in, BenchConfig::read)?;
    config.shapes = args.shapes.clone().or(config.shapes);
    config.threads = args.threads.or(config.threads);
    config.compute_units = args.compute_units.or(config.compute_units);
    config.load_limit_s = args.load_limit.or(config.load_limit_s);
    // Launches must outlast the loads that they are allowed.
    config.launch_limit_s = config.launch_limit_s.max(args.load_limit.map_or(0.0, |limit| 2.0 * limit));
    config.kv = args.kv.as_deref().and_then(|kv| KvForm::from_str(kv, true).ok()).or(config.kv);
    config.launches = args.launches.unwrap_or(config.launches);
    config.requests_per_shape = args.requests.unwrap_or(config.requests_per_shape);
    match config.problem() {
        Some(problem) => Err(Failure::bad_input(problem)),
        None => Ok(config),
    }
}

/// What starts workers of this very program.
pub(super) fn launcher() -> Result<Processes, Failure> {
    Processes::of_this_program().map_err(|e| Failure::bad_input(format!("cannot find this program: {e}")))
}

/// Profiles of a file, or those that come with the program.
pub(super) fn profiles(path: Option<&Path>) -> Result<Profiles, Failure> {
    Ok(path.map_or_else(Profiles::built_in, Profiles::read)?)
}

/// Writes a report in every form that people and programs read.
pub(super) fn write(folder: &Path, report: &Report) -> Result<(), Failure> {
    create_folder(folder)?;
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

impl From<EvaluateError> for Failure {
    fn from(error: EvaluateError) -> Failure {
        match error {
            EvaluateError::Plan(PlanError { problem, help }) => Failure::bad_input(problem).with_help(help),
            EvaluateError::Runtime(error) => error.into(),
            EvaluateError::Record(error) => error.into(),
        }
    }
}
