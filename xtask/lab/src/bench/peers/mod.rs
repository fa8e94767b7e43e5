//! `cargo xtask bench peers`: this runtime beside the engines people use, on one model, in one interleaved run. `--busy`
//! keeps one core busy meanwhile.

mod candle;
mod engine;
mod growth;
mod large;
mod limits;
mod llama_cpp;
mod onnxruntime;
mod ours;
mod plot;
mod resident;
mod rounds;
mod sample;
mod table;
mod targets;
mod torch;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use pico_args::Arguments;

use crate::fetch_smollm2::{Fetched, fetch};
use engine::Place;
pub(super) use llama_cpp::Score;
use rounds::Run;
use targets::Verdict;
use xtask::outcome::Outcome;
use xtask::project::Project;
use xtask::record;

/// The words that name this task to the laboratory.
const TASK: [&str; 2] = ["bench", "peers"];
/// Arguments that make this process one that measures, built for speed; not for users.
const ROUND: &str = "--round";
const LIMITS: &str = "--limits";

const ROUNDS: usize = 8;
/// Where few things are compared, or each takes long.
const FEW_ROUNDS: usize = 3;
/// Threads of every engine.
const THREADS: usize = 2;

/// Scores the tokens of a text by llama.cpp with weights of several kinds, made of one GGUF file.
pub(super) fn llama_cpp_scores(
    project: &Project,
    gguf: &Path,
    text: (&[u32], usize),
    kinds: &[&'static str],
) -> Result<Vec<Score>> {
    let place = Place::new(project, gguf.to_owned(), workload::SEQ_LENS)?;
    kinds.iter().map(|weights| llama_cpp::score(&place, weights, text)).collect()
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    if arguments.contains(LIMITS) {
        xtask::finish(arguments)?;
        println!("{}", limits::probe()?);
        return Ok(Outcome::Checked(String::new()));
    }
    if let Some(bundle) = arguments.opt_value_from_str::<_, PathBuf>(ROUND)? {
        let workload: PathBuf = arguments.free_from_str()?;
        xtask::finish(arguments)?;
        println!("{}", ours::round(&bundle, &workload)?);
        return Ok(Outcome::Checked(String::new()));
    }
    let runs = ["--busy", "--growth", "--large"].map(|name| arguments.contains(name));
    let (measure, usual): (Measure, usize) = match runs {
        [false, false, false] => (quiet, ROUNDS),
        [true, false, false] => (busy, ROUNDS),
        [false, true, false] => (growth::run, FEW_ROUNDS),
        [false, false, true] => (large::run, FEW_ROUNDS),
        _ => bail!("--busy, --growth and --large are runs of their own"),
    };
    let rounds: usize = arguments.opt_value_from_str("--rounds")?.unwrap_or(usual);
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    ensure!(rounds > 0, "there must be a round");
    let model = match fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Outcome::not_checked("the peers", &why)),
    };
    measure(project, model, rounds, recorded)
}

/// Measures with the fetched model in so many rounds, and records what it finds if asked to.
type Measure = fn(&Project, PathBuf, usize, bool) -> Result<Outcome>;

/// Measures every engine on a machine that does nothing else.
fn quiet(project: &Project, model: PathBuf, rounds: usize, recorded: bool) -> Result<Outcome> {
    compare(project, model, rounds, recorded, false)
}

/// Measures every engine while one core is busy.
fn busy(project: &Project, model: PathBuf, rounds: usize, recorded: bool) -> Result<Outcome> {
    compare(project, model, rounds, recorded, true)
}

/// Measures every engine and judges by the targets.
fn compare(
    project: &Project,
    model: PathBuf,
    rounds: usize,
    recorded: bool,
    is_busy: bool,
) -> Result<Outcome> {
    let place = Place::new(project, model, workload::SEQ_LENS)?;
    let run = Run::make(&place, &workload::usual(&place)?, rounds, is_busy)?;
    let targets = targets::judge(&run);
    let text = format!("{}; {}", limits::processor(), table::text(&run, &targets));
    println!("\n{text}");
    if recorded {
        let task = if is_busy { "bench peers --busy" } else { "bench peers" };
        record::write(project, task, &format!("cargo xtask {task} --rounds {rounds}"), &text)?;
    }
    if targets.iter().any(|target| target.verdict == Verdict::Missed) {
        bail!("a target is missed");
    }
    let missing = run.missing();
    if !missing.is_empty() {
        return Ok(Outcome::not_checked("peers", &missing.join("\n")));
    }
    Ok(Outcome::Checked(format!("{} targets in {rounds} rounds", targets.len())))
}
