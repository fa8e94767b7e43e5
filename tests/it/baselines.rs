//! `anemeter bless` and `anemeter baselines` in a repository, with real reports, many at once, and some killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::checkpoints::{self, tensors, write_text};
use crate::command::{self, Outcome, program, run};
use crate::fixtures::MIXED_WORKLOAD;

/// A repository with a bundle that was verified and measured.
struct Scene {
    folder: tempfile::TempDir,
    report: Value,
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git").current_dir(folder).args(arguments).stdout(Stdio::null()).status();
    assert!(status.unwrap().success(), "git {arguments:?}");
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene { folder, report: Value::Null };
        checkpoints::write(&scene.path("tiny"), &tensors(7));
        write_text(&scene.path("bench.yaml"), MIXED_WORKLOAD);
        git(scene.folder.path(), &["init", "--quiet"]);
        git(scene.folder.path(), &["config", "user.name", "Ada Lovelace"]);
        git(scene.folder.path(), &["config", "user.email", "ada@example.org"]);
        git(scene.folder.path(), &["config", "commit.gpgsign", "false"]);
        git(scene.folder.path(), &["add", "bench.yaml"]);
        git(scene.folder.path(), &["commit", "--quiet", "--message", "Measure"]);
        scene.measured()
    }

    fn measured(mut self) -> Scene {
        let good = |outcome: Outcome| assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
        good(self.anemeter(&["export", "tiny", "-o", "bundle", "--shapes", "16,32"]));
        good(self.anemeter(&["verify", "bundle", "--checkpoint", "tiny", "--tokens", "4"]));
        let bench = ["bench", "bundle", "--config", "bench.yaml", "--out", "out", "--runtime", "cpu"];
        good(self.anemeter(&[&bench[..], &["--launches", "6", "--requests", "2"]].concat()));
        self.report = command::json(&self.path("out/report.json"));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.current_dir(self.folder.path()).args(args);
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
        self.anemeter(&[&["bless"], args].concat())
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
    let scene = Scene::new();
    let first = scene.bless(&["out", "--json"]);
    let first: Value = serde_json::from_str(first.succeeded()).unwrap();
    assert_eq!(first["provenance"]["who"], "Ada Lovelace <ada@example.org>");
    assert_eq!((&first["number"], &first["provenance"]["git"]["dirty"]), (&json!(1), &json!(false)));
    assert_eq!(first["provenance"]["package_digests"], scene.report["subject"]["package_digests"]);

    let second = scene.bless(&[&scene.report(2, |_| {}), &scene.report(3, |_| {})]);
    let text = second.succeeded();
    for words in ["number 2 of its history, 2 sessions with 12 launches", "+0.0 %", "warning: 2 sessions"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let fourth = format!("file://{}", scene.path(&scene.report(4, |_| {})).display());
    let third = scene.bless(&[&fourth, "--add-session"]);
    assert!(third.succeeded().contains("3 sessions with 18 launches"), "{}", third.stdout);

    let log = scene.anemeter(&["baselines", "log"]);
    assert_eq!(log.succeeded().matches("Ada Lovelace").count(), 3, "{}", log.stdout);
    let checked = scene.anemeter(&["baselines", "verify"]);
    assert_eq!(
        checked.succeeded(),
        "baselines: 1 present, 2 before them: every digest and every link holds\n"
    );
    let gated = scene.anemeter(&["gate", &scene.report(5, |_| {})]);
    assert!(matches!(gated.code, 0 | 3), "{}{}", gated.stdout, gated.stderr);

    let path = scene.baseline();
    let text = fs::read_to_string(&path).unwrap();
    write_text(&path, &text.replacen("\"launches\"", "\"launches\" ", 1));
    let tampered = scene.anemeter(&["baselines", "verify"]);
    assert_eq!(tampered.code, 1, "{}", tampered.stderr);
    assert!(tampered.stdout.contains("was changed after it was blessed"), "{}", tampered.stdout);
    let gated = scene.anemeter(&["gate", &scene.report(5, |_| {})]);
    assert!(gated.refused().contains("was changed after it was blessed"), "{}", gated.stderr);
    let blessed = scene.bless(&[&scene.report(6, |_| {})]);
    assert!(blessed.refused().contains("was changed after it was blessed"), "{}", blessed.stderr);
}

#[test]
fn what_may_not_be_blessed_is_refused_with_its_reason() {
    let scene = Scene::new();
    let scene = Scene { report: steady(scene.report.clone()), ..scene };
    scene.bless(&[&scene.report(1, |_| {})]).succeeded();
    let refused = |change: &dyn Fn(&mut Value)| scene.refused(change);
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
    let slower = |report: &mut Value| scale(report, 3.0);
    let text = refused(&slower);
    assert!(
        text.contains("the gate against the present baseline says fail: ")
            && text.contains("--accept-regression"),
        "{text}"
    );
    let accepted = scene.bless(&[&scene.report(9, slower), "--accept-regression", "the model is larger"]);
    assert!(accepted.succeeded().contains("accepted: the model is larger"), "{}", accepted.stdout);

    let other = scene.report(10, |report| report["workload"]["shapes"] = json!([16]));
    let outcome = scene.bless(&[&other, "--add-session"]);
    assert!(outcome.refused().contains("there is no baseline to add a session to"), "{}", outcome.stderr);
    assert!(scene.bless(&["nothing"]).refused().contains("nothing: "), "the file is named");
    let nowhere = scene.anemeter(&["baselines", "log", "apple-m9"]);
    assert!(nowhere.refused().contains("no baseline has `apple-m9` in its name"), "{}", nowhere.stderr);

    write_text(&scene.path("bench.yaml"), "changed: true\n");
    assert!(refused(&|_| {}).contains("files differ from the commit: bench.yaml"));
    fs::remove_dir_all(scene.path(".git")).unwrap();
    let report = scene.report(11, |_| {});
    let alone = run(scene
        .command(&["bless", &report])
        .env("GIT_CEILING_DIRECTORIES", scene.folder.path().parent().unwrap()));
    assert!(alone.stdout.contains("there is no git repository here"), "{}{}", alone.stdout, alone.stderr);
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
fn ever_blessed(scene: &Scene, folder: &str) -> Vec<String> {
    let files = |folder: &Path| -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { found.push(path) }
            }
        }
        found
    };
    let documents =
        files(&scene.path(folder)).into_iter().filter(|path| path.extension().is_some_and(|e| e == "json"));
    documents
        .flat_map(|path| {
            let sessions = command::json(&path)["sessions"].as_array().unwrap().clone();
            sessions.into_iter().map(|session| session["header"]["created"].as_str().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn many_at_once_lose_nothing_even_if_some_are_killed() {
    const AT_ONCE: usize = 16;
    let scene = Scene::new();
    let (mut finished, mut killed) = (Vec::new(), 0);
    for round in 0..4 {
        let reports: Vec<(String, String)> = (0..AT_ONCE)
            .map(|index| {
                let created = format!("2026-04-{:02}T{round:02}:00:00Z", 1 + index);
                let report = scene.report(1 + index, |report| report["header"]["created"] = json!(created));
                (created, report)
            })
            .collect();
        let bless = |index: usize| {
            let args = ["bless", &reports[index].1, "--baselines", "many"];
            let mut child =
                scene.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
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
        let checked = scene.anemeter(&["baselines", "verify", "--baselines", "many"]);
        assert_eq!(checked.code, 0, "{}", checked.stdout);
    }
    assert!(!finished.is_empty() && killed > 0, "{} finished, {killed} killed", finished.len());
    let kept = ever_blessed(&scene, "many");
    for created in &finished {
        assert!(kept.contains(created), "the report of {created} is lost");
    }
    let log = scene.anemeter(&["baselines", "log", "--baselines", "many", "--json"]);
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
