//! `anemeter bless` and `anemeter baselines` in a repository, with real reports, many at once, and some killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::checkpoints::write_text;
use crate::support::command::{self, Outcome, program, run};
use crate::support::fixtures::MIXED_WORKLOAD;
use crate::support::scene::Scene;

/// A repository with a bundle that was verified and measured.
struct Repository {
    scene: Scene,
    report: Value,
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git").current_dir(folder).args(arguments).stdout(Stdio::null()).status();
    assert!(status.unwrap().success(), "git {arguments:?}");
}

impl Repository {
    fn new() -> Repository {
        let scene = Scene::new();
        write_text(&scene.path("bench.yaml"), MIXED_WORKLOAD);
        git(scene.folder(), &["init", "--quiet"]);
        git(scene.folder(), &["config", "user.name", "Ada Lovelace"]);
        git(scene.folder(), &["config", "user.email", "ada@example.org"]);
        git(scene.folder(), &["config", "commit.gpgsign", "false"]);
        git(scene.folder(), &["add", "bench.yaml"]);
        git(scene.folder(), &["commit", "--quiet", "--message", "Measure"]);
        Repository { scene, report: Value::Null }.measured()
    }

    fn measured(mut self) -> Repository {
        self.scene.export("bundle", &["--shapes", "16,32"]).good();
        self.anemeter(&["verify", "bundle", "--checkpoint", "tiny", "--tokens", "4"]).good();
        let bench = ["bench", "bundle", "--workload", "bench.yaml", "--out", "out", "--runtime", "cpu"];
        self.anemeter(&[&bench[..], &["--launches", "6", "--requests", "2"]].concat()).good();
        self.report = command::json(&self.path("out/report.json"));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scene.path(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.current_dir(self.scene.folder()).args(args);
        command
    }

    fn anemeter(&self, args: &[&str]) -> Outcome {
        run(&mut self.command(args))
    }

    /// Writes the report as if it had been made on another day, after a change.
    fn report(&self, day: usize, change: impl Fn(&mut Value)) -> String {
        let mut report = self.report.clone();
        report["header"]["created"] = json!(format!("2026-03-{day:02}T12:00:00Z"));
        change(&mut report);
        let name = format!("report-{day}.json");
        write_text(&self.path(&name), &report.to_string());
        name
    }

    fn bless(&self, args: &[&str]) -> Outcome {
        // Tests run at the same time as others do.
        self.anemeter(&[&["bless", "--accept-noise", "tests"], args].concat())
    }

    /// The only file that holds a present baseline.
    fn baseline(&self) -> PathBuf {
        let shown = self.anemeter(&["baselines", "show", "--json"]);
        let shown: Value = serde_json::from_str(shown.succeeded()).unwrap();
        self.path(shown["baselines"][0]["place"].as_str().unwrap())
    }

    /// What is refused in a report after a change, a line each.
    fn refused(&self, change: impl Fn(&mut Value)) -> String {
        let report = self.report(28, change);
        let outcome = self.bless(&[&report]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""), "{}", outcome.stdout);
        assert!(outcome.stdout.starts_with("not blessed\n"), "{}", outcome.stdout);
        outcome.stdout
    }
}

