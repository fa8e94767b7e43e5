//! Two bundles in turns: a verdict, and what differs between the two.

use std::path::Path;

use super::Args;
use crate::bundle::{Bundle, Origin};
use crate::cli::bench::{Progress, write};
use crate::cli::gate::{Format, status, text as verdict_text};
use crate::cli::inputs::{launcher, workload};
use crate::cli::output::{create_folder, keep_measurement, note, write_file};
use crate::cli::{Failure, Output, Result, Status};
use crate::compare::{self, Comparison};
use crate::evaluate::BenchRequest;
use crate::evaluate::compare::bundles::{PairedComparison, compare};
use crate::evaluate::compare::document::Bundles;
use crate::gate::Verdict;
use crate::harness::BenchConfig;
use crate::render;

pub(super) fn run(args: &Args, [baseline, candidate]: [&Path; 2], output: &mut Output) -> Result<Status> {
    let (first, second) = (Bundle::open_any(baseline)?, Bundle::open_any(candidate)?);
    // Packages that others made are named after their files: two that are compared are versions of one model.
    let second = match second.manifest().origin {
        Origin::Adopted => second.named(first.manifest().name.clone()),
        Origin::Exported => second,
    };
    let bundles = [first, second];
    if let Some(folder) = &args.out {
        // What cannot be written is better known before the measurement than after it.
        create_folder(folder)?;
        for side in ["a", "b"] {
            keep_measurement(&folder.join(side).join("report.json"), args.force)?;
        }
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
        Format::Junit => output.document(args.junit.of(&paired.verdict)?)?,
    }
    Ok(status(paired.verdict.outcome))
}

fn text(verdict: &Verdict, compared: &Comparison) -> String {
    let explained = render::explained(compared).map(|table| format!("\n{table}"));
    verdict_text(verdict) + &explained.unwrap_or_default()
}

fn measure(args: &Args, [baseline, candidate]: [&Bundle; 2]) -> Result<PairedComparison> {
    let rules = args.files.rules()?;
    let mut launcher = launcher()?;
    let (config, runtime, profiles) = (config(args)?, args.runtime(), &rules.profiles);
    let request =
        BenchRequest { config, runtime, probe_kv: false, soak: None, slow_down_pct: None, profiles };
    let progress = Progress::new();
    let on_event = &mut |event| progress.show(&event);
    let paired = compare([baseline, candidate], &request, &rules, args.budget, &mut launcher, on_event);
    progress.finish();
    let paired = paired?;
    if runtime.is_none() {
        note(format_args!("runtime: {}", paired.candidate.runtime.name));
    }
    Ok(paired)
}

fn config(args: &Args) -> Result<BenchConfig> {
    let mut config = workload(args.workload.as_deref())?;
    config.shapes = args.shapes.clone().or(config.shapes);
    config.compute_units = args.compute_units.or(config.compute_units);
    config.threads = args.threads.or(config.threads);
    config.kv = args.kv.or(config.kv);
    args.depth.apply(&mut config);
    args.predict.apply(&mut config)?;
    match config.problem() {
        Some(problem) => Err(Failure::bad_input(problem)),
        None => Ok(config),
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
