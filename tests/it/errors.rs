//! What people read when a command cannot do its work: every command's refusals in one place.

use std::fs;
use std::path::Path;

use crate::support::checkpoints::{self, tensors, write_text};
use crate::support::command::{anemeter, arg, names, program, run};
use crate::support::fixtures;

/// A folder with one of each thing that a command may be given by mistake.
fn scene() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    checkpoints::write(&path("checkpoint"), &tensors(7));
    fixtures::write(fixtures::enumerated_mlp(), folder.path(), "mlp.mlpackage");
    let bundle = path("bundle");
    anemeter(&["export", arg(&path("checkpoint")), "-o", arg(&bundle), "--shapes", "16", "-q"]).succeeded();
    fs::create_dir(path("empty")).unwrap();
    write_text(&path("text"), "neither JSON nor YAML: [\n");
    write_text(&path("later.json"), r#"{ "schema": "anemeter.report/9" }"#);
    write_text(&path("unknown.yaml"), "schema: anemeter.bench/1\nlaunchs: 3\n");
    write_text(&path("cases.jsonl"), "{\"id\": 1}\n");
    fs::create_dir_all(path("damaged/profile/model")).unwrap();
    write_text(&path("damaged/profile/model/workload.json"), "{ \"schema\": \"anemeter.baseline/1\", ");
    folder
}

/// Commands as they would be typed in that folder, grouped by what is wrong.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "nothing there",
        &[
            "baselines log --baselines none",
            "baselines show --baselines none",
            "bench none",
            "bench bundle --workload none.yaml",
            "bench --sweep none.yaml",
            "bless none",
            "compare none none",
            "compress none.mlpackage -o out.mlpackage --precision int8",
            "doctor none",
            "eval none --cases cases.jsonl",
            "eval bundle --cases none.jsonl",
            "export none -o out",
            "gate none",
            "generate none --token-ids 1",
            "inspect none.mlpackage",
            "lint none.mlpackage",
            "quickstart --model none --out out",
            "report none",
            "run none.mlpackage --inputs none --outputs out",
            "run mlp.mlpackage --inputs none.safetensors --outputs out",
        ],
    ),
    (
        "something else",
        &[
            "bench empty",
            "bench bundle --workload text",
            "bench bundle --workload unknown.yaml",
            "bless later.json",
            "compare mlp.mlpackage later.json",
            "compress text -o out.mlpackage --precision int8",
            "compress mlp.mlpackage -o out.mlpackage --precision int9",
            "compress mlp.mlpackage -o bundle --precision int8 --overwrite",
            "eval bundle --cases cases.jsonl",
            "export empty -o out",
            "export checkpoint -o bundle",
            "export checkpoint -o out --shapes 0",
            "gate later.json",
            "gate text",
            "generate mlp.mlpackage --token-ids 1",
            "generate bundle --token-ids 4000",
            "inspect text",
            "lint empty",
            "lint --explain Z99",
            "man -o text",
            "quickstart --out bundle",
            "report later.json",
            "report text",
            "run mlp.mlpackage --inputs text --outputs out",
        ],
    ),
    ("usage", &["compress mlp.mlpackage -o out.mlpackage", "completions tcsh", "exprot", "gate", "report"]),
    ("found to be wrong", &["baselines verify --baselines damaged"]),
];

/// A command in a folder, with its exit code and all that it says.
fn told(folder: &Path, line: &str) -> String {
    let outcome = run(program().current_dir(folder).env_remove("GITHUB_ACTIONS").args(line.split(' ')));
    assert!(!outcome.stderr.contains("panicked"), "{line}: {}", outcome.stderr);
    assert!(outcome.stderr.matches("error: ").count() <= 1, "{line}: {}", outcome.stderr);
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    let said = said.replace(&*folder.canonicalize().unwrap().to_string_lossy(), "HERE");
    let said: String = said.lines().map(|line| format!("    {line}\n")).collect();
    format!("$ anemeter {line}\n  exit code {}\n{}\n", outcome.code, said.replace("    \n", "\n"))
}

#[test]
fn refusals_read_well() {
    let folder = scene();
    for (kind, lines) in REFUSED {
        let text: String = lines.iter().map(|line| told(folder.path(), line)).collect();
        insta::assert_snapshot!(kind.replace(' ', "_"), text);
    }
    let left: Vec<String> = names(folder.path()).into_iter().filter(|name| name.starts_with("out")).collect();
    assert!(left.is_empty(), "refused commands left {left:?}");
}

#[test]
#[cfg(not(target_os = "macos"))]
fn a_runtime_that_is_not_here_is_not_replaced_by_another() {
    let folder = scene();
    let lines = ["bench bundle --runtime coreml", "generate bundle --token-ids 1 --runtime coreml"];
    let text: String = lines.iter().map(|line| told(folder.path(), line)).collect();
    insta::assert_snapshot!(text);
}
