//! A Python of our own with pinned packages, below `target/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use xtask::process::{succeed, works};
use xtask::project::Project;

/// A list of packages.
struct Requirements(&'static str);

const COREMLTOOLS: Requirements = Requirements("xtask/python/requirements.txt");
const CLUSTERING: Requirements = Requirements("xtask/python/requirements-compress.txt");
const TORCH: Requirements = Requirements("xtask/python/requirements-torch.txt");
const COREAI: Requirements = Requirements("xtask/python/requirements-coreai.txt");
const OLDEST_COREAI: Requirements = Requirements("xtask/python/requirements-coreai-oldest.txt");
const COREAI_TORCH: Requirements = Requirements("xtask/python/requirements-coreai-torch.txt");
const MOTO: Requirements = Requirements("xtask/python/requirements-remote.txt");
const PEERS: Requirements = Requirements("xtask/python/requirements-peers.txt");
const MODELS: Requirements = Requirements("xtask/python/requirements-packages.txt");
const TRANSFORMERS: Requirements = Requirements(TRANSFORMERS_LIST);

/// The versions of transformers and what it needs beside torch.
pub(crate) const TRANSFORMERS_LIST: &str = "xtask/python/requirements-transformers.txt";

/// The environment that coremltools is in.
const ENVIRONMENT: &str = "venv";

/// The interpreter with coremltools, or nothing where the machine has no Python.
pub(crate) fn interpreter(project: &Project) -> Result<Option<PathBuf>> {
    COREMLTOOLS.in_environment(project, ENVIRONMENT)
}

/// The interpreter with torch beside coremltools. The first time takes minutes and gigabytes.
pub(crate) fn interpreter_with_torch(project: &Project) -> Result<Option<PathBuf>> {
    TORCH.beside(project, interpreter(project)?)
}

/// The interpreter with torch and transformers.
pub(crate) fn interpreter_with_transformers(project: &Project) -> Result<Option<PathBuf>> {
    TRANSFORMERS.beside(project, interpreter_with_torch(project)?)
}

/// The interpreter with models of torchvision and sentence-transformers, beside transformers; nothing where they cannot be
/// installed.
pub(crate) fn interpreter_for_packages(project: &Project) -> Result<Option<PathBuf>> {
    let made = interpreter_with_transformers(project).and_then(|python| MODELS.beside(project, python));
    Ok(made.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        None
    }))
}

/// The interpreter with the engines that `bench peers` measures, beside transformers.
pub(crate) fn interpreter_for_peers(project: &Project) -> Result<Option<PathBuf>> {
    PEERS.beside(project, interpreter_with_transformers(project)?)
}

/// The interpreter with the libraries that coremltools clusters with.
pub(crate) fn interpreter_for_compression(project: &Project) -> Result<Option<PathBuf>> {
    CLUSTERING.beside(project, interpreter(project)?)
}

/// An interpreter with a server that speaks S3, in an environment of its own.
pub(crate) fn interpreter_with_moto(project: &Project) -> Result<Option<PathBuf>> {
    MOTO.in_environment(project, "venv-remote")
}

/// An interpreter with Apple's runtime for Core AI, in an environment of its own; nothing where its wheel cannot be
/// installed.
pub(crate) fn interpreter_with_coreai(project: &Project) -> Result<Option<PathBuf>> {
    Ok(COREAI.in_environment(project, "venv-coreai").unwrap_or_else(|error| {
        eprintln!("{error:#}");
        None
    }))
}

/// The interpreter with Apple's converter from torch to Core AI, in an environment of its own; nothing where it cannot be
/// installed. The first time takes minutes and gigabytes.
pub(crate) fn interpreter_with_coreai_torch(project: &Project) -> Result<Option<PathBuf>> {
    Ok(COREAI_TORCH.in_environment(project, "venv-coreai-torch").unwrap_or_else(|error| {
        eprintln!("{error:#}");
        None
    }))
}

/// The interpreters with the oldest and the newest wheel of Apple's runtime for Core AI; nothing where either cannot be
/// installed.
pub(crate) fn interpreters_with_coreai(project: &Project) -> Result<Option<[PathBuf; 2]>> {
    let oldest = OLDEST_COREAI.in_environment(project, "venv-coreai-oldest").unwrap_or_else(|error| {
        eprintln!("{error:#}");
        None
    });
    Ok(oldest.zip(interpreter_with_coreai(project)?).map(|(oldest, newest)| [oldest, newest]))
}

impl Requirements {
    /// The interpreter of an environment that is made for these packages.
    fn in_environment(&self, project: &Project, name: &str) -> Result<Option<PathBuf>> {
        if !works(project.command("python3").arg("--version")) {
            return Ok(None);
        }
        let folder = project.target.join(name);
        let python = folder.join("bin/python");
        self.provide(project, &folder, || {
            succeed(project.command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
            self.install(project, &python)
        })?;
        Ok(Some(python))
    }

    /// The interpreter of [`ENVIRONMENT`], if there is one, with these packages besides.
    fn beside(&self, project: &Project, python: Option<PathBuf>) -> Result<Option<PathBuf>> {
        if let Some(python) = &python {
            self.provide(project, &project.target.join(ENVIRONMENT), || self.install(project, python))?;
        }
        Ok(python)
    }

    /// Calls `install` unless the environment has what the list wants, as a file in it says.
    fn provide(&self, project: &Project, folder: &Path, install: impl Fn() -> Result<()>) -> Result<()> {
        let list = project.root.join(self.0);
        let wanted = fs::read_to_string(&list).with_context(|| format!("read {}", self.0))?;
        let stamp = folder.join(list.with_extension("stamp").file_name().context("a list has no name")?);
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
        succeed(pip.arg(project.root.join(self.0)))
    }
}
