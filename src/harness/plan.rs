//! A workload made definite: a configuration, a bundle and a machine together.

use std::path::PathBuf;
use std::time::Duration;

use super::config::BenchConfig;
use super::depth::DepthUse;
use super::predict::{PlannedCase, PredictConfig, PredictUse, of_encoder};
use super::protocol::{GenerateUse, Job, ModelUse, Work};
use super::schedule::schedule;
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::hardware::ProductionMix;
use anemeter_base::vocabulary::{ComputeUnits, KvForm, RuntimeName, WorkloadKind};
use anemeter_convert::bundle::{Bundle, digest_text};
use anemeter_measure::report::{Case, DepthWorkload, InputSource, Place, Workload};

/// Requests of a long run, at least.
const SOAK_REQUESTS: usize = 40;

/// What is going to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(super) config: BenchConfig,
    pub(super) bundle: PathBuf,
    pub(super) runtime: RuntimeName,
    pub(super) work: PlannedWork,
    pub(super) mix: ProductionMix,
    pub(super) threads: usize,
    pub(super) units: ComputeUnits,
    pub(super) soak_steps: Option<usize>,
    pub(super) slow_down_pct: Option<u16>,
}

/// What requests are.
#[derive(Debug, Clone)]
pub(super) enum PlannedWork {
    Generate(Generate),
    Predict(Predict),
}

/// Prompts at the sequence lengths of a language model.
#[derive(Debug, Clone)]
pub(super) struct Generate {
    pub(super) kv: KvForm,
    /// What requests are named by: the lengths that prompts fill, or context, prompt and generated tokens together.
    pub(super) seq_lens: Vec<usize>,
    pub(super) depths: Option<DepthUse>,
    pub(super) batch: usize,
}

