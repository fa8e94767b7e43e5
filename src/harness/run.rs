//! The benchmark: a probe, launch after launch, then the long run; what happens is told as events.

use std::time::Duration;

use super::child::Launcher;
use super::conversation::converse;
use super::plan::Plan;
use super::protocol::{Job, Message};
use super::residency::PlannedPlacement;
use super::soak;
use crate::generate::Clock;
use anemeter_base::engine::Engine;
use anemeter_base::hardware::{Conditions, Source};
use anemeter_measure::report::{
    Failure, Launch, Load, MeasuredBandwidth, Memory, Outcome, Prediction, Request, Soak, SoakPoint,
};

/// Time for the probe, whatever the limit of launches.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// What the benchmark works with.
pub struct BenchEnv<'a> {
    /// Starts worker processes.
    pub launcher: &'a mut dyn Launcher,
    /// Time of the parent.
    pub clock: &'a dyn Clock,
    /// Where facts about the machine come from.
    pub source: &'a dyn Source,
    /// Waits before a launch.
    pub sleep: &'a mut dyn FnMut(Duration),
}

/// What happens while a benchmark runs.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum Event {
    /// A launch begins.
    LaunchBegins { index: usize, of: usize },
    /// A request is done, measured or discarded.
    Requested { done: usize, of: usize },
    /// A launch ended.
    LaunchEnded { index: usize, outcome: Outcome },
    /// The probe failed, so bandwidth and overhead are unknown.
    ProbeFailed(Failure),
    /// The time is used up; no further launch begins.
    BudgetSpent { launches: usize },
    /// The long run begins.
    SoakBegins { steps: usize },
    /// The long run goes on.
    Soaked { steps: usize },
    /// The long run ended.
    SoakEnded { outcome: Outcome },
}

/// Everything that was observed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observations {
    pub(super) probe: Option<ProbeResult>,
    pub(super) launches: Vec<Launch>,
    pub(super) weight_bytes_per_token: Option<u64>,
    pub(super) soak: Option<Soak>,
    /// Where operations are planned to run, or why that is not known; `None` if nobody asked.
    pub(super) placement: Option<Result<Placement, Failure>>,
    /// What the runtime did otherwise than asked, each once.
    pub(super) remarks: Vec<String>,
    /// What did the work of the runtime, as the last launch that told says.
    pub(super) engine: Option<Engine>,
}

/// What a worker said of where operations are planned to run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placement {
    pub(super) placed: PlannedPlacement,
    /// What it wrote to standard error meanwhile.
    pub(super) said: String,
}

/// What the probe found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProbeResult {
    pub(super) bandwidth: MeasuredBandwidth,
    pub(super) overhead_us_per_step: f64,
    pub(super) clock_resolution_ns: u64,
}

/// Runs a plan. Failures of workers are part of what is observed.
pub fn run(plan: &Plan, env: &mut BenchEnv<'_>, on_event: &mut dyn FnMut(Event)) -> Observations {
    let began = env.clock.now();
    let mut observed = Observations::begin(plan, env, on_event);
    let count = plan.config.launches;
    let budget = plan.config.budget_s.map(Duration::from_secs_f64);
    for index in 0..count {
        if budget.is_some_and(|budget| env.clock.now().saturating_sub(began) >= budget) {
            on_event(Event::BudgetSpent { launches: index });
            break;
        }
        observed.launch(plan, (index, count), env, on_event);
    }
    observed.finish(plan, env, on_event);
    observed
}

impl Observations {
    /// What is observed before the first launch.
    pub fn begin(plan: &Plan, env: &mut BenchEnv<'_>, on_event: &mut dyn FnMut(Event)) -> Observations {
        Observations { probe: probe(plan, env, on_event), ..Observations::default() }
    }

