//! `--ops`: the program's predictions against the expected outputs of the corpus.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{corpus, percent};
use xtask::outcome::Outcome;
use xtask::project::Project;

/// Share of the cases that must pass.
const REQUIRED_RATE: &str = "0.99";

/// One line of the scorer's report.
#[derive(Debug, Deserialize)]
struct Verdict {
    case: String,
    verdict: String,
    message: String,
    known_issue: bool,
}

impl Verdict {
    fn passed(&self) -> bool {
        self.verdict == "pass"
    }

    /// Whether the program was ended by a signal or a panic rather than by itself.
    fn crashed(&self) -> bool {
        ["exit -", "exit 101:", "killed by signal"].iter().any(|text| self.message.starts_with(text))
    }
}

/// The part of a case's description that is used here.
#[derive(Debug, Deserialize)]
struct Case {
    op_types: BTreeMap<String, u64>,
}

/// Cases to score, and what is asked of them.
pub(super) struct Cases {
    /// The files of the scorer below `target/conformance` are named so.
    pub(super) name: &'static str,
    /// Where the cases are.
    pub(super) folder: PathBuf,
    /// Share of the cases that must pass.
    pub(super) required_rate: &'static str,
}

/// Scores the release program over the corpus.
pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    let Some(folder) = corpus::unpack(project)? else {
        return Ok(Outcome::not_checked("operation results", "the corpus is not beside the repository"));
    };
    score(project, &Cases { name: "ops", folder, required_rate: REQUIRED_RATE }, limit)
}

/// The script that runs a program over cases.
pub(super) fn scorer(project: &Project) -> PathBuf {
    project.shared.join("conformance/check.py")
}

/// Scores the release program over cases.
pub(super) fn score(project: &Project, cases: &Cases, limit: Option<usize>) -> Result<Outcome> {
    let program = project.release("anemeter")?;
    let file = |ending| project.target.join(format!("conformance/{}.{ending}", cases.name));
    let (report, log) = (file("json"), file("txt"));
    let _ = fs::remove_file(&report);
    let mut command = project.command("python3");
    command.arg(scorer(project)).arg(&cases.folder).arg(template(&program)?);
    command.args(["--min-rate", cases.required_rate, "-v", "--json"]).arg(&report);
    if let Some(limit) = limit {
        command.args(["--limit", &limit.to_string()]);
    }
    let output = command.output().context("start check.py")?;
    fs::write(&log, &output.stdout)?;
    let text = fs::read_to_string(&report).with_context(|| {
        format!("check.py wrote no report: {}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    let verdicts: Vec<Verdict> = serde_json::from_str(&text).context("read the report of check.py")?;
    println!("the scorer's own tables are in {}", log.display());
    let reached = output.status.success();
    judge(&verdicts, |case| op_types(&cases.folder, case), reached, cases.required_rate)
}

fn template(program: &Path) -> Result<String> {
    let program = program.to_str().context("the program's path is not text")?;
    Ok(format!(
        "'{program}' run {{model}} --inputs {{in}} --outputs {{out}} --state {{state}} --function {{function}}"
    ))
}

fn op_types(cases: &Path, case: &str) -> Result<BTreeSet<String>> {
    let path = cases.join(case).join("case.json");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let case: Case = serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?;
    Ok(case.op_types.into_keys().filter(|op| op != "const").collect())
}

fn judge(
    verdicts: &[Verdict],
    op_types: impl Fn(&str) -> Result<BTreeSet<String>>,
    rate_reached: bool,
    required_rate: &str,
) -> Result<Outcome> {
    let (mut wanted, mut passing) = (BTreeSet::new(), BTreeSet::new());
    for verdict in verdicts {
        let ops = op_types(&verdict.case)?;
        if !verdict.passed() {
            let known =
                if verdict.known_issue { " (known issue of Apple's runtime, not counted)" } else { "" };
            let names: Vec<_> = ops.iter().map(String::as_str).collect();
            println!("{} {} [{}] {}{known}", verdict.verdict, verdict.case, names.join(" "), verdict.message);
        } else {
            passing.extend(ops.iter().cloned());
        }
        if !verdict.known_issue {
            wanted.extend(ops);
        }
    }
    let counted: Vec<_> = verdicts.iter().filter(|verdict| !verdict.known_issue).collect();
    let passed = counted.iter().filter(|verdict| verdict.passed()).count();
    let crashes = verdicts.iter().filter(|verdict| verdict.crashed()).count();
    let never: Vec<_> = wanted.difference(&passing).map(String::as_str).collect();
    let text = format!(
        "{passed} of {} cases pass ({}), {} op types, {crashes} crashes",
        counted.len(),
        percent(passed, counted.len()),
        wanted.len(),
    );
    if !never.is_empty() {
        bail!("{text}; never passing: {}", never.join(" "));
    }
    if crashes > 0 || !rate_reached {
        bail!("{text}; required: no crash and a rate of {required_rate}");
    }
    Ok(Outcome::Checked(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(case: &str, verdict: &str, message: &str) -> Verdict {
        Verdict {
            case: case.into(),
            verdict: verdict.into(),
            message: message.into(),
            known_issue: case.starts_with("known"),
        }
    }

    fn judged(verdicts: &[Verdict]) -> Result<String> {
        let ops = |case: &str| Ok(BTreeSet::from([case.split('.').next_back().unwrap_or("").to_owned()]));
        match judge(verdicts, ops, true, REQUIRED_RATE)? {
            Outcome::Checked(text) | Outcome::NotChecked(text) => Ok(text),
        }
    }

    #[test]
    fn known_issues_do_not_count() {
        let verdicts = [verdict("1.add", "pass", ""), verdict("known.mul", "fail", "off")];
        assert_eq!(judged(&verdicts).unwrap(), "1 of 1 cases pass (100.00 %), 1 op types, 0 crashes");
    }

    #[test]
    fn an_operation_that_never_passes_and_a_crash_are_failures() {
        let verdicts = [verdict("1.add", "pass", ""), verdict("2.mul", "fail", "off")];
        assert!(judged(&verdicts).unwrap_err().to_string().ends_with("never passing: mul"));
        for message in ["exit -11: ", "exit 101: thread panicked", "killed by signal 6"] {
            let verdicts = [verdict("1.add", "pass", ""), verdict("2.add", "error", message)];
            assert!(judged(&verdicts).unwrap_err().to_string().contains("1 crashes"), "{message}");
        }
    }
}
