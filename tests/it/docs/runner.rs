//! `docs/ci.md`, followed in a repository that has a checkpoint or a package and nothing else: a runner that executes the `run` steps
//! of the reusable workflow as they are written. Checkouts are the repository itself, artifacts are copied between
//! folders, and `cargo` and `rustup` are scripts that put the program of this build where they would have put theirs.
//! The same with the inputs of the worked example, `example.yml`, on a smaller checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anemeter::mil::Model;
use serde_yaml::Value;
use tempfile::TempDir;

use super::{copy, root};
use crate::support::checkpoints::write_text;
use crate::support::command::{self, Outcome};
use crate::support::packages;

const WORKFLOW: &str = ".github/workflows/evaluate.yml";
const WORKED: &str = ".github/workflows/example.yml";
const PAGE: &str = "docs/ci.md";

type Inputs = BTreeMap<String, String>;

fn workflow() -> Value {
    workflow_of(WORKFLOW)
}

fn workflow_of(file: &str) -> Value {
    serde_yaml::from_str(&fs::read_to_string(root().join(file)).unwrap()).unwrap()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        other => panic!("{other:?} is no text"),
    }
}

fn fields(mapping: &Value) -> Vec<(String, &Value)> {
    mapping.as_mapping().into_iter().flatten().map(|(key, value)| (text(key), value)).collect()
}

/// The inputs of the workflow, with their defaults.
fn declared() -> Vec<(String, Option<String>)> {
    let workflow = workflow();
    let inputs = fields(&workflow["on"]["workflow_call"]["inputs"]);
    inputs.into_iter().map(|(name, input)| (name, input.get("default").map(text))).collect()
}

/// The examples of the page, and the one that is a workflow.
#[derive(Clone, Copy, PartialEq)]
enum Example {
    Checkpoint,
    Packages,
    Worked,
}

/// What the worked example gives the workflow when it is started by hand with its defaults. The checkpoint that stands in
/// for its own has no room for its sequence lengths.
fn worked_inputs() -> Inputs {
    let example = workflow_of(WORKED);
    let asked = &example["on"]["workflow_dispatch"]["inputs"];
    let value = |given: &Value| {
        let given = text(given);
        let name = given.strip_prefix("${{ inputs.").and_then(|name| name.strip_suffix(" }}"));
        let given = name.map_or(given.clone(), |name| text(&asked[name]["default"]));
        assert!(!given.contains("${{"), "unknown: {given}");
        given
    };
    let with = fields(&example["jobs"]["smollm2"]["with"]);
    let mut inputs: Inputs = with.into_iter().map(|(name, given)| (name, value(given))).collect();
    let arguments = inputs.get_mut("export-arguments").unwrap();
    let words: Vec<&str> = arguments.split(' ').collect();
    let shapes = 1 + words.iter().position(|word| *word == "--shapes").unwrap();
    *arguments = arguments.replace(words[shapes], "128");
    inputs
}

/// What the page tells to write below `with:`.
fn shown_inputs(example: Example) -> Inputs {
    if example == Example::Worked {
        return worked_inputs();
    }
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let starts = page.match_indices("    jobs:\n").map(|(at, _)| at);
    let start = starts.into_iter().nth(example as usize).unwrap();
    let block: String = page[start..]
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "))
        .map(|line| format!("{}\n", line.get(4..).unwrap_or_default()))
        .collect();
    let caller: Value = serde_yaml::from_str(&block).unwrap();
    fields(&caller["jobs"]["model"]["with"]).into_iter().map(|(name, value)| (name, text(value))).collect()
}

/// A machine of a CI, with the repository of someone who follows the page.
struct Runner {
    folder: TempDir,
    inputs: Inputs,
}