    /// Adds the next launch of the plan, which is told as launch `index` of `of`.
    pub fn launch(
        &mut self,
        plan: &Plan,
        (index, of): (usize, usize),
        env: &mut BenchEnv<'_>,
        on_event: &mut dyn FnMut(Event),
    ) {
        if plan.config.cool_down_s > 0.0 {
            (env.sleep)(Duration::from_secs_f64(plan.config.cool_down_s));
        }
        on_event(Event::LaunchBegins { index, of });
        let (launch, mut heard) = launch(plan, self.launches.len(), env, on_event);
        on_event(Event::LaunchEnded { index, outcome: launch.outcome.clone() });
        add_new(&mut self.remarks, std::mem::take(&mut heard.remarks));
        self.engine = heard.engine.or(self.engine.take());
        let weights = heard.weight_bytes_per_token;
        self.weight_bytes_per_token = self.weight_bytes_per_token.or(weights);
        self.launches.push(launch);
    }

    /// Adds what is observed after the last launch.
    pub fn finish(&mut self, plan: &Plan, env: &mut BenchEnv<'_>, on_event: &mut dyn FnMut(Event)) {
        self.placement = plan.place().map(|job| place(plan, &job, env, &mut self.remarks));
        self.soak = plan.soak_steps.map(|steps| long_run(plan, steps, env, on_event));
        // Whatever disturbed one probe may have spared the other; no bandwidth is measured too high.
        let again = probe(plan, env, on_event);
        if again.as_ref().map(|p| p.bandwidth.gb_per_s) > self.probe.as_ref().map(|p| p.bandwidth.gb_per_s) {
            self.probe = again;
        }
    }
}

fn probe(plan: &Plan, env: &mut BenchEnv<'_>, on_event: &mut dyn FnMut(Event)) -> Option<ProbeResult> {
    let mut found = None;
    let job = Job::Probe { threads: plan.threads };
    let conversation = converse(env.launcher, &job, PROBE_LIMIT, env.clock, &mut |message| {
        if let Message::Probed { bandwidth, overhead_us_per_step, clock_resolution_ns } = message {
            found = Some(ProbeResult { bandwidth, overhead_us_per_step, clock_resolution_ns });
        }
    });
    match conversation.outcome {
        Outcome::Completed => found,
        Outcome::Failed(failure) => {
            on_event(Event::ProbeFailed(failure));
            None
        }
    }
}

/// What a worker has said of itself so far.
#[derive(Default)]
struct WorkerLog {
    canary_ms: Option<f64>,
    load: Option<Load>,
    weight_bytes_per_token: Option<u64>,
    memory: Option<Memory>,
    energy_joules_per_token: Option<f64>,
    warm_up_requests: usize,
    requests: Vec<Request>,
    predictions: Vec<Prediction>,
    points: Vec<SoakPoint>,
    not_finite: Option<String>,
    remarks: Vec<String>,
    engine: Option<Engine>,
}

impl WorkerLog {
    fn hear(&mut self, message: Message) {
        match message {
            Message::Canary { ms } => self.canary_ms = Some(ms),
            Message::Loaded { load, resident_bytes, weight_bytes_per_token } => {
                self.load = Some(load);
                self.weight_bytes_per_token = weight_bytes_per_token;
                self.memory =
                    Some(Memory { at_load_bytes: resident_bytes, peak_bytes: None, available_bytes: None });
            }
            Message::WarmedUp => self.warm_up_requests += 1,
            Message::Request(request) => self.requests.push(request),
            Message::Prediction(prediction) => self.predictions.push(prediction),
            Message::Point(point) => self.points.push(point),
            Message::NotFinite(what) => self.not_finite = Some(what),
            Message::Finished { memory, energy_joules_per_token } => {
                self.memory = memory.or(self.memory.take());
                self.energy_joules_per_token = energy_joules_per_token;
            }
            Message::Remarks(remarks) => self.remarks = remarks,
            Message::Engine(engine) => self.engine = Some(engine),
            Message::Probed { .. } | Message::Tried { .. } | Message::Placed(_) | Message::Failed(_) => {}
        }
    }
}

