//! Pages whose `console` blocks are executed, in order, in a folder of their own. That folder is a repository with
//! `merrow`, the checkpoint that comes with the program, `CHECKPOINT`, the same with room for longer sequences, and
//! `configs`; the guide about packages that one has finds one. A block with a file name behind its language is written
//! there. The README finds `CHECKPOINT` and nothing else, in no repository.
//!
//! A command is expected to end with exit code 0, or as a line `? 3` below it says; a verdict about speed depends on the
//! machine, so that `gate` and `compare` may give any. Output that is shown is compared: spaces count as one, `...` stands for any
//! lines and `[..]` for any text.

mod decision;
mod page;
mod pattern;
#[cfg(unix)]
mod runner;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::command::{self, Outcome};
use crate::support::packages;
use page::{Part, Session};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_readme_counts_the_architectures() {
    let said = format!("decoder models of {} architectures", anemeter::model::ARCHITECTURES.len());
    assert!(fs::read_to_string(root().join("README.md")).unwrap().contains(&said), "{said}");
}

/// The files that every page finds.
fn scratch() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&root().join("src/quickstart/model"), &folder.path().join("merrow"));
    copy(&root().join("src/quickstart/model"), &folder.path().join("CHECKPOINT"));
    copy(&root().join("configs"), &folder.path().join("configs"));
    let config = folder.path().join("CHECKPOINT/config.json");
    let longer = fs::read_to_string(&config)
        .unwrap()
        .replace(r#""max_position_embeddings": 256"#, r#""max_position_embeddings": 1024"#);
    crate::support::checkpoints::write_text(&config, &longer);
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=reader", "-c", "user.email=reader@localhost"]).args(arguments);
        assert_eq!(command::run(git.current_dir(folder.path())).code, 0, "git {arguments:?}");
    };
    git(&["init", "--quiet"]);
    git(&["commit", "--quiet", "--allow-empty", "--message", "Begin"]);
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// Executes a page where its reader finds what the guides tell to have.
fn follow(page: &str) {
    follow_in(page, scratch().path(), &|_, _| ());
}

/// Executes a page in a folder, and looks at the outcome of each command.
fn follow_in(page: &str, folder: &Path, look: &dyn Fn(&str, &Outcome)) {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut executed = 0;
    for part in page::parts(&text) {
        match part {
            Part::File { name, text } => {
                crate::support::checkpoints::write_text(&folder.join(name), &text);
            }
            Part::Session(session) => {
                let outcome = execute(&session.command, folder);
                check(page, &session, &outcome);
                look(&session.command, &outcome);
                executed += 1;
            }
        }
    }
    assert!(executed > 0, "{page}: nothing is executed");
}

fn execute(line: &str, folder: &Path) -> Outcome {
    let words = page::words(line).unwrap_or_else(|problem| panic!("{line}: {problem}"));
    assert_eq!(words[0], "anemeter", "only this program is run: {line}");
    let mut program = command::program();
    program.args(&words[1..]).current_dir(folder).env_remove("GITHUB_ACTIONS");
    // A repository around the temporary folder is none of the reader's.
    command::run(program.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap()))
}

fn check(page: &str, session: &Session, outcome: &Outcome) {
    let Outcome { code, stdout, stderr } = outcome;
    let at = format!("{page}:{}: {}", session.line, session.command);
    assert!(session.codes().contains(code), "{at}\nended with {code}\n{stdout}{stderr}");
    if !session.output.is_empty() {
        let shown = session.output.join("\n");
        assert!(
            pattern::matches(&shown, stdout),
            "{at}\nis shown as\n{shown}\nand printed\n{stdout}{stderr}"
        );
    }
}

/// Pages with something to execute.
const PAGES: &[&str] = &[
    "README.md",
    "docs/guides/benchmark.md",
    "docs/guides/choose-a-precision.md",
    "docs/guides/compress.md",
    "docs/guides/debug-a-fallback.md",
    "docs/guides/export-your-checkpoint.md",
    "docs/guides/gate-a-package-you-have.md",
    "docs/guides/gate-in-ci.md",
];

#[test]
fn readme() {
    let folder = tempfile::tempdir().unwrap();
    copy(&root().join("src/quickstart/model"), &folder.path().join("CHECKPOINT"));
    follow_in(PAGES[0], folder.path(), &|command, outcome| {
        let text = &outcome.stdout;
        if command.starts_with("anemeter bench ") {
            // A cell with a dash is a percentile of too few samples; a range has one between two numbers.
            let speed = text.split("\n\n").find(|table| table.starts_with("Speed")).unwrap();
            assert!(speed.contains("p99") && !speed.contains("  –"), "{text}");
        }
        if command.starts_with("anemeter gate ") {
            assert!(
                !text.contains("samples, a p95 needs") && !text.contains("launches, 6 are needed"),
                "{text}"
            );
        }
    });
}

#[test]
fn benchmark() {
    follow(PAGES[1]);
}

#[test]
fn compress() {
    follow(PAGES[3]);
}

#[test]
fn debug_a_fallback() {
    follow(PAGES[4]);
}

#[test]
fn export_your_checkpoint() {
    follow(PAGES[5]);
}

#[test]
fn gate_a_package_you_have() {
    let folder = scratch();
    packages::write_with_samples(folder.path());
    follow_in(PAGES[6], folder.path(), &|_, _| ());
}

#[test]
fn gate_in_ci() {
    follow(PAGES[7]);
}

#[test]
fn every_page_with_something_to_execute_is_executed() {
    fn pages(folder: PathBuf, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages(path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).unwrap();
                if page::parts(&text).iter().any(|part| matches!(part, Part::Session(_))) {
                    found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
    }
    let mut found = vec!["README.md".to_owned()];
    pages(root().join("docs"), &mut found);
    found.sort();
    assert_eq!(found, PAGES);
}