/// Predictions of functions, and where their inputs come from.
#[derive(Debug, Clone)]
pub(super) struct Predict {
    pub(super) wanted: PredictUse,
    pub(super) inputs: InputSource,
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
        let work = PlannedWork::of(&config, bundle, runtime)?;
        let threads = config.threads.unwrap_or_else(num_cpus::get_physical).max(1);
        let mix = match &work {
            PlannedWork::Generate(Generate { depths: None, .. }) => {
                config.mix.clone().unwrap_or_else(|| mix.clone())
            }
            // A mix weighs the lengths that prompts fill.
            _ => ProductionMix { seq_lens: Vec::new(), weights: Vec::new() },
        };
        let units = config.compute_units.unwrap_or_else(|| bundle.manifest().compute_units());
        let bundle = bundle.source().to_owned();
        Ok(Plan { config, bundle, runtime, work, mix, threads, units, soak_steps, slow_down_pct: None })
    }

    /// The same, with each prediction slower than need be, to see what a gate makes of it.
    pub fn slowed_down(self, percent: Option<u16>) -> Plan {
        Plan { slow_down_pct: percent, ..self }
    }

    /// What a report says of it.
    pub(super) fn workload(&self, clock_resolution_ns: Option<u64>) -> Workload {
        let config = &self.config;
        let common = Workload {
            digest: self.workload_digest(),
            kind: WorkloadKind::Generate,
            seq_lens: Vec::new(),
            depths: None,
            cases: Vec::new(),
            inputs: None,
            states: None,
            batch: 1,
            mix: self.mix.clone(),
            launches: config.launches,
            requests_per_seq_len: config.requests_per_seq_len,
            warm_up_rounds: config.warm_up_rounds,
            generated_tokens: config.generated_tokens,
            seed: config.seed,
            clock_resolution_ns,
        };
        match &self.work {
            PlannedWork::Generate(work) => Workload {
                seq_lens: work.seq_lens.clone(),
                depths: work.depth_workload(),
                batch: work.batch,
                ..common
            },
            PlannedWork::Predict(Predict { wanted, inputs }) => Workload {
                kind: WorkloadKind::Predict,
                cases: wanted.cases(),
                inputs: Some(inputs.clone()),
                states: Some(wanted.states),
                requests_per_seq_len: config.predict.predictions_per_case,
                generated_tokens: 0,
                ..common
            },
        }
    }

    /// A digest of what every launch does. How many there are, what ends them and how figures are weighed is not
    /// part of it, so that reports of more or fewer launches can be compared; threads are recorded by themselves.
    pub fn workload_digest(&self) -> String {
        let work = match &self.work {
            PlannedWork::Generate(work) => work,
            PlannedWork::Predict(work) => return work.digest(&self.config),
        };
        let mut config = self.config.clone();
        (config.launches, config.launch_limit_s, config.budget_s) = (0, 0.0, None);
        (config.mix, config.threads) = (None, None);
        (config.shapes, config.kv) = (Some(work.seq_lens.clone()), Some(work.kv));
        config.depths = work.depth_workload().map(|asked| asked.depths).unwrap_or_default();
        (config.kind, config.predict) = (None, PredictConfig::default());
        let text = serde_json::to_vec(&config).expect("a configuration has only strings as keys");
        digest_text(xxhash_rust::xxh3::xxh3_128(&text))
    }

    /// The job of a launch.
    pub(super) fn launch(&self, index: usize) -> Job {
        let BenchConfig { warm_up_rounds, requests_per_seq_len, seed, .. } = self.config;
        let (places, rounds) = match &self.work {
            PlannedWork::Generate(work) => (work.seq_lens.clone(), requests_per_seq_len),
            PlannedWork::Predict(work) => {
                ((0..work.wanted.cases.len()).collect(), self.config.predict.predictions_per_case)
            }
        };
        let slots = schedule(&places, warm_up_rounds, rounds, seed, index);
        Job::Measure { model: self.model(), slots }
    }

    /// The job of the long run, at the sequence length that occurs most.
    pub(super) fn soak(&self, steps: usize) -> Job {
        let mut model = self.model();
        if let Work::Generate(work) = &mut model.work {
            // Verdicts need many requests, so that short runs have short ones.
            work.generated_tokens = (steps / SOAK_REQUESTS + 1).clamp(2, work.generated_tokens.max(2));
        }
        Job::Soak { model, seq_len: self.soak_at(), steps }
    }

    /// The job that sees whether the model runs, at the sequence length that occurs most.
    pub(super) fn try_out(&self, steps: usize) -> Job {
        Job::Try { model: self.model(), seq_len: self.soak_at(), steps }
    }

    /// The job that asks where operations are planned to run; only Core ML plans.
    pub(super) fn place(&self) -> Option<Job> {
        (self.runtime == RuntimeName::CoreMl)
            .then(|| Job::Place { model: self.model(), seq_len: self.soak_at() })
    }

    /// Seconds that loading a function may take. A worker says more of a load that takes too long than its parent could,
    /// so that it gives up first.
    fn load_limit_s(&self) -> f64 {
        let most = 0.9 * self.config.launch_limit_s;
        self.config.load_limit_s.unwrap_or(most).min(most)
    }

    /// The place of a long run in a job: the sequence length that occurs most in the mix, or the shortest; the first case.
    fn soak_at(&self) -> usize {
        let PlannedWork::Generate(Generate { seq_lens, .. }) = &self.work else { return 0 };
        let most = seq_lens.iter().rev().max_by(|a, b| self.mix.weight(**a).total_cmp(&self.mix.weight(**b)));
        *most.expect("a plan has a sequence length")
    }

    /// The same for people.
    pub(super) fn soak_place(&self) -> Place {
        match &self.work {
            PlannedWork::Generate(_) => Place::SeqLen(self.soak_at()),
            PlannedWork::Predict(work) => Place::Case(work.wanted.cases[0].case.name.clone()),
        }
    }

    pub(super) fn launch_limit(&self) -> Duration {
        Duration::from_secs_f64(self.config.launch_limit_s)
    }

    fn model(&self) -> ModelUse {
        let config = &self.config;
        ModelUse {
            bundle: self.bundle.clone(),
            runtime: self.runtime,
            units: self.units,
            load_limit_s: self.load_limit_s(),
            threads: config.threads,
            numerics: config.numerics,
            seed: config.seed,
            slow_down_pct: self.slow_down_pct,
            work: match &self.work {
                PlannedWork::Generate(Generate { kv, seq_lens, depths, .. }) => Work::Generate(GenerateUse {
                    kv: *kv,
                    seq_lens: depths.as_ref().map_or_else(|| seq_lens.clone(), DepthUse::lengths),
                    depths: depths.clone(),
                    prompts: config.prompts.clone(),
                    generated_tokens: config.generated_tokens,
                }),
                PlannedWork::Predict(work) => Work::Predict(work.wanted.clone()),
            },
        }
    }
}