impl Runner {
    fn new(example: Example) -> Runner {
        let inputs = shown_inputs(example);
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner { folder, inputs };
        let input = match example {
            Example::Checkpoint | Example::Worked => "checkpoint",
            Example::Packages => "packages",
        };
        let model = runner.repository().join(&runner.inputs[input]);
        let original = root().join("src/quickstart/model");
        match example {
            Example::Checkpoint => {
                fs::create_dir_all(model.parent().unwrap()).unwrap();
                copy(&original, &model);
            }
            Example::Packages => {
                fs::create_dir_all(model.parent().unwrap()).unwrap();
                packages::write(&model, Model::single(packages::convolutions("main", 16, 2)));
            }
            // `prepare` brings it.
            Example::Worked => {
                fs::create_dir_all(runner.repository()).unwrap();
                write_text(&runner.repository().join("README.md"), "A repository without a checkpoint.\n");
            }
        }
        runner.git(&["init", "--quiet"]);
        runner.commit("Begin");
        let tools = runner.path("tools");
        fs::create_dir_all(&tools).unwrap();
        runner.script("rustup", ":");
        // `cargo xtask fetch-smollm2`, `cargo install … --root DIR` and `cargo build`.
        let program = env!("CARGO_BIN_EXE_anemeter");
        let (original, model) = (original.display(), model.display());
        runner.script(
            "cargo",
            &format!(
                "if [ \"$1\" = xtask ]; then mkdir -p '{model}' && cp '{original}'/* '{model}' && exit; fi\n\
                 folder=target/release\n[ \"$1\" = install ] && folder=\"${{@: -1}}/bin\"\n\
                 mkdir -p \"$folder\" && ln -sf '{program}' \"$folder/anemeter\""
            ),
        );
        runner
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn repository(&self) -> PathBuf {
        self.path("repository")
    }

    fn script(&self, name: &str, lines: &str) {
        let path = self.path("tools").join(name);
        write_text(&path, &format!("#!/bin/bash\n{lines}\n"));
        assert_eq!(command::run(Command::new("chmod").arg("+x").arg(path)).code, 0);
    }

    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=reader", "-c", "user.email=reader@localhost"]).args(arguments);
        assert_eq!(command::run(git.current_dir(self.repository())).code, 0, "git {arguments:?}");
    }

    fn commit(&self, message: &str) {
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    /// A text of the workflow with its expressions replaced by their values.
    fn expanded(&self, text: &str) -> String {
        let mut pieces = text.split("${{");
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |text, piece| {
            let (expression, rest) = piece.split_once("}}").unwrap();
            text + &self.value(expression.trim()) + rest
        })
    }

    fn value(&self, expression: &str) -> String {
        if expression == "github.repository" {
            return "someone/models".to_owned();
        }
        let name = expression.strip_prefix("inputs.").unwrap_or_else(|| panic!("unknown: {expression}"));
        let default = || declared().into_iter().find(|(input, _)| input == name).and_then(|(_, value)| value);
        self.inputs.get(name).cloned().or_else(default).unwrap_or_else(|| panic!("`{name}` has no value"))
    }

    fn is_wanted(&self, step: &Value) -> bool {
        match step.get("if").map(text).as_deref() {
            None | Some("always()") => true,
            Some("inputs.gate") => self.value("inputs.gate") == "true",
            Some(other) => match other.strip_suffix(" != ''") {
                Some(input) => !self.value(input).is_empty(),
                None => panic!("unknown condition: {other}"),
            },
        }
    }

    /// Executes a job on a fresh machine. Gives what its last step said, and fails where a step fails.
    fn job(&self, name: &str) -> String {
        let work = self.repository().join("target");
        if work.exists() {
            fs::remove_dir_all(&work).unwrap();
        }
        fs::create_dir(&work).unwrap();
        for file in ["path", "summary"] {
            write_text(&self.path(file), "");
        }
        let workflow = workflow();
        let mut said = String::new();
        for step in
            workflow["jobs"][name]["steps"].as_sequence().unwrap().iter().filter(|s| self.is_wanted(s))
        {
            match (step.get("run"), step.get("uses")) {
                (Some(run), _) => {
                    let outcome = self.execute(&workflow, step, &text(run));
                    let Outcome { code, stdout, stderr } = &outcome;
                    assert_eq!(*code, 0, "{name}: {run:?}\n{stdout}{stderr}");
                    said = stdout.clone() + stderr;
                }
                (_, Some(action)) => self.act(&text(action), step.get("with")),
                _ => panic!("a step without anything to do: {step:?}"),
            }
        }
        said
    }

