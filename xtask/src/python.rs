//! A Python of our own with pinned packages, below `target/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{succeed, works};
use crate::project::Project;

/// A list of packages and the file in the environment that says which of it is installed.
struct Requirements {
    list: &'static str,
    stamp: &'static str,
}

const COREMLTOOLS: Requirements =
    Requirements { list: "xtask/python/requirements.txt", stamp: "requirements.stamp" };
const CLUSTERING: Requirements =
    Requirements { list: "xtask/python/requirements-compress.txt", stamp: "requirements-compress.stamp" };
const TORCH: Requirements =
    Requirements { list: "xtask/python/requirements-torch.txt", stamp: "requirements-torch.stamp" };

const MOTO: Requirements =
    Requirements { list: "xtask/python/requirements-remote.txt", stamp: "requirements-remote.stamp" };

const PEERS: Requirements =
    Requirements { list: "xtask/python/requirements-peers.txt", stamp: "requirements-peers.stamp" };

const TRANSFORMERS: Requirements =
    Requirements { list: TRANSFORMERS_LIST, stamp: "requirements-transformers.stamp" };

/// The versions of transformers and what it needs beside torch.
pub(crate) const TRANSFORMERS_LIST: &str = "xtask/python/requirements-transformers.txt";

/// The interpreter with coremltools, or nothing where the machine has no Python.
pub(crate) fn interpreter(project: &Project) -> Result<Option<PathBuf>> {
    if !works(project.command("python3").arg("--version")) {
        return Ok(None);
    }
    let folder = project.target.join("venv");
    let python = folder.join("bin/python");
    COREMLTOOLS.provide(project, &folder, || {
        succeed(project.command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        COREMLTOOLS.install(project, &python)
    })?;
    Ok(Some(python))
}

/// The interpreter with torch beside coremltools. The first time takes minutes and gigabytes.
pub(crate) fn interpreter_with_torch(project: &Project) -> Result<Option<PathBuf>> {
    let Some(python) = interpreter(project)? else { return Ok(None) };
    TORCH.provide(project, &project.target.join("venv"), || TORCH.install(project, &python))?;
    Ok(Some(python))
}

/// The interpreter with torch and transformers.
pub(crate) fn interpreter_with_transformers(project: &Project) -> Result<Option<PathBuf>> {
    let Some(python) = interpreter_with_torch(project)? else { return Ok(None) };
    TRANSFORMERS.provide(project, &project.target.join("venv"), || TRANSFORMERS.install(project, &python))?;
    Ok(Some(python))
}

/// The interpreter with the engines that `bench-peers` measures, beside transformers.
pub(crate) fn interpreter_for_peers(project: &Project) -> Result<Option<PathBuf>> {
    let Some(python) = interpreter_with_transformers(project)? else { return Ok(None) };
    PEERS.provide(project, &project.target.join("venv"), || PEERS.install(project, &python))?;
    Ok(Some(python))
}

/// The interpreter with the libraries that coremltools clusters with.
pub(crate) fn interpreter_for_compression(project: &Project) -> Result<Option<PathBuf>> {
    let Some(python) = interpreter(project)? else { return Ok(None) };
    CLUSTERING.provide(project, &project.target.join("venv"), || CLUSTERING.install(project, &python))?;
    Ok(Some(python))
}

/// An interpreter with a server that speaks S3, in an environment of its own.
pub(crate) fn interpreter_with_moto(project: &Project) -> Result<Option<PathBuf>> {
    if !works(project.command("python3").arg("--version")) {
        return Ok(None);
    }
    let folder = project.target.join("venv-remote");
    let python = folder.join("bin/python");
    MOTO.provide(project, &folder, || {
        succeed(project.command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        MOTO.install(project, &python)
    })?;
    Ok(Some(python))
}

impl Requirements {
    /// Calls `install` unless the environment has what the list wants.
    fn provide(&self, project: &Project, folder: &Path, install: impl Fn() -> Result<()>) -> Result<()> {
        let wanted = fs::read_to_string(project.root.join(self.list));
        let wanted = wanted.with_context(|| format!("read {}", self.list))?;
        let stamp = folder.join(self.stamp);
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        println!("making a Python environment for {}", wanted.lines().collect::<Vec<_>>().join(", "));
        install()?;
        fs::write(stamp, wanted)?;
        Ok(())
    }

    fn install(&self, project: &Project, python: &Path) -> Result<()> {
        let mut pip = project.command(python);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "-r"]);
        succeed(pip.arg(project.root.join(self.list)))
    }
}
