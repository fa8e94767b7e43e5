//! Where things are: the repository, its target folder, and the optional material beside it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process::succeed;

/// The environment variable that says where the material beside the repository is instead.
const SHARED_VARIABLE: &str = "ANEMETER_SHARED";

/// Makes a folder, without what was in it before.
pub fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))
}

/// The repository this task belongs to.
pub struct Project {
    /// Its top folder.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
    /// Corpus, samples and validators that are not part of the repository; may not exist.
    pub shared: PathBuf,
}

impl Project {
    /// The repository that this program was built from.
    pub fn find() -> Result<Project> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask/ has no parent folder")?;
        let absolute = |variable: &str, default: &str| {
            root.join(env::var_os(variable).map_or_else(|| PathBuf::from(default), PathBuf::from))
        };
        Ok(Project {
            root: root.to_owned(),
            target: absolute("CARGO_TARGET_DIR", "target"),
            shared: absolute(SHARED_VARIABLE, "../shared"),
        })
    }

    /// A program to be started in the repository, without input.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).stdin(Stdio::null());
        command
    }

    /// A cargo command.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("cargo");
        command.args(arguments);
        command
    }

    /// A program of the workspace, built for speed.
    pub fn release(&self, package: &str) -> Result<PathBuf> {
        succeed(&mut self.cargo(&["build", "--release", "--quiet", "--package", package, "--bin", package]))?;
        Ok(self.target.join("release").join(format!("{package}{}", env::consts::EXE_SUFFIX)))
    }
}