    fn execute(&self, workflow: &Value, step: &Value, script: &str) -> Outcome {
        assert!(!script.contains("${{"), "inputs reach scripts by their environment only: {script}");
        let added = fs::read_to_string(self.path("path")).unwrap().replace('\n', ":");
        let path = format!("{added}{}:{}", self.path("tools").display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]).current_dir(self.repository());
        bash.env("PATH", path).env("HOME", self.path("home"));
        bash.env("GITHUB_PATH", self.path("path")).env("GITHUB_STEP_SUMMARY", self.path("summary"));
        bash.env("GIT_CEILING_DIRECTORIES", self.folder.path());
        for environment in [workflow.get("env"), step.get("env")].into_iter().flatten() {
            for (name, value) in fields(environment) {
                bash.env(name, self.expanded(&text(value)));
            }
        }
        command::run(&mut bash)
    }

    /// Artifacts lie in a folder each. Several paths keep their names, one folder is its content.
    fn act(&self, action: &str, with: Option<&Value>) {
        let given =
            |name: &str| with.and_then(|with| with.get(name)).map(|value| self.expanded(&text(value)));
        let place = |path: &str| self.repository().join(path);
        match action.split('@').next().unwrap() {
            "actions/checkout" => {}
            "actions/upload-artifact" => {
                let artifact = self.path("artifacts").join(given("name").unwrap());
                let paths = given("path").unwrap();
                let paths: Vec<&str> = paths.lines().collect();
                for path in &paths {
                    let name = Path::new(path).file_name().unwrap();
                    let to = if paths.len() > 1 { artifact.join(name) } else { artifact.clone() };
                    copy_all(&place(path), &to);
                }
            }
            "actions/download-artifact" => match given("pattern") {
                Some(_) => copy_all(&self.path("artifacts"), &place(&given("path").unwrap())),
                None => copy_all(
                    &self.path("artifacts").join(given("name").unwrap()),
                    &place(&given("path").unwrap()),
                ),
            },
            other => panic!("unknown action: {other}"),
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-RT").args([from, to]);
    assert_eq!(command::run(&mut copy).code, 0, "{} to {}", from.display(), to.display());
}

#[test]
fn the_workflow_runs_in_an_empty_repository_and_gates_once_there_is_a_baseline() {
    follow(Example::Checkpoint, "TTFT");
}

#[test]
fn the_worked_example_runs_with_its_own_inputs() {
    assert!(worked_inputs()["export-arguments"].contains("--precision int8"));
    follow(Example::Worked, "TTFT");
}

#[test]
fn the_workflow_does_the_same_for_packages_of_others() {
    follow(Example::Packages, "Latency");
}

/// Runs the workflow twice; the summary speaks of a metric.
fn follow(example: Example, metric: &str) {
    let mut runner = Runner::new(example);
    runner.job("linux");
    runner.job("summary");
    let summary = fs::read_to_string(runner.path("summary")).unwrap();
    assert!(summary.contains(metric), "{summary}");

    // As the page says: bless what the first run measured, commit it, and turn the gate on.
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let bless =
        page.lines().find_map(|line| line.trim().strip_prefix("anemeter bless report-linux/")).unwrap();
    let words = super::page::words(&format!("anemeter bless report-linux/{bless}")).unwrap();
    fs::rename(runner.path("artifacts/report-linux"), runner.repository().join("report-linux")).unwrap();
    let mut program = command::program();
    let blessed = command::run(program.args(&words[1..]).current_dir(runner.repository()));
    assert_eq!(blessed.code, 0, "{}{}", blessed.stdout, blessed.stderr);
    fs::remove_dir_all(runner.repository().join("report-linux")).unwrap();
    fs::remove_dir_all(runner.repository().join("target")).unwrap();
    runner.commit("Bless the first baseline");
    runner.inputs.insert("gate".to_owned(), "true".to_owned());
    runner.job("linux");
    let summary = fs::read_to_string(runner.path("summary")).unwrap();
    assert!(summary.contains("Gate: ") && summary.contains("the same packages"), "{summary}");
}

#[test]
fn every_input_is_documented_with_its_default() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let rows: Vec<(String, Option<String>)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split_once("` | "))
        .filter(|(name, _)| declared().iter().any(|(declared, _)| declared == name))
        .map(|(name, rest)| {
            let default = rest.split(" | ").next().unwrap().trim_matches('`').to_owned();
            let default = if default == "empty" { String::new() } else { default };
            (name.to_owned(), Some(default).filter(|default| default != "required"))
        })
        .collect();
    assert_eq!(rows, declared());
    for example in [Example::Checkpoint, Example::Packages, Example::Worked] {
        for input in shown_inputs(example).keys() {
            assert!(declared().iter().any(|(name, _)| name == input), "{PAGE}: `{input}` is no input");
        }
    }
}
