//! `cargo xtask check decision`: the commands of the guide "Choose a precision" with a real model, in an empty folder: the
//! exit code of each and the files that it leaves, what was found about each precision, and the page that they end in as a
//! release engineer sees it. `--record` keeps both tables in docs/performance.md.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anemeter::report::{Quality, Record, Verification};
use anyhow::{Context, Result, ensure};
use pico_args::Arguments;

use super::quickstart::check_page;
use crate::fetch_smollm2::{Fetched, fetch};
use xtask::markdown;
use xtask::outcome::Outcome;
use xtask::project::{Project, make_empty};
use xtask::record;

const GUIDE: &str = "docs/guides/choose-a-precision.md";
const TEXT: &str = "src/quickstart/merrow.txt";
/// The checkpoint of the guide, for which another one is taken.
const CHECKPOINT: &str = "merrow-int8";
/// The file that the guide shows, and the page that its commands end in.
const SWEEP: &str = "sweep.yaml";
const PAGE: &str = "reports/sweep/sweep.html";

/// What is expected of a bundle of the guide. Every one is right; what compression may cost depends on the checkpoint, but
/// not where nothing or next to nothing is rounded.
struct Candidate {
    name: &'static str,
    /// Exit codes of `lint`: integers with a scale per block are kept off the Neural Engine, which is a finding. Those of
    /// a checkpoint are in blocks or not.
    lint: &'static [i32],
    /// Whether the limits of quality hold for any model.
    is_good: bool,
}

const CANDIDATES: [Candidate; 5] = [
    Candidate { name: "fp16", lint: &[0], is_good: true },
    Candidate { name: "int8", lint: &[0], is_good: true },
    Candidate { name: "int4", lint: &[1], is_good: false },
    Candidate { name: "lut4", lint: &[0], is_good: false },
    Candidate { name: "stored", lint: &[0, 1], is_good: true },
];

/// A command of the guide as it ended.
struct Step {
    command: String,
    code: i32,
    /// Files that are new after it.
    left: Vec<String>,
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let checkpoint: Option<PathBuf> = arguments.opt_value_from_str("--checkpoint")?;
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    let checkpoint = match checkpoint {
        Some(path) => path.canonicalize().with_context(|| format!("{}", path.display()))?,
        None => match fetch(project)? {
            Fetched::There(path) => path,
            Fetched::NotAvailable(why) => return Ok(Outcome::not_checked("the decision", &why)),
        },
    };
    println!("building for speed");
    let program = project.release("anemeter")?;
    let guide = fs::read_to_string(project.root.join(GUIDE)).context(GUIDE)?;
    let folder = project.target.join("decision");
    make_empty(&folder)?;
    fs::copy(project.root.join(TEXT), folder.join("text.txt"))?;
    fs::write(folder.join(SWEEP), shown_file(&guide, SWEEP)?)?;
    let steps = follow(project, (&program, &checkpoint), &folder, &commands(&guide))?;
    let table = format!("{}\n{}", steps_table(&steps), candidates_table(&folder)?);
    println!("\n{table}");
    if recorded {
        let model = checkpoint.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("with {model}.\n\n{table}");
        record::write(project, "check decision", "cargo xtask check decision", &text)?;
    }
    Ok(match check_page(&folder.join(PAGE))? {
        Some(page) => Outcome::Checked(format!("{}: {page}", folder.join(PAGE).display())),
        None => Outcome::not_checked("the page", "there is no Chromium, and apt-get cannot install it"),
    })
}

/// Executes the commands in a folder, and fails at the first that does not end as expected.
fn follow(
    project: &Project,
    (program, checkpoint): (&Path, &Path),
    folder: &Path,
    commands: &[String],
) -> Result<Vec<Step>> {
    ensure!(!commands.is_empty(), "{GUIDE} has no commands");
    let mut known = files(folder)?;
    let mut steps = Vec::new();
    for command in commands {
        println!("\n$ {command}");
        let words = command.split_whitespace().skip(1).map(|word| match word == CHECKPOINT {
            true => checkpoint.as_os_str(),
            false => OsStr::new(word),
        });
        let status = project.command(program).current_dir(folder).args(words).status()?;
        let codes = expected(command)?;
        let code = status.code().filter(|code| codes.contains(code));
        let code = code.with_context(|| format!("`{command}` ended with {status}, expected {codes:?}"))?;
        if let ("verify", Some(candidate)) = (subcommand(command), candidate(command)) {
            candidate.check(&read_record(folder, candidate.name)?)?;
        }
        let now = files(folder)?;
        let left: Vec<String> = now.difference(&known).cloned().collect();
        println!("{status}");
        left.iter().for_each(|file| println!("  + {file}"));
        let is_silent = matches!(subcommand(command), "lint" | "compare");
        ensure!(is_silent || !left.is_empty(), "`{command}` left no file");
        steps.push(Step { command: command.clone(), code, left });
        known = now;
    }
    Ok(steps)
}

