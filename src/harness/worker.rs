//! The worker: a fresh process that does one job and tells what it measures, line by line.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use super::child::WORKER;
use super::generation::Generation;
use super::open::{self, OpenError, Ready, ReadyModel, ReadyPart};
use super::protocol::{Job, Message, ModelUse};
use super::requests::{Requests, Undone, ms};
use super::residency::{PlannedPlacement, function_residency};
use super::schedule::Slot;
use super::{energy, overhead, probe};
use crate::generate::{Clock, SystemClock};
use anemeter_base::advice::Advice;
use anemeter_base::engine::Engine;
use anemeter_base::function_name::is_embedding;
use anemeter_base::hardware::{Source, System, memory};
use anemeter_base::vocabulary::ComputeUnits;
use anemeter_measure::report::{FunctionResidency, Memory, SoakPoint};
use anemeter_measure::stats::median;

/// The longest description of a job.
const LONGEST_JOB: u64 = 1 << 30;

/// Steps that are timed with the CPU only.
const CPU_STEPS: usize = 32;

/// Why a job was not done.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nobody listens any more.
    Unheard(io::Error),
    /// It failed, and this is why.
    Failed(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Unheard(error)
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Stop {
        Stop::Failed(why)
    }
}

/// With what to do about it, since a worker has one line for both.
impl From<OpenError> for Stop {
    fn from(error: OpenError) -> Stop {
        Stop::Failed(match error.remedy() {
            Some(remedy) => format!("{error}; help: {remedy}"),
            None => error.to_string(),
        })
    }
}

/// Makes a model ready.
pub(super) type Open<'a> = &'a dyn Fn(&ModelUse, &Arc<dyn Clock>) -> Result<Ready, OpenError>;

/// What a worker works with.
pub(super) struct Bench<'a> {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) source: &'a dyn Source,
    pub(super) open: Open<'a>,
}

/// Does the job that a line on `input` describes and answers on `output`. Failures are answers too; an error
/// means that nobody listens.
pub fn serve(input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut line = String::new();
    io::Read::take(input, LONGEST_JOB).read_line(&mut line)?;
    let bench = Bench { clock: Arc::new(SystemClock::default()), source: &System, open: &open::open };
    let mut emit = |message: &Message| {
        serde_json::to_writer(&mut *output, message)?;
        output.write_all(b"\n")?;
        output.flush()
    };
    let job: Result<Job, _> = serde_json::from_str(&line);
    let done = match job {
        Ok(job) => bench.work(&job, &mut emit),
        Err(error) => Err(Stop::Failed(format!("the job cannot be read: {error}"))),
    };
    match done {
        Ok(()) => Ok(()),
        Err(Stop::Failed(why)) => emit(&Message::Failed(why)),
        Err(Stop::Unheard(error)) => Err(error),
    }
}

/// Does the job that a line on standard input describes and answers on standard output.
pub fn serve_standard() -> io::Result<()> {
    serve(&mut io::BufReader::new(io::stdin()), &mut io::stdout().lock())
}

/// Does the job of a worker if this process was started as one, and says whether it was. A program that measures with
/// workers of its own ([`Processes::of_this_program`](super::Processes::of_this_program)) calls this before anything
/// else, and ends if it was.
pub fn serve_if_worker() -> io::Result<bool> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_worker = arguments == [WORKER];
    if is_worker {
        serve_standard()?;
    }
    Ok(is_worker)
}

/// Where a worker tells what it measures.
pub(super) type Emit<'a> = &'a mut dyn FnMut(&Message) -> io::Result<()>;

