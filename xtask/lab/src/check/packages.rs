//! `cargo xtask check packages`: packages that coremltools makes of models of torchvision and transformers, through every
//! command from `adopt` to `report`; outputs against torch, greedy tokens against transformers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;
use serde::Deserialize;
use serde_json::Value;

use crate::python;
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::{Project, make_empty};
use xtask::record;

const WHAT: &str = "packages of others";
const SCRIPT: &str = "xtask/python/model_packages.py";
/// What a verdict on an unchanged package may be: a busy machine may make it doubtful, never a regression.
const UNCHANGED: &[i32] = &[0, 3];
/// What it may be on a package that every prediction of was made slower.
const SLOWED: &[i32] = &[1, 3];
/// By how much, in percent.
const SLOWER_BY: &str = "100";
/// Where `--record` keeps the table.
const DOCUMENT: &str = "docs/conformance.md";

/// How many times as far as torch in fp16 an output may be off: both round, but not in the same places.
const ROUNDINGS: f64 = 2.0;
/// What fp16 rounding may do to any output, as a share of the largest value.
const LEAST_TOLERANCE: f64 = 0.002;
/// The same of a twin that computes in fp32, where sums are only taken in another order.
const EXACT_TOLERANCE: f64 = 1e-4;

/// What the script says of a case.
#[derive(Deserialize)]
struct Case {
    name: String,
    kind: Kind,
    #[serde(default)]
    kv: Option<String>,
    /// How far torch in fp16 is off torch in fp32, as a share of the largest value; absent if there is no reference.
    #[serde(default)]
    half_error: Option<f64>,
    /// Whether the packages give the likeliest token and no logits.
    #[serde(default)]
    picks_tokens: bool,
    #[serde(default)]
    prompt: Vec<u32>,
    #[serde(default)]
    tokens: Vec<u32>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Predict,
    Language,
}

/// The program, and a folder of its own to work in.
struct Bench<'a> {
    program: &'a Path,
    folder: PathBuf,
}

/// What came of a case.
struct Row {
    name: String,
    /// Packages of it.
    packages: usize,
    /// The largest error of an output, as a share of the largest expected magnitude.
    error: Option<f64>,
    /// That of torch in fp16.
    half_error: Option<f64>,
    /// The largest error of the twin that computes in fp32.
    exact: Option<f64>,
    /// Tokens that are those of transformers.
    tokens: Option<usize>,
    /// The smallest cosine of logits with those of the checkpoint; none if the packages give no logits.
    cosine: Option<f64>,
    verdicts: Verdicts,
}

/// Exit codes of `gate` and `compare`.
struct Verdicts {
    gate: i32,
    /// Of the gate on a report that was slowed down; one model of each kind has it.
    slowed: Option<i32>,
    compare: i32,
}

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let given: Option<PathBuf> = arguments.opt_value_from_str("--program")?;
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    let recorded = arguments.contains("--record");
    xtask::finish(arguments)?;
    ensure!(!(recorded && only.is_some()), "--record keeps the rows of all models, which --only leaves out");
    let Some(python) = python::interpreter_for_packages(project)? else {
        return Ok(Outcome::not_checked(
            WHAT,
            "python3, torch, torchvision and transformers cannot be installed",
        ));
    };
    let made = project.target.join("packages/made");
    fs::create_dir_all(&made)?;
    let only: Vec<&str> = only.iter().flat_map(|names| names.split(',')).collect();
    succeed(project.command(&python).arg(SCRIPT).arg(&made).args(&only))?;
    let program = match given {
        Some(program) => fs::canonicalize(&program).with_context(|| program.display().to_string())?,
        None => project.release("anemeter")?,
    };
    let (mut rows, mut slowed) = (Vec::new(), Vec::new());
    for source in cases(&made, &only)? {
        let case: Case = serde_json::from_slice(&fs::read(source.join("case.json"))?)?;
        let folder = project.target.join("packages/checked").join(&case.name);
        make_empty(&folder)?;
        let bench = Bench { program: &program, folder };
        let first = !slowed.contains(&case.kind);
        slowed.extend(first.then_some(case.kind));
        let row = bench.check(&source, &case, first).with_context(|| case.name.clone())?;
        println!("{}", row.line());
        rows.push(row);
    }
    println!("\n{}", table(&rows));
    let done = summary(&rows);
    if recorded {
        let table = format!("{done}.\n\n{}", table(&rows));
        record::write_to(project, DOCUMENT, "check packages", "cargo xtask check packages", &table)?;
    }
    Ok(Outcome::Checked(done))
}

