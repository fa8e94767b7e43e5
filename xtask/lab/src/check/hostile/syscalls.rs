//! Every system call of a command made to fail once, by strace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::scene::Scene;
use super::writers::{Place, WRITERS, Writer};
use xtask::project::make_empty;

/// Calls about files and descriptors; those about memory and threads are left alone.
const TRACED: &str = "%file,%desc";
/// Calls that are not made to fail: the start of the program, and maps of memory.
const LEFT: &[&str] = &["execve", "mmap", "close", "epoll_wait", "poll", "ppoll"];
const ERRORS: &[&str] = &["ENOSPC", "EIO", "EACCES", "EINTR"];
/// Commands whose calls are made to fail.
const CHOSEN: &[&str] =
    &["export", "export over a bundle", "bless", "bless into a store", "report over a page"];
/// What the system's loader gives where it cannot load a library.
const NOT_STARTED: i32 = 127;

/// What came of the failures.
#[derive(Default)]
pub(super) struct Failures {
    pub(super) made: usize,
    /// The command succeeded all the same.
    pub(super) borne: usize,
}

/// Whether strace works here.
pub(super) fn available() -> bool {
    let mut probe = Command::new("strace");
    let probe = probe.args(["-o", "/dev/null", "-e", "inject=getcwd:error=EIO", "true"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Makes calls fail, at most so many of each command; a command that is neither before nor after is an error.
pub(super) fn run(scene: &Scene, folder: &Path, most: usize, random: &mut Rng) -> Result<Failures> {
    let mut failures = Failures::default();
    for writer in WRITERS.iter().filter(|writer| CHOSEN.contains(&writer.name)) {
        let made = folder.join("made");
        make_empty(&made)?;
        let ended = writer.command(scene, &made).output()?;
        ensure!(ended.status.success(), "{}: {}", writer.name, String::from_utf8_lossy(&ended.stderr));
        let mut points = points(scene, writer, folder, &made)?;
        random.shuffle(&mut points);
        points.truncate(most);
        for (call, number) in points {
            let error = ERRORS[random.usize(..ERRORS.len())];
            let ended = fail(scene, writer, (folder, &made), (&call, number, error));
            let place =
                ended.with_context(|| format!("{}: {call} {number} fails with {error}", writer.name))?;
            failures.made += 1;
            failures.borne += usize::from(place);
        }
    }
    Ok(failures)
}

fn strace(scene: &Scene, writer: &Writer, folder: &Path, options: &[&str]) -> Command {
    let command = writer.command(scene, folder);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq"]).args(options).arg(command.get_program()).args(command.get_args());
    traced.current_dir(folder).env_remove("GITHUB_ACTIONS").env("RAYON_NUM_THREADS", "2");
    traced
}

/// Each call of a run, by its name and number among those of its thread.
fn points(scene: &Scene, writer: &Writer, folder: &Path, made: &Path) -> Result<Vec<(String, usize)>> {
    let place = prepared(writer, folder, made)?;
    let log = folder.join("calls.txt");
    let log_option = log.to_string_lossy().into_owned();
    let status = strace(scene, writer, &place, &["-o", &log_option, "-e", &format!("trace={TRACED}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.code().is_some_and(|code| code <= 1), "{} under strace: {status}", writer.name);
    let text = fs::read_to_string(&log)?;
    let mut most: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let name = rest.trim_start().split('(').next().unwrap_or_default();
        let is_name = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if is_name && !LEFT.contains(&name) {
            *most.entry(name.to_owned()).or_default().entry(thread).or_default() += 1;
        }
    }
    Ok(most
        .into_iter()
        .flat_map(|(name, threads)| {
            let count = threads.into_values().max().unwrap_or(0);
            (1..=count).map(move |number| (name.clone(), number))
        })
        .collect())
}

fn prepared(writer: &Writer, folder: &Path, made: &Path) -> Result<PathBuf> {
    let place = folder.join("calls");
    make_empty(&place)?;
    writer.prepare(&place, &made.join("out"))?;
    Ok(place)
}

/// Makes one call fail; true if the command succeeded.
fn fail(
    scene: &Scene,
    writer: &Writer,
    (folder, made): (&Path, &Path),
    (call, number, error): (&str, usize, &str),
) -> Result<bool> {
    let place = prepared(writer, folder, made)?;
    let before = writer.place(scene, &place)?;
    let inject = format!("inject={call}:error={error}:when={number}");
    let output = strace(scene, writer, &place, &["-o", "/dev/null", "-e", &inject]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().with_context(|| format!("ended by a signal: {said}"))?;
    let known = (0..=4).contains(&code) || code == NOT_STARTED;
    ensure!(known && !said.contains("panicked at"), "ends with exit code {code}: {said}");
    let after = writer.place(scene, &place)?;
    match code {
        0 => ensure!(after == Place::Whole, "succeeds, and nothing is there"),
        // The page was written, and what failed came after it, such as the flush of its folder.
        _ => ensure!(
            before == Place::Empty || after == Place::Whole,
            "fails, and what was there is gone: {said}"
        ),
    }
    Ok(code == 0)
}
