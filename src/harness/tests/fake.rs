//! A machine, a model and workers that do as they are told.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use half::f16;

use super::super::child::{Child, Incoming, LaunchError, Launcher, WorkerExit};
use super::super::config::{BenchConfig, PromptConfig, PromptSource};
use super::super::null;
use super::super::open::{OpenError, Ready, ReadyModel, ReadyPart};
use super::super::overhead;
use super::super::plan::{Generate, Plan, PlannedWork};
use super::super::protocol::{Job, Message, ModelUse, Work};
use super::super::run::{BenchEnv, Event, Observations, run};
use super::super::worker::{Bench, Stop};
use crate::generate::{Clock, ManualClock};
use anemeter_base::hardware::{ProductionMix, Source};
use anemeter_base::vocabulary::{ComputeUnits, Device, KvForm, RuntimeName};
use anemeter_measure::report::Load;
use anemeter_mil::{Builder, Model, Opset};
use anemeter_runtime::placement::{FunctionPlan, PlannedOperation};
use anemeter_runtime::{LoadedModel, Loading, Placement, RuntimeError, Session};

/// What one prediction does: its number in the launch, the function, the logits.
pub(super) type Script = Arc<dyn Fn(usize, &str, &mut [f16]) -> Duration + Send + Sync>;

/// A process whose memory grows by so many bytes every time that anyone looks.
pub(super) struct FakeMachine {
    pub(super) private_bytes: Cell<u64>,
    pub(super) growth: Box<dyn Fn(u64) -> u64>,
}

impl FakeMachine {
    pub(super) fn growing(growth: impl Fn(u64) -> u64 + 'static) -> FakeMachine {
        FakeMachine { private_bytes: Cell::new(50 << 20), growth: Box::new(growth) }
    }
}

impl Source for FakeMachine {
    fn file(&self, path: &str) -> Option<String> {
        match path {
            "/proc/self/status" => {
                let bytes = (self.growth)(self.private_bytes.get());
                self.private_bytes.set(bytes);
                let (private, resident) = (bytes >> 10, (bytes >> 10) + 1000);
                Some(format!("VmHWM:\t{resident} kB\nVmRSS:\t{resident} kB\nRssAnon:\t{private} kB\n"))
            }
            "/proc/meminfo" => Some("MemTotal: 4096 kB\nMemAvailable: 2048 kB\n".to_owned()),
            "/proc/loadavg" => Some("0.25 0 0 1/1 1\n".to_owned()),
            _ => None,
        }
    }

    fn names(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn command(&self, _: &str, _: &[&str]) -> Option<String> {
        None
    }
}

/// How a launch goes wrong.
#[derive(Clone)]
pub(super) enum Mishap {
    NotStarted,
    /// Ends after so many lines.
    Crash(usize),
    /// Says nothing more after so many lines.
    Hang(usize),
    /// Says this after so many lines.
    Say(usize, Vec<u8>),
    /// Talks without end, taking time.
    Babble,
    /// Says everything, but ends with a bad status.
    BadStatus,
}

/// Workers inside the test.
pub(super) struct FakeWorkers<'a> {
    pub(super) clock: ManualClock,
    pub(super) machine: &'a FakeMachine,
    pub(super) script: Script,
    /// What goes wrong in which launch.
    pub(super) mishaps: Vec<(usize, Mishap)>,
    pub(super) jobs: Rc<RefCell<Vec<Job>>>,
    /// Share of the work that a plan puts on the Neural Engine; not a number if planning fails, `None` if there are no plans.
    pub(super) residency: Option<f64>,
}

