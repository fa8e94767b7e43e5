//! `cargo xtask bench auto`: what `--precision auto` takes to choose bits for SmolLM2, without data and with a calibration
//! text, against one pass of a text through the model, so that a busy machine slows all of them.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::bundle::Bundle;
use anemeter::export::Automatic;
use anemeter::generate::{Input, Text};
use anemeter::harness::BUILT_IN_TEXT;
use anyhow::{Context, Result, bail};
use pico_args::Arguments;

use super::export::measured::{Measured, run as measured};
use super::quality::CALIBRATION;
use crate::fetch_smollm2::{Fetched, fetch};
use xtask::median;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::{Project, make_empty};
use xtask::record;

/// Seconds that the whole export should take. One without data that takes longer than the first fails the task.
const TARGETS: [f64; 2] = [120.0, 60.0];

/// How bits are chosen: as `anemeter export` is called, and whether by a calibration text.
const FORMS: [(&str, bool); 2] =
    [("auto --target-bits 4.5", false), ("auto --target-bits 4.5 --calibration FILE", true)];

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let rounds: usize = arguments.opt_value_from_str("--rounds")?.unwrap_or(3).max(1);
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    let model = match fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Outcome::not_checked("auto", &why)),
    };
    println!("building for speed");
    let program = project.release("anemeter")?;
    let folder = project.target.join("bench-auto");
    make_empty(&folder)?;
    let files = Files::write(project, &program, &model, &folder)?;

    let mut all = Vec::new();
    for round in 1..=rounds {
        let found = files.one_round(project, &program, &model)?;
        for ((form, _), choice) in FORMS.iter().zip(&found.chosen) {
            println!(
                "round {round}, {form}: {:.1} s, {:.1} s of CPU; one pass {:.2} s, {:.2} s of CPU",
                choice.seconds, choice.cpu_seconds, found.pass.seconds, found.pass.cpu_seconds
            );
        }
        all.push(found);
    }
    fs::remove_dir_all(&folder)?;
    let table = table(&all);
    println!("\n{table}");
    if recorded {
        let (command, tokens) = (format!("cargo xtask bench auto --rounds {rounds}"), Automatic::TOKENS);
        let text = format!("medians of {rounds} rounds; the pass has {tokens} tokens.\n\n{table}");
        record::write(project, "bench auto", &command, &text)?;
    }
    let seconds = median(all.iter().map(|round| round.chosen[0].seconds).collect());
    match seconds <= TARGETS[0] {
        true => Ok(Outcome::Checked(format!("{seconds:.0} s without data"))),
        false => bail!("{seconds:.0} s without data are more than {}", TARGETS[0]),
    }
}

/// A bundle to pass a text through, and that text.
struct Files {
    folder: PathBuf,
}

/// What a round took: the exports of each form, and the pass.
struct Round {
    chosen: [Measured; 2],
    pass: Measured,
}

impl Files {
    fn write(project: &Project, program: &Path, model: &Path, folder: &Path) -> Result<Files> {
        let files = Files { folder: folder.to_owned() };
        let plain = files.at("fp16");
        succeed(
            project.command(program).arg("export").arg(model).arg("-o").arg(&plain).args(["--shapes", "512"]),
        )?;
        fs::write(files.at("text.txt"), beginning(&Bundle::open(&plain)?)?)?;
        Ok(files)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// An export of each form, and an evaluation that gives the model tokens one by one; whole processes.
    fn one_round(&self, project: &Project, program: &Path, model: &Path) -> Result<Round> {
        let path = |word: &'static str| -> &Path { word.as_ref() };
        let (output, plain, text) = (self.at("auto"), self.at("fp16"), self.at("text.txt"));
        let calibration = project.root.join(CALIBRATION);
        let export = [program, path("export"), model, path("-o"), &output];
        let flags =
            ["--overwrite", "--shapes", "512", "--precision", "auto", "--target-bits", "4.5"].map(path);
        let chosen = |is_calibrated: bool| {
            let data = [path("--calibration"), &calibration];
            let data = if is_calibrated { &data[..] } else { &[] };
            measured(project, &[&export[..], &flags, data].concat())
        };
        let chosen = [chosen(FORMS[0].1)?, chosen(FORMS[1].1)?];
        let eval = [program, path("eval"), &plain, path("--text"), &text, path("--runtime"), path("cpu")];
        Ok(Round { chosen, pass: measured(project, &eval)? })
    }
}

/// So much of the text that comes with the program that it has the tokens that are used.
fn beginning(bundle: &Bundle) -> Result<String> {
    let tokenizer = Text::open(bundle, None)?.context("the bundle has no tokenizer")?;
    let ends = BUILT_IN_TEXT.match_indices(' ').map(|(end, _)| end);
    for end in ends {
        let text = &BUILT_IN_TEXT[..end];
        if tokenizer.tokens(Input::Raw(text), usize::MAX)?.len() >= Automatic::TOKENS {
            return Ok(text.to_owned());
        }
    }
    bail!("the text has fewer than {} tokens", Automatic::TOKENS)
}

/// What is told of a process.
type Figure = fn(&Measured) -> f64;

fn table(rounds: &[Round]) -> String {
    let figures: [(&str, Figure); 2] =
        [("wall time", |took| took.seconds), ("CPU time", |took| took.cpu_seconds)];
    let mut rows = String::new();
    let mut targets = String::new();
    for (index, (form, _)) in FORMS.iter().enumerate() {
        for (what, of) in figures {
            let values = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
            let choice = values(&|round| of(&round.chosen[index]));
            let pass = values(&|round| of(&round.pass));
            let ratio = values(&|round| of(&round.chosen[index]) / of(&round.pass));
            rows += &format!("| `{form}` | {what} | {choice:.1} s | {pass:.2} s | {ratio:.1} |\n");
        }
        let taken = median(rounds.iter().map(|round| round.chosen[index].seconds).collect());
        for most in TARGETS {
            let verdict = if taken <= most { "met" } else { "MISSED" };
            targets += &format!("| `{form}` in at most {most} s | {taken:.1} s | {verdict} |\n");
        }
    }
    let head =
        "| `--precision` | | the whole export | one pass, token by token | ratio |\n|---|---|--:|--:|--:|\n";
    format!("{head}{rows}\n| target | measured | |\n|---|--:|---|\n{targets}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_a_round() {
        let of = |seconds: f64| Measured { seconds, cpu_seconds: 2.0 * seconds, peak_bytes: 0, status: 0 };
        let round =
            |chosen: f64, pass: f64| Round { chosen: [of(chosen), of(10.0 * chosen)], pass: of(pass) };
        let text = table(&[round(20.0, 1.0), round(100.0, 10.0), round(30.0, 1.0)]);
        for expected in [
            "| `auto --target-bits 4.5` | wall time | 30.0 s | 1.00 s | 20.0 |\n",
            "| `auto --target-bits 4.5` | CPU time | 60.0 s | 2.00 s | 20.0 |\n",
            "| `auto --target-bits 4.5` in at most 60 s | 30.0 s | met |\n",
            "| `auto --target-bits 4.5 --calibration FILE` | wall time | 300.0 s | 1.00 s | 200.0 |\n",
            "| `auto --target-bits 4.5 --calibration FILE` in at most 120 s | 300.0 s | MISSED |\n",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(table(&[round(61.0, 1.0)]).contains("4.5` in at most 60 s | 61.0 s | MISSED |"));
    }
}
