//! `cargo xtask check mac-smoke`: ten minutes on a Mac, which show what no other machine can.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use pico_args::Arguments;
use serde_json::Value;

use crate::fetch_smollm2::{Fetched, fetch};
use xtask::outcome::Outcome;
use xtask::project::Project;

const PROMPT: &str = "1,2,3,4,5,6,7,8";
const FORMS: [&str; 2] = ["io", "state"];

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let checkpoint: Option<PathBuf> = arguments.opt_value_from_str("--checkpoint")?;
    xtask::finish(arguments)?;
    if !cfg!(target_os = "macos") {
        return Ok(Outcome::not_checked("Core ML", "this is not a Mac"));
    }
    let checkpoint = match checkpoint {
        Some(path) => path,
        None => match fetch(project)? {
            Fetched::There(path) => path,
            Fetched::NotAvailable(why) => {
                return Ok(Outcome::not_checked(
                    "Core ML",
                    &format!("{why}; --checkpoint names another model"),
                ));
            }
        },
    };
    let mut smoke = Smoke::new(project, "mac-smoke")?;
    smoke.all(&checkpoint)?;
    smoke.finish("Core ML on this Mac", "docs/coreml-testing.md")
}

/// The steps so far.
pub(super) struct Smoke {
    anemeter: PathBuf,
    pub(super) folder: PathBuf,
    /// The Python with Apple's module, where the steps need it.
    pub(super) python: Option<PathBuf>,
    results: String,
    failed: Vec<String>,
}

impl Smoke {
    /// No steps yet; results go to a folder below `target/`.
    pub(super) fn new(project: &Project, name: &str) -> Result<Smoke> {
        let folder = project.target.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(Smoke {
            anemeter: project.release("anemeter")?,
            folder,
            python: None,
            results: String::new(),
            failed: Vec::new(),
        })
    }

    /// Keeps what was printed, and fails if a step did.
    pub(super) fn finish(self, what: &str, page: &str) -> Result<Outcome> {
        let path = self.folder.join("results.md");
        fs::write(&path, &self.results).with_context(|| format!("write {}", path.display()))?;
        println!("\nresults: {} ({page} says where they go)", path.display());
        match self.failed.is_empty() {
            true => Ok(Outcome::Checked(format!("{what}; {}", path.display()))),
            false => bail!("not as expected: {}; {} has the details", self.failed.join(", "), path.display()),
        }
    }

    fn all(&mut self, checkpoint: &Path) -> Result<()> {
        let (checkpoint, bundle) = (text(checkpoint), text(&self.folder.join("bundle")));
        self.step("machine", &["doctor"])?;
        self.step("cache before", &["cache", "clear"])?;
        let export = ["export", &checkpoint, "-o", &bundle, "--shapes", "512", "--kv", "io,state"];
        self.step("export", &export)?;
        for form in FORMS {
            self.same_tokens(&bundle, form, ["cpu", "coreml"])?;
        }
        for (form, units) in [("io", "cpu+ane"), ("state", "cpu+ane"), ("auto", "cpu+ane"), ("io", "cpu+gpu")]
        {
            self.measure(&bundle, form, units)?;
        }
        self.step("cache after", &["cache", "list"])?;
        Ok(())
    }

    /// Runs the program and keeps what it prints. A step that fails does not end the others.
    pub(super) fn step(&mut self, title: &str, arguments: &[&str]) -> Result<Option<String>> {
        println!("-- {title}: anemeter {}", arguments.join(" "));
        let began = Instant::now();
        let python = self.python.iter().map(|python| ("ANEMETER_PYTHON", python));
        let output =
            Program::new(&self.anemeter).args(arguments).envs(python).output().context("start anemeter")?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let seconds = began.elapsed().as_secs_f64();
        let shown = if arguments.contains(&"--json") { "" } else { out.trim_end() };
        writeln!(
            self.results,
            "## {title}\n\n`anemeter {}` ({}, {seconds:.1} s)\n\n```text\n{shown}\n{}\n```\n",
            arguments.join(" "),
            output.status,
            err.trim_end()
        )?;
        if !output.status.success() {
            self.failed.push(title.to_owned());
        }
        Ok(output.status.success().then(|| out.into_owned()))
    }

    /// The same prompt on both runtimes, one token after the other.
    pub(super) fn same_tokens(&mut self, bundle: &str, form: &str, runtimes: [&str; 2]) -> Result<()> {
        let mut all = Vec::new();
        for runtime in runtimes {
            let arguments = ["generate", bundle, "--token-ids", PROMPT, "--max-tokens", "32", "--kv", form];
            let arguments = [&arguments[..], &["--runtime", runtime, "--json"]].concat();
            let printed = self.step(&format!("tokens, {form}, {runtime}"), &arguments)?;
            all.push(printed.and_then(|text| tokens(&text)));
        }
        let same = matches!(&all[..], [Some(first), Some(second)] if first == second);
        writeln!(
            self.results,
            "Same tokens with `{form}`: {}\n\n{all:?}\n",
            if same { "yes" } else { "NO" }
        )?;
        if !same {
            self.failed.push(format!("tokens of `{form}`"));
        }
        Ok(())
    }

    fn measure(&mut self, bundle: &str, form: &str, units: &str) -> Result<()> {
        let out = text(&self.folder.join(format!("report-{form}-{}", units.replace('+', "-"))));
        let arguments = ["bench", bundle, "--runtime", "coreml", "--kv", form, "--compute-units", units];
        let arguments =
            [&arguments[..], &["--launches", "3", "--requests", "3", "--force", "--out", &out]].concat();
        self.step(&format!("bench, {form}, {units}"), &arguments)?;
        Ok(())
    }
}

/// The tokens in what `generate --json` prints.
fn tokens(document: &str) -> Option<Vec<u64>> {
    let document: Value = serde_json::from_str(document).ok()?;
    let ids = document["sequences"].get(0)?["ids"].as_array()?;
    ids.iter().map(Value::as_u64).collect()
}

pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_and_rubbish_is_none() {
        assert_eq!(tokens(r#"{"sequences":[{"ids":[3,4]}]}"#), Some(vec![3, 4]));
        assert_eq!(tokens(r#"{"sequences":[]}"#), None);
        assert_eq!(tokens("rubbish"), None);
    }
}