impl WorkerLog {
    /// Requests that were made as planned, to warm up or measured.
    fn made(&self) -> usize {
        let predictions = self.predictions.iter().filter(|prediction| !prediction.first);
        self.warm_up_requests + self.requests.len() + predictions.count()
    }
}

fn launch(
    plan: &Plan,
    index: usize,
    env: &mut BenchEnv<'_>,
    on_event: &mut dyn FnMut(Event),
) -> (Launch, WorkerLog) {
    let conditions = Conditions::observe(env.source);
    let job = plan.launch(index);
    let planned = if let Job::Measure { slots, .. } = &job { slots.len() } else { 0 };
    let mut heard = WorkerLog::default();
    let conversation = converse(env.launcher, &job, plan.launch_limit(), env.clock, &mut |message| {
        let is_request = matches!(message, Message::WarmedUp | Message::Request(_) | Message::Prediction(_));
        heard.hear(message);
        if is_request {
            on_event(Event::Requested { done: heard.made(), of: planned });
        }
    });
    let done = heard.made();
    let outcome = match conversation.outcome {
        Outcome::Completed if done != planned => {
            Outcome::Failed(Failure::Garbled(format!("{done} of {planned} requests")))
        }
        outcome => outcome,
    };
    let launch = Launch {
        index,
        outcome,
        conditions,
        canary_ms: heard.canary_ms,
        load: heard.load.take(),
        memory: heard.memory.take(),
        energy_joules_per_token: heard.energy_joules_per_token,
        warm_up_requests: heard.warm_up_requests,
        requests: std::mem::take(&mut heard.requests),
        predictions: std::mem::take(&mut heard.predictions),
        stderr: conversation.stderr,
    };
    (launch, heard)
}

/// Asks where operations are planned to run.
fn place(
    plan: &Plan,
    job: &Job,
    env: &mut BenchEnv<'_>,
    remarks: &mut Vec<String>,
) -> Result<Placement, Failure> {
    let (mut placed, mut heard) = (None, WorkerLog::default());
    // The model is loaded three times and planned once.
    let limit = plan.launch_limit().saturating_mul(4);
    let conversation = converse(env.launcher, job, limit, env.clock, &mut |message| match message {
        Message::Placed(found) => placed = Some(found),
        other => heard.hear(other),
    });
    add_new(remarks, heard.remarks);
    match (conversation.outcome, placed) {
        (Outcome::Failed(failure), _) => Err(failure),
        (Outcome::Completed, Some(placed)) => Ok(Placement { placed, said: conversation.said }),
        (Outcome::Completed, None) => Err(Failure::Garbled("no placement".to_owned())),
    }
}

fn add_new(all: &mut Vec<String>, new: Vec<String>) {
    for remark in new {
        if !all.contains(&remark) {
            all.push(remark);
        }
    }
}

fn long_run(plan: &Plan, steps: usize, env: &mut BenchEnv<'_>, on_event: &mut dyn FnMut(Event)) -> Soak {
    on_event(Event::SoakBegins { steps });
    let mut heard = WorkerLog::default();
    let limit = plan.launch_limit().saturating_mul(10);
    let conversation = converse(env.launcher, &plan.soak(steps), limit, env.clock, &mut |message| {
        if let Message::Point(point) = &message {
            on_event(Event::Soaked { steps: point.steps });
        }
        heard.hear(message);
    });
    on_event(Event::SoakEnded { outcome: conversation.outcome.clone() });
    Soak {
        steps_asked: steps,
        steps: heard.points.last().map_or(0, |point| point.steps),
        seq_len: plan.soak_place().seq_len().unwrap_or(0),
        case: plan.soak_place().case().map(str::to_owned),
        outcome: conversation.outcome,
        memory: soak::memory_trend(&heard.points),
        latency: soak::latency_drift(&heard.points),
        not_finite: heard.not_finite,
        points: heard.points,
    }
}
