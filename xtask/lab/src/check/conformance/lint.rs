//! `--lint`: what the rules say of packages that coremltools converts from plain torch code.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::torch;
use xtask::outcome::Outcome;
use xtask::project::Project;

const WHAT: &str = "lint of converted torch modules";

/// Converted modules and the rules that they break, nothing more and nothing less. Ranges of shapes, several narrow
/// states, attention as one operation and squares without scaling are what plain code of a decoder comes to.
const EXPECTED: &[(&str, &[&str])] = &[
    ("convnet-fp16", &["A09", "A40", "A51", "C04"]),
    ("convnet-fp32", &["A01", "A40", "A51", "C03", "C04"]),
    ("decoder-fp16", &["A05", "A11", "A14", "A15", "A22", "A29", "A34", "A36", "A51", "C04", "C05"]),
    ("decoder-fp32", &["A01", "A05", "A11", "A14", "A15", "A22", "A29", "A36", "A51", "C03", "C04", "C05"]),
    ("lstm-fp16", &["A27", "A51"]),
    ("lstm-fp32", &["A01", "A27", "A51"]),
    ("mlp-ios16-fp16", &["A36", "A51"]),
    ("mlp-ios18-fp16", &["A36", "A41", "A51"]),
];

#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    rule: String,
}

/// Lints the converted modules with the release program.
pub(super) fn check(project: &Project, _: Option<usize>) -> Result<Outcome> {
    let Some(cases) = torch::convert(project)? else {
        return Ok(Outcome::not_checked(WHAT, "there is no python3"));
    };
    let program = project.release("anemeter")?;
    let mut wrong = Vec::new();
    for (case, expected) in EXPECTED {
        let found = rules(project, &program, &cases.join(case).join("model.mlpackage"))?;
        let expected: BTreeSet<String> = expected.iter().map(|&rule| rule.to_owned()).collect();
        if found != expected {
            wrong.push(format!("{case} breaks {found:?}, expected {expected:?}"));
        }
    }
    match wrong.is_empty() {
        true => Ok(Outcome::Checked(format!("{} {WHAT} as expected", EXPECTED.len()))),
        false => bail!("{}", wrong.join("\n")),
    }
}

fn rules(project: &Project, program: &Path, package: &Path) -> Result<BTreeSet<String>> {
    let output = project.command(program).arg("lint").arg(package).args(["--format", "json"]).output()?;
    let report: Report = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("lint of {}: {}", package.display(), String::from_utf8_lossy(&output.stderr).trim())
    })?;
    Ok(report.findings.into_iter().map(|finding| finding.rule).collect())
}
