//! `cargo xtask bench quality`: what each precision costs a real model, as the perplexity of a text that nothing was
//! chosen by; with codes that are chosen by the weights alone, and by another text.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::bundle::Bundle;
use anemeter::compress::TensorLog;
use anemeter::harness::records;
use anemeter::report::{Quality, Record};
use anemeter::vocabulary::RuntimeName;
use anyhow::{Context, Result, bail, ensure};
use pico_args::Arguments;

use super::export::measured::{Measured, run as measured};
use crate::fetch_smollm2::{Fetched, fetch};
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::Project;
use xtask::record;

/// The text that is scored, and the fewest tokens it must have. Calibration and `--precision auto` choose by others.
const TEXT: &str = "src/quickstart/merrow.txt";
const LEAST_TOKENS: usize = 4000;
const SEQ_LEN: &str = "512";

/// The folder whose pages, one after the other, are the calibration text.
pub(super) const CALIBRATION: &str = "docs";

/// How much worse than fp16 int8 may be, in per cent.
const MOST_INT8: f64 = 0.5;

const FP16: &str = "fp16";
const INT8: &str = "int8";
const UNIFORM: &str = "lut4:group=16 for every weight";
const AUTO: &str = "auto, 4.5 bits";
const INT4_CALIBRATED: &str = "int4, calibrated";
const LUT6_CALIBRATED: &str = "lut6:group=16, calibrated";
const LUT4_CALIBRATED: &str = "lut4:group=16, calibrated";
const UNIFORM_CALIBRATED: &str = "lut4:group=16 for every weight, calibrated";
const AUTO_CALIBRATED: &str = "auto, 4.5 bits, calibrated";

/// What is exported: a name, how it is asked for, and whether a text is given to calibrate by.
const FORMS: &[(&str, Wish, bool)] = &[
    (FP16, Wish::Flags(&["--precision", "fp16"]), false),
    (INT8, Wish::Flags(&["--precision", "int8"]), false),
    ("int4", Wish::Flags(&["--precision", "int4"]), false),
    ("lut6:group=16", Wish::Flags(&["--precision", "lut6:group=16"]), false),
    ("lut4:group=16", Wish::Flags(&["--precision", "lut4:group=16"]), false),
    (UNIFORM, Wish::Every("lut4:group=16"), false),
    (AUTO, Wish::Flags(&["--precision", "auto", "--target-bits", "4.5"]), false),
    ("int8, calibrated", Wish::Flags(&["--precision", "int8"]), true),
    (INT4_CALIBRATED, Wish::Flags(&["--precision", "int4"]), true),
    (LUT6_CALIBRATED, Wish::Flags(&["--precision", "lut6:group=16"]), true),
    (LUT4_CALIBRATED, Wish::Flags(&["--precision", "lut4:group=16"]), true),
    ("fp16, rotated", Wish::Flags(&["--precision", "fp16", "--rotate", "on"]), false),
    ("int4, rotated and calibrated", Wish::Flags(&["--precision", "int4", "--rotate", "on"]), true),
    (
        "lut4:group=16, rotated and calibrated",
        Wish::Flags(&["--precision", "lut4:group=16", "--rotate", "on"]),
        true,
    ),
    (UNIFORM_CALIBRATED, Wish::Every("lut4:group=16"), true),
    (AUTO_CALIBRATED, Wish::Flags(&["--precision", "auto", "--target-bits", "4.5"]), true),
];

/// How much worse than fp16 a calibrated form may be, in per cent.
const MOST_CALIBRATED: &[(&str, f64)] = &[
    (INT4_CALIBRATED, 6.0),
    (LUT6_CALIBRATED, 1.0),
    (LUT4_CALIBRATED, 30.0),
    (UNIFORM_CALIBRATED, 60.0),
    (AUTO_CALIBRATED, 15.0),
];

/// How a precision is asked for.
enum Wish {
    /// Flags of `export`.
    Flags(&'static [&'static str]),
    /// One precision for every weight, embedding and head too.
    Every(&'static str),
}

