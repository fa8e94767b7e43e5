//! `cargo xtask sanitize`: the unsafe islands and a whole prediction under tools that see every memory access.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;
use serde_json::Value;

use crate::lab;
use crate::outcome::Outcome;
use crate::process::{read, works};
use crate::project::{Project, make_empty};
use crate::task::{Run, Task};
use crate::test::Report;

pub(crate) const TASK: Task = Task {
    name: "sanitize",
    arguments: "[--miri] [--valgrind]",
    about: "tests of the unsafe islands under Miri and Valgrind",
    not_checked: 77,
    run: Run::Here(run),
};

/// One tool.
struct Part {
    flag: &'static str,
    run: fn(&Project) -> Result<Outcome>,
}

const PARTS: &[Part] = &[Part { flag: "--miri", run: miri }, Part { flag: "--valgrind", run: valgrind }];

fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let named: Vec<&Part> = PARTS.iter().filter(|part| arguments.contains(part.flag)).collect();
    crate::finish(arguments)?;
    let parts = if named.is_empty() { PARTS.iter().collect() } else { named };
    Outcome::of_parts("sanitize", parts.into_iter().map(|part| (part.flag, || (part.run)(project))))
}

/// On any host, because Miri knows no F16C, which AVX2 kernels need, and no NEON: the scalar kernels run.
const MIRI_TARGET: &str = "x86_64-unknown-linux-gnu";
/// Kept apart from the machine, so that clock, schedule and random numbers are the same in every run; what tests ask
/// of the machine fails, and of the environment they see only this.
const MIRI_FLAGS: &str = "-Zmiri-isolation-error=hide \
    -Zmiri-env-forward=PROPTEST_CASES -Zmiri-env-forward=PROPTEST_DISABLE_FAILURE_PERSISTENCE";
/// The package of the islands that Miri can execute, and their tests.
const MIRI_PACKAGE: &str = "anemeter-kernels";
const MIRI_TESTS: &[&str] = &["tensor::", "simd::"];

fn miri(project: &Project) -> Result<Outcome> {
    const WHAT: &str = "unsafe islands under Miri";
    if !works(&mut project.cargo(&["+nightly", "miri", "--version"])) {
        let why = "there is no Miri\nhelp: `rustup toolchain install nightly --component miri,rust-src`";
        return Ok(Outcome::not_checked(WHAT, why));
    }
    if let Err(error) = read(&mut project.cargo(&["+nightly", "miri", "setup", "--target", MIRI_TARGET])) {
        return Ok(Outcome::not_checked(WHAT, &format!("its standard library cannot be built: {error}")));
    }
    let build =
        ["+nightly", "miri", "test", "--package", MIRI_PACKAGE, "--target", MIRI_TARGET, "--lib", "--"];
    let mut command = project.cargo(&build);
    command.args(MIRI_TESTS).env("MIRIFLAGS", MIRI_FLAGS);
    command.env("PROPTEST_CASES", "8").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    let mut report = Report::default();
    report.watch(&mut command, "cargo miri test")?;
    let totals = report.verdict()?;
    Ok(Outcome::Checked(format!("Miri: {totals}; scalar kernels, for Miri has no F16C; no mapped files")))
}

/// A program that is checked, by its cargo target, and which of its tests are run; all if none is named.
struct Checked {
    target: &'static str,
    tests: &'static [&'static str],
}

const VALGRIND_PROGRAMS: &[Checked] = &[
    Checked { target: "anemeter_kernels", tests: &[] },
    Checked { target: "anemeter_runtime", tests: &[] },
    // These start `anemeter run`, with and without states, and Valgrind follows.
    Checked { target: "it", tests: &["run::", "runtime::", "--skip", "gate::"] },
];

pub const VALGRIND_OPTIONS: &[&str] = &[
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
    "--trace-children=yes",
    "--num-callers=30",
];

fn valgrind(project: &Project) -> Result<Outcome> {
    if !works(project.command("valgrind").arg("--version")) {
        return Ok(Outcome::not_checked("unsafe islands under Valgrind", "there is no Valgrind"));
    }
    let logs = project.target.join("sanitize");
    make_empty(&logs)?;
    let mut probe = project.command("valgrind");
    probe.arg("--quiet").arg(lab::program(project)?).arg("instruction-sets");
    let instruction_sets = read(&mut probe)?.trim().to_owned();
    let executables = test_executables(project)?;
    let mut report = Report::default();
    for Checked { target, tests } in VALGRIND_PROGRAMS {
        let find = |executable: &&Executable| executable.target == *target;
        let executable =
            executables.iter().find(find).with_context(|| format!("cargo built no `{target}`"))?;
        let mut command = project.command("valgrind");
        // The tests compare what programs write, so Valgrind must write elsewhere.
        command.args(VALGRIND_OPTIONS).arg(format!("--log-file={}/%p.txt", logs.display()));
        command.arg(&executable.path).args(*tests).arg("--test-threads=1");
        report.watch(command.env("PROPTEST_CASES", "8"), &format!("valgrind {target}"))?;
    }
    let (processes, findings) = read_logs(&logs)?;
    print!("{findings}");
    let totals = report.verdict()?;
    ensure!(findings.is_empty(), "Valgrind has findings");
    Ok(Outcome::Checked(format!("Valgrind: {totals}, in {processes} processes, on {instruction_sets}")))
}

/// A test program that cargo built.
#[derive(Debug, PartialEq, Eq)]
pub struct Executable {
    pub target: String,
    pub path: PathBuf,
}

fn test_executables(project: &Project) -> Result<Vec<Executable>> {
    let mut command = project.cargo(&["test", "--no-run", "--quiet", "--lib", "--test", "it"]);
    command.args(
        ["anemeter", "anemeter-kernels", "anemeter-runtime"].iter().flat_map(|name| ["--package", name]),
    );
    executables_of(&read(command.arg("--message-format=json-render-diagnostics"))?)
}

/// The test programs that cargo's messages tell of.
pub fn executables_of(messages: &str) -> Result<Vec<Executable>> {
    let mut executables = Vec::new();
    for line in messages.lines() {
        let message: Value =
            serde_json::from_str(line).with_context(|| format!("read cargo's message {line}"))?;
        if let (Some(target), Some(path), Some(true)) = (
            message["target"]["name"].as_str(),
            message["executable"].as_str(),
            message["profile"]["test"].as_bool(),
        ) {
            executables.push(Executable { target: target.to_owned(), path: path.into() });
        }
    }
    Ok(executables)
}

/// How many processes were watched, and all that was said of them.
pub fn read_logs(folder: &Path) -> Result<(usize, String)> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    if paths.is_empty() {
        bail!("Valgrind left no log in {}", folder.display());
    }
    let texts: Result<Vec<String>, _> = paths.iter().map(fs::read_to_string).collect();
    Ok((paths.len(), texts?.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_told_from_other_programs() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"name":"anemeter"},"profile":{"test":false},"executable":"/bin"}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"half"},"profile":{"test":false},"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"anemeter"},"profile":{"test":true},"executable":"/test"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        let found = executables_of(&messages.join("\n")).unwrap();
        assert_eq!(found, [Executable { target: "anemeter".into(), path: "/test".into() }]);
        assert!(executables_of("warning: text").is_err());
    }

    #[test]
    fn findings_of_every_process_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_logs(folder.path()).unwrap_err().to_string().starts_with("Valgrind left no log"));
        for (name, text) in [("1.txt", ""), ("2.txt", "invalid read\n")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(read_logs(folder.path()).unwrap(), (2, "invalid read\n".to_owned()));
    }
}