fn summary(rows: &[Row]) -> String {
    let tokens: usize = rows.iter().filter_map(|row| row.tokens).sum();
    let worst = rows.iter().filter_map(|row| row.error).fold(0.0, f64::max);
    format!(
        "{} models: the largest error is {:.2} % of the largest value, {tokens} greedy tokens are those of transformers",
        rows.len(),
        100.0 * worst
    )
}

/// Folders of the cases, in order.
fn cases(made: &Path, only: &[&str]) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(made)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.join("case.json").is_file() && (only.is_empty() || only.contains(&name.as_str())) {
            folders.push(path);
        }
    }
    folders.sort();
    ensure!(!folders.is_empty(), "the script made nothing");
    Ok(folders)
}

impl Bench<'_> {
    /// Every command on a case; `slows` says whether it is measured slowed down, too.
    fn check(&self, source: &Path, case: &Case, slows: bool) -> Result<Row> {
        let packages = packages(source)?;
        let mut adopt = self.command(&["adopt"]);
        adopt.args(&packages).args(["-o", "bundle"]);
        expect(&mut adopt, &[0])?;
        let against = |what: &Path, tolerance: f64| self.against_torch(what, source, tolerance);
        let tolerance = |half: f64| (ROUNDINGS * half).max(LEAST_TOLERANCE);
        let error = case.half_error.map(|half| against(Path::new("bundle"), tolerance(half))).transpose()?;
        let twin = source.join("exact/model.mlpackage");
        let exact = case.half_error.map(|_| against(&twin, EXACT_TOLERANCE)).transpose()?;
        let (tokens, cosine) = match case.kind {
            Kind::Language => {
                (Some(self.against_transformers(case)?), self.against_checkpoint(source, case)?)
            }
            Kind::Predict => (None, None),
        };
        let verdicts = self.measure(case, slows)?;
        let (name, half_error) = (case.name.clone(), case.half_error);
        Ok(Row { name, packages: packages.len(), error, half_error, exact, tokens, cosine, verdicts })
    }

    /// The outputs of torch.
    fn against_torch(&self, what: &Path, source: &Path, tolerance: f64) -> Result<f64> {
        let mut verify = self.command(&["verify", "--json", "--tolerance", &tolerance.to_string()]);
        verify.arg(what).arg("--reference").arg(source.join("reference.safetensors"));
        let document = expect(&mut verify, &[0])?;
        let document: Value = serde_json::from_str(&document)?;
        let outputs = document["outputs"].as_array().context("`verify --json` has no outputs")?;
        let errors = outputs.iter().map(|output| output["max_rel"].as_f64());
        let errors: Option<Vec<f64>> = errors.collect();
        Ok(errors.context("an output has no error")?.into_iter().fold(0.0, f64::max))
    }

    /// Greedy tokens, which must be those of transformers.
    fn against_transformers(&self, case: &Case) -> Result<usize> {
        let ids: Vec<String> = case.prompt.iter().map(ToString::to_string).collect();
        let (ids, count) = (ids.join(","), case.tokens.len().to_string());
        let mut generate =
            self.command(&["generate", "bundle", "--token-ids", &ids, "--max-tokens", &count, "--json"]);
        let document: Value = serde_json::from_str(&expect(&mut generate, &[0])?)?;
        let form = document["kv"].as_str().map(str::to_owned);
        ensure!(form == case.kv, "it is driven in the form {form:?}, expected {:?}", case.kv);
        let found: Vec<u32> = serde_json::from_value(document["sequences"][0]["ids"].clone())?;
        ensure!(found == case.tokens, "the tokens {found:?} are not {:?}", case.tokens);
        Ok(found.len())
    }

    /// Logits against those of the checkpoint, which a reference of this project computes; none if the packages pick tokens
    /// themselves, which `verify` must say.
    fn against_checkpoint(&self, source: &Path, case: &Case) -> Result<Option<f64>> {
        let mut verify = self.command(&["verify", "bundle", "--json", "--tokens", "8", "--checkpoint"]);
        verify.arg(source.join("checkpoint"));
        if case.picks_tokens {
            expect(&mut verify, &[2])?;
            return Ok(None);
        }
        expect(&mut verify, &[0])?;
        let record: Value = serde_json::from_slice(&fs::read(self.folder.join("bundle/verify.json"))?)?;
        Ok(Some(record["cosine_min"].as_f64().context("`verify.json` has no cosine")?))
    }

    /// Measures, blesses, gates, compares and renders.
    fn measure(&self, case: &Case, slows: bool) -> Result<Verdicts> {
        let common = ["--runtime", "cpu", "--threads", "1"];
        // As much as a gate needs to judge. A length must have room for the tokens that are generated.
        let requests: &[&str] = match case.kind {
            Kind::Language => &["--shapes", "64", "--requests", "4"],
            Kind::Predict => &["--requests", "20"],
        };
        let bench = |report: &str, further: &[&str]| {
            let mut bench = self.command(&["bench", "bundle", "--launches", "6", "-o", report]);
            expect(bench.args(common).args(requests).args(further), &[0])
        };
        let gate = |report: &str, codes: &[i32]| code(&mut self.command(&["gate", report]), codes);
        bench("first", &[])?;
        bench("second", &[])?;
        let blessed = ["bless", "first", "--scratch", "--accept-noise", "only a check"];
        expect(&mut self.command(&blessed), &[0])?;
        let unchanged = gate("second", UNCHANGED)?;
        let slowed = slows.then(|| {
            bench("slowed", &["--slow-down", SLOWER_BY])?;
            gate("slowed", SLOWED)
        });
        let mut compare = self.command(&["compare", "bundle", "bundle", "--budget", "10s", "-o", "compared"]);
        let compare = code(compare.args(common).args(requests), UNCHANGED)?;
        expect(
            &mut self.command(&["report", "first", "second", "--format", "html", "-o", "page.html"]),
            &[0],
        )?;
        let page = fs::read_to_string(self.folder.join("page.html"))?;
        ensure!(page.contains("<svg"), "the page has no chart");
        Ok(Verdicts { gate: unchanged, slowed: slowed.transpose()?, compare })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.current_dir(&self.folder).args(arguments);
        command
    }
}