#[test]
fn a_report_becomes_a_baseline_with_a_history() {
    let repository = Repository::new();
    let first = repository.bless(&["out", "--json"]);
    let first: Value = serde_json::from_str(first.succeeded()).unwrap();
    assert_eq!(first["provenance"]["who"], "Ada Lovelace <ada@example.org>");
    assert_eq!((&first["number"], &first["provenance"]["git"]["dirty"]), (&json!(1), &json!(false)));
    assert_eq!(first["provenance"]["package_digests"], repository.report["subject"]["package_digests"]);

    let second = repository.bless(&[&repository.report(2, |_| {}), &repository.report(3, |_| {})]);
    let text = second.succeeded();
    for words in ["number 2 of its history, 2 sessions with 12 launches", "+0.0 %", "warning: 2 sessions"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let fourth = format!("file://{}", repository.path(&repository.report(4, |_| {})).display());
    let third = repository.bless(&[&fourth, "--add-session"]);
    assert!(third.succeeded().contains("3 sessions with 18 launches"), "{}", third.stdout);

    let log = repository.anemeter(&["baselines", "log"]);
    assert_eq!(log.succeeded().matches("Ada Lovelace").count(), 3, "{}", log.stdout);
    let checked = repository.anemeter(&["baselines", "verify"]);
    assert_eq!(
        checked.succeeded(),
        "baselines: 1 present, 2 before them: every digest and every link holds\n"
    );
    let gated = repository.anemeter(&["gate", &repository.report(5, |_| {})]);
    assert!(matches!(gated.code, 0 | 3), "{}{}", gated.stdout, gated.stderr);

    let path = repository.baseline();
    let text = fs::read_to_string(&path).unwrap();
    write_text(&path, &text.replacen("\"launches\"", "\"launches\" ", 1));
    let tampered = repository.anemeter(&["baselines", "verify"]);
    assert_eq!(tampered.code, 1, "{}", tampered.stderr);
    assert!(tampered.stdout.contains("was changed after it was blessed"), "{}", tampered.stdout);
    let gated = repository.anemeter(&["gate", &repository.report(5, |_| {})]);
    assert!(gated.refused().contains("was changed after it was blessed"), "{}", gated.stderr);
    let blessed = repository.bless(&[&repository.report(6, |_| {})]);
    assert!(blessed.refused().contains("was changed after it was blessed"), "{}", blessed.stderr);
}

#[test]
fn what_may_not_be_blessed_is_refused_with_its_reason() {
    let repository = Repository::new();
    let repository = Repository { report: steady(repository.report.clone()), ..repository };
    repository.bless(&[&repository.report(1, |_| {})]).succeeded();
    let refused = |change: &dyn Fn(&mut Value)| repository.refused(change);
    assert!(refused(&|report| report["verification"] = Value::Null).contains("that nobody verified"));
    assert!(
        refused(&|report| report["verification"]["passed"] = json!(false)).contains("failed verification")
    );
    assert!(
        refused(&|report| report["header"]["hardware_profile_key"] = json!("apple-m1"))
            .contains("states the profile apple-m1")
    );
    assert!(
        refused(&|report| report["header"]["git"]["dirty"] = json!(true))
            .contains("differed from the commit")
    );
    let slower = |report: &mut Value| {
        scale(report, 3.0);
        for record in ["subject", "verification"] {
            report[record]["package_digests"] = json!(["xxh3:00"]);
        }
    };
    let text = refused(&slower);
    assert!(
        text.contains("the gate against the present baseline says fail: ")
            && text.contains("--accept-regression"),
        "{text}"
    );
    let accepted =
        repository.bless(&[&repository.report(9, slower), "--accept-regression", "the model is larger"]);
    assert!(accepted.succeeded().contains("accepted: the model is larger"), "{}", accepted.stdout);

    let other = repository.report(10, |report| report["workload"]["seq_lens"] = json!([16]));
    let outcome = repository.bless(&[&other, "--add-session"]);
    assert!(outcome.refused().contains("there is no baseline to add a session to"), "{}", outcome.stderr);
    assert!(repository.bless(&["nothing"]).refused().contains("nothing: "), "the file is named");
    let nowhere = repository.anemeter(&["baselines", "log", "apple-m9"]);
    assert!(nowhere.refused().contains("no baseline has `apple-m9` in its name"), "{}", nowhere.stderr);

    write_text(&repository.path("bench.yaml"), "changed: true\n");
    assert!(refused(&|_| {}).contains("files differ from the commit: bench.yaml"));
}

#[test]
fn without_a_commit_it_says_what_to_do() {
    let repository = Repository::new();
    let alone = |arguments: &[&str]| {
        let bless = ["bless", "out", "--accept-noise", "tests"];
        run(repository
            .command(&[&bless, arguments].concat())
            .env("GIT_CEILING_DIRECTORIES", repository.scene.folder().parent().unwrap()))
    };
    fs::remove_dir_all(repository.path(".git")).unwrap();
    let nowhere = alone(&[]);
    assert_eq!(nowhere.code, 1, "{}", nowhere.stderr);
    assert!(nowhere.stdout.contains("there is no git repository here"), "{}", nowhere.stdout);
    assert!(nowhere.stdout.contains("or without git to try it out: --scratch"), "{}", nowhere.stdout);
    git(repository.scene.folder(), &["init", "--quiet"]);
    let fresh = alone(&[]);
    assert!(fresh.stdout.contains("the git repository here has no commit"), "{}", fresh.stdout);
    assert!(fresh.stdout.contains("`git commit`, or --scratch"), "{}", fresh.stdout);
    alone(&["--scratch"]).good();
    git(repository.scene.folder(), &["add", "baselines"]);
    let mut staged = Command::new("git");
    let staged =
        run(staged.current_dir(repository.scene.folder()).args(["diff", "--cached", "--name-only"])).stdout;
    assert!(staged.contains("baselines/.gitignore") && !staged.contains(".lock"), "{staged}");
    let again = alone(&["--scratch"]);
    assert!(again.refused().contains("is a session of this baseline already"), "{}", again.stderr);
}

#[test]
fn a_busy_machine_is_blessed_with_a_word_on_it_only() {
    let repository = Repository::new();
    let report = repository.report(1, |report| report["conditions_at_end"]["load_average"] = json!(99.0));
    let refused = repository.anemeter(&["bless", &report]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(
        refused.stdout.contains("was measured on a busy machine: the load average was 99.0"),
        "{}",
        refused.stdout
    );
    assert!(refused.stdout.contains("--accept-noise REASON"), "{}", refused.stdout);
    let blessed = repository.bless(&[&report]);
    assert!(blessed.succeeded().contains("accepted a busy machine: tests"), "{}", blessed.stdout);
    let shown = repository.anemeter(&["baselines", "show"]);
    assert!(shown.succeeded().contains("noise       tests"), "{}", shown.stdout);
}

/// The same report as of a machine without noise, so that its gate knows what to say.
fn steady(mut report: Value) -> Value {
    for (index, launch) in report["launches"].as_array_mut().unwrap().iter_mut().enumerate() {
        launch["canary_ms"] = json!(1.5);
        for request in launch["requests"].as_array_mut().unwrap() {
            request["ttft_ms"] = json!(10.0 + 0.001 * index as f64);
            let steps = request["steps_ms"].as_array_mut().unwrap();
            steps.iter_mut().for_each(|step| *step = json!(2.0));
        }
    }
    report
}

/// Multiplies the times of all requests.
fn scale(report: &mut Value, factor: f64) {
    let requests = report["launches"].as_array_mut().unwrap().iter_mut();
    for request in requests.flat_map(|launch| launch["requests"].as_array_mut().unwrap()) {
        for (name, value) in request.as_object_mut().unwrap() {
            if let Some(time) = value.as_f64().filter(|_| name.ends_with("_ms")) {
                *value = json!(time * factor);
            }
        }
        for step in request["steps_ms"].as_array_mut().unwrap() {
            *step = json!(step.as_f64().unwrap() * factor);
        }
    }
}

/// When the sessions of all baselines that were ever blessed were measured.
fn ever_blessed(repository: &Repository, folder: &str) -> Vec<String> {
    let paths = command::paths_below(&repository.path(folder)).into_iter();
    let documents = paths.filter(|path| path.extension().is_some_and(|e| e == "json"));
    documents
        .flat_map(|path| {
            let sessions = command::json(&path)["sessions"].as_array().unwrap().clone();
            sessions.into_iter().map(|session| session["header"]["created"].as_str().unwrap().to_owned())
        })
        .collect()
}

/// Writing takes as long as flushing to disk does, so that an interrupt may come too late: some attempts are made.
#[test]
#[cfg(unix)]
fn an_interrupt_leaves_nothing_unfinished_among_baselines() {
    const ATTEMPTS: usize = 20;
    let repository = Repository::new();
    let large = repository.report(1, |report| {
        report["runtime"]["remarks"] = json!(["x".repeat(32 << 20)]);
    });
    let interrupted = (0..ATTEMPTS).any(|attempt| {
        let name = format!("interrupted{attempt}");
        let mut child = repository
            .command(&["bless", &large, "--baselines", &name, "--accept-noise", "tests"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let baselines = repository.path(&name);
        let begun = command::await_unfinished(&baselines, &mut child);
        let code = if begun { command::end(child, "-INT") } else { child.wait().unwrap().code() };
        assert!(!command::has_unfinished(&baselines), "{:?}", command::paths_below(&baselines));
        code == Some(130)
    });
    assert!(interrupted, "every attempt came too late");
}

#[test]
fn many_at_once_lose_nothing_even_if_some_are_killed() {
    const AT_ONCE: usize = 16;
    let repository = Repository::new();
    let (mut finished, mut killed) = (Vec::new(), 0);
    for round in 0..4 {
        let reports: Vec<(String, String)> = (0..AT_ONCE)
            .map(|index| {
                let created = format!("2026-04-{:02}T{round:02}:00:00Z", 1 + index);
                let report =
                    repository.report(1 + index, |report| report["header"]["created"] = json!(created));
                (created, report)
            })
            .collect();
        let bless = |index: usize| {
            let args = ["bless", &reports[index].1, "--baselines", "many", "--accept-noise", "tests"];
            let mut child =
                repository.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            // From at once, when it has surely not finished, to about when it finishes.
            if (index + round).is_multiple_of(3) {
                std::thread::sleep(Duration::from_millis(index as u64 / 3 * 4));
                child.kill().unwrap();
            }
            child.wait_with_output().unwrap()
        };
        let outputs: Vec<Output> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..AT_ONCE).map(|index| scope.spawn(move || bless(index))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (output, (created, _)) in outputs.into_iter().zip(&reports) {
            match output.status.code() {
                Some(0) => finished.push(created.clone()),
                None => killed += 1,
                Some(code) => panic!("{code}: {}", String::from_utf8_lossy(&output.stderr)),
            }
        }
        let checked = repository.anemeter(&["baselines", "verify", "--baselines", "many"]);
        assert_eq!(checked.code, 0, "{}", checked.stdout);
    }
    assert!(!finished.is_empty() && killed > 0, "{} finished, {killed} killed", finished.len());
    let kept = ever_blessed(&repository, "many");
    for created in &finished {
        assert!(kept.contains(created), "the report of {created} is lost");
    }
    let log = repository.anemeter(&["baselines", "log", "--baselines", "many", "--json"]);
    let log: Value = serde_json::from_str(log.succeeded()).unwrap();
    let numbers: Vec<u64> = log["histories"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["number"].as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = (1..=numbers.len() as u64).rev().collect();
    assert_eq!(numbers, expected, "one chain without gaps");
    assert!(numbers.len() >= finished.len());
}