/// The second word of a command.
fn subcommand(command: &str) -> &str {
    command.split_whitespace().nth(1).unwrap_or_default()
}

/// The bundle that a command of one bundle is about.
fn candidate(command: &str) -> Option<&'static Candidate> {
    let name = command.split_whitespace().nth(2)?;
    CANDIDATES.iter().find(|candidate| candidate.name == name)
}

/// The exit codes that a command may end with.
fn expected(command: &str) -> Result<Vec<i32>> {
    let candidate = || candidate(command).with_context(|| format!("`{command}` is about an unknown bundle"));
    Ok(match subcommand(command) {
        "lint" => candidate()?.lint.to_vec(),
        "verify" if candidate()?.is_good => vec![0],
        "verify" => vec![0, 1],
        // A verdict about speed depends on the machine.
        "compare" => vec![0, 1, 3],
        _ => vec![0],
    })
}

impl Candidate {
    /// Holds what `verify` recorded against what is expected.
    fn check(&self, found: &Verification) -> Result<()> {
        let (name, problems) = (self.name, found.problems().join("; "));
        ensure!(found.passed && found.not_judged.is_none(), "{name} is not right: {problems}");
        ensure!(found.quality.is_some(), "nothing was found out about the quality of {name}");
        ensure!(!self.is_good || found.is_good(), "{name} is not good: {problems}");
        Ok(())
    }

    /// What was found, as a row.
    fn row(&self, verified: &Verification, evaluated: &Quality) -> Result<String> {
        let name = self.name;
        let loss = verified.quality.as_ref().with_context(|| format!("{name} has no quality"))?;
        let text = loss.text.as_ref().with_context(|| format!("{name} was not verified on a text"))?;
        let whole =
            evaluated.perplexity.as_ref().with_context(|| format!("{name} was not evaluated on a text"))?;
        let yes = |is: bool| if is { "yes" } else { "no" };
        Ok(format!(
            "| {name} | {} | {} | {} | {:.1} % | {:.3} ({:+.2} %) | {:.3} |\n",
            yes(verified.passed),
            yes(loss.is_good()),
            loss.kl.map_or_else(|| "not finite".to_owned(), |kl| format!("{kl:.4}")),
            loss.top1 * 100.0,
            text.packages,
            text.increase_pct(),
            whole.perplexity,
        ))
    }
}

/// A record in a bundle.
fn read_record<R: Record>(folder: &Path, name: &str) -> Result<R> {
    let path = folder.join(name).join(R::FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    R::parse(&text).with_context(|| path.display().to_string())
}

/// How each command ended, and what it left.
fn steps_table(steps: &[Step]) -> String {
    let row = |Step { command, code, left }: &Step| {
        let left: Vec<String> = left.iter().map(|file| format!("`{file}`")).collect();
        format!("| `{command}` | {code} | {} |\n", left.join(", "))
    };
    let rows: String = steps.iter().map(row).collect();
    format!("| command | exit code | files |\n|---|--:|---|\n{rows}")
}

/// What `verify` and `eval` found about each candidate.
fn candidates_table(folder: &Path) -> Result<String> {
    let rows: Vec<String> = CANDIDATES
        .iter()
        .map(|candidate| {
            candidate.row(&read_record(folder, candidate.name)?, &read_record(folder, candidate.name)?)
        })
        .collect::<Result<_>>()?;
    let head = "| precision | right | good | KL, nats | top-1 | perplexity of `verify` | perplexity of the whole text |\n\
                |---|---|---|--:|--:|--:|--:|\n";
    Ok(head.to_owned() + &rows.concat())
}

/// Files below a folder, a package as one.
fn files(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let path = entry?.path();
            match path.is_dir() && path.extension().is_none_or(|extension| extension != "mlpackage") {
                true => folders.push(path),
                false => drop(found.insert(path.strip_prefix(folder)?.display().to_string())),
            }
        }
    }
    Ok(found)
}

/// The commands of a guide, in order.
fn commands(guide: &str) -> Vec<String> {
    let code = markdown::read(guide).code.into_iter().filter(|code| !code.is_span);
    code.filter_map(|code| code.text.strip_prefix("$ ").map(str::to_owned)).collect()
}

