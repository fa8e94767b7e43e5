//! The program of a commit: how it is built, and how it is asked for what is measured.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use xtask::process::{read, succeed};
use xtask::project::Project;

/// The sequence length that is exported, filled by a prompt and what is decoded after it.
const SEQ_LEN: usize = 512;
const DECODED: usize = 48;
const THREADS: &str = "2";
const PRECISION: &str = "lut4:group=16";

/// Spellings of each flag that is given below, today's first. A commit takes the first that its `--help` has.
const FLAGS: &[&[&str]] = &[
    &["--chunks"],
    &["--json"],
    &["--max-tokens"],
    &["--out", "--output"],
    &["--overwrite"],
    &["--precision"],
    &["--runtime"],
    &["--shapes"],
    &["--threads"],
    &["--token-ids"],
];

/// `anemeter` of a commit.
pub(super) struct Program {
    pub(super) commit: String,
    path: PathBuf,
}

impl Program {
    /// Builds it for speed in a tree and a target of its own, unless it has been built before.
    pub(super) fn build(project: &Project, folder: &Path, commit: &str) -> Result<Program> {
        let name = format!("anemeter-{commit}{}", std::env::consts::EXE_SUFFIX);
        let program = Program { commit: commit.to_owned(), path: folder.join(name) };
        if program.path.is_file() {
            return Ok(program);
        }
        println!("building {commit} for speed");
        let tree = folder.join(commit);
        let target = tree.join("target");
        let git = |arguments: &[&str]| {
            let mut git = project.command("git");
            succeed(git.arg("worktree").args(arguments).arg(&tree))
        };
        if tree.exists() {
            git(&["remove", "--force"])?;
        }
        let mut add = project.command("git");
        succeed(add.args(["worktree", "add", "--quiet", "--detach"]).arg(&tree).arg(commit))?;
        let mut build =
            project.cargo(&["build", "--release", "--quiet", "--package", "anemeter", "--bin", "anemeter"]);
        succeed(build.current_dir(&tree).env("CARGO_TARGET_DIR", &target))?;
        let built = target.join("release").join(format!("anemeter{}", std::env::consts::EXE_SUFFIX));
        fs::copy(&built, &program.path).with_context(|| format!("copy {}", built.display()))?;
        git(&["remove", "--force"])?;
        Ok(program)
    }

    /// A command, with each flag as this commit spells it.
    fn command(&self, project: &Project, name: &str, words: &[&str]) -> Result<Command> {
        let help = read(project.command(&self.path).args([name, "--help"]))?;
        let mut command = project.command(&self.path);
        command.arg(name);
        for word in words {
            let spelled = if word.starts_with("--") {
                spelling(&help, word)
                    .with_context(|| format!("`{name}` of {} has no `{word}`", self.commit))?
            } else {
                word
            };
            command.arg(spelled);
        }
        Ok(command)
    }
}

fn spelling(help: &str, flag: &str) -> Option<&'static str> {
    let known = FLAGS.iter().find(|spellings| spellings.contains(&flag))?;
    let is_word = |c: char| c.is_alphanumeric() || c == '-';
    let words: Vec<&str> = help.split(|c: char| !is_word(c)).collect();
    known.iter().copied().find(|spelling| words.contains(spelling))
}

/// What one program took for each measure, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) export: f64,
    pub(super) compress: f64,
    pub(super) prefill: f64,
    /// Of one token.
    pub(super) decode: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sample { export, compress, prefill, decode } = self;
        write!(
            f,
            "export {export:.3} s, compress {compress:.3} s, prefill {prefill:.3} s, decode {:.2} ms",
            decode * 1e3
        )
    }
}

/// What all programs work on.
pub(super) struct Bench<'a> {
    pub(super) project: &'a Project,
    pub(super) checkpoint: PathBuf,
    pub(super) folder: PathBuf,
    /// How many tokens the model knows.
    pub(super) vocabulary: usize,
}

