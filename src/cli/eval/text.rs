//! The terminal form of an evaluation.

use crate::cli::Result;
use crate::cli::output::Output;
use crate::eval::{CaseResult, Evaluation};
use crate::render::Table;
use crate::report::{Perplexity, Quality};

/// More cases than this are not listed one by one.
const LISTED: usize = 10;

/// Prints what was found in this run: of calls, of a text, or of both.
pub(super) fn print(
    name: &str,
    quality: &Quality,
    (evaluation, perplexity): (Option<&Evaluation>, Option<&Perplexity>),
    out: &mut Output,
) -> Result<()> {
    if let Some(evaluation) = evaluation {
        calls(name, quality, evaluation, out)?;
    }
    if let (Some(_), Some(_)) = (evaluation, perplexity) {
        out.line("")?;
    }
    match perplexity {
        Some(found) => out.text(perplexity_line(name, found) + "\n"),
        None => Ok(()),
    }
}

fn perplexity_line(name: &str, found: &Perplexity) -> String {
    let Perplexity { runtime, kv, window, tokens, nats_per_token, perplexity, .. } = found;
    format!(
        "{name} on the {runtime} runtime, cache form {kv}, {tokens} tokens in windows of {window}\n\n  \
         perplexity {perplexity:.4}, {nats_per_token:.6} nats per token"
    )
}

fn calls(name: &str, quality: &Quality, evaluation: &Evaluation, out: &mut Output) -> Result<()> {
    out.line(format_args!(
        "{name} on the {} runtime, cache form {}, {} cases of up to {} tokens\n",
        quality.runtime, quality.kv, quality.cases, quality.max_tokens
    ))?;
    out.text(per_seq_len(quality))?;
    out.line("")?;
    out.line(match quality.f1_drift {
        Some(drift) => format!("F1 drift between lengths: {drift:.4}"),
        None => "F1 drift between lengths: needs two lengths that take the same cases".to_owned(),
    })?;
    let [p50, p95] = [quality.ttfa_p50, quality.ttfa_p95].map(|ttfa| shown(ttfa, quality.expects_calls()));
    out.line(format_args!("tokens to the first action: p50 {p50}, p95 {p95}"))?;
    wrong(evaluation, out)
}

fn per_seq_len(quality: &Quality) -> Table {
    let calls = [">F1", ">F1 of names", ">exact", ">no call", ">TTFA p50", ">TTFA p95"];
    let mut table = Table::new(&[&[">length", ">cases", ">too long"], &calls[..]].concat());
    for at in &quality.per_seq_len {
        let expects = at.ttfa_p50.is_some() || at.without_call > 0;
        table.row([
            at.seq_len.to_string(),
            at.cases.to_string(),
            at.too_long.to_string(),
            format!("{:.4}", at.f1),
            format!("{:.4}", at.name_f1),
            format!("{:.1} %", at.exact * 100.0),
            at.without_call.to_string(),
            shown(at.ttfa_p50, expects),
            shown(at.ttfa_p95, expects),
        ]);
    }
    table.indented(2)
}

fn shown(tokens: Option<f64>, expects_calls: bool) -> String {
    match tokens {
        Some(tokens) => format!("{tokens}"),
        None if expects_calls => "never".to_owned(),
        None => "-".to_owned(),
    }
}

/// Cases that are not exactly right at the first length, a few of them.
fn wrong(evaluation: &Evaluation, out: &mut Output) -> Result<()> {
    let Some(first) = evaluation.results.iter().find(|result| !result.cases.is_empty()) else {
        return Ok(());
    };
    let wrong: Vec<&CaseResult> = first.cases.iter().filter(|case| !case.exact).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    out.line(format_args!("\nnot as expected at length {}:", first.seq_len))?;
    let mut table = Table::new(&["case", ">F1", "answer"]);
    for case in wrong.iter().take(LISTED) {
        let answer: String = case.answer.chars().take(60).collect();
        table.row([case.id.clone(), format!("{:.2}", case.counts.f1()), format!("{answer:?}")]);
    }
    out.text(table.indented(2))?;
    match wrong.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => out.line(format_args!("  and {more} more; --json has every answer")),
    }
}
