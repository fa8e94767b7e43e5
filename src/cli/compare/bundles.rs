//! Two bundles in turns: a verdict, and what differs between the two.

use std::path::Path;

use clap::ValueEnum;

use super::Args;
use crate::bundle::{Bundle, KvForm};
use crate::cli::bench::{Progress, launcher, profiles, write};
use crate::cli::gate::{Format, status, text as verdict_text, today};
use crate::cli::output::{create_folder, note, write_file};
use crate::cli::report::terminal_table;
use crate::cli::{Failure, Output, Status};
use crate::compare::{self, Comparison};
use crate::evaluate::Wishes;
use crate::evaluate::compare::document::Bundles;
use crate::evaluate::compare::{CompareError, Paired, Terms, compare};
use crate::gate::{GatesFile, Verdict};
use crate::harness::BenchConfig;
use crate::render;

pub(super) fn run(
    args: &Args,
    [baseline, candidate]: [&Path; 2],
    output: &mut Output,
) -> Result<Status, Failure> {
    let bundles = [Bundle::open(baseline)?, Bundle::open(candidate)?];
    if let Some(folder) = &args.out {
        // What cannot be written is better known before the measurement than after it.
        create_folder(folder)?;
    }
    let paired = measure(args, bundles.each_ref())?;
    let compared = Comparison::of(&paired.baseline, &paired.candidate, Ok(paired.verdict.clone()));
    let document = Bundles {
        schema: compare::SCHEMA,
        kind: "bundles",
        baseline: baseline.display().to_string(),
        candidate: candidate.display().to_string(),
        seed: paired.seed,
        order: paired.order.clone(),
        looks: paired.looks.clone(),
        changes: compared.changes.clone(),
        verdict: paired.verdict.clone(),
    };
    if let Some(folder) = &args.out {
        write(&folder.join("a"), &paired.baseline)?;
        write(&folder.join("b"), &paired.candidate)?;
        let page = render::judged_html(&paired.candidate, &paired.verdict)?;
        write_file(&folder.join("b/report.html"), page.as_bytes())?;
        let json = |document: serde_json::Result<Vec<u8>>| {
            document.map_err(|e| Failure::bad_input(format!("json: {e}")))
        };
        write_file(&folder.join("verdict.json"), &json(serde_json::to_vec_pretty(&paired.verdict))?)?;
        write_file(&folder.join("comparison.json"), &json(serde_json::to_vec_pretty(&document))?)?;
    }
    match args.format() {
        Format::Json => output.json(&document)?,
        Format::Text => output.text(text(&paired.verdict, &compared))?,
        Format::Md => {
            output.text(render::verdict_markdown(&paired.verdict))?;
            output.text(render::explained(&compared).iter().map(render::written).collect::<String>())?;
        }
        Format::Junit => output.text(render::junit(&paired.verdict)?)?,
    }
    Ok(status(paired.verdict.outcome))
}

fn text(verdict: &Verdict, compared: &Comparison) -> String {
    let explained = render::explained(compared).map(|table| format!("\n{}", terminal_table(&table)));
    verdict_text(verdict) + &explained.unwrap_or_default()
}

fn measure(args: &Args, [baseline, candidate]: [&Bundle; 2]) -> Result<Paired, Failure> {
    let profiles = profiles(args.profiles.as_deref())?;
    let gates = args.gates.as_deref().map_or_else(GatesFile::built_in, GatesFile::read)?;
    let mut launcher = launcher()?;
    let wishes = Wishes {
        config: config(args)?,
        runtime: args.runtime(),
        probe_kv: false,
        soak: None,
        slow_down_pct: None,
        profiles: &profiles,
    };
    let terms = Terms { gates: &gates, today: today()?, budget: args.budget };
    let progress = Progress::new();
    let paired =
        compare([baseline, candidate], &wishes, &terms, &mut launcher, &mut |event| progress.show(&event));
    progress.finish();
    let paired = paired?;
    if args.runtime() == "auto" {
        note(format_args!("runtime: {}", paired.candidate.runtime.name));
    }
    Ok(paired)
}

fn config(args: &Args) -> Result<BenchConfig, Failure> {
    let mut config = args.config.as_deref().map_or_else(BenchConfig::built_in, BenchConfig::read)?;
    config.shapes = args.shapes.clone().or(config.shapes);
    config.compute_units = args.compute_units.or(config.compute_units);
    config.threads = args.threads.or(config.threads);
    config.kv = args.kv.as_deref().and_then(|kv| KvForm::from_str(kv, true).ok()).or(config.kv);
    config.requests_per_shape = args.requests.unwrap_or(config.requests_per_shape);
    match config.problem() {
        Some(problem) => Err(Failure::bad_input(problem)),
        None => Ok(config),
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Failure {
        match error {
            CompareError::Evaluate { bundle, error } => Failure::from(error).about(&bundle),
            CompareError::Gate(error) => Failure::bad_input(error).with_help(
                "choose what both bundles have with --shapes and --kv, or export one again as the other was",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_followed_by_what_changed() {
        let compared = compare::testing::slower();
        insta::assert_snapshot!(text(compared.verdict.as_ref().unwrap(), &compared));
    }
}
