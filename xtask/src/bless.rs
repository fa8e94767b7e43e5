//! `cargo xtask bless`: `anemeter bless`, built from this repository.

use anyhow::{Result, bail};
use pico_args::Arguments;

use crate::outcome::Outcome;
use crate::project::Project;
use crate::task::{Run, Task};

pub(crate) const TASK: Task = Task {
    name: "bless",
    arguments: "REPORT... [--baselines DIR] [--add-session] [--accept-regression REASON] [--accept-noise REASON]",
    about: "promote reports to a baseline, as `anemeter bless` does",
    not_checked: 1,
    run: Run::Here(run),
};

/// Relative paths are those of the folder that it is called in.
fn run(project: &Project, arguments: Arguments) -> Result<Outcome> {
    let manifest = project.root.join("Cargo.toml");
    let mut command = std::process::Command::new("cargo");
    command.args(["run", "--quiet", "--package", "anemeter", "--manifest-path"]).arg(manifest);
    let status = command.args(["--", "bless"]).args(arguments.finish()).status()?;
    if !status.success() {
        bail!("nothing was blessed ({status})");
    }
    Ok(Outcome::Checked("blessed".to_owned()))
}
