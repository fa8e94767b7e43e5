//! The program as a guest on other people's machines: shells, terminals, pipes, interrupts, odd paths.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anemeter::mil::{Builder, Model, Opset, TensorType};
use anemeter::tensor::DType;

use crate::support::checkpoints::{self, tensors, write_text};
use crate::support::command::{Outcome, anemeter, arg, await_unfinished, end, names, program, run};
use crate::support::fixtures::{self, WORKLOAD, weight};

/// A place where nobody may write, not even an administrator.
const UNWRITABLE: &str = if cfg!(target_os = "macos") { "/System" } else { "/sys" };

fn with(variables: &[(&str, &str)], args: &[&str]) -> Outcome {
    run(program().envs(variables.iter().copied()).args(args))
}

/// A folder with a small checkpoint in it.
fn scene() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("tiny");
    checkpoints::write(&checkpoint, &tensors(7));
    (folder, checkpoint)
}

#[test]
fn completions_know_every_command_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = anemeter(&["completions", shell]);
        let script = outcome.succeeded();
        for word in ["export", "baselines", "completions", "compute-units"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let refused = anemeter(&["completions", "tcsh"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("[possible values: bash, elvish, fish, powershell, zsh]"));
}

#[test]
fn manual_pages_are_printed_or_written() {
    let printed = anemeter(&["man"]);
    assert!(printed.succeeded().contains(".SH SYNOPSIS"));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man/man1");
    let written = anemeter(&["man", "-o", arg(&pages)]);
    let listed: Vec<&str> = written.succeeded().lines().collect();
    let files = names(&pages);
    assert_eq!(listed.len(), files.len());
    assert!(files.iter().any(|file| file == "anemeter-baselines-verify.1"), "{files:?}");
    let export = fs::read_to_string(pages.join("anemeter-export.1")).unwrap();
    assert!(export.contains("CHECKPOINT") && export.contains("Examples:"), "{export}");
}

#[test]
fn a_slip_of_the_finger_is_told_what_was_meant() {
    let command = anemeter(&["inspct"]);
    assert_eq!(command.code, 2);
    let tip = command.stderr.lines().find(|line| line.trim_start().starts_with("tip: "));
    assert!(tip.is_some_and(|tip| tip.contains("'inspect'")), "{}", command.stderr);
    let flag = anemeter(&["inspect", "x.mlpackage", "--weigths"]);
    assert_eq!(flag.code, 2);
    assert!(flag.stderr.contains("a similar argument exists: '--weights'"), "{}", flag.stderr);
}

#[test]
fn as_much_is_said_as_was_asked_for() {
    let (folder, checkpoint) = scene();
    let export = |variables: &[(&str, &str)], name: &str, flags: &[&str]| {
        let output = folder.path().join(name);
        let args = ["export", arg(&checkpoint), "-o", arg(&output), "--shapes", "16"];
        let outcome = with(variables, &[&args, flags].concat());
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        outcome.stderr
    };
    let standard = export(&[], "a", &[]);
    assert!(!standard.is_empty() && !standard.contains("INFO"), "{standard}");
    assert_eq!(export(&[], "b", &["--quiet"]), "");
    let verbose = export(&[], "c", &["-v"]);
    assert!(verbose.contains("wrote the package") && verbose.contains("done after"), "{verbose}");
    let by_module = export(&[("RUST_LOG", "anemeter_mil::package=info")], "d", &[]);
    assert!(by_module.contains("wrote the package") && !by_module.contains("done after"), "{by_module}");
    let both = anemeter(&["doctor", "-q", "-v"]);
    assert_eq!(both.code, 2);
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

#[test]
fn colours_are_for_terminals_and_for_those_who_insist() {
    let missing = ["inspect", "there-is-none.mlpackage"];
    let plain = with(&[], &missing).stderr;
    assert!(plain.starts_with("error: ") && !plain.contains('\u{1b}'), "{plain:?}");
    let coloured = with(&[("CLICOLOR_FORCE", "1")], &missing).stderr;
    assert!(coloured.starts_with("\u{1b}[") && coloured.contains("error:"), "{coloured:?}");
    let declined = with(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], &missing).stderr;
    assert_eq!(declined, plain);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child =
        program().args(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn tables_fit_a_narrow_terminal() {
    let columns = [("COLUMNS", "60")];
    let rules = with(&columns, &["lint", "--explain", "all"]);
    let too_wide: Vec<&str> = rules.succeeded().lines().filter(|line| line.chars().count() > 60).collect();
    assert_eq!(too_wide, [""; 0]);
    let wide = anemeter(&["lint", "--explain", "all"]);
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
    assert_eq!(letters(rules.succeeded()), letters(wide.succeeded()), "something was lost");

    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    let weights = with(&columns, &["inspect", arg(&package), "--weights"]);
    let weights = weights.succeeded();
    assert!(weights.contains("down_weight"), "{weights}");
    let table = weights.lines().skip_while(|line| !line.contains("stored as"));
    assert!(table.clone().count() > 3 && table.clone().all(|line| line.chars().count() <= 60), "{weights}");
}

#[test]
fn paths_may_have_spaces_and_letters_of_any_script() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("Ein Ordner – 北京 'x'");
    let (checkpoint, bundle) = (place.join("modèle"), place.join("bündel 1"));
    checkpoints::write(&checkpoint, &tensors(7));
    let exported = anemeter(&["export", arg(&checkpoint), "-o", arg(&bundle), "--shapes", "16", "-q"]);
    exported.succeeded();
    let package = fs::read_dir(&bundle)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "mlpackage"))
        .unwrap();
    assert!(anemeter(&["inspect", arg(&package)]).succeeded().contains("decode"));
    let small = place.join("klein ½.mlpackage");
    anemeter(&["compress", arg(&package), "-o", arg(&small), "--precision", "int8"]).succeeded();
    assert!(small.is_dir());
    let generated = anemeter(&["generate", arg(&bundle), "--token-ids", "1,2,3", "--max-tokens", "2", "-q"]);
    generated.succeeded();
}

