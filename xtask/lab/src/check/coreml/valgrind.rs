//! The tests of the Core ML module under Valgrind, which is installed if it can be.

use anyhow::{Context, Result, ensure};

use super::cargo;
use xtask::outcome::Outcome;
use xtask::process::{read, works};
use xtask::project::{Project, make_empty};
use xtask::sanitize::{VALGRIND_OPTIONS, executables_of, read_logs};
use xtask::test::Report;

/// The module with and without faults, on small models. Tests that start programs do not take Valgrind with them.
const TESTS: &[&str] = &["module::", "faults::", "standin::"];
/// One commits on purpose what Valgrind looks for; the other repeats very often what the rest does.
const SKIPPED: &[&str] = &["the_detectors_detect", "a_thousand_predictions"];

pub(super) fn run(project: &Project) -> Result<Outcome> {
    let is_there = || works(project.command("valgrind").arg("--version"));
    if !is_there() {
        // As Debian names the package; where this is not allowed, the next line says that nothing was checked.
        works(project.command("apt-get").args(["install", "--yes", "--no-install-recommends", "valgrind"]));
    }
    if !is_there() {
        let why = "there is no Valgrind, and apt-get cannot install it";
        return Ok(Outcome::not_checked("the Core ML module under Valgrind", why));
    }
    let build = ["test", "--no-run", "--test", "it", "--message-format=json-render-diagnostics"];
    let programs = executables_of(&read(&mut cargo(project, &project.root, &build))?)?;
    let program = programs.iter().find(|program| program.target == "it").context("cargo built no tests")?;
    let logs = project.target.join("coreml/valgrind");
    make_empty(&logs)?;
    let mut command = project.command("valgrind");
    command.args(VALGRIND_OPTIONS.iter().filter(|option| **option != "--trace-children=yes"));
    command.arg(format!("--log-file={}/%p.txt", logs.display())).arg(&program.path).args(TESTS);
    command.args(SKIPPED.iter().flat_map(|test| ["--skip", test])).arg("--test-threads=1");
    // Without graves, Valgrind itself sees who touches a dead object.
    command.env("COREML_STANDIN_NO_GRAVES", "1").env("RAYON_NUM_THREADS", "1");
    let mut report = Report::default();
    report.watch(&mut command, "valgrind it")?;
    let (_, findings) = read_logs(&logs)?;
    print!("{findings}");
    let totals = report.verdict()?;
    ensure!(findings.is_empty(), "Valgrind has findings");
    Ok(Outcome::Checked(format!("Valgrind: {totals}, no error, nothing definitely lost")))
}