/// The packages of a folder, in order.
fn packages(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut packages: Vec<PathBuf> = entries.collect::<Result<_>>()?;
    packages.retain(|path| path.extension().is_some_and(|ending| ending == "mlpackage"));
    packages.sort();
    Ok(packages)
}

/// Runs a command that must end with one of these codes; gives what it printed.
fn expect(command: &mut Command, codes: &[i32]) -> Result<String> {
    let (found, printed) = ended(command)?;
    if !found.is_some_and(|found| codes.contains(&found)) {
        bail!("`{}` ended with {found:?}, expected {codes:?}", shown(command));
    }
    Ok(printed)
}

/// The code of a command, which must be one of these.
fn code(command: &mut Command, codes: &[i32]) -> Result<i32> {
    let (found, _) = ended(command)?;
    let found = found.filter(|found| codes.contains(found));
    found.with_context(|| format!("`{}` did not end with one of {codes:?}", shown(command)))
}

fn ended(command: &mut Command) -> Result<(Option<i32>, String)> {
    let output = command.output().with_context(|| format!("start `{}`", shown(command)))?;
    if !output.status.success() {
        eprintln!("{}: {}", shown(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok((output.status.code(), String::from_utf8(output.stdout)?))
}

fn shown(command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    format!("anemeter {}", words.collect::<Vec<_>>().join(" "))
}

impl Row {
    fn cells(&self) -> [String; 10] {
        let share =
            |error: Option<f64>| error.map_or_else(String::new, |error| format!("{:.3} %", 100.0 * error));
        let verdict = |code: i32| match code {
            0 => "pass".to_owned(),
            1 => "regression".to_owned(),
            _ => "inconclusive".to_owned(),
        };
        [
            self.name.clone(),
            self.packages.to_string(),
            share(self.error),
            share(self.half_error),
            self.exact.map_or_else(String::new, |error| format!("{:.5} %", 100.0 * error)),
            self.tokens.map_or_else(String::new, |tokens| tokens.to_string()),
            self.cosine.map_or_else(String::new, |cosine| format!("{cosine:.6}")),
            verdict(self.verdicts.gate),
            self.verdicts.slowed.map_or_else(String::new, verdict),
            verdict(self.verdicts.compare),
        ]
    }

    fn line(&self) -> String {
        format!("| {} |", self.cells().join(" | "))
    }
}

fn table(rows: &[Row]) -> String {
    let head = "| model | packages | largest error | torch in fp16 | fp32 twin | greedy tokens | smallest cosine of logits | gate | gate, slowed | compare |\n\
         |---|--:|--:|--:|--:|--:|--:|---|---|---|\n";
    head.to_owned() + &rows.iter().map(|row| row.line() + "\n").collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_what_was_compared() {
        let row = Row {
            name: "gpt2".to_owned(),
            packages: 4,
            error: Some(0.000_61),
            half_error: Some(0.000_8),
            exact: Some(0.000_001),
            tokens: Some(24),
            cosine: Some(0.999_998),
            verdicts: Verdicts { gate: 3, slowed: Some(1), compare: 0 },
        };
        assert!(table(&[row]).ends_with(
            "| gpt2 | 4 | 0.061 % | 0.080 % | 0.00010 % | 24 | 0.999998 | inconclusive | regression | pass |\n"
        ));
    }
}
