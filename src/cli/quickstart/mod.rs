//! `anemeter quickstart`: the whole flow on a small model, by the commands that anyone would use.

mod model;
mod steps;
mod summary;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::output::create_folder;
use super::{Failure, Output, Result, Status};
use model::Model;
use steps::Step;

/// Run the whole flow on a small built-in model, in about a minute: export, lint, verify, bench, bless, compare, gate, report.
#[derive(clap::Args)]
#[command(
    after_help = "Everything runs on the `cpu` runtime: its figures are not figures of the Neural Engine. Baselines are written to \
the folder of this run only.\n\n\
Examples:\n  anemeter quickstart\n  anemeter quickstart --model smollm2\n  \
anemeter quickstart --model my-checkpoint -o tried"
)]
pub(super) struct Args {
    /// `merrow`, a built-in decoder of half a million parameters; `smollm2`, which `cargo xtask fetch-smollm2` fetches; or the
    /// path of a checkpoint.
    #[arg(long, default_value = "merrow")]
    model: String,
    /// A new folder for all files [default: a temporary one].
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let model = Model::named(&args.model)?;
    let folder = folder(args.out.as_deref())?;
    let checkpoint = model.place(&folder)?;
    output.text(format_args!(
        "Converts a checkpoint to Core ML, verifies, benchmarks and gates it.\n\
         Everything runs on the CPU of this machine: no figure below is one of the Neural Engine.\n\
         Files go to {}\n\n",
        folder.display()
    ))?;
    let steps = steps::of(&model, &checkpoint);
    let began = Instant::now();
    for (index, step) in steps.iter().enumerate() {
        output.line(format_args!("{}/{} {}", index + 1, steps.len(), step.what))?;
        output.line(format_args!("    $ anemeter {}", shown(&step.arguments)))?;
        output.flush()?;
        let printed = perform(step, &folder)?;
        for line in (step.summary)(&folder, &printed)? {
            output.line(format_args!("    {line}"))?;
        }
        output.line("")?;
    }
    let (seconds, page) = (began.elapsed().as_secs_f64(), folder.join(steps::PAGE));
    output.line(format_args!("Done in {seconds:.0} s. Open {}", page.display()))?;
    output.text(format_args!("\n{}\n", steps::NEXT_STEPS))?;
    Ok(Status::Good)
}

/// A folder that is empty.
fn folder(wanted: Option<&Path>) -> Result<PathBuf> {
    let Some(folder) = wanted else {
        let made = tempfile::Builder::new().prefix("anemeter-quickstart-").tempdir();
        return made
            .map(tempfile::TempDir::keep)
            .map_err(|e| Failure::bad_input(format!("temporary folder: {e}")));
    };
    let failed = |e| Failure::at(folder, e);
    create_folder(folder)?;
    if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
        return Err(Failure::at(folder, "is not empty").with_help("give a folder that is new"));
    }
    folder.canonicalize().map_err(failed)
}

/// Runs a step as this very program and gives what it printed.
fn perform(step: &Step, folder: &Path) -> Result<String> {
    let program =
        std::env::current_exe().map_err(|e| Failure::bad_input(format!("cannot find this program: {e}")))?;
    let mut command = Command::new(program);
    command.args(&step.arguments).args(step.more).current_dir(folder).stdin(Stdio::null());
    // Annotations of a step that fails on purpose would be taken for real.
    command.env_remove("GITHUB_ACTIONS");
    let done = command.output().map_err(|e| Failure::bad_input(format!("cannot run this program: {e}")))?;
    let ended = done.status.code().unwrap_or(-1);
    if step.exit_codes.contains(&ended) {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(Failure::bad_input(format!(
        "`anemeter {}` in {} ended with exit code {ended}\n{}{}",
        shown(&step.arguments),
        folder.display(),
        String::from_utf8_lossy(&done.stdout),
        said.trim_end()
    )))
}

/// Arguments as they would be typed.
fn shown(arguments: &[OsString]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let text = argument.to_string_lossy();
        let plain = |c: char| c.is_alphanumeric() || "-_./,=:%".contains(c);
        if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_they_would_be_typed() {
        let arguments = ["generate", "bundle", "--prompt", "it's late"].map(OsString::from);
        assert_eq!(shown(&arguments), r"generate bundle --prompt 'it'\''s late'");
    }

    #[test]
    fn a_folder_that_holds_something_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(super::folder(Some(folder.path())).is_ok());
        super::super::output::write_file(&folder.path().join("x"), b"x").unwrap();
        assert!(super::folder(Some(folder.path())).is_err());
    }
}