impl<'a> FakeWorkers<'a> {
    pub(super) fn new(machine: &'a FakeMachine, script: Script) -> FakeWorkers<'a> {
        FakeWorkers {
            clock: ManualClock::default(),
            machine,
            script,
            mishaps: Vec::new(),
            jobs: Rc::default(),
            residency: None,
        }
    }

    fn lines(&self, job: &Job) -> VecDeque<Vec<u8>> {
        let mut lines = VecDeque::new();
        if let Job::Probe { .. } = job {
            lines.push_back(
                serde_json::to_vec(&Message::Finished { memory: None, energy_joules_per_token: None })
                    .unwrap(),
            );
            return lines;
        }
        let open = |model: &ModelUse, clock: &Arc<dyn Clock>| self.open(model, clock);
        let bench = Bench { clock: Arc::new(self.clock.clone()), source: self.machine, open: &open };
        let mut emit = |message: &Message| {
            lines.push_back(serde_json::to_vec(message).unwrap());
            Ok(())
        };
        if let Err(Stop::Failed(why)) = bench.work(job, &mut emit) {
            emit(&Message::Failed(why)).unwrap();
        }
        lines
    }

    fn open(&self, model: &ModelUse, clock: &Arc<dyn Clock>) -> Result<Ready, OpenError> {
        let (manual, script) = (self.clock.clone(), Arc::clone(&self.script));
        let mut count = 0;
        let slower = if model.units == ComputeUnits::Cpu { 2 } else { 1 };
        let act = move |function: &str, logits: &mut [f16]| {
            logits.fill(f16::ZERO);
            manual.advance(slower * script(count, function, logits));
            count += 1;
            Ok(())
        };
        let seq_lens = [64, 128];
        let generator = overhead::generator(&seq_lens, 1, Arc::clone(clock), Box::new(act)).unwrap();
        self.clock.advance(Duration::from_micros(1500));
        let plans = self.residency.is_some();
        let load = Load {
            open_ms: 0.5,
            compile_ms: plans.then_some(0.25),
            compiled_before: plans.then_some(true),
            load_ms: 1.0,
            first_prediction_ms: None,
        };
        let part = |residency: f64| ReadyPart {
            package: "model.mlpackage".to_owned(),
            loaded: Arc::new(FakeLoaded { model: empty_model(), residency, units: model.units }),
            functions: vec!["embed".to_owned(), "decode".to_owned()],
        };
        let Work::Generate(wanted) = &model.work else { panic!("the fake generates") };
        Ok(Ready {
            model: ReadyModel::Generator(Box::new(generator), wanted.clone()),
            parts: self.residency.map(part).into_iter().collect(),
            load,
            weight_bytes_per_token: Some(1 << 20),
        })
    }
}

/// A model that plans a convolution on the Neural Engine and a softmax elsewhere.
struct FakeLoaded {
    model: Model,
    residency: f64,
    units: ComputeUnits,
}

fn empty_model() -> Model {
    Model::single(Builder::new("main", Opset::Ios18).finish(&[]))
}

impl LoadedModel for FakeLoaded {
    fn model(&self) -> &Model {
        &self.model
    }

    fn session(self: Arc<Self>) -> Box<dyn Session> {
        Box::new(null::NullSession::new(1, Box::new(|_, _| Ok(()))))
    }

    fn loading(&self) -> Loading {
        Loading { units: Some(self.units), remarks: vec!["a remark".to_owned()], ..Loading::default() }
    }

    fn placement(&self, functions: &[&str]) -> Result<Option<Placement>, RuntimeError> {
        if self.residency.is_nan() {
            return Err(RuntimeError::Environment("no plan".to_owned()));
        }
        let operation = |name: &str, kind: &str, device: Device, cost: f64| PlannedOperation {
            name: name.to_owned(),
            kind: kind.to_owned(),
            preferred: Some(device),
            supported: vec![device],
            cost: Some(cost),
        };
        let plan = |function: &&str| FunctionPlan {
            function: (*function).to_owned(),
            operations: match *function {
                "embed" => vec![operation("e", "gather", Device::Cpu, 1.0)],
                _ => vec![
                    operation("c", "conv", Device::NeuralEngine, self.residency),
                    operation("s", "softmax", Device::Cpu, 1.0 - self.residency),
                ],
            },
        };
        Ok(Some(Placement::new(&functions.iter().map(plan).collect::<Vec<_>>())))
    }
}

impl Launcher for FakeWorkers<'_> {
    fn launch(&mut self, job: &Job) -> Result<Box<dyn Child>, LaunchError> {
        let measured = self.jobs.borrow().iter().filter(|job| !matches!(job, Job::Probe { .. })).count();
        self.jobs.borrow_mut().push(job.clone());
        let is_probe = matches!(job, Job::Probe { .. });
        let mishap = self.mishaps.iter().find(|(launch, _)| *launch == measured && !is_probe);
        let mishap = mishap.map(|(_, mishap)| mishap.clone());
        if matches!(mishap, Some(Mishap::NotStarted)) {
            return Err(LaunchError("no more processes".to_owned()));
        }
        Ok(Box::new(FakeChild { lines: self.lines(job), said: 0, mishap, clock: self.clock.clone() }))
    }
}

