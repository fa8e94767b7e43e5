//! What is damaged: a small checkpoint, and what the program makes of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use xtask::process::succeed;
use xtask::project::{Project, make_empty};

/// A workload that takes no time.
const WORKLOAD: &str = "\
schema: anemeter.bench/1
launches: 2
requests: 2
warmup: 0
generated_tokens: 2
prompts: { source: built-in, seed: 1 }
mix: { seq_lens: [16], weights: [1.0] }
";

/// Good files, and where they are.
pub(super) struct Scene {
    pub(super) program: PathBuf,
    pub(super) checkpoint: PathBuf,
    pub(super) bundle: PathBuf,
    pub(super) package: PathBuf,
    pub(super) report: PathBuf,
    pub(super) workload: PathBuf,
    pub(super) configs: PathBuf,
    /// Core AI assets of Apple's tools.
    pub(super) assets: PathBuf,
}

impl Scene {
    pub(super) fn make(project: &Project, program: &Path, folder: &Path) -> Result<Scene> {
        make_empty(folder)?;
        let at = |name: &str| folder.join(name);
        copy(&project.root.join("src/quickstart/model"), &at("checkpoint"))?;
        fs::write(at("bench.yaml"), WORKLOAD)?;
        let anemeter = |arguments: &[&str]| {
            succeed(project.command(program).current_dir(folder).args(arguments).arg("--quiet"))
        };
        anemeter(&["export", "checkpoint", "-o", "bundle", "--shapes", "16,32", "--kv", "io,state"])?;
        anemeter(&["bench", "bundle", "--workload", "bench.yaml", "-o", "report", "--runtime", "cpu"])?;
        let packages = fs::read_dir(at("bundle"))?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_package = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "mlpackage");
        Ok(Scene {
            program: program.to_owned(),
            checkpoint: at("checkpoint"),
            bundle: at("bundle"),
            package: packages.into_iter().find(is_package).context("the bundle has no package")?,
            report: at("report/report.json"),
            workload: at("bench.yaml"),
            configs: project.root.join("src/base/configs"),
            assets: project.root.join("src/coreai/testdata"),
        })
    }
}

/// Copies a folder; files that stay as they are, are linked.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => {
                fs::copy(entry.path(), &target)?;
            }
        }
    }
    Ok(())
}

/// The same without copying what is in files: to change one, remove it first.
pub(super) fn link(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => link(&entry.path(), &target)?,
            false => fs::hard_link(entry.path(), &target)?,
        }
    }
    Ok(())
}

/// Puts a file in the place of a linked one.
pub(super) fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        fs::remove_file(path)?;
    }
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

pub(super) fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_slice(&fs::read(path)?).with_context(|| format!("read {}", path.display()))
}