impl Bench<'_> {
    /// Does a job.
    pub(super) fn work(&self, job: &Job, emit: Emit<'_>) -> Result<(), Stop> {
        match job {
            Job::Probe { threads } => self.probe(*threads, emit),
            Job::Measure { model, slots } => self.measure(model, slots, emit),
            Job::Try { model, seq_len, steps } => self.try_out(model, *seq_len, *steps, emit),
            Job::Place { model, seq_len } => self.place(model, *seq_len, emit),
            Job::Soak { model, seq_len, steps } => self.soak(model, *seq_len, *steps, emit),
        }
    }

    fn probe(&self, threads: usize, emit: Emit<'_>) -> Result<(), Stop> {
        let overhead = overhead::per_step_us(Arc::clone(&self.clock)).map_err(|e| e.to_string())?;
        emit(&Message::Probed {
            bandwidth: probe::bandwidth(&*self.clock, threads)?,
            overhead_us_per_step: overhead,
            clock_resolution_ns: probe::clock_resolution(&*self.clock),
        })?;
        emit(&Message::Finished { memory: None, energy_joules_per_token: None })?;
        Ok(())
    }

    fn measure(&self, model: &ModelUse, slots: &[Slot], emit: Emit<'_>) -> Result<(), Stop> {
        let began = self.clock.now();
        emit(&Message::Canary { ms: probe::canary(&*self.clock) })?;
        let (mut run, at_load) = self.ready(model, began, emit)?;
        let energy_before = energy::joules(self.source);
        let mut generated = 0;
        for slot in slots {
            let started = self.clock.now().saturating_sub(began);
            let done = run.requests.request(slot.slot, slot.seq_len, started).map_err(String::from)?;
            generated += done.tokens;
            if slot.warm_up {
                emit(&Message::WarmedUp)?;
                continue;
            }
            emit(&done.measured.into_message(&memory::footprint(self.source)))?;
        }
        run.tell_remarks(emit)?;
        let energy_joules_per_token =
            energy::per_token(energy_before, energy::joules(self.source), generated);
        emit(&Message::Finished { memory: Some(self.memory(at_load)), energy_joules_per_token })?;
        Ok(())
    }

    /// Runs steps and asks where operations are planned to run.
    fn try_out(&self, model: &ModelUse, seq_len: usize, steps: usize, emit: Emit<'_>) -> Result<(), Stop> {
        let (mut run, at_load) = self.ready(model, self.clock.now(), emit)?;
        let done = run.steps(seq_len, steps)?.len();
        let functions = run.placed()?;
        // Looking token vectors up is the same in every form and says nothing of this one.
        let of_form = functions.iter().filter(|f| !is_embedding(&f.function));
        let shares = of_form.map(|function| function.share);
        let residency = shares.min_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal)).flatten();
        run.tell_remarks(emit)?;
        emit(&Message::Tried { steps: done, residency })?;
        emit(&Message::Finished { memory: Some(self.memory(at_load)), energy_joules_per_token: None })?;
        Ok(())
    }

    /// Asks where operations are planned to run, loads the model once more and times it with the CPU only.
    fn place(&self, model: &ModelUse, seq_len: usize, emit: Emit<'_>) -> Result<(), Stop> {
        let run = self.ready(model, self.clock.now(), emit)?.0;
        let (functions, units) = (run.placed()?, run.units());
        run.tell_remarks(emit)?;
        drop(run);
        let again = (self.open)(model, &self.clock)?.load;
        let on_cpu = ModelUse { units: ComputeUnits::Cpu, ..model.clone() };
        // Without a time on the CPU the plan stays unverified, which says enough.
        let now = self.clock.now();
        let cpu_step_ms = self.ready(&on_cpu, now, &mut |_| Ok(())).and_then(|(mut run, _)| {
            let steps = run.steps(seq_len, CPU_STEPS)?;
            Ok(median(&steps.into_iter().map(ms).collect::<Vec<_>>()))
        });
        emit(&Message::Placed(PlannedPlacement {
            functions,
            units,
            cpu_step_ms: cpu_step_ms.ok().flatten(),
            reload_ms: Some(again.compile_ms.unwrap_or(0.0) + again.load_ms),
        }))?;
        emit(&Message::Finished { memory: None, energy_joules_per_token: None })?;
        Ok(())
    }

    fn soak(&self, model: &ModelUse, seq_len: usize, steps: usize, emit: Emit<'_>) -> Result<(), Stop> {
        emit(&Message::Canary { ms: probe::canary(&*self.clock) })?;
        let (mut run, at_load) = self.ready(model, self.clock.now(), emit)?;
        let began = self.clock.now();
        let (mut done, mut slot) = (0, 0);
        while done < steps {
            let request = run.requests.request(slot, seq_len, Duration::ZERO);
            let request = request.and_then(|request| match run.requests.check(seq_len) {
                Some(what) => Err(Undone::NotFinite(what)),
                None => Ok(request),
            });
            let mut totals: Vec<Duration> = match request {
                Ok(request) => request.steps,
                Err(Undone::NotFinite(error)) => {
                    emit(&Message::NotFinite(format!("after {done} steps: {error}")))?;
                    break;
                }
                Err(Undone::Failed(error)) => return Err(error.into()),
            };
            totals.sort();
            done += totals.len();
            slot += 1;
            emit(&Message::Point(SoakPoint {
                steps: done,
                elapsed_ms: ms(self.clock.now().saturating_sub(began)),
                step_ms: totals.get(totals.len() / 2).copied().map_or(0.0, ms),
                private_bytes: memory::footprint(self.source).private,
            }))?;
        }
        emit(&Message::Finished { memory: Some(self.memory(at_load)), energy_joules_per_token: None })?;
        Ok(())
    }

    /// Loads a model, makes the first prediction and tells what that took; gives the memory before it too.
    fn ready(&self, model: &ModelUse, began: Duration, emit: Emit<'_>) -> Result<(Run, Option<u64>), Stop> {
        let Ready { model: loaded, parts, mut load, weight_bytes_per_token } =
            (self.open)(model, &self.clock)?;
        let at_load = memory::footprint(self.source).resident;
        let requests: Box<dyn Requests> = match loaded {
            ReadyModel::Generator(generator, wanted) => {
                Box::new(Generation::new(*generator, &wanted, model.seed)?)
            }
            ReadyModel::Predictor(predictor) => Box::new(predictor),
        };
        let mut run = Run { requests, parts };
        let first = run.requests.first(began)?;
        load.first_prediction_ms = Some(ms(first.elapsed));
        emit(&Message::Loaded { load, resident_bytes: at_load, weight_bytes_per_token })?;
        for record in first.records {
            emit(&record.into_message(&memory::footprint(self.source)))?;
        }
        Ok((run, at_load))
    }

    fn memory(&self, at_load_bytes: Option<u64>) -> Memory {
        Memory {
            at_load_bytes,
            peak_bytes: memory::footprint(self.source).peak,
            available_bytes: memory::available(self.source),
        }
    }
}

