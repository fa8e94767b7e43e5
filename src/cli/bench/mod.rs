//! `anemeter bench`: measures a bundle and writes a report.

mod depth;
mod predict;
mod progress;
mod sweep;
mod upload;

use std::path::{Path, PathBuf};

use super::choice::{AUTO, OrAuto, bundle_runtime, choice, choice_or_auto};
use super::inputs::{ProfilesFile, is_url, launcher, open_bundle, workload};
use super::output::{create_folder, keep_measurement, note, write_file};
use super::python::PythonArg;
use super::{Failure, Output, Result, Status};
use crate::bundle::{Bundle, Origin};
use crate::evaluate::{self, BenchRequest};
use crate::hardware::Profiles;
use crate::harness::{BenchConfig, folder_name};
use crate::render::{html, markdown, tables};
use crate::report::{LeakVerdict, Outcome, Report};
use crate::vocabulary::{ComputeUnits, KvForm, RuntimeName, WorkloadKind};
pub(super) use depth::DepthArgs;
pub(super) use predict::PredictArgs;
pub(super) use progress::Progress;
use upload::Upload;

/// Where reports go unless a folder is given.
const REPORTS: &str = "reports";
/// The file of a report with every sample.
const REPORT: &str = "report.json";

/// Benchmark a bundle or any package: TTFT and TPS of language models, latencies of all else, memory and Neural Engine
/// residency, written to a report with every sample.
#[derive(clap::Args)]
#[command(
    after_help = "Every launch is a fresh process. A language model generates text; of any other package each function is predicted at each \
of its shapes, with inputs of a file or made up. The report folder gets report.json with every sample, report.html and \
report.md. Figures of the `cpu` runtime are not figures of the Neural Engine, and those of `coreai` outside macOS 27 are of no device. Exit code 1: a launch failed, memory leaked, \
or an output was not finite.\n\n\
Examples:\n  anemeter bench smollm2\n  anemeter bench smollm2 --shapes 512 --launches 3 --out report\n  \
anemeter bench smollm2 -p 512 -g 128 -n 5 -d 0,4096\n  \
anemeter bench smollm2 --out s3://bucket/reports/monday\n  anemeter bench resnet.mlpackage --inputs images.safetensors\n  \
anemeter bench encoder.mlpackage --shape input_ids=1x128 --range input_ids=0..30000\n  \
anemeter bench smollm2 --workload configs/bench.yaml --soak 2000\n  anemeter bench --sweep configs/sweep.yaml"
)]
pub(super) struct Args {
    /// The bundle that `anemeter export` or `anemeter adopt` wrote, a package, or a folder of packages.
    #[arg(required_unless_present = "sweep")]
    bundle: Option<PathBuf>,
    /// Benchmark every combination of bundles, compute units, KV forms and threads in this file, and compare them.
    #[arg(long, value_name = "FILE", conflicts_with = "bundle")]
    sweep: Option<PathBuf>,
    /// The workload [default: configs/bench.yaml, built in].
    #[arg(long, value_name = "FILE")]
    workload: Option<PathBuf>,
    /// Folder for the report [default: reports/DATE-MODEL-PROFILE]. A URL gets a copy of what is written to the default folder.
    #[arg(short, long, value_name = "DIR or URL")]
    out: Option<PathBuf>,
    /// Runtime that executes the bundle; `auto` takes the first that is available and prints its name.
    #[arg(long, default_value = AUTO, value_parser = bundle_runtime())]
    runtime: OrAuto<RuntimeName>,
    #[command(flatten)]
    python: PythonArg,
    /// KV cache form. `auto` tries `state`, and takes another form if `state` fails or is not placed on the Neural Engine
    /// [default: the workload's, or the bundle's first].
    #[arg(long, value_name = "FORM", value_parser = choice_or_auto::<KvForm>())]
    kv: Option<OrAuto<KvForm>>,
    /// Compute units that Core ML may use [default: those of the bundle].
    #[arg(long, value_name = "UNITS", value_parser = choice::<ComputeUnits>())]
    compute_units: Option<ComputeUnits>,
    /// Time limit for Core ML to load a function. The first load on a machine can take minutes.
    #[arg(long, value_name = "SECONDS")]
    load_limit: Option<f64>,
    /// Soak test after the launches: decode or predict this many steps in one process, and check for memory growth and slowdown.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..))]
    soak: Option<u32>,
    /// Sequence lengths to measure [default: all of the bundle].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    shapes: Option<Vec<usize>>,
    /// Launches (fresh processes) [default: the workload's].
    #[arg(long, value_name = "N")]
    launches: Option<usize>,
    #[command(flatten)]
    depth: DepthArgs,
    #[command(flatten)]
    predict: PredictArgs,
    /// Name of the model in the report, if packages are given [default: that of the file or folder].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Threads of the `cpu` runtime [default: the number of physical cores].
    #[arg(long, value_name = "N", value_parser = crate::cli::threads::size)]
    threads: Option<usize>,
    /// Slow every prediction down by this percentage, to see a gate fail. Such a report cannot be blessed.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    slow_down: Option<u16>,
    /// Replace a report that is in the folder already.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    profiles: ProfilesFile,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    args.python.apply();
    if let Some(sweep) = &args.sweep {
        return sweep::run(args, sweep, output);
    }
    let Some(path) = &args.bundle else { return Err(Failure::bad_input("no bundle is given")) };
    let bundle = named(open_bundle(path)?, args)?;
    // What cannot be written is better known before the measurement than after it.
    let upload = Upload::open(args.out.as_deref(), "report.json")?;
    create_folder(local(args).unwrap_or(Path::new(REPORTS)))?;
    if let Some(folder) = local(args) {
        keep_measurement(&folder.join(REPORT), args.force)?;
    }
    let report = measure(args, &bundle, config(args, Some(&bundle))?, &args.profiles.read()?)?;
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

/// The bundle under the name that was given; an export has a name of its own.
fn named(bundle: Bundle, args: &Args) -> Result<Bundle> {
    match (&args.name, bundle.manifest().origin) {
        (Some(name), Origin::Adopted) => Ok(bundle.named(name)),
        (Some(_), Origin::Exported) => Err(Failure::at(bundle.folder(), "has a name of its own")
            .with_help("leave --name out, or export it again with another --name")),
        (None, _) => Ok(bundle),
    }
}

/// The folder that was asked for; none if it is a URL.
fn local(args: &Args) -> Option<&Path> {
    args.out.as_deref().filter(|out| !is_url(out))
}

/// Measures in workers of this very program.
fn measure(args: &Args, bundle: &Bundle, config: BenchConfig, profiles: &Profiles) -> Result<Report> {
    let mut launcher = launcher()?;
    let soak = args.soak.map(|steps| steps as usize);
    let slow_down_pct = args.slow_down;
    let probe_kv = args.kv == Some(OrAuto::Auto);
    let request =
        BenchRequest { config, runtime: args.runtime.given(), probe_kv, soak, slow_down_pct, profiles };
    let progress = Progress::new();
    let report = evaluate::measure(bundle, &request, &mut launcher, &mut |event| progress.show(&event));
    progress.finish();
    let report = report?;
    if args.runtime == OrAuto::Auto {
        note(format_args!("runtime: {}", report.runtime.name));
    }
    if let Some(choice) = &report.kv_choice {
        note(format_args!("KV cache form: {}, since {}", choice.form, choice.reason));
    }
    report.runtime.remarks.iter().for_each(note);
    Ok(report)
}

fn config(args: &Args, bundle: Option<&Bundle>) -> Result<BenchConfig> {
    let mut config = workload(args.workload.as_deref())?;
    if bundle.is_some_and(|bundle| bundle.manifest().encoder.is_some()) {
        // Lengths of an encoder need no room for tokens that are generated.
        config.kind.get_or_insert(WorkloadKind::Predict);
    }
    config.shapes = args.shapes.clone().or(config.shapes);
    config.threads = args.threads.or(config.threads);
    config.compute_units = args.compute_units.or(config.compute_units);
    config.load_limit_s = args.load_limit.or(config.load_limit_s);
    // Launches must outlast the loads that they are allowed.
    config.launch_limit_s = config.launch_limit_s.max(args.load_limit.map_or(0.0, |limit| 2.0 * limit));
    config.kv = args.kv.and_then(OrAuto::given).or(config.kv);
    config.launches = args.launches.unwrap_or(config.launches);
    args.depth.apply(&mut config);
    args.predict.apply(&mut config)?;
    match config.problem() {
        Some(problem) => Err(Failure::bad_input(problem)),
        None => Ok(config),
    }
}

/// Writes a report in every form that people and programs read.
pub(super) fn write(folder: &Path, report: &Report) -> Result<()> {
    create_folder(folder)?;
    let json = serde_json::to_vec(report).map_err(|e| Failure::bad_input(format!("report.json: {e}")))?;
    write_file(&folder.join(REPORT), &json)?;
    let one = std::slice::from_ref(report);
    write_file(&folder.join("report.html"), html(one)?.as_bytes())?;
    write_file(&folder.join("report.md"), markdown(one).as_bytes())
}

fn print(report: &Report, folder: &Path, output: &mut Output) -> Result<()> {
    for table in tables(report).iter().filter(|table| table.title != "Provenance") {
        output.text(table)?;
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