/// What a form came to.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    name: &'static str,
    bits: f64,
    bytes: u64,
    tokens: usize,
    perplexity: f64,
    /// Seconds of the whole export, and those of its CPUs.
    seconds: f64,
    cpu_seconds: f64,
}

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
    fs::write(folder.join(CALIBRATION_FILE), calibration(&project.root.join(CALIBRATION))?)?;
    let mut rows = Vec::new();
    for form in forms {
        let row = measure(project, &program, &model, &folder, form)?;
        println!(
            "{}: {:.2} bits, perplexity {:.4} over {} tokens, exported in {:.1} s, {:.1} s of CPU",
            row.name, row.bits, row.perplexity, row.tokens, row.seconds, row.cpu_seconds
        );
        rows.push(row);
    }
    fs::remove_dir_all(&folder)?;
    if only.is_some() {
        return Ok(Outcome::Checked(format!("{} of {} precisions, not judged", rows.len(), FORMS.len())));
    }
    let (table, met) = (table(&rows)?, targets(&rows)?);
    println!("\n{table}\n{}", met.text());
    if recorded {
        let tokens = rows.first().map_or(0, |row| row.tokens);
        let text = format!(
            "{tokens} tokens of `{TEXT}` scored; calibrated by the pages of `{CALIBRATION}/`.\n\n{table}\n{}",
            met.text()
        );
        record::write(project, "bench quality", "cargo xtask bench quality", &text)?;
    }
    match met.0.iter().all(|target| target.2) {
        true => Ok(Outcome::Checked(String::new())),
        false => bail!("a target is missed"),
    }
}

/// A form to measure.
type Form = (&'static str, Wish, bool);

/// The forms to measure: those whose name has a word in it, if one is given.
fn forms(only: Option<&str>) -> Result<Vec<&'static Form>> {
    let found: Vec<_> =
        FORMS.iter().filter(|(name, ..)| only.is_none_or(|word| name.contains(word))).collect();
    let known = || FORMS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join("; ");
    ensure!(
        !found.is_empty(),
        "no precision is called `{}`; there are {}",
        only.unwrap_or_default(),
        known()
    );
    Ok(found)
}

/// A configuration that leaves no weight out, embedding and head included.
pub(crate) fn every_weight(precision: &str) -> String {
    let rule = format!("{{default: fp16, rules: [{{match: '*', precision: '{precision}'}}]}}");
    format!("coreml:\n  precision: {rule}\n")
}

/// The name of the calibration text in the folder of the bench.
const CALIBRATION_FILE: &str = "calibration.txt";

/// The pages of a folder, in the order of their names.
pub(super) fn calibration(folder: &Path) -> Result<String> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        pages.push(entry?.path());
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let read = |page: &PathBuf| fs::read_to_string(page).with_context(|| format!("read {}", page.display()));
    Ok(pages.iter().map(read).collect::<Result<Vec<_>>>()?.join("\n"))
}

fn measure(
    project: &Project,
    program: &Path,
    model: &Path,
    folder: &Path,
    (name, wish, is_calibrated): &'static Form,
) -> Result<Row> {
    let (output, config, text) =
        (folder.join("bundle"), folder.join("every.yaml"), folder.join(CALIBRATION_FILE));
    let path = |word: &'static str| -> &Path { word.as_ref() };
    let mut export = vec![program, path("export"), model, path("-o"), &output];
    export.extend(["--overwrite", "--shapes", SEQ_LEN].map(path));
    match wish {
        Wish::Flags(flags) => export.extend(flags.iter().copied().map(path)),
        Wish::Every(precision) => {
            fs::write(&config, every_weight(precision))?;
            export.extend([path("--config"), &config]);
        }
    }
    if *is_calibrated {
        export.extend([path("--calibration"), &text]);
    }
    let Measured { seconds, cpu_seconds, .. } = measured(project, &export)?;
    let text = project.root.join(TEXT);
    succeed(
        project.command(program).arg("eval").arg(&output).arg("--text").arg(text).args(["--runtime", "cpu"]),
    )?;
    row(name, &output, (seconds, cpu_seconds))
}

/// What an export and an evaluation of it left behind.
fn row(name: &'static str, folder: &Path, (seconds, cpu_seconds): (f64, f64)) -> Result<Row> {
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
        name,
        bits: if elements == 0 { 16.0 } else { bytes as f64 * 8.0 / elements as f64 },
        bytes: manifest.chunks.iter().map(|chunk| chunk.file.bytes).sum(),
        tokens: found.tokens,
        perplexity: found.perplexity,
        seconds,
        cpu_seconds,
    })
}

fn table(rows: &[Row]) -> Result<String> {
    let reference = perplexity(rows, FP16)?;
    let mut text =
        "| precision | bits per weight | package | perplexity | against fp16 | export, CPU time |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let change = (row.perplexity / reference - 1.0) * 100.0;
        text += &format!(
            "| {} | {:.2} | {:.1} MB | {:.3} | {change:+.2} % | {:.1} s |\n",
            row.name,
            row.bits,
            row.bytes as f64 / 1e6,
            row.perplexity,
            row.cpu_seconds
        );
    }
    Ok(text)
}