#[test]
fn a_folder_that_cannot_be_written_is_named_once() {
    let (folder, checkpoint) = scene();
    let package = fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    let target = Path::new(UNWRITABLE).join("anemeter-test");
    for args in [
        vec!["export", arg(&checkpoint), "-o", arg(&target), "--shapes", "16", "-q"],
        vec!["compress", arg(&package), "-o", arg(&target), "--precision", "int8"],
        vec!["man", "-o", arg(&target)],
        vec!["quickstart", "--out", arg(&target)],
    ] {
        let outcome = anemeter(&args);
        let message = outcome.refused();
        assert!(message.contains(arg(&target)), "{message}");
    }
}

/// A model whose weights take long to make into palettes.
fn large() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let mut x = main.input("x", TensorType::fixed(DType::F16, &[1, 1024]));
    for layer in 0..8 {
        let w = main.constant(&format!("w{layer}"), weight(&[1024, 1024], layer));
        let b = main.constant(&format!("b{layer}"), weight(&[1024], layer));
        let linear = main.op("linear").arg("x", x).arg("weight", w).arg("bias", b);
        x = linear.named(&format!("y{layer}")).push().unwrap();
    }
    Model::single(main.finish(&[x]))
}

#[test]
#[cfg(unix)]
fn an_interrupt_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let package = fixtures::write(large(), folder.path(), "large.mlpackage");
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let target = folder.path().join("small.mlpackage");
        let mut child = program()
            .args(["compress", arg(&package), "-o", arg(&target), "--precision", "lut6"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(await_unfinished(folder.path(), &mut child), "it ended before it could be interrupted");
        let stderr = child.stderr.take().unwrap();
        assert_eq!(end(child, signal), Some(code));
        let said: Vec<String> = BufReader::new(stderr).lines().map(Result::unwrap).collect();
        assert_eq!(said, ["interrupted"]);
        assert_eq!(names(folder.path()), ["large.mlpackage"], "after {signal}");
    }
}

#[test]
#[cfg(unix)]
fn an_interrupted_benchmark_leaves_no_report() {
    let (folder, checkpoint) = scene();
    let [bundle, out, config] = ["bundle", "out", "bench.yaml"].map(|name| folder.path().join(name));
    anemeter(&["export", arg(&checkpoint), "-o", arg(&bundle), "--shapes", "16", "-q"]).succeeded();
    write_text(&config, &WORKLOAD.replace("launches: 1\n", "launches: 500\n"));
    let mut child = program()
        .args(["bench", arg(&bundle), "--workload", arg(&config), "--out", arg(&out), "--runtime", "cpu"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("launch 1 of 500")));
    assert_eq!(end(child, "-INT"), Some(130));
    assert_eq!(names(&out), [""; 0]);
    assert_eq!(names(folder.path()), ["bench.yaml", "bundle", "out", "tiny"]);
}
