//! `cargo xtask fetch-smollm2`: a small real model as GGUF, below `target/smollm2/`.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use pico_args::Arguments;

use xtask::outcome::Outcome;
use xtask::process::works;
use xtask::project::Project;

pub(crate) fn run(project: &Project, _: Arguments) -> Result<Outcome> {
    Ok(match fetch(project)? {
        Fetched::There(path) => {
            println!("{}", path.display());
            Outcome::Checked(format!("{} has the expected digest", path.display()))
        }
        Fetched::NotAvailable(why) => Outcome::not_checked("SmolLM2", &why),
    })
}

/// What came of it.
pub(crate) enum Fetched {
    /// The model, with the expected digest.
    There(PathBuf),
    /// Why it could not be had.
    NotAvailable(String),
}

/// The exit status with which the script says that pip could not get the model.
const NOT_AVAILABLE: i32 = 77;

/// Downloads the model unless it is there.
pub(crate) fn fetch(project: &Project) -> Result<Fetched> {
    if !works(project.command("python3").args(["-m", "pip", "--version"])) {
        return Ok(Fetched::NotAvailable("there is no python3 with pip".to_owned()));
    }
    let mut script = project.command("python3");
    script.arg("xtask/python/fetch_smollm2.py").arg(project.target.join("smollm2"));
    let output = script.stderr(Stdio::inherit()).output().context("start fetch_smollm2.py")?;
    match output.status.code() {
        Some(0) => {
            let path = String::from_utf8(output.stdout).context("the path of the model is not text")?;
            Ok(Fetched::There(path.trim_end().into()))
        }
        Some(NOT_AVAILABLE) => Ok(Fetched::NotAvailable("pip cannot download it".to_owned())),
        _ => bail!("fetch_smollm2.py failed ({})", output.status),
    }
}