/// A model that takes requests.
struct Run {
    requests: Box<dyn Requests>,
    parts: Vec<ReadyPart>,
}

impl Run {
    /// Runs requests until so many steps are done; gives the time of each.
    fn steps(&mut self, at: usize, steps: usize) -> Result<Vec<Duration>, Stop> {
        let mut times = Vec::new();
        let mut slot = 0;
        while times.len() < steps {
            let done = self.requests.request(slot, at, Duration::ZERO);
            let done = done.map_err(|e| format!("after {} steps: {}", times.len(), String::from(e)))?;
            times.extend(done.steps);
            slot += 1;
        }
        Ok(times)
    }

    /// Where the functions that run are planned to run; none where the runtime has no choice.
    fn placed(&self) -> Result<Vec<FunctionResidency>, Stop> {
        let mut all = Vec::new();
        for part in &self.parts {
            let placement = part.loaded.placement(&part.function_names()).map_err(|e| e.to_string())?;
            let functions = placement.map(|placement| placement.functions).unwrap_or_default();
            all.extend(functions.into_iter().map(|function| function_residency(&part.package, function)));
        }
        Ok(all)
    }

    /// Where operations may run, if the runtime says.
    fn units(&self) -> Option<ComputeUnits> {
        self.parts.iter().find_map(|part| part.loaded.loading().units)
    }

    /// Tells what the runtime did otherwise than asked, if anything.
    fn tell_remarks(&self, emit: Emit<'_>) -> io::Result<()> {
        let remarks: Vec<String> = self.parts.iter().flat_map(|part| part.loaded.loading().remarks).collect();
        if !remarks.is_empty() {
            emit(&Message::Remarks(remarks))?;
        }
        match self.engine() {
            Some(engine) => emit(&Message::Engine(engine)),
            None => Ok(()),
        }
    }

    /// What does the work of the runtime, and what calling it takes, of all packages together.
    fn engine(&self) -> Option<Engine> {
        let mut engine = self.parts.iter().find_map(|part| part.loaded.loading().engine)?;
        for part in &self.parts {
            // A worker that has ended has been told of already.
            engine.overheads.extend(part.loaded.call_overheads().unwrap_or_default());
        }
        Some(engine)
    }
}
