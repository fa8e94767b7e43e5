//! `cargo xtask bench auto`: what `--precision auto` takes to choose bits for SmolLM2, against one pass of the same text
//! through the model, so that a busy machine slows both.

use std::fs;
use std::path::Path;

use anemeter::bundle::Bundle;
use anemeter::export::Automatic;
use anemeter::generate::{Input, Text};
use anemeter::harness::BUILT_IN_TEXT;
use anyhow::{Context, Result, bail};
use pico_args::Arguments;

use super::export::measured::{Measured, run as measured};
use crate::fetch_smollm2::{Fetched, fetch};
use xtask::median;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::{Project, make_empty};
use xtask::record;

/// Seconds that the whole export may take.
const MOST_SECONDS: f64 = 120.0;

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
    let (plain, text) = (folder.join("fp16"), folder.join("text.txt"));
    succeed(
        project.command(&program).arg("export").arg(&model).arg("-o").arg(&plain).args(["--shapes", "512"]),
    )?;
    fs::write(&text, beginning(&Bundle::open(&plain)?)?)?;

    let (mut chosen, mut passes) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let (choice, pass) = one_round(project, &program, &model, (&folder, &text))?;
        println!(
            "round {round}: {:.1} s, {:.1} s of CPU; one pass {:.2} s, {:.2} s of CPU",
            choice.seconds, choice.cpu_seconds, pass.seconds, pass.cpu_seconds
        );
        chosen.push(choice);
        passes.push(pass);
    }
    fs::remove_dir_all(&folder)?;
    let table = table(&chosen, &passes);
    println!("\n{table}");
    if recorded {
        let (command, tokens) = (format!("cargo xtask bench auto --rounds {rounds}"), Automatic::TOKENS);
        let text = format!("medians of {rounds} rounds, a text of {tokens} tokens.\n\n{table}");
        record::write(project, "bench auto", &command, &text)?;
    }
    let seconds = median(chosen.iter().map(|choice| choice.seconds).collect());
    match seconds <= MOST_SECONDS {
        true => Ok(Outcome::Checked(format!("{seconds:.0} s"))),
        false => bail!("{seconds:.0} s are more than {MOST_SECONDS}"),
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

/// An export that chooses, and an evaluation that gives the model the same tokens one by one; whole processes.
fn one_round(
    project: &Project,
    program: &Path,
    model: &Path,
    (folder, text): (&Path, &Path),
) -> Result<(Measured, Measured)> {
    let path = |word: &'static str| -> &Path { word.as_ref() };
    let (output, plain) = (folder.join("auto"), folder.join("fp16"));
    let export = [program, path("export"), model, path("-o"), &output];
    let flags = ["--overwrite", "--shapes", "512", "--precision", "auto", "--target-bits", "4.5"].map(path);
    let choice = measured(project, &[&export[..], &flags, &[path("--calibration"), text]].concat())?;
    let eval = [program, path("eval"), &plain, path("--text"), text, path("--runtime"), path("cpu")];
    Ok((choice, measured(project, &eval)?))
}

fn table(chosen: &[Measured], passes: &[Measured]) -> String {
    let row = |what: &str, of: fn(&Measured) -> f64| {
        let ratio = median(chosen.iter().zip(passes).map(|(choice, pass)| of(choice) / of(pass)).collect());
        let [choice, pass] = [chosen, passes].map(|all| median(all.iter().map(of).collect()));
        format!("| {what} | {choice:.1} s | {pass:.2} s | {ratio:.1} |\n")
    };
    let heading =
        "| | `--precision auto --target-bits 4.5` | one pass, token by token | ratio |\n|---|--:|--:|--:|\n";
    let rows = row("wall time", |m| m.seconds) + &row("CPU time", |m| m.cpu_seconds);
    let verdict = match median(chosen.iter().map(|choice| choice.seconds).collect()) <= MOST_SECONDS {
        true => "met",
        false => "MISSED",
    };
    format!("{heading}{rows}\nTarget: the whole export in at most {MOST_SECONDS} s: {verdict}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_a_round() {
        let of = |seconds: f64| Measured { seconds, cpu_seconds: 2.0 * seconds, peak_bytes: 0, status: 0 };
        let text = table(&[of(20.0), of(100.0), of(30.0)], &[of(1.0), of(10.0), of(1.0)]);
        assert!(text.contains("| wall time | 30.0 s | 1.00 s | 20.0 |\n"), "{text}");
        assert!(
            text.contains("| CPU time | 60.0 s | 2.00 s | 20.0 |\n") && text.contains(": met."),
            "{text}"
        );
        assert!(table(&[of(121.0)], &[of(1.0)]).contains("MISSED"));
    }
}