impl Bench<'_> {
    /// One round: export, compress what was exported, prefill and decode with it.
    pub(super) fn sample(&self, program: &Program) -> Result<Sample> {
        // A folder of its own: neither program replaces a bundle of the other's format.
        let written = self.written(program);
        fs::create_dir_all(&written)?;
        let path = |name: &str| written.join(name).display().to_string();
        let (checkpoint, bundle) = (self.checkpoint.display().to_string(), path("bundle"));
        let (package, small) = (path("bundle/model.mlpackage"), path("small.mlpackage"));
        let seq_len = SEQ_LEN.to_string();
        let export = [&checkpoint, "--out", &bundle, "--overwrite", "--chunks", "1", "--shapes", &seq_len];
        let compress = [&package, "--out", &small, "--overwrite", "--precision", PRECISION];
        let (prompt, decoded) = (self.prompt(), (DECODED + 1).to_string());
        let generate = [&bundle, "--token-ids", &prompt, "--max-tokens", &decoded, "--runtime", "cpu"];
        let generate = [&generate[..], &["--threads", THREADS, "--json"]].concat();
        let export = time(&mut program.command(self.project, "export", &export)?)?;
        let compress = time(&mut program.command(self.project, "compress", &compress)?)?;
        let told = read(&mut program.command(self.project, "generate", &generate)?)?;
        let (prefill, decode) = timings(&told)?;
        Ok(Sample { export, compress, prefill, decode })
    }

    /// Tokens that fill the sequence length, but for what is decoded.
    fn prompt(&self) -> String {
        let ids = (0..SEQ_LEN - DECODED - 1).map(|at| (at * 7919 % self.vocabulary).to_string());
        ids.collect::<Vec<_>>().join(",")
    }

    fn written(&self, program: &Program) -> PathBuf {
        self.folder.join(format!("written-{}", program.commit))
    }

    /// Removes what was made, but for the programs.
    pub(super) fn remove(&self, programs: &[Program]) -> Result<()> {
        let written = programs.iter().map(|program| self.written(program));
        for folder in written.chain([self.checkpoint.clone()]) {
            fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
        }
        Ok(())
    }
}

/// Seconds that a command takes by the clock. What was written before is on disk by then, so that it pays for its own only.
fn time(command: &mut Command) -> Result<f64> {
    succeed(&mut Command::new("sync"))?;
    let started = Instant::now();
    read(command)?;
    Ok(started.elapsed().as_secs_f64())
}

/// Seconds of the prefill and, the median, of a token, in what `generate --json` prints.
fn timings(document: &str) -> Result<(f64, f64)> {
    let document: Value = serde_json::from_str(document).context("read what `generate --json` prints")?;
    let timings = &document["timings"];
    let prefill = timings["prefill_ms"].as_f64().context("`generate --json` has no prefill_ms")?;
    let steps = timings["steps_ms"].as_array().context("`generate --json` has no steps_ms")?;
    ensure!(steps.len() == DECODED, "{} tokens were decoded, {DECODED} expected", steps.len());
    let steps: Vec<f64> = steps.iter().filter_map(Value::as_f64).collect();
    Ok((prefill / 1e3, xtask::median(steps) / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_spelled_as_the_help_has_them() {
        let help = "Options:\n  -o, --output <DIR>  \n      --shapes <N,…>  see --no-json\n";
        assert_eq!(spelling(help, "--out"), Some("--output"));
        assert_eq!(spelling(help, "--shapes"), Some("--shapes"));
        assert_eq!(spelling(help, "--json"), None);
        assert_eq!(spelling(help, "--unknown"), None);
    }

    #[test]
    fn timings_are_read_or_refused() {
        let steps = vec![Value::from(20.0); DECODED];
        let document = serde_json::json!({ "timings": { "prefill_ms": 500.0, "steps_ms": steps } });
        assert_eq!(timings(&document.to_string()).unwrap(), (0.5, 0.02));
        let short = serde_json::json!({ "timings": { "prefill_ms": 500.0, "steps_ms": [20.0] } });
        assert_eq!(
            timings(&short.to_string()).unwrap_err().to_string(),
            "1 tokens were decoded, 48 expected"
        );
        assert!(timings("{}").is_err());
    }
}
