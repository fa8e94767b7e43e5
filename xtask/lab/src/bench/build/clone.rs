//! A clone that nothing was built in, with a cargo that has downloaded nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Step;
use crate::bench::export::measured::{Measured, parse};
use xtask::process::succeed;
use xtask::project::Project;

/// What may stand in a user's cargo folder and says where the registry is and who may read it.
const SETTINGS: [&str; 4] = ["config", "config.toml", "credentials", "credentials.toml"];
/// What would build elsewhere, or take from elsewhere what was built.
const FOREIGN: [&str; 4] =
    ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER"];

/// A clone of one commit.
pub(super) struct Clone {
    commit: String,
    folder: PathBuf,
    /// Its own cargo folder.
    home: PathBuf,
}

impl Clone {
    pub(super) fn make(project: &Project, parent: &Path, commit: &str) -> Result<Clone> {
        let folder = parent.join(commit);
        let home = parent.join(format!("{commit}-cargo"));
        let mut clone = project.command("git");
        clone.args(["clone", "--local", "--quiet", "--no-checkout"]).arg(&project.root);
        succeed(clone.arg(&folder))?;
        let mut checkout = project.command("git");
        succeed(checkout.args(["checkout", "--quiet", "--detach", commit]).current_dir(&folder))?;
        fs::create_dir_all(&home)?;
        if let Some(users) = users_home() {
            copy_settings(&users, &home)?;
        }
        Ok(Clone { commit: commit.to_owned(), folder, home })
    }

    /// Runs a step and takes its time, with all the processes it starts. An old commit may fail by now (a property test
    /// that finds a case, a date); the table says so, and its time counts.
    pub(super) fn time(&self, project: &Project, step: &Step, may_fail: bool) -> Result<Measured> {
        let target = self.folder.join("target");
        if step.is_from_nothing && target.exists() {
            fs::remove_dir_all(&target)?;
        }
        let mut command = project.command("python3");
        command.arg(project.root.join("xtask/python/measure.py"));
        command.args(may_fail.then_some("--any-status")).args(step.command);
        command.current_dir(&self.folder).env("CARGO_HOME", &self.home);
        for variable in FOREIGN {
            command.env_remove(variable);
        }
        let measured: Measured =
            parse(&mut command).with_context(|| format!("{} at {}", step.name, self.commit))?;
        println!(
            "{} at {}: {:.1} s, {:.1} s of CPU",
            step.name, self.commit, measured.seconds, measured.cpu_seconds
        );
        Ok(measured)
    }
}

fn users_home() -> Option<PathBuf> {
    let given = env::var_os("CARGO_HOME").map(PathBuf::from);
    given.or_else(|| Some(env::home_dir()?.join(".cargo")))
}

fn copy_settings(from: &Path, to: &Path) -> Result<()> {
    for name in SETTINGS {
        let file = from.join(name);
        if file.is_file() {
            fs::copy(&file, to.join(name)).with_context(|| format!("copy {}", file.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_are_taken_from_the_users_cargo() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("registry")).unwrap();
        fs::write(from.path().join("config.toml"), "[net]\n").unwrap();
        fs::write(from.path().join("env"), "").unwrap();
        copy_settings(from.path(), to.path()).unwrap();
        let copied: Vec<_> =
            fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(copied, ["config.toml"]);
    }
}
