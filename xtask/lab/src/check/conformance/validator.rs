//! The validator of packages, which uses the libraries of coremltools.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::python;
use xtask::process::read;
use xtask::project::Project;

/// The validator with the Python it runs in.
pub(crate) struct Validator<'p> {
    project: &'p Project,
    python: PathBuf,
    script: PathBuf,
}

/// What the validator says of one package.
#[derive(Debug, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<Violation>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Violation {
    pub(crate) check: String,
    #[serde(rename = "where")]
    pub(crate) place: String,
    pub(crate) message: String,
}

impl Violation {
    /// The same complaint; its words may depend on the order of a map.
    pub(crate) fn is_like(&self, other: &Violation) -> bool {
        self.check == other.check && self.place == other.place
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let message = self.message.lines().next().unwrap_or("");
        write!(f, "{} {}: {message:.160}", self.check, self.place)
    }
}

impl Validator<'_> {
    /// The validator, or nothing where there is no Python or no script beside the repository.
    pub(crate) fn find(project: &Project) -> Result<Option<Validator<'_>>> {
        let script = project.shared.join("tools/validate_mlpackage.py");
        if !script.is_file() {
            return Ok(None);
        }
        Ok(python::interpreter(project)?.map(|python| Validator { project, python, script }))
    }

    /// A verdict per package. One process family judges them all: importing coremltools takes seconds.
    pub(crate) fn validate(&self, packages: &[&Path]) -> Result<Vec<Verdict>> {
        let list = self.project.target.join("conformance/validate.txt");
        let lines: String = packages.iter().map(|path| format!("{}\n", path.display())).collect();
        fs::create_dir_all(self.project.target.join("conformance"))?;
        fs::write(&list, lines)?;
        let mut command = self.project.command(&self.python);
        command.arg("xtask/python/validate_many.py").arg(&self.script).stdin(File::open(&list)?);
        let verdicts: Vec<Verdict> = read(&mut command)?
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("read the verdict {line}")))
            .collect::<Result<_>>()?;
        let (expected, found) = (packages.len(), verdicts.len());
        ensure!(found == expected, "{expected} packages got {found} verdicts");
        Ok(verdicts)
    }

    /// Fails if a package is refused.
    pub(crate) fn accepts(&self, packages: &[PathBuf]) -> Result<()> {
        let paths: Vec<&Path> = packages.iter().map(PathBuf::as_path).collect();
        let mut refused = 0;
        for (path, verdict) in paths.iter().zip(self.validate(&paths)?) {
            if let Some(violation) = verdict.violations.first() {
                eprintln!("{}: {violation}", path.display());
                refused += 1;
            }
        }
        ensure!(refused == 0, "the validator refuses {refused} of {} packages", packages.len());
        Ok(())
    }
}
