//! Faults in the Core ML module, made by hand: each must make a test fail.
//!
//! A mutant is a patch in `tests/coreml-standin/mutants/`, with what is wrong in its first line. It is applied to a copy of
//! the repository, built and tested there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{PACKAGE, cargo};
use xtask::outcome::Outcome;
use xtask::process::{read, succeed};
use xtask::project::Project;
use xtask::sanitize::executables_of;

/// Tests that end by then, or are taken to hang because of the fault.
const LIMIT: Duration = Duration::from_secs(600);

struct Mutant {
    name: String,
    about: String,
    patch: PathBuf,
}

/// What came of a mutant.
enum Fate {
    Caught(String),
    Missed,
}

/// Builds and tests every mutant, or the one of a name.
pub(super) fn run(project: &Project, only: Option<&str>) -> Result<Outcome> {
    let mut mutants = mutants(&project.root.join(PACKAGE).join("mutants"))?;
    mutants.retain(|mutant| only.is_none_or(|name| mutant.name == name));
    ensure!(!mutants.is_empty(), "there is no such mutant");
    let copy = project.target.join("coreml/mutants");
    copy_repository(project, &copy)?;
    let Fate::Missed = test(project, &copy).context("the module without a fault")? else {
        bail!("the tests fail without a mutant already");
    };
    let mut missed = Vec::new();
    for mutant in &mutants {
        let fate = try_out(project, &copy, mutant).with_context(|| format!("mutant `{}`", mutant.name))?;
        let (word, how) = match fate {
            Fate::Caught(how) => ("caught", how),
            Fate::Missed => {
                missed.push(mutant.name.as_str());
                ("MISSED", String::new())
            }
        };
        println!("{word:<8}{:<28}{}; {how}", mutant.name, mutant.about);
    }
    ensure!(missed.is_empty(), "{} of {} mutants missed: {}", missed.len(), mutants.len(), missed.join(" "));
    Ok(Outcome::Checked(format!("{} mutants, all caught", mutants.len())))
}

fn mutants(folder: &Path) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let patch = entry?.path();
        let text = fs::read_to_string(&patch).with_context(|| format!("read {}", patch.display()))?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let about = text.lines().next().unwrap_or_default().to_owned();
        mutants.push(Mutant { name, about, patch });
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

/// Copies what git knows; what has not changed keeps its time, so that cargo builds little.
fn copy_repository(project: &Project, copy: &Path) -> Result<()> {
    let mut list = project.command("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    for file in read(&mut list)?.lines() {
        copy_file(&project.root.join(file), &copy.join(file))?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let Ok(content) = fs::read(from) else { return Ok(()) };
    if fs::read(to).is_ok_and(|there| there == content) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    fs::write(to, content).with_context(|| format!("write {}", to.display()))?;
    if from.extension().is_some_and(|extension| extension == "sh") {
        fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    }
    Ok(())
}

fn try_out(project: &Project, copy: &Path, mutant: &Mutant) -> Result<Fate> {
    // Not a repository of its own, so that git takes paths relative to the folder it is in.
    let patch = |flags: &[&str]| {
        let mut apply = project.command("git");
        apply.current_dir(copy).env("GIT_DIR", "/nonexistent").arg("apply").args(flags).arg(&mutant.patch);
        succeed(&mut apply)
    };
    patch(&[]).context("the patch does not fit the module")?;
    let fate = test(project, copy);
    patch(&["--reverse"])?;
    fate
}

/// Builds the tests, which must be possible, and runs them.
fn test(project: &Project, copy: &Path) -> Result<Fate> {
    let build = ["test", "--no-run", "--quiet", "--test", "it", "--message-format=json-render-diagnostics"];
    let programs = executables_of(&read(&mut cargo(project, copy, &build))?)?;
    let program = programs.iter().find(|program| program.target == "it").context("cargo built no tests")?;
    let log = copy.join("log.txt");
    let file = fs::File::create(&log)?;
    let mut tests = project.command(&program.path);
    tests
        .current_dir(copy.join(PACKAGE))
        .args(["module::", "images::", "faults::"])
        .stdout(file.try_clone()?)
        .stderr(file);
    let mut child = tests.spawn().context("start the tests")?;
    let began = Instant::now();
    loop {
        let status = child.try_wait()?;
        let seen = first_failure(&String::from_utf8_lossy(&fs::read(&log)?));
        let fate = match (status, seen) {
            (_, Some(test)) => Fate::Caught(test),
            (Some(status), None) if status.success() => Fate::Missed,
            (Some(status), None) => Fate::Caught(format!("the tests break off ({status})")),
            (None, None) if began.elapsed() > LIMIT => Fate::Caught("the tests hang".to_owned()),
            (None, None) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if status.is_none() {
            child.kill()?;
            child.wait()?;
        }
        return Ok(fate);
    }
}

/// The first test that failed, if one did.
fn first_failure(log: &str) -> Option<String> {
    let failed = |line: &str| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(ToOwned::to_owned);
    log.lines().find_map(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What mutants change.
    const MODULE: &str = "src/runtime/coreml/";

    #[test]
    fn the_first_failing_test_is_named() {
        let log = "test module::a ... ok\ntest module::b ... FAILED\ntest faults::c ... FAILED\n";
        assert_eq!(first_failure(log).as_deref(), Some("module::b"));
        assert_eq!(first_failure("test module::a ... ok\nSIGABRT"), None);
    }

    #[test]
    fn every_mutant_says_what_is_wrong_and_changes_the_module_only() {
        let root = Project::find().unwrap().root;
        let mutants = mutants(&root.join(PACKAGE).join("mutants")).unwrap();
        assert!(mutants.len() >= 12, "{}", mutants.len());
        for mutant in mutants {
            let text = fs::read_to_string(&mutant.patch).unwrap();
            assert!(!mutant.about.is_empty() && !mutant.about.starts_with("---"), "{}", mutant.name);
            let changed = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
            assert!(
                changed.clone().count() > 0 && changed.clone().all(|path| path.starts_with(MODULE)),
                "{text}"
            );
        }
    }
}