struct FakeChild {
    lines: VecDeque<Vec<u8>>,
    said: usize,
    mishap: Option<Mishap>,
    clock: ManualClock,
}

impl Child for FakeChild {
    fn next(&mut self, limit: Duration) -> Incoming {
        self.said += 1;
        match &self.mishap {
            Some(Mishap::Crash(after)) if self.said > *after => return Incoming::Closed,
            Some(Mishap::Hang(after)) if self.said > *after => {
                self.clock.advance(limit);
                return Incoming::Silence;
            }
            Some(Mishap::Say(after, what)) if self.said > *after => return Incoming::Line(what.clone()),
            Some(Mishap::Babble) => {
                self.clock.advance(Duration::from_secs(1));
                return Incoming::Line(serde_json::to_vec(&Message::WarmedUp).unwrap());
            }
            _ => {}
        }
        self.lines.pop_front().map_or(Incoming::Closed, Incoming::Line)
    }

    fn end(&mut self) -> WorkerExit {
        let (status, success) = match self.mishap {
            None | Some(Mishap::Say(..)) => ("exit status: 0", true),
            Some(Mishap::BadStatus) => ("exit status: 101", false),
            _ => ("signal: 9 (SIGKILL)", false),
        };
        WorkerExit { status: status.to_owned(), success, stderr: "thread panicked\n".to_owned() }
    }
}

/// A plan over the sequence lengths 64 and 128.
pub(super) fn plan(launches: usize, requests_per_seq_len: usize) -> Plan {
    let config = BenchConfig {
        launches,
        requests_per_seq_len,
        generated_tokens: 4,
        prompts: PromptConfig { source: PromptSource::Tokens, file: None },
        launch_limit_s: 100.0,
        ..BenchConfig::built_in().unwrap()
    };
    Plan {
        config,
        bundle: "bundle".into(),
        runtime: RuntimeName::Cpu,
        work: PlannedWork::Generate(Generate {
            kv: KvForm::Io,
            seq_lens: vec![64, 128],
            depths: None,
            batch: 1,
        }),
        mix: ProductionMix { seq_lens: vec![64, 128], weights: vec![0.25, 0.75] },
        threads: 1,
        units: ComputeUnits::All,
        soak_steps: None,
        slow_down_pct: None,
    }
}

/// Runs a plan and gives what was observed, what was told and how long was rested.
pub(super) fn observe(plan: &Plan, workers: &mut FakeWorkers<'_>) -> (Observations, Vec<Event>, Duration) {
    let (clock, machine) = (workers.clock.clone(), workers.machine);
    let mut rested = Duration::ZERO;
    let mut events = Vec::new();
    let mut env =
        BenchEnv { launcher: workers, clock: &clock, source: machine, sleep: &mut |time| rested += time };
    let observed = run(plan, &mut env, &mut |event| events.push(event));
    (observed, events, rested)
}

/// Every prediction takes the same time.
pub(super) fn steady(prefill: Duration, decode: Duration) -> Script {
    Arc::new(move |_, function, _| if function == "prefill" { prefill } else { decode })
}

/// The description of the model that workers run.
pub(super) fn manifest() -> anemeter_convert::bundle::Manifest {
    null::manifest(&[64, 128], 1)
}
