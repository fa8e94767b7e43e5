//! The result as Markdown: engines, limits, targets.

use std::fmt::Write;

use super::limits::Limits;
use super::resident::Resident;
use super::rounds::{Row, Run, Series};
use super::sample::{Sample, Spread};
use super::targets::{Target, Verdict, Wanted};
use super::workload::{DECODED, LONG};

/// Tokens whose agreement is shown.
const COMPARED: usize = 16;

/// All of it.
pub(super) fn text(run: &Run, targets: &[Target]) -> String {
    let rounds = run.limits.len();
    let mut text = format!(
        "SmolLM2-135M, {} threads, medians of {rounds} interleaved rounds (range), each a fresh process{}.\n\n",
        super::THREADS,
        if run.is_busy { ", while another process kept one core busy" } else { "" }
    );
    text += &format!(
        "| engine, weights | weights, MB | decode of {DECODED}, tokens/s | prefill of {LONG}, tokens/s | peak memory at \
         decode, MB | load to first token, ms | same tokens |\n|---|---|---|---|---|---|---|\n"
    );
    let reference = run.series("anemeter fp16").ok().and_then(|series| series.samples.first());
    for row in &run.rows {
        text += &engine(row, reference);
    }
    text += &limits(&run.limits);
    text += &memory(run.rows.iter().filter_map(|row| Some((&*row.title, row.outcome.as_ref().ok()?))));
    text + &verdicts(targets)
}

/// What is resident in the engines that tell, by the median of their rounds; nothing if none does.
pub(super) fn memory<'a>(rows: impl Iterator<Item = (&'a str, &'a Series)>) -> String {
    let parts: [fn(&Resident) -> u64; 5] = [
        |resident| resident.weights,
        |resident| resident.program,
        |resident| resident.libraries,
        |resident| resident.heap,
        |resident| resident.buffers,
    ];
    let mut lines = String::new();
    let head = "| resident after decoding, MB | weights | program | libraries | small allocations | keys, values and \
                    buffers |\n|---|---|---|---|---|---|\n";
    for (title, series) in rows {
        let told: Option<Vec<Resident>> = series.samples.iter().map(|sample| sample.resident).collect();
        let Some(told) = told.filter(|told| !told.is_empty()) else { continue };
        let _ = write!(lines, "| {title} |");
        for part in parts {
            let median = Spread::of(told.iter().map(|resident| part(resident) as f64 / 1e6)).median;
            let _ = write!(lines, " {median:.1} |");
        }
        lines.push('\n');
    }
    if lines.is_empty() { lines } else { format!("{head}{lines}\n") }
}

/// The targets alone.
pub(super) fn verdicts(targets: &[Target]) -> String {
    let mut text = "| what | measured | target | |\n|---|---|---|---|\n".to_owned();
    text.extend(targets.iter().map(line));
    text
}

fn engine(Row { title, outcome }: &Row, reference: Option<&Sample>) -> String {
    let series = match outcome {
        Ok(series) if !series.samples.is_empty() => series,
        Ok(_) => return format!("| {title} | NOT MEASURED: no rounds | | | | | |\n"),
        Err(why) => return format!("| {title} | NOT MEASURED: {why} | | | | | |\n"),
    };
    let same = match (reference, series.samples.first()) {
        (Some(reference), Some(sample)) => agreement(&reference.tokens, &sample.tokens),
        _ => 0,
    };
    format!(
        "| {title} | {:.0} | {} | {} | {} | {} | {same} of {COMPARED} |\n",
        series.weight_bytes as f64 / 1e6,
        series.spread(Sample::decode_speed).text(1),
        series.spread(Sample::prefill_speed).text(0),
        series.spread(|sample| sample.peak_bytes as f64 / 1e6).text(0),
        series.spread(|sample| sample.first_token_seconds * 1e3).text(0),
    )
}

/// How many of the first tokens are the same, until the first that is not.
fn agreement(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take(COMPARED).take_while(|(a, b)| a == b).count()
}

fn limits(limits: &[Limits]) -> String {
    let of = |pick: &dyn Fn(&Limits) -> f64, digits| Spread::of(limits.iter().map(pick)).text(digits);
    let mut text = format!(
        "\nLimits of the same run: memory {} GB/s, multiply-adds in registers {} GFLOP/s",
        of(&|limits| limits.machine.bytes / 1e9, 1),
        of(&|limits| limits.machine.flops / 1e9, 0)
    );
    let products: Option<Vec<_>> = limits.iter().map(|limits| limits.products).collect();
    match products {
        Some(products) => {
            let of = |values: Vec<f64>| Spread::of(values.into_iter().map(|flops| flops / 1e9)).text(0);
            let openblas = of(products.iter().map(|products| products.openblas).collect());
            let torch = of(products.iter().map(|products| products.torch).collect());
            let _ = write!(
                text,
                ", fp32 products of 2048 × 2048: OpenBLAS {openblas}, torch {torch} GFLOP/s.\n\n"
            );
        }
        None => text += "; fp32 products NOT MEASURED: numpy or torch could not compute them.\n\n",
    }
    text
}

fn line(Target { what, measured, wanted, verdict }: &Target) -> String {
    let wanted = match wanted {
        Wanted::AtLeast(least) => format!("at least {least}"),
        Wanted::AtMost(most) => format!("at most {most}"),
    };
    let verdict = match verdict {
        Verdict::Met => "met".to_owned(),
        Verdict::Missed => "MISSED".to_owned(),
        Verdict::NotMeasured(why) => format!("not measured: {why}"),
    };
    let measured = measured.map_or_else(|| "–".to_owned(), |ratio| ratio.text(2));
    format!("| {what} | {measured} | {wanted} | {verdict} |\n")
}

#[cfg(test)]
mod tests {
    use super::super::rounds::testing;
    use super::super::targets::judge;
    use super::*;

    #[test]
    fn tables_show_every_engine_limit_and_target() {
        let run = testing::run();
        insta::assert_snapshot!(text(&run, &judge(&run)));
    }

    #[test]
    fn a_busy_run_says_so_and_has_targets_of_its_own() {
        let run = Run { is_busy: true, ..testing::run() };
        let text = text(&run, &judge(&run));
        assert!(text.contains("each a fresh process, while another process kept one core busy.\n"), "{text}");
        let verdicts = &text[text.find("| what |").unwrap()..];
        insta::assert_snapshot!(verdicts);
    }

    #[test]
    fn memory_that_nobody_tells_of_is_not_shown() {
        let run = testing::run();
        let silent = run.rows.iter().filter(|row| row.title.starts_with("torch"));
        assert_eq!(memory(silent.map(|row| (&*row.title, row.outcome.as_ref().unwrap()))), "");
    }

    #[test]
    fn tokens_agree_until_the_first_that_differs() {
        assert_eq!(agreement(&[1, 2, 3, 4], &[1, 2, 9, 4]), 2);
        assert_eq!(agreement(&[5; 40], &[5; 40]), COMPARED);
    }
}
