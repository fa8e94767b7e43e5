//! `anemeter gate --rerun`: more launches while the verdict is inconclusive, within a time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Args, Case};
use crate::bundle::{Bundle, KvForm};
use crate::cli::Failure;
use crate::cli::bench::{Progress, launcher, profiles};
use crate::cli::output::{note, write_file};
use crate::cli::report::is_url;
use crate::evaluate::{self, Wishes};
use crate::gate::{Look, Outcome, Verdict};
use crate::hardware::Profiles;
use crate::harness::{BenchConfig, NumericsConfig, Plan};
use crate::report::Report;

/// Launches of one round, at most: what is settled earlier needs no more.
const MOST_PER_ROUND: usize = 8;

/// Judges, and measures more while that is inconclusive. The report of the case grows, and so does its copy.
pub(super) fn settle(case: &mut Case, args: &Args, bundle: &Path) -> Result<Verdict, Failure> {
    if is_url(&args.report) {
        return Err(Failure::at(&args.report, "launches are added to a copy beside a file of this machine")
            .with_help("give --rerun a report on this machine"));
    }
    let bundle = Bundle::open(bundle)?;
    let profiles = profiles(args.profiles.as_deref())?;
    let config = config(args, &case.report)?;
    check_same(&bundle, &config, &case.report, &profiles)?;
    let copy = copy_path(&args.report);
    let began = Instant::now();
    let mut verdict = case.judge(Look::after(0, false))?;
    for round in 1.. {
        let left = args.budget.saturating_sub(began.elapsed());
        let Some(launches) = wanted(&verdict, left) else { break };
        note(format_args!("inconclusive: measuring {launches} more launches"));
        let mut config = config.clone();
        (config.launches, config.budget_s) = (launches, Some(left.as_secs_f64()));
        let more = measure(&bundle, config, &case.report.runtime.name, &profiles)?;
        if more.launches.is_empty() {
            break;
        }
        case.report.extend(more).map_err(Failure::bad_input)?;
        write(&copy, &case.report)?;
        verdict = case.judge(Look::after(round, false))?;
    }
    Ok(verdict)
}

/// Launches to take now, if any.
fn wanted(verdict: &Verdict, left: Duration) -> Option<usize> {
    if verdict.outcome != Outcome::Inconclusive {
        return None;
    }
    let Some(more) = verdict.more_launches() else {
        note("more launches alone would not settle it: see the reasons");
        return None;
    };
    if left.is_zero() {
        note("the time is used up");
        return None;
    }
    Some(more.clamp(1, MOST_PER_ROUND))
}

/// The workload of a report, as far as the report tells; the rest is that of a file.
fn config(args: &Args, report: &Report) -> Result<BenchConfig, Failure> {
    let mut config = args.workload.as_deref().map_or_else(BenchConfig::built_in, BenchConfig::read)?;
    let workload = &report.workload;
    config.shapes = Some(workload.shapes.clone());
    config.generated_tokens = workload.generated_tokens;
    config.requests_per_shape = workload.requests_per_shape;
    config.warm_up_rounds = workload.warm_up_rounds;
    config.seed = workload.seed;
    config.threads = report.runtime.threads;
    let forms = [KvForm::Io, KvForm::State, KvForm::None];
    config.kv = forms.into_iter().find(|kv| kv.to_string() == report.subject.kv_form).or(config.kv);
    let numerics = [NumericsConfig::Fast, NumericsConfig::Fp16Exact];
    let stated = |numerics: &NumericsConfig| Some(numerics.name()) == report.runtime.numerics.as_deref();
    config.numerics = numerics.into_iter().find(stated).unwrap_or(config.numerics);
    Ok(config)
}

/// Refuses a bundle or a workload that is not the report's, before anything is measured.
fn check_same(
    bundle: &Bundle,
    config: &BenchConfig,
    report: &Report,
    profiles: &Profiles,
) -> Result<(), Failure> {
    let digests: Vec<&String> = bundle.manifest().chunks.iter().map(|chunk| &chunk.file.digest).collect();
    if !digests.iter().copied().eq(&report.subject.package_digests) {
        return Err(Failure::at(bundle.folder(), "its packages are not those of the report")
            .with_help("give the bundle that the report was measured with"));
    }
    let mix = profiles.of_key(&report.header.hardware_profile_key).shape_mix;
    let plan = Plan::new(config.clone(), bundle, &report.runtime.name, &mix, None)
        .map_err(evaluate::EvaluateError::Plan)?;
    if plan.workload_digest() != report.workload.digest {
        return Err(Failure::bad_input("the report was measured with another workload")
            .with_help("give the configuration that it was measured with: --workload FILE"));
    }
    Ok(())
}

fn measure(
    bundle: &Bundle,
    config: BenchConfig,
    runtime: &str,
    profiles: &Profiles,
) -> Result<Report, Failure> {
    let mut launcher = launcher()?;
    let progress = Progress::new();
    let wishes = Wishes { config, runtime, probe_kv: false, soak: None, slow_down_pct: None, profiles };
    let report = evaluate::measure(bundle, &wishes, &mut launcher, &mut |event| progress.show(&event));
    progress.finish();
    Ok(report?)
}

/// The file for the report with more launches, beside the report.
fn copy_path(report: &Path) -> PathBuf {
    let file = if report.is_dir() { report.join("report.json") } else { report.to_owned() };
    file.with_extension("rerun.json")
}

fn write(path: &Path, report: &Report) -> Result<(), Failure> {
    let json = serde_json::to_vec(report).map_err(|e| Failure::bad_input(format!("report: {e}")))?;
    write_file(path, &json)?;
    note(format_args!("{} launches in {}", report.launches.len(), path.display()));
    Ok(())
}
