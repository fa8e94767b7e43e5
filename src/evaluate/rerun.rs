//! A group-sequential test: more launches of a report's bundle while its verdict is inconclusive. Each interim look
//! spends a part of the false alarms that are allowed (alpha spending), so that all looks together keep the error rate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bench::{in_this_system, measure_in};
use super::{Baseline, BenchRequest, EvaluateError, GateRules};
use crate::advice::{Advice, Remedy};
use crate::atomic::write_file;
use crate::bundle::Bundle;
use crate::gate::{GateError, InterimLook, Outcome, Verdict};
use crate::harness::{BenchConfig, BenchEnv, Event, Launcher, Plan, PredictConfig};
use crate::report::{ExtendError, Report};
use crate::vocabulary::WorkloadKind;

/// Launches of one round, at most: what is conclusive earlier needs no more.
const MOST_PER_ROUND: usize = 8;

/// What to measure again, and for how long.
pub struct RerunRequest<'a> {
    /// The bundle that the report was measured with.
    pub bundle: &'a Bundle,
    /// Where the report states nothing, the workload is that of this configuration.
    pub workload: BenchConfig,
    /// No launch begins after this time.
    pub budget: Duration,
    /// Where the report with more launches goes after each round.
    pub copy: PathBuf,
}

/// What happens meanwhile.
pub enum RerunEvent {
    /// A round of launches begins.
    RoundBegins {
        /// Its launches, at most.
        launches: usize,
    },
    /// Something of the round.
    Bench(Event),
    /// A round is over, and the copy has its launches.
    RoundEnded {
        /// All launches until now.
        launches: usize,
    },
    /// More launches alone would not make it conclusive.
    LaunchesWouldNotHelp,
    /// The time is used up.
    BudgetSpent,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum RerunError {
    /// The bundle is not the one of the report.
    #[error("{}: its packages are not those of the report", .0.display())]
    OtherPackages(PathBuf),
    /// The workload is not the one of the report.
    #[error("the report was measured with another workload")]
    OtherWorkload,
    /// The bundle cannot be measured.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// The report cannot be judged.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The launches do not belong to the report.
    #[error(transparent)]
    Extend(#[from] ExtendError),
    /// The copy cannot be written.
    #[error("{}: {error}", path.display())]
    Write {
        /// The copy.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl Advice for RerunError {
    fn remedy(&self) -> Option<Remedy> {
        match self {
            RerunError::OtherPackages(_) => Some("give the bundle that the report was measured with".into()),
            RerunError::OtherWorkload => Some(Remedy::SameWorkload),
            RerunError::Evaluate(error) => error.remedy(),
            RerunError::Gate(error) => error.remedy(),
            RerunError::Extend(_) | RerunError::Write { .. } => None,
        }
    }

    fn is_environment(&self) -> bool {
        matches!(self, RerunError::Evaluate(error) if error.is_environment())
    }
}

/// Judges a report by sessions, and measures more launches while that is inconclusive; the report grows.
pub fn rerun(
    report: &mut Report,
    sessions: &[Report],
    rules: &GateRules,
    request: &RerunRequest<'_>,
    launcher: &mut dyn Launcher,
    on_event: &mut dyn FnMut(RerunEvent),
) -> Result<Verdict, RerunError> {
    in_this_system(launcher, |env| rerun_in(report, sessions, rules, request, env, on_event))
}

fn rerun_in(
    report: &mut Report,
    sessions: &[Report],
    rules: &GateRules,
    request: &RerunRequest<'_>,
    env: &mut BenchEnv<'_>,
    on_event: &mut dyn FnMut(RerunEvent),
) -> Result<Verdict, RerunError> {
    let config = workload(&request.workload, report);
    check_same(request.bundle, &config, report, rules)?;
    let began = env.clock.now();
    let judge = |report: &Report, round| {
        rules.judge(report, Baseline::Sessions(sessions), InterimLook::after(round, false))
    };
    let mut verdict = judge(report, 0)?;
    for round in 1.. {
        let left = request.budget.saturating_sub(env.clock.now().saturating_sub(began));
        let Some(launches) = launches_needed(&verdict, left, on_event) else { break };
        on_event(RerunEvent::RoundBegins { launches });
        let config = BenchConfig { launches, budget_s: Some(left.as_secs_f64()), ..config.clone() };
        let bench = BenchRequest {
            config,
            runtime: Some(report.runtime.name),
            probe_kv: false,
            soak: None,
            slow_down_pct: None,
            profiles: &rules.profiles,
        };
        let more = measure_in(request.bundle, &bench, env, &mut |event| on_event(RerunEvent::Bench(event)))?;
        if more.launches.is_empty() {
            break;
        }
        report.extend(more)?;
        write_copy(&request.copy, report)?;
        on_event(RerunEvent::RoundEnded { launches: report.launches.len() });
        verdict = judge(report, round)?;
    }
    Ok(verdict)
}

/// Launches of the next round, if there is one.
fn launches_needed(verdict: &Verdict, left: Duration, on_event: &mut dyn FnMut(RerunEvent)) -> Option<usize> {
    if verdict.outcome != Outcome::Inconclusive {
        return None;
    }
    let Some(more) = verdict.more_launches() else {
        on_event(RerunEvent::LaunchesWouldNotHelp);
        return None;
    };
    if left.is_zero() {
        on_event(RerunEvent::BudgetSpent);
        return None;
    }
    Some(more.clamp(1, MOST_PER_ROUND))
}

/// The workload of a report, as far as the report states it.
fn workload(config: &BenchConfig, report: &Report) -> BenchConfig {
    let workload = &report.workload;
    let common = BenchConfig {
        kind: Some(workload.kind),
        warm_up_rounds: workload.warm_up_rounds,
        seed: workload.seed,
        threads: report.runtime.threads,
        numerics: report.runtime.numerics.unwrap_or(config.numerics),
        ..config.clone()
    };
    match workload.kind {
        WorkloadKind::Generate => BenchConfig {
            shapes: workload.depths.is_none().then(|| workload.seq_lens.clone()),
            prompt_tokens: workload.depths.as_ref().map(|asked| asked.prompt_tokens),
            depths: workload.depths.as_ref().map(|asked| asked.depths.clone()).unwrap_or_default(),
            generated_tokens: workload.generated_tokens,
            requests_per_seq_len: workload.requests_per_seq_len,
            kv: report.subject.kv_form,
            ..common
        },
        WorkloadKind::Predict => {
            BenchConfig { predict: PredictConfig::of_workload(workload, &config.predict), ..common }
        }
    }
}

/// Refuses a bundle or a workload that is not the report's, before anything is measured.
fn check_same(
    bundle: &Bundle,
    config: &BenchConfig,
    report: &Report,
    rules: &GateRules,
) -> Result<(), RerunError> {
    let digests = bundle.manifest().digests_of(report.runtime.name);
    if !digests.eq(&report.subject.package_digests) {
        return Err(RerunError::OtherPackages(bundle.folder().to_owned()));
    }
    let mix = rules.profiles.of_key(&report.header.hardware_profile_key).production_mix;
    let plan =
        Plan::new(config.clone(), bundle, report.runtime.name, &mix, None).map_err(EvaluateError::Plan)?;
    match plan.workload_digest() == report.workload.digest {
        true => Ok(()),
        false => Err(RerunError::OtherWorkload),
    }
}

fn write_copy(path: &Path, report: &Report) -> Result<(), RerunError> {
    let failed = |error| RerunError::Write { path: path.to_owned(), error };
    let json = serde_json::to_vec(report).map_err(|e| failed(e.into()))?;
    write_file(path, &json).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::evaluate::testing::{Workers, bundle, config};
    use crate::generate::ManualClock;
    use crate::hardware::System;
    use crate::vocabulary::RuntimeName;

    /// A report of two launches that are `factor` times as slow as those of three sessions, and what it becomes.
    fn rerun_of(factor: f64, budget_s: u64) -> (Verdict, Report, Vec<usize>, Report) {
        let folder = tempfile::tempdir().unwrap();
        let bundle = bundle(&folder.path().join("b"), &[64], 1);
        let rules = GateRules::read(None, None).unwrap();
        let clock = ManualClock::default();
        let random = fastrand::Rng::with_seed(5);
        let mut workers =
            Workers { clock: clock.clone(), random, factor: 1.0, noise: 0.01, launched: Rc::default() };
        let mut measured = |factor: f64, launches: usize| {
            workers.factor = factor;
            let mut env =
                BenchEnv { launcher: &mut workers, clock: &clock, source: &System, sleep: &mut |_| () };
            let config = BenchConfig { launches, ..config() };
            let request = BenchRequest {
                config,
                runtime: Some(RuntimeName::Cpu),
                probe_kv: false,
                soak: None,
                slow_down_pct: None,
                profiles: &rules.profiles,
            };
            measure_in(&bundle, &request, &mut env, &mut |_| ()).unwrap()
        };
        let sessions = [measured(1.0, 8), measured(1.0, 8), measured(1.0, 8)];
        let mut report = measured(factor, 2);
        let copy = folder.path().join("copy.json");
        let request = RerunRequest {
            bundle: &bundle,
            workload: config(),
            budget: Duration::from_secs(budget_s),
            copy: copy.clone(),
        };
        let mut rounds = Vec::new();
        let mut env = BenchEnv { launcher: &mut workers, clock: &clock, source: &System, sleep: &mut |_| () };
        let verdict = rerun_in(&mut report, &sessions, &rules, &request, &mut env, &mut |event| {
            if let RerunEvent::RoundEnded { launches } = event {
                rounds.push(launches);
            }
        });
        (verdict.unwrap(), report, rounds, Report::read(&copy).unwrap())
    }

    #[test]
    fn launches_are_added_until_it_is_conclusive_or_the_time_is_up() {
        let (verdict, report, rounds, copy) = rerun_of(1.5, 100_000);
        assert_eq!(verdict.outcome, Outcome::Fail, "{verdict:#?}");
        assert_eq!(rounds.last(), Some(&report.launches.len()));
        assert_eq!(copy.launches.len(), report.launches.len());

        let (_, report, rounds, _) = rerun_of(1.5, 1);
        assert_eq!((rounds.len(), report.launches.len()), (1, 3), "one launch, and the time is up");
    }
}
