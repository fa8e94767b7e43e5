//! A workload made definite: a configuration, a bundle and a machine together.

use std::path::PathBuf;
use std::time::Duration;

use super::config::BenchConfig;
use super::protocol::{Job, ModelUse};
use super::schedule::schedule;
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::hardware::ProductionMix;
use anemeter_base::vocabulary::{ComputeUnits, KvForm, RuntimeName};
use anemeter_convert::bundle::{Bundle, digest_text};
use anemeter_measure::report::Workload;

/// Requests of a long run, at least.
const SOAK_REQUESTS: usize = 40;

/// What is going to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) config: BenchConfig,
    pub(super) bundle: PathBuf,
    pub(super) runtime: RuntimeName,
    pub(super) kv: KvForm,
    pub(super) seq_lens: Vec<usize>,
    pub(super) batch: usize,
    pub(super) mix: ProductionMix,
    pub(super) threads: usize,
    pub(super) units: ComputeUnits,
    pub(super) soak_steps: Option<usize>,
    pub(super) slow_down_pct: Option<u16>,
}

/// Why a workload does not fit a bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct PlanError {
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub remedy: Remedy,
}

impl Advice for PlanError {
    fn remedy(&self) -> Option<Remedy> {
        Some(self.remedy.clone())
    }
}

impl Plan {
    /// Fits a configuration to a bundle; `mix` is the machine's and holds unless the configuration has one.
    pub fn new(
        config: BenchConfig,
        bundle: &Bundle,
        runtime: RuntimeName,
        mix: &ProductionMix,
        soak_steps: Option<usize>,
    ) -> Result<Plan, PlanError> {
        let settings = &bundle.manifest().settings;
        let kv = match config.kv.or(settings.kv.first().copied()) {
            Some(kv) if settings.kv.contains(&kv) => kv,
            Some(kv) => {
                let problem = format!("the bundle has no cache form `{kv}`");
                let remedy = Remedy::ExportKvForm { wanted: kv, has: settings.kv.clone() };
                return Err(PlanError { problem, remedy });
            }
            None => {
                let problem = "the bundle has no cache form".to_owned();
                return Err(PlanError { problem, remedy: "export it again".into() });
            }
        };
        let known = if kv == KvForm::State { &settings.contexts } else { &settings.seq_lens };
        let seq_lens = seq_lens(&config, known)?;
        let threads = config.threads.unwrap_or_else(num_cpus::get_physical).max(1);
        let mix = config.mix.clone().unwrap_or_else(|| mix.clone());
        let units = config.compute_units.unwrap_or(settings.compute_units);
        let (batch, bundle) = (settings.batch, bundle.folder().to_owned());
        Ok(Plan {
            config,
            bundle,
            runtime,
            kv,
            seq_lens,
            batch,
            mix,
            threads,
            units,
            soak_steps,
            slow_down_pct: None,
        })
    }

    /// The same, with each prediction slower than need be, to see what a gate makes of it.
    pub fn slowed_down(self, percent: Option<u16>) -> Plan {
        Plan { slow_down_pct: percent, ..self }
    }

    /// What a report says of it.
    pub(super) fn workload(&self, clock_resolution_ns: Option<u64>) -> Workload {
        let config = &self.config;
        Workload {
            digest: self.workload_digest(),
            seq_lens: self.seq_lens.clone(),
            batch: self.batch,
            mix: self.mix.clone(),
            launches: config.launches,
            requests_per_seq_len: config.requests_per_seq_len,
            warm_up_rounds: config.warm_up_rounds,
            generated_tokens: config.generated_tokens,
            seed: config.seed,
            clock_resolution_ns,
        }
    }

