//! What `bench quality` came to, and whether that is enough.

use anyhow::{Context, Result};

use super::forms::{AUTO, FP16, INT4, INT8, LUT4, LUT6, UNIFORM};
use super::theirs::{self, Theirs};

/// How much worse than fp16 int8 may be, in per cent.
const MOST_INT8: f64 = 0.5;

/// How much worse than fp16 a precision may be, in per cent, in the best of its forms.
const MOST: &[(&str, f64)] = &[(INT4, 6.0), (LUT4, 30.0), (UNIFORM, 60.0), (LUT6, 1.0), (AUTO, 15.0)];

/// How much larger than a file of llama.cpp's the package may be that it is compared with, and how far llama.cpp without
/// compression may be from fp16: the tokens and windows are the same.
const LARGER: f64 = 0.03;
const MOST_APART: f64 = 1.0;

/// What a form came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) precision: &'static str,
    pub(super) bits: f64,
    pub(super) bytes: u64,
    pub(super) tokens: usize,
    pub(super) perplexity: f64,
    /// Seconds of the whole export, and those of its CPUs.
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Most bytes that the export had in memory.
    pub(super) peak_bytes: u64,
}

pub(super) fn table(rows: &[Row], theirs: &[Theirs]) -> Result<String> {
    let reference = named(rows, FP16)?.perplexity;
    let mut text = "| precision | bits per weight | package | perplexity | against fp16 | export, CPU time | peak memory |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        text += &format!(
            "| {} | {:.2} | {:.1} MB | {:.3} | {:+.2} % | {:.1} s | {:.0} MB |\n",
            row.name,
            row.bits,
            row.bytes as f64 / 1e6,
            row.perplexity,
            change(row, reference),
            row.cpu_seconds,
            row.peak_bytes as f64 / 1e6
        );
    }
    for row in theirs {
        let change = (row.perplexity / reference - 1.0) * 100.0;
        let megabytes = row.bytes as f64 / 1e6;
        text += &format!(
            "| {} | – | {megabytes:.1} MB | {:.3} | {change:+.2} % | – | – |\n",
            row.name, row.perplexity
        );
    }
    Ok(text)
}

/// A target: what, how it came out, and whether it is met.
#[derive(Debug)]
pub(super) struct Target {
    what: String,
    measured: String,
    pub(super) is_met: bool,
}

pub(super) fn text(targets: &[Target]) -> String {
    let mut text = "| target | measured | |\n|---|---|---|\n".to_owned();
    for Target { what, measured, is_met } in targets {
        text += &format!("| {what} | {measured} | {} |\n", if *is_met { "met" } else { "MISSED" });
    }
    text
}

pub(super) fn targets(rows: &[Row], theirs: &Result<Vec<Theirs>, String>) -> Result<Vec<Target>> {
    let reference = named(rows, FP16)?.perplexity;
    let int8 = change(named(rows, INT8)?, reference);
    let (uniform, auto) = (named(rows, UNIFORM)?.perplexity, named(rows, AUTO)?.perplexity);
    let mut targets = vec![
        Target {
            what: format!("int8 within {MOST_INT8} % of fp16"),
            measured: format!("{int8:+.2} %"),
            is_met: int8.abs() <= MOST_INT8,
        },
        Target {
            what: "auto at 4.5 bits better than lut4 for every weight, both without data".to_owned(),
            measured: format!("{auto:.3} against {uniform:.3}"),
            is_met: auto < uniform,
        },
    ];
    for &(precision, most) in MOST {
        let best = best(rows, precision)?;
        let change = change(best, reference);
        targets.push(Target {
            what: format!("{precision}: at most +{most} % of fp16"),
            measured: format!("{change:+.2} % ({})", best.name),
            is_met: change <= most,
        });
    }
    match theirs {
        Ok(theirs) => targets.extend(theirs.iter().map(|theirs| against(rows, reference, theirs))),
        Err(why) => targets.push(Target {
            what: "no worse than llama.cpp at about the same bytes".to_owned(),
            measured: format!("not measured: {why}"),
            is_met: false,
        }),
    }
    Ok(targets)
}

/// The best row that is no larger than llama.cpp's file, but for a little.
fn against(rows: &[Row], reference: f64, theirs: &Theirs) -> Target {
    let Theirs { name, bytes, perplexity, tokens } = theirs;
    if *name == theirs::F16 {
        let change = (perplexity / reference - 1.0) * 100.0;
        return Target {
            what: format!("{name} within {MOST_APART} % of fp16 here, on the same tokens"),
            measured: format!("{change:+.2} % on {tokens} tokens"),
            is_met: change.abs() <= MOST_APART && rows.iter().all(|row| row.tokens == *tokens),
        };
    }
    let small = rows.iter().filter(|row| row.bytes as f64 <= *bytes as f64 * (1.0 + LARGER));
    let best = small.min_by(|a, b| a.perplexity.total_cmp(&b.perplexity));
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    Target {
        what: format!("no worse than {name} at about the same bytes"),
        measured: match best {
            Some(row) => format!(
                "{:.3} with {:.1} MB ({}) against {perplexity:.3} with {:.1} MB",
                row.perplexity,
                megabytes(row.bytes),
                row.name,
                megabytes(*bytes)
            ),
            None => format!("nothing is as small as {:.1} MB", megabytes(*bytes)),
        },
        is_met: best.is_some_and(|row| row.perplexity <= *perplexity),
    }
}

