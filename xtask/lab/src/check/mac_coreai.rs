//! `cargo xtask check mac-coreai`: ten minutes on a Mac with macOS 27, which show what no other machine can of Core AI.

use std::path::PathBuf;

use anyhow::Result;
use pico_args::Arguments;

use super::mac_smoke::{Smoke, text};
use crate::python;
use xtask::outcome::Outcome;
use xtask::process::read;
use xtask::project::Project;

const WHAT: &str = "Core AI on macOS 27";
/// The checkpoint that `anemeter quickstart` uses: small enough for every step.
const SMALL: &str = "src/quickstart/model";
const FORMS: [&str; 2] = ["io", "state"];
/// Where operations should run: the CPU is a restriction, the others are wishes.
const UNITS: [&str; 4] = ["cpu", "cpu+ane", "cpu+gpu", "all"];
/// Ways to store weights, one of which others found to give wrong numbers on the Neural Engine without a word.
const PRECISIONS: [&str; 4] = ["fp16", "int8", "int4", "lut4:group=16"];
/// The version of macOS whose framework it is about.
const SYSTEM: u32 = 27;

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let checkpoint: Option<PathBuf> = arguments.opt_value_from_str("--checkpoint")?;
    // The steps themselves can be tried wherever the wheel is; what they show is about a Mac only.
    let anywhere = arguments.contains("--anywhere");
    xtask::finish(arguments)?;
    if !anywhere && !is_macos_27(project) {
        return Ok(Outcome::not_checked(WHAT, "this is no Mac with macOS 27"));
    }
    let Some(python) = python::interpreter_with_coreai(project)? else {
        return Ok(Outcome::not_checked(WHAT, "Apple's wheel coreai-core cannot be installed here"));
    };
    let mut smoke = Smoke::new(project, "mac-coreai")?;
    let checkpoint = checkpoint.unwrap_or_else(|| project.root.join(SMALL));
    smoke.python = Some(python);
    steps(&mut smoke, &text(&checkpoint))?;
    match anywhere {
        true => {
            smoke.finish("the steps", "docs/coreai-runtime.md")?;
            Ok(Outcome::not_checked(WHAT, "the steps were tried with whatever executes assets here"))
        }
        false => smoke.finish(WHAT, "docs/coreai-runtime.md"),
    }
}

fn is_macos_27(project: &Project) -> bool {
    let version = read(project.command("sw_vers").arg("-productVersion")).unwrap_or_default();
    version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= SYSTEM)
}

fn steps(smoke: &mut Smoke, checkpoint: &str) -> Result<()> {
    let bundle = |smoke: &Smoke, name: &str| text(&smoke.folder.join(name.replace(':', "-")));
    smoke.step("machine", &["doctor"])?;
    for (activations, precision) in
        PRECISIONS.map(|precision| ("fp16", precision)).into_iter().chain([("fp32", "fp16")])
    {
        let to = bundle(smoke, &format!("{activations}-{precision}"));
        let export =
            ["export", checkpoint, "-o", &to, "--overwrite", "--format", "coreml,coreai", "--shapes", "128"];
        let how = ["--kv", "io,state", "--activations", activations, "--precision", precision];
        smoke.step(&format!("export {activations} {precision}"), &[&export[..], &how].concat())?;
    }
    // Does the framework load what this program writes, and compute the same?
    let twin = bundle(smoke, "fp32-fp16");
    let verify = ["verify", &twin, "--checkpoint", checkpoint, "--runtime", "coreai", "--tokens", "8"];
    smoke.step("verify fp32 activations", &verify)?;
    let main = bundle(smoke, "fp16-fp16");
    for form in FORMS {
        smoke.same_tokens(&main, form, ["cpu", "coreai"])?;
    }
    // Where do numbers go wrong, and what does a call take?
    for precision in PRECISIONS {
        for units in UNITS {
            let of = bundle(smoke, &format!("fp16-{precision}"));
            let compare =
                ["compare", &of, "--runtime", "cpu,coreai", "--compute-units", units, "--calls", "20"];
            let title = format!("outputs and times, {precision}, {units}");
            smoke.step(&title, &compare)?;
        }
    }
    // Specialisation apart from load, of a first and of later launches.
    for units in UNITS {
        let out = bundle(smoke, &format!("report-{}", units.replace('+', "-")));
        let bench = [
            "bench",
            &main,
            "--runtime",
            "coreai",
            "--compute-units",
            units,
            "--launches",
            "3",
            "--requests",
            "3",
        ];
        let rest = ["--force", "--out", &out];
        smoke.step(&format!("bench {units}"), &[&bench[..], &rest].concat())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter::vocabulary::{Choice, ComputeUnits};

    #[test]
    fn wishes_are_compute_units() {
        for units in UNITS {
            assert!(ComputeUnits::ALL.iter().any(|known| known.name() == units), "{units}");
        }
    }
}
