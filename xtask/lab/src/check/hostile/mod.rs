//! `cargo xtask check hostile`: damaged and malicious input by a seed, under limits of memory and time; commands that are
//! killed; system calls that fail.

mod classes;
mod kills;
mod limits;
mod mutate;
mod programs;
mod scene;
mod syscalls;
mod templates;
mod writers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use pico_args::Arguments;
use rayon::prelude::*;

use classes::{CLASSES, Make};
use scene::Scene;
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};

/// Cases of a whole run.
const CASES: usize = 20_000;
/// Kills of each command that writes, and failures of system calls, in a whole run.
const KILLS: usize = 200;
const FAILURES: usize = 1000;
/// Folders of cases with findings that are kept.
const KEPT: usize = 20;

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let cases: usize = arguments.opt_value_from_str("--cases")?.unwrap_or(CASES);
    let seed: u64 = arguments.opt_value_from_str("--seed")?.unwrap_or(1);
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    let given: Option<PathBuf> = arguments.opt_value_from_str("--program")?;
    xtask::finish(arguments)?;
    let program = match given {
        Some(program) => program.canonicalize()?,
        None => project.release("anemeter")?,
    };
    let folder = project.target.join("hostile");
    let scene = Scene::make(project, &program, &folder.join("scene"))?;
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == name));
    let tally = tried(&scene, &folder, (cases, seed), &wanted)?;
    println!("{}", tally.table());
    let mut parts = vec![format!("{} cases", tally.cases())];
    let mut random = Rng::with_seed(seed);
    let share = cases as f64 / CASES as f64;
    let of = |whole: usize| ((whole as f64 * share).ceil() as usize).clamp(1, whole);
    if wanted("kills") {
        let kills = kills::run(&scene, &folder, of(KILLS), &mut random)?;
        let (rounds, killed, unfinished) = (kills.rounds, kills.killed, kills.unfinished);
        parts.push(format!("{rounds} kills ({killed} before the end, {unfinished} with work left behind)"));
    }
    let traced = syscalls::available();
    if wanted("calls") && traced {
        let failures = syscalls::run(&scene, &folder, of(FAILURES), &mut random)?;
        parts.push(format!("{} failing calls ({} of them borne)", failures.made, failures.borne));
    }
    println!("{}", parts.join("; "));
    let findings = tally.findings.len();
    ensure!(findings == 0, "{findings} findings; the first: {}", tally.findings[0]);
    match traced || !wanted("calls") {
        true => Ok(Outcome::Checked(format!("{}, no finding", parts.join("; ")))),
        false => {
            Ok(Outcome::not_checked("system calls that fail", "strace is not installed or may not trace"))
        }
    }
}

/// What came of a class.
#[derive(Default)]
struct Count {
    cases: usize,
    codes: BTreeMap<String, usize>,
    peak: u64,
    longest: Duration,
}

#[derive(Default)]
struct Tally {
    classes: BTreeMap<&'static str, Count>,
    findings: Vec<String>,
}

impl Tally {
    fn cases(&self) -> usize {
        self.classes.values().map(|count| count.cases).sum()
    }

    fn table(&self) -> String {
        let mut text =
            format!("{:<22}{:>7}{:>10}{:>9}  exit codes\n", "class", "cases", "peak MiB", "longest");
        for (name, count) in &self.classes {
            let codes: Vec<String> = count.codes.iter().map(|(code, n)| format!("{code}: {n}")).collect();
            text += &format!(
                "{name:<22}{:>7}{:>10}{:>8.1}s  {}\n",
                count.cases,
                count.peak >> 20,
                count.longest.as_secs_f64(),
                codes.join(", ")
            );
        }
        text
    }
}

/// Tries all cases, on all cores.
fn tried(
    scene: &Scene,
    folder: &Path,
    (cases, seed): (usize, u64),
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Tally> {
    let chosen: Vec<_> = CLASSES.iter().filter(|class| wanted(class.0)).collect();
    let shares: usize = chosen.iter().map(|class| class.1).sum();
    let scratch = folder.join("cases");
    make_empty(&scratch)?;
    make_empty(&folder.join("findings"))?;
    let all: Vec<(&'static str, Make, usize)> = chosen
        .iter()
        .flat_map(|class| {
            (0..(cases * class.1).div_ceil(shares.max(1))).map(|index| (class.0, class.2, index))
        })
        .collect();
    let tally = Mutex::new(Tally::default());
    all.par_iter().try_for_each(|&(name, make, index)| {
        one(scene, folder, (name, make), (seed, index), &tally)
            .with_context(|| format!("{name}, case {index} of seed {seed}"))
    })?;
    tally.into_inner().ok().context("a case panicked")
}

fn one(
    scene: &Scene,
    folder: &Path,
    (name, make): (&'static str, Make),
    (seed, index): (u64, usize),
    tally: &Mutex<Tally>,
) -> Result<()> {
    let plain = name.replace([' ', '.'], "-");
    let place = folder.join(format!("cases/{plain}-{index}"));
    fs::create_dir_all(&place)?;
    let of_name = name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Rng::with_seed(seed ^ of_name << 20 ^ index as u64);
    let Some(mut command) = make(scene, &place, &mut random)? else {
        return Ok(fs::remove_dir_all(&place)?);
    };
    let ended = limits::run(&mut command, &place)?;
    let fault = ended.fault.clone().or_else(|| half(&ended, &place).err().map(|error| format!("{error:#}")));
    let Ok(mut tally) = tally.lock() else { bail!("another case panicked") };
    let count = tally.classes.entry(name).or_default();
    count.cases += 1;
    let code = ended.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
    *count.codes.entry(code).or_default() += 1;
    count.peak = count.peak.max(ended.peak);
    count.longest = count.longest.max(ended.time);
    match fault {
        None => fs::remove_dir_all(&place)?,
        Some(fault) => {
            let line = format!("{name}, case {index} of seed {seed}: {fault}: {command:?}");
            eprintln!("finding: {}\n{}", line.escape_debug(), ended.stderr.escape_debug());
            tally.findings.push(line);
            match tally.findings.len() <= KEPT {
                true => fs::rename(&place, folder.join(format!("findings/{plain}-{index}")))?,
                false => fs::remove_dir_all(&place)?,
            }
        }
    }
    Ok(())
}

/// Nothing unfinished is left, and what was refused has written nothing.
fn half(ended: &limits::Ended, place: &Path) -> Result<()> {
    let left = writers::leftovers(place)?;
    ensure!(left.is_empty(), "leaves {}", left.join(", "));
    let out = place.join("out");
    if out.join("export.json").exists() {
        ensure!(ended.code == Some(0), "fails, and leaves a bundle");
        anemeter::bundle::Bundle::open(&out).context("succeeds with half a bundle")?;
    }
    Ok(())
}