/// By how much a row is worse than the reference, in per cent.
fn change(row: &Row, reference: f64) -> f64 {
    (row.perplexity / reference - 1.0) * 100.0
}

fn named<'a>(rows: &'a [Row], name: &str) -> Result<&'a Row> {
    rows.iter().find(|row| row.name == name).with_context(|| format!("`{name}` was not measured"))
}

/// The best form of a precision.
fn best<'a>(rows: &'a [Row], precision: &str) -> Result<&'a Row> {
    let forms = rows.iter().filter(|row| row.precision == precision);
    let best = forms.min_by(|a, b| a.perplexity.total_cmp(&b.perplexity));
    best.with_context(|| format!("`{precision}` was not measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(precision: &'static str, how: &str, perplexity: f64) -> Row {
        let (bits, bytes, tokens, seconds, cpu_seconds) = (4.5, 270_800_000, 4600, 60.0, 100.0);
        let (name, peak_bytes) = (format!("{precision}{how}"), 900_000_000);
        Row { name, precision, bits, bytes, tokens, perplexity, seconds, cpu_seconds, peak_bytes }
    }

    fn rows(int8: f64, auto: f64) -> Vec<Row> {
        let mut rows =
            vec![row(FP16, "", 20.0), row(INT8, "", int8), row(UNIFORM, "", 45.0), row(AUTO, "", auto)];
        for &(precision, most) in MOST {
            rows.push(row(precision, ", calibrated", 20.0 * (1.01 + most / 100.0)));
            rows.push(row(precision, ", rotated and calibrated", 20.0 * (0.99 + most / 100.0)));
        }
        rows
    }

    fn theirs(perplexity: f64, bytes: u64) -> Result<Vec<Theirs>, String> {
        let row = |name, bytes, perplexity| Theirs { name, bytes, tokens: 4600, perplexity };
        Ok(vec![row(theirs::F16, 540_000_000, 20.1), row("llama.cpp Q4_0", bytes, perplexity)])
    }

    #[test]
    fn llama_cpp_is_compared_at_about_the_same_bytes() {
        let rows = rows(20.0, 44.0);
        let met = |theirs: &Result<Vec<Theirs>, String>| {
            let targets = targets(&rows, theirs).unwrap();
            targets[7..].iter().map(|target| target.is_met).collect::<Vec<_>>()
        };
        assert_eq!(met(&theirs(22.0, 265_000_000)), [true, true]);
        assert_eq!(met(&theirs(19.5, 265_000_000)), [true, false]);
        assert_eq!(met(&theirs(22.0, 260_000_000)), [true, false], "nothing is as small");
        assert_eq!(met(&Err("there is no npm".to_owned())), [false]);
        let mut other = theirs(22.0, 265_000_000).unwrap();
        other[0].tokens -= 1;
        assert_eq!(met(&Ok(other)), [false, true]);
    }

    #[test]
    fn each_target_can_be_missed_and_names_the_better_row() {
        let met = |rows: &[Row]| {
            targets(rows, &Ok(Vec::new())).unwrap().iter().map(|target| target.is_met).collect::<Vec<_>>()
        };
        let first = |int8, auto| met(&rows(int8, auto))[..2].to_vec();
        assert_eq!(met(&rows(20.09, 44.0)), [true; 7]);
        assert_eq!(first(20.11, 44.0), [false, true]);
        assert_eq!(first(19.89, 44.0), [false, true]);
        assert_eq!(first(20.0, 45.0), [true, false]);
        let all = rows(20.0, 44.0);
        let said = text(&targets(&all, &Ok(Vec::new())).unwrap());
        assert!(
            said.contains("| int4: at most +6 % of fp16 | +5.00 % (int4, rotated and calibrated) | met |"),
            "{said}"
        );
        for missed in 0..MOST.len() {
            let mut rows = all.clone();
            rows[5 + 2 * missed].perplexity *= 1.05;
            assert!(!met(&rows)[2 + missed]);
            assert!(text(&targets(&rows, &Ok(Vec::new())).unwrap()).contains(", calibrated) | MISSED |"));
        }
        assert!(targets(&all[..3], &Ok(Vec::new())).is_err());
    }

    #[test]
    fn the_table_compares_with_fp16() {
        let text = table(&rows(20.1, 24.0), &theirs(22.0, 90_000_000).unwrap()).unwrap();
        assert!(text.contains("| llama.cpp Q4_0 | – | 90.0 MB | 22.000 | +10.00 % | – | – |\n"), "{text}");
        assert!(
            text.contains("| fp16 | 4.50 | 270.8 MB | 20.000 | +0.00 % | 100.0 s | 900 MB |\n"),
            "{text}"
        );
        assert!(
            text.contains("| int8 | 4.50 | 270.8 MB | 20.100 | +0.50 % | 100.0 s | 900 MB |\n"),
            "{text}"
        );
    }
}
