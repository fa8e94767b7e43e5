//! `cargo xtask dist`: an archive for people without a compiler, and how large and how quick to start the program is.

mod archive;
mod licences;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use crate::median;
use crate::outcome::Outcome;
use crate::process::{read, succeed};
use crate::project::{Project, make_empty};
use crate::record;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "dist",
    arguments: "[--record]",
    about: "an archive of the program with completions, manual pages and licences; its size and cold start",
    not_checked: 1,
    run: Run::Here(run),
};

/// Milliseconds that the program may take to start.
const COLD_START_MS: f64 = 20.0;
/// How often it is started.
const STARTS: usize = 20;
const SHELLS: [(&str, &str); 3] =
    [("bash", "anemeter.bash"), ("zsh", "_anemeter"), ("fish", "anemeter.fish")];
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let recorded = arguments.contains("--record");
    crate::finish(arguments)?;
    let built = project.release("anemeter")?;
    let version = read(project.command(&built).arg("--version"))?;
    let version = version.split_whitespace().last().context("the program says no version")?;
    let name = format!("anemeter-{version}-{}", host(project)?);
    let folder = project.target.join("dist").join(&name);
    make_empty(&folder)?;
    fs::create_dir(folder.join("completions"))?;
    let program = folder.join(built.file_name().context("the program has no name")?);
    fs::copy(&built, &program)?;
    let stripped = strip(project, &program);
    for (shell, file) in SHELLS {
        let script = read(project.command(&program).args(["completions", shell]))?;
        fs::write(folder.join("completions").join(file), script)?;
    }
    read(project.command(&program).args(["man", "-o"]).arg(folder.join("man/man1")))?;
    for document in DOCUMENTS {
        fs::copy(project.root.join(document), folder.join(document))
            .with_context(|| format!("copy {document}"))?;
    }
    let crates = licences::write(project, &folder)?;
    let archive = folder.with_file_name(format!("{name}.tar.gz"));
    archive::write(&folder, &name, &archive)?;

    let start_ms = cold_start(&program)?;
    let verdict = if start_ms < COLD_START_MS { "met" } else { "MISSED" };
    let megabytes = |path: &Path| -> Result<f64> { Ok(fs::metadata(path)?.len() as f64 / 1e6) };
    let table = format!(
        "\n\n| what | measured | target | |\n|---|---|---|---|\n\
         | program{} | {:.1} MB | | |\n| archive with the licences of {crates} crates | {:.1} MB | | |\n\
         | cold start: `--help`, median of {STARTS} | {start_ms:.1} ms | under {COLD_START_MS} ms | {verdict} |\n",
        if stripped { " without debug information" } else { " with debug information" },
        megabytes(&program)?,
        megabytes(&archive)?,
    );
    println!("{}{}", archive.display(), table);
    if recorded {
        record::write(project, "dist", "cargo xtask dist", &table)?;
    }
    ensure!(start_ms < COLD_START_MS, "the program takes {start_ms:.1} ms to start");
    Ok(Outcome::Checked(format!("{name}.tar.gz, cold start {start_ms:.1} ms")))
}

/// The target that the compiler builds for here.
fn host(project: &Project) -> Result<String> {
    let told = read(project.command("rustc").arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc says no host")?.to_owned())
}

/// Takes debug information out of a program; false if there is no tool for that.
fn strip(project: &Project, program: &Path) -> bool {
    let done = succeed(project.command("strip").arg("-S").arg(program));
    if let Err(error) = &done {
        eprintln!("the program keeps its debug information: {error}");
    }
    done.is_ok()
}

/// Milliseconds from starting the program to its end when it only prints its help, the median.
fn cold_start(program: &Path) -> Result<f64> {
    let start = || -> Result<f64> {
        let mut command = std::process::Command::new(program);
        let began = Instant::now();
        let status = command.arg("--help").stdout(Stdio::null()).status()?;
        ensure!(status.success(), "`--help` failed ({status})");
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    Ok(median((0..STARTS).map(|_| start()).collect::<Result<_>>()?))
}