/// Targets: what, how it came out, and whether it is met.
struct Targets(Vec<(String, String, bool)>);

impl Targets {
    fn text(&self) -> String {
        let mut text = "| target | measured | |\n|---|---|---|\n".to_owned();
        for (what, measured, met) in &self.0 {
            text += &format!("| {what} | {measured} | {} |\n", if *met { "met" } else { "MISSED" });
        }
        text
    }
}

fn targets(rows: &[Row]) -> Result<Targets> {
    let [reference, int8, uniform, auto] = [FP16, INT8, UNIFORM, AUTO].map(|name| perplexity(rows, name));
    let (reference, int8, uniform, auto) = (reference?, int8?, uniform?, auto?);
    let change = (int8 / reference - 1.0) * 100.0;
    let mut targets = vec![
        (format!("int8 within {MOST_INT8} % of fp16"), format!("{change:+.2} %"), change.abs() <= MOST_INT8),
        (
            "auto at 4.5 bits better than lut4 for every weight".to_owned(),
            format!("{auto:.3} against {uniform:.3}"),
            auto < uniform,
        ),
    ];
    for &(name, most) in MOST_CALIBRATED {
        let change = (perplexity(rows, name)? / reference - 1.0) * 100.0;
        targets.push((
            format!("{name}: at most +{most} % of fp16"),
            format!("{change:+.2} %"),
            change <= most,
        ));
    }
    Ok(Targets(targets))
}

fn perplexity(rows: &[Row], name: &str) -> Result<f64> {
    let row = rows.iter().find(|row| row.name == name);
    row.map(|row| row.perplexity).with_context(|| format!("`{name}` was not measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(int8: f64, auto: f64) -> Vec<Row> {
        let row = |name, bits, perplexity| {
            let (bytes, tokens, seconds, cpu_seconds) = (270_800_000, 4600, 60.0, 100.0);
            Row { name, bits, bytes, tokens, perplexity, seconds, cpu_seconds }
        };
        let mut rows = vec![
            row(FP16, 16.0, 20.0),
            row(INT8, 8.02, int8),
            row(UNIFORM, 4.03, 25.0),
            row(AUTO, 4.5, auto),
        ];
        rows.extend(MOST_CALIBRATED.iter().map(|&(name, most)| row(name, 4.5, 20.0 * (0.99 + most / 100.0))));
        rows
    }

    #[test]
    fn each_target_can_be_missed() {
        let met = |rows: &[Row]| targets(rows).unwrap().0.iter().map(|target| target.2).collect::<Vec<_>>();
        let first = |int8, auto| met(&rows(int8, auto))[..2].to_vec();
        assert_eq!(met(&rows(20.09, 24.0)), [true; 7]);
        assert_eq!(first(20.11, 24.0), [false, true]);
        assert_eq!(first(19.89, 24.0), [false, true]);
        assert_eq!(first(20.0, 25.0), [true, false]);
        for missed in 0..MOST_CALIBRATED.len() {
            let mut rows = rows(20.0, 24.0);
            rows[4 + missed].perplexity *= 1.02;
            assert!(!met(&rows)[2 + missed]);
        }
        assert!(targets(&rows(20.0, 25.0)[..3]).is_err());
    }

    #[test]
    fn forms_are_found_by_a_part_of_their_name() {
        let names = |only| forms(only).map(|found| found.iter().map(|form| form.0).collect::<Vec<_>>());
        assert_eq!(names(None).unwrap().len(), FORMS.len());
        assert_eq!(names(Some("auto")).unwrap(), [AUTO, AUTO_CALIBRATED]);
        assert_eq!(names(Some("lut6")).unwrap(), ["lut6:group=16", LUT6_CALIBRATED]);
        assert!(names(Some("int3")).unwrap_err().to_string().contains("there are fp16; int8; "));
    }

    #[test]
    fn the_table_compares_with_fp16() {
        let text = table(&rows(20.1, 24.0)).unwrap();
        assert!(text.contains("| fp16 | 16.00 | 270.8 MB | 20.000 | +0.00 % | 100.0 s |\n"), "{text}");
        assert!(text.contains("| int8 | 8.02 | 270.8 MB | 20.100 | +0.50 % | 100.0 s |\n"), "{text}");
        assert!(targets(&rows(20.2, 24.0)).unwrap().text().contains("| +1.00 % | MISSED |"));
    }
}
