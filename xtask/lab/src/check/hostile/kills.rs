//! SIGKILL at a random moment of every command that writes.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::scene::Scene;
use super::writers::{WRITERS, Writer, leftovers};
use xtask::project::make_empty;

/// What came of the kills.
#[derive(Default)]
pub(super) struct Kills {
    pub(super) rounds: usize,
    /// Killed before the end.
    pub(super) killed: usize,
    /// Left something unfinished for the next run to remove.
    pub(super) unfinished: usize,
}

/// Kills each command so many times; the first that leaves neither old nor new is an error.
pub(super) fn run(scene: &Scene, folder: &Path, rounds: usize, random: &mut Rng) -> Result<Kills> {
    let mut kills = Kills::default();
    for writer in WRITERS {
        let (place, made) = (folder.join("kills"), folder.join("made"));
        make_empty(&made)?;
        let took = complete(scene, writer, &made)?;
        for _ in 0..rounds {
            make_empty(&place)?;
            writer.prepare(&place, &made.join("out"))?;
            let moment = took.mul_f64(random.f64() * 1.05);
            let context = || format!("{} killed after {moment:?}", writer.name);
            let mut command = writer.command(scene, &place);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            thread::sleep(moment);
            kills.killed += usize::from(child.try_wait()?.is_none());
            child.kill()?;
            child.wait()?;
            kills.rounds += 1;
            writer.place(scene, &place).with_context(context)?;
            if !leftovers(&place)?.is_empty() {
                kills.unfinished += 1;
                complete(scene, writer, &place).with_context(context)?;
                let left = leftovers(&place)?;
                ensure!(left.is_empty(), "{}: the next run leaves {}", context(), left.join(", "));
            }
        }
        fs::remove_dir_all(&made)?;
    }
    Ok(kills)
}

/// Runs a command to its end.
fn complete(scene: &Scene, writer: &Writer, folder: &Path) -> Result<Duration> {
    let began = Instant::now();
    let output = writer.command(scene, folder).output()?;
    // A report is blessed once: the second time is refused, which is a result.
    let code = output.status.code();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(matches!(code, Some(0 | 1)), "{} ends with {code:?}: {said}", writer.name);
    writer.place(scene, folder)?;
    Ok(began.elapsed())
}