/// A file that a guide shows in a block with its name.
fn shown_file(guide: &str, name: &str) -> Result<String> {
    let is_first = |line: &&str| line.trim_start().starts_with("```") && line.ends_with(&format!(" {name}"));
    let mut lines = guide.lines().skip_while(|line| !is_first(line));
    let first = lines.next().with_context(|| format!("{GUIDE} shows no {name}"))?;
    let indent = first.len() - first.trim_start().len();
    let lines = lines.take_while(|line| line.trim() != "```");
    Ok(lines.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_command_has_its_exit_codes() {
        for name in ["fp16", "int8", "stored"] {
            assert_eq!(expected(&format!("anemeter verify {name} --text text.txt")).unwrap(), [0], "{name}");
        }
        assert_eq!(expected("anemeter verify int4 --text text.txt").unwrap(), [0, 1]);
        for (name, codes) in
            [("fp16", &[0][..]), ("int8", &[0]), ("int4", &[1]), ("lut4", &[0]), ("stored", &[0, 1])]
        {
            assert_eq!(expected(&format!("anemeter lint {name}")).unwrap(), codes, "{name}");
        }
        assert_eq!(expected("anemeter compare a b").unwrap(), [0, 1, 3]);
        for command in ["anemeter export a -o b", "anemeter bench --sweep sweep.yaml", "anemeter report a"] {
            assert_eq!(expected(command).unwrap(), [0], "{command}");
        }
        assert!(expected("anemeter verify int3").is_err());
    }

    fn verification(is_right: bool, kl: f64) -> Verification {
        let limits = json!({"kl": 0.1, "top1": 0.8, "top5": 0.8, "perplexity_pct": 5.0});
        let text =
            json!({"text_digest": "", "window": 128, "tokens": 9, "checkpoint": 20.0, "packages": 20.8});
        serde_json::from_value(json!({
            "schema": Verification::SCHEMA, "tool_version": "", "package_digests": [], "checkpoint_digest": "",
            "checkpoint_is_the_exported_one": true, "passed": is_right, "cosine_min": 0.9999,
            "drift_cosine_min": null, "nan": 0, "inf": 0, "reference": "", "numerics": "fast", "compared": [],
            "prompts": 1, "positions": 8, "failures": [],
            "quality": {"kv": "io", "seq_len": 128, "positions": 8, "kl": kl, "top1": 0.9, "top5": 0.9,
                        "text": text, "limits": limits},
        }))
        .unwrap()
    }

    #[test]
    fn what_must_be_right_and_good_is_both() {
        let [_, int8, int4, ..] = &CANDIDATES;
        int8.check(&verification(true, 0.01)).unwrap();
        int4.check(&verification(true, 0.5)).unwrap();
        assert!(int8.check(&verification(true, 0.5)).unwrap_err().to_string().contains("mean KL is 0.5"));
        assert!(int4.check(&verification(false, 0.01)).unwrap_err().to_string().contains("not right"));
    }

    #[test]
    fn the_tables_say_what_was_found() {
        let left = vec!["fp16/export.json".to_owned()];
        let steps = [Step { command: "anemeter export a".to_owned(), code: 0, left }];
        assert!(steps_table(&steps).ends_with("| `anemeter export a` | 0 | `fp16/export.json` |\n"));
        let evaluated: Quality = serde_json::from_value(json!({
            "schema": Quality::SCHEMA, "tool_version": "", "package_digests": [], "cases_digest": "", "cases": 0,
            "runtime": "cpu", "max_tokens": 0, "kv": "io", "per_seq_len": [], "f1_drift": null,
            "ttfa_p50": null, "ttfa_p95": null,
            "perplexity": {"text_digest": "", "runtime": "cpu", "kv": "io", "window": 128, "tokens": 9,
                           "nats_per_token": 3.0, "perplexity": 20.5},
        }))
        .unwrap();
        let row = CANDIDATES[2].row(&verification(true, 0.5), &evaluated).unwrap();
        assert_eq!(row, "| int4 | yes | no | 0.5000 | 90.0 % | 20.800 (+4.00 %) | 20.500 |\n");
    }

    #[test]
    fn a_package_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("fp16/model.mlpackage/Data")).unwrap();
        fs::write(folder.path().join("fp16/export.json"), "{}").unwrap();
        let found: Vec<String> = files(folder.path()).unwrap().into_iter().collect();
        assert_eq!(found, ["fp16/export.json", "fp16/model.mlpackage"]);
    }

    #[test]
    fn commands_and_files_are_those_of_the_guide() {
        let guide = "1. Do.\n\n   ```yaml sweep.yaml\n   a:\n     - b\n   ```\n\n   ```console\n   $ anemeter lint a\n   fine\n   ```\n";
        assert_eq!(commands(guide), ["anemeter lint a"]);
        assert_eq!(shown_file(guide, SWEEP).unwrap(), "a:\n  - b\n");
        assert!(shown_file(guide, "other.yaml").is_err());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let guide = fs::read_to_string(root.join(GUIDE)).unwrap();
        assert!(commands(&guide).len() > 20 && shown_file(&guide, SWEEP).unwrap().contains("bundles:"));
    }
}