    /// A digest of what every launch does. How many there are, what ends them and how figures are weighed is not
    /// part of it, so that reports of more or fewer launches can be compared; threads are recorded by themselves.
    pub fn workload_digest(&self) -> String {
        let mut config = self.config.clone();
        (config.launches, config.launch_limit_s, config.budget_s) = (0, 0.0, None);
        (config.mix, config.threads) = (None, None);
        (config.shapes, config.kv) = (Some(self.seq_lens.clone()), Some(self.kv));
        let text = serde_json::to_vec(&config).expect("a configuration has only strings as keys");
        digest_text(xxhash_rust::xxh3::xxh3_128(&text))
    }

    /// The job of a launch.
    pub(super) fn launch(&self, index: usize) -> Job {
        let BenchConfig { warm_up_rounds, requests_per_seq_len, seed, .. } = self.config;
        let slots = schedule(&self.seq_lens, warm_up_rounds, requests_per_seq_len, seed, index);
        Job::Measure { model: self.model(), slots }
    }

    /// The job of the long run, at the sequence length that occurs most.
    pub(super) fn soak(&self, steps: usize) -> Job {
        let mut model = self.model();
        // Verdicts need many requests, so that short runs have short ones.
        model.generated_tokens = (steps / SOAK_REQUESTS + 1).clamp(2, model.generated_tokens.max(2));
        Job::Soak { model, seq_len: self.soak_seq_len(), steps }
    }

    /// The job that sees whether the model runs, at the sequence length that occurs most.
    pub(super) fn try_out(&self, steps: usize) -> Job {
        Job::Try { model: self.model(), seq_len: self.soak_seq_len(), steps }
    }

    /// The job that asks where operations are planned to run; only Core ML plans.
    pub(super) fn place(&self) -> Option<Job> {
        (self.runtime == RuntimeName::CoreMl)
            .then(|| Job::Place { model: self.model(), seq_len: self.soak_seq_len() })
    }

    /// Seconds that loading a function may take. A worker says more of a load that takes too long than its parent could,
    /// so that it gives up first.
    fn load_limit_s(&self) -> f64 {
        let most = 0.9 * self.config.launch_limit_s;
        self.config.load_limit_s.unwrap_or(most).min(most)
    }

    /// The sequence length that occurs most in the mix, or the shortest.
    pub(super) fn soak_seq_len(&self) -> usize {
        let most =
            self.seq_lens.iter().rev().max_by(|a, b| self.mix.weight(**a).total_cmp(&self.mix.weight(**b)));
        *most.expect("a plan has a sequence length")
    }

    pub(super) fn launch_limit(&self) -> Duration {
        Duration::from_secs_f64(self.config.launch_limit_s)
    }

    fn model(&self) -> ModelUse {
        let config = &self.config;
        ModelUse {
            bundle: self.bundle.clone(),
            runtime: self.runtime,
            kv: self.kv,
            seq_lens: self.seq_lens.clone(),
            units: self.units,
            load_limit_s: self.load_limit_s(),
            threads: config.threads,
            numerics: config.numerics,
            prompts: config.prompts.clone(),
            seed: config.seed,
            generated_tokens: config.generated_tokens,
            slow_down_pct: self.slow_down_pct,
        }
    }
}

fn seq_lens(config: &BenchConfig, known: &[usize]) -> Result<Vec<usize>, PlanError> {
    let mut seq_lens = config.shapes.clone().unwrap_or_else(|| known.to_vec());
    seq_lens.sort_unstable();
    seq_lens.dedup();
    if let Some(missing) = seq_lens.iter().find(|seq_len| !known.contains(seq_len)) {
        let list: Vec<String> = known.iter().map(ToString::to_string).collect();
        return Err(PlanError {
            problem: format!("the bundle has no seq_len {missing}"),
            remedy: format!("it has {}", list.join(", ")).into(),
        });
    }
    let tokens = config.generated_tokens;
    match seq_lens.first() {
        Some(&shortest) if shortest > tokens => Ok(seq_lens),
        shortest => Err(PlanError {
            problem: format!(
                "seq_len {} has no room for a prompt beside {tokens} tokens",
                shortest.unwrap_or(&0)
            ),
            remedy: "lower `generated_tokens`, or leave the length out with `shapes`".into(),
        }),
    }
}