impl PlannedWork {
    /// What requests are, as the configuration says or else as the bundle asks for: a language model generates.
    fn of(config: &BenchConfig, bundle: &Bundle, runtime: RuntimeName) -> Result<PlannedWork, PlanError> {
        let manifest = bundle.manifest();
        let is_language_model = manifest.exported().is_some() || manifest.contract.is_some();
        if let Some(encoder) = &manifest.encoder {
            if config.kind == Some(WorkloadKind::Generate) {
                let problem = "the bundle is an encoder, which generates no text".to_owned();
                return Err(PlanError { problem, remedy: "measure it with the workload `predict`".into() });
            }
            let predict = of_encoder(&config.predict, config.shapes.as_deref(), (manifest, encoder))?;
            let (wanted, inputs) = PredictUse::plan(&predict, bundle, runtime, config.seed)?;
            return Ok(PlannedWork::Predict(Predict { wanted, inputs }));
        }
        let usual = if is_language_model { WorkloadKind::Generate } else { WorkloadKind::Predict };
        match config.kind.unwrap_or(usual) {
            WorkloadKind::Generate => Generate::of(config, bundle).map(PlannedWork::Generate),
            WorkloadKind::Predict => {
                let (wanted, inputs) = PredictUse::plan(&config.predict, bundle, runtime, config.seed)?;
                Ok(PlannedWork::Predict(Predict { wanted, inputs }))
            }
        }
    }
}

impl Generate {
    fn of(config: &BenchConfig, bundle: &Bundle) -> Result<Generate, PlanError> {
        let manifest = bundle.manifest();
        let forms = manifest.forms();
        let kv = match config.kv.or(forms.first().copied()) {
            Some(kv) if forms.contains(&kv) => kv,
            Some(kv) if !forms.is_empty() => {
                let problem = format!("the bundle has no cache form `{kv}`");
                return Err(PlanError { problem, remedy: Remedy::ExportKvForm { wanted: kv, has: forms } });
            }
            _ if manifest.exported().is_some() => {
                let problem = "the bundle has no cache form".to_owned();
                return Err(PlanError { problem, remedy: "export it again".into() });
            }
            _ => {
                let problem = "nothing says how the packages are driven as a language model".to_owned();
                return Err(PlanError { problem, remedy: Remedy::GiveContract });
            }
        };
        let batch = manifest.batch();
        let mut lengths = manifest.lengths(kv);
        let Some(prompt_tokens) = config.prompt_tokens else {
            return Ok(Generate { kv, seq_lens: seq_lens(config, &lengths)?, depths: None, batch });
        };
        lengths.sort_unstable();
        let depths = if config.depths.is_empty() { &[0][..] } else { &config.depths };
        let depths = DepthUse::plan((prompt_tokens, config.generated_tokens), depths, &lengths)?;
        Ok(Generate { kv, seq_lens: depths.seq_lens(), depths: Some(depths), batch })
    }

    /// What a report says of contexts and prompts.
    fn depth_workload(&self) -> Option<DepthWorkload> {
        let depths = self.depths.as_ref()?;
        Some(DepthWorkload {
            prompt_tokens: depths.prompt_tokens,
            depths: depths.at.iter().map(|at| at.depth).collect(),
            lengths: depths.lengths(),
        })
    }
}

impl Predict {
    /// A digest of what every launch does. Packages have numbers here, so that versions of one can be compared.
    fn digest(&self, config: &BenchConfig) -> String {
        let case = |planned: &PlannedCase| {
            let Case { function, shapes, samples, .. } = planned.case.clone();
            (planned.package, function, shapes, samples)
        };
        let cases: Vec<_> = self.wanted.cases.iter().map(case).collect();
        let BenchConfig { warm_up_rounds, seed, cool_down_s, numerics, compute_units, .. } = config;
        // Where a file is does not matter, but what is in it.
        let inputs = match &self.inputs {
            InputSource::File { digest, .. } => {
                InputSource::File { path: String::new(), digest: digest.clone() }
            }
            made_up @ InputSource::MadeUp { .. } => made_up.clone(),
        };
        let asked = (
            (WorkloadKind::Predict, cases, inputs, self.wanted.states),
            (config.predict.predictions_per_case, warm_up_rounds, seed, cool_down_s, numerics, compute_units),
        );
        let text = serde_json::to_vec(&asked).expect("it is plain data");
        digest_text(xxhash_rust::xxh3::xxh3_128(&text))
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
