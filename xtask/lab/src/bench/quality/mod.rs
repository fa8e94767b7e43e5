//! `cargo xtask bench quality`: what each precision costs a real model, as the perplexity of a text that nothing was
//! chosen by; with codes that are chosen by the weights alone, and by another text.

mod forms;
mod outliers;
mod targets;
mod theirs;

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::bundle::Bundle;
use anemeter::compress::TensorLog;
use anemeter::generate::{Input, Text};
use anemeter::harness::records;
use anemeter::report::{Quality, Record};
use anemeter::vocabulary::RuntimeName;
use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;

use super::export::measured::{Measured, run as measured};
use crate::fetch_smollm2::{Fetched, fetch};
pub(crate) use forms::every_weight;
use forms::{Asked, Form, forms};
use targets::{Row, table, targets};
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;
use xtask::record;

/// The text that is scored, and the fewest tokens it must have. Calibration and `--precision auto` choose by others.
const TEXT: &str = "src/quickstart/merrow.txt";
const LEAST_TOKENS: usize = 4000;
const SEQ_LEN: usize = 512;

/// The text that is calibrated by.
pub(super) const CALIBRATION: &str = "xtask/lab/src/bench/quality/calibration.txt";

pub(crate) fn run(project: &Project, mut arguments: Arguments) -> Result<Outcome> {
    let recorded = arguments.contains("--record");
    let only: Option<String> = arguments.opt_value_from_str("--only")?;
    xtask::finish(arguments)?;
    let forms = forms(only.as_deref())?;
    ensure!(!recorded || only.is_none(), "--record is for all precisions: leave --only out");
    let model = match fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Outcome::not_checked("quality", &why)),
    };
    println!("building for speed");
    let program = project.release("anemeter")?;
    let folder = project.target.join("bench-quality");
    fs::create_dir_all(&folder)?;
    let bench = Bench { project, program, model, folder };
    let mut rows = Vec::new();
    for form in forms {
        let row = bench.measure(form)?;
        println!(
            "{}: {:.2} bits, perplexity {:.4} over {} tokens, exported in {:.1} s, {:.1} s of CPU, {:.0} MB at most",
            row.name,
            row.bits,
            row.perplexity,
            row.tokens,
            row.seconds,
            row.cpu_seconds,
            row.peak_bytes as f64 / 1e6
        );
        rows.push(row);
    }
    let ids = bench.ids()?;
    fs::remove_dir_all(&bench.folder)?;
    if only.is_some() {
        return Ok(Outcome::Checked(format!("{} of {} precisions, not judged", rows.len(), forms::count())));
    }
    let theirs = theirs::measure(project, &bench.model, (&ids, SEQ_LEN)).map_err(|why| format!("{why:#}"));
    let targets = targets(&rows, &theirs)?;
    let table = table(&rows, theirs.as_deref().unwrap_or_default())?;
    let table = format!("{table}\n{}", outliers::table(&bench.model, &ids)?);
    let judged = targets::text(&targets);
    println!("\n{table}\n{judged}");
    if recorded {
        let tokens = rows.first().map_or(0, |row| row.tokens);
        let text = format!(
            "{tokens} tokens of `{TEXT}` scored; calibrated by `{CALIBRATION}`.\n\n{table}\n{judged}"
        );
        record::write(project, "bench quality", "cargo xtask bench quality", &text)?;
    }
    match targets.iter().all(|target| target.is_met) {
        true => Ok(Outcome::Checked(String::new())),
        false => bail!("a target is missed"),
    }
}

/// What all forms are measured with.
struct Bench<'a> {
    project: &'a Project,
    program: PathBuf,
    model: PathBuf,
    folder: PathBuf,
}

impl Bench<'_> {
    /// The tokens of the text that is scored, by the tokenizer of the last bundle.
    fn ids(&self) -> Result<Vec<u32>> {
        let bundle = Bundle::open(self.folder.join("bundle"))?;
        let text = fs::read_to_string(self.project.root.join(TEXT))?;
        let known = Text::open(&bundle, None)?.context("the bundle has no tokenizer")?;
        Ok(known.tokens(Input::Raw(&text), usize::MAX)?)
    }

    /// Exports a form and scores the text with it.
    fn measure(&self, form: Form) -> Result<Row> {
        let Bench { project, program, model, folder } = self;
        let (output, config) = (folder.join("bundle"), folder.join("every.yaml"));
        let calibration = project.root.join(CALIBRATION);
        let path = |word: &'static str| -> &Path { word.as_ref() };
        let mut export: Vec<&Path> = vec![program, path("export"), model, path("-o"), &output];
        let seq_len = SEQ_LEN.to_string();
        export.extend(["--overwrite", "--shapes"].map(path));
        export.push(seq_len.as_ref());
        match form.asked {
            Asked::Flags(flags) => export.extend(flags.iter().copied().map(path)),
            Asked::Every(precision) => {
                fs::write(&config, every_weight(precision))?;
                export.extend([path("--config"), &config]);
            }
        }
        if form.is_rotated {
            export.extend(["--rotate", "on"].map(path));
        }
        if form.is_calibrated {
            export.extend([path("--calibration"), &calibration]);
        }
        let took = measured(project, &export)?;
        let text = project.root.join(TEXT);
        let mut eval = project.command(program);
        succeed(eval.arg("eval").arg(&output).arg("--text").arg(text).args(["--runtime", "cpu"]))?;
        row(form, &output, took)
    }
}

/// What an export and an evaluation of it left behind.
fn row(form: Form, folder: &Path, took: Measured) -> Result<Row> {
    let bundle = Bundle::open(folder)?;
    let quality: Quality = records::read(&bundle, RuntimeName::Cpu)?
        .with_context(|| format!("there is no {}", Quality::FILE))?;
    let found = quality.perplexity.context("the evaluation has no perplexity")?;
    ensure!(found.tokens >= LEAST_TOKENS, "only {} tokens were scored", found.tokens);
    let manifest = bundle.manifest();
    let weights = manifest.compression.iter().flat_map(|log| &log.tensors);
    let is_compressed = |weight: &&TensorLog| !["fp16", "fp32"].contains(&weight.precision.as_str());
    let (elements, bytes) = weights.filter(is_compressed).fold((0, 0), |sums, weight| {
        (sums.0 + weight.shape.iter().product::<usize>() as u64, sums.1 + weight.bytes_after)
    });
    Ok(Row {
        name: form.name(),
        precision: form.precision,
        bits: if elements == 0 { 16.0 } else { bytes as f64 * 8.0 / elements as f64 },
        bytes: manifest.chunks.iter().map(|chunk| chunk.file.bytes).sum(),
        tokens: found.tokens,
        perplexity: found.perplexity,
        seconds: took.seconds,
        cpu_seconds: took.cpu_seconds,
        peak_bytes: took.peak_bytes,
    })
}
