//! The CPU runtime: any ML program, anywhere.
//!
//! Loading checks every function and folds what does not depend on input shapes. The first prediction with a
//! new set of shapes makes a plan; later ones reuse it and allocate nothing. When another plan is next, as where
//! tokens follow a prompt, larger working memory is given back.

mod arena;
mod bindings;
mod compact;
mod cost;
mod execute;
mod fuse;
mod image;
mod lifetimes;
mod memory;
mod plan;
mod planner;
mod session;
mod states;
mod views;

use std::sync::Arc;

use crate::kernels;
use crate::mil::op::Numerics;
use crate::mil::propagate::{self, Facts, Finding, Options};
use crate::mil::{Function, Model, verify};
use crate::package::Package;
use crate::runtime::{Availability, LoadOptions, Loaded, Runtime, RuntimeError, Session};

/// Constants up to this size are computed once at load.
const FOLD_BYTES: usize = 64 << 20;

/// The embedded runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuRuntime;

impl Runtime for CpuRuntime {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn availability(&self) -> Availability {
        Availability::Ready
    }

    fn load(&self, package: &Package, options: &LoadOptions) -> Result<Arc<dyn Loaded>, RuntimeError> {
        Ok(Arc::new(CpuLoaded::new(package.shared_model(), options)?))
    }
}

impl CpuRuntime {
    /// Loads a model that is not in a package.
    pub fn load_model(&self, model: Model, options: &LoadOptions) -> Result<Arc<dyn Loaded>, RuntimeError> {
        Ok(Arc::new(CpuLoaded::new(Arc::new(model), options)?))
    }
}

/// A model with what is known of it whatever the shapes.
struct CpuLoaded {
    model: Arc<Model>,
    /// Facts of each function, in program order.
    facts: Vec<Facts>,
    numerics: Numerics,
    /// Where every step rounds to fp16, none are fused.
    fuses: bool,
    pool: Option<rayon::ThreadPool>,
    memory_limit: usize,
}

impl CpuLoaded {
    fn new(model: Arc<Model>, options: &LoadOptions) -> Result<CpuLoaded, RuntimeError> {
        let mut findings = verify::structure(&model);
        if !findings.is_empty() {
            return Err(RuntimeError::Program(findings));
        }
        let mut facts = Vec::new();
        for function in &model.program.functions {
            let (known, problems) = propagate::propagate(function, &[], fold_options(options.numerics, true));
            findings.extend(problems);
            facts.push(known);
            if model.interface(&function.name).is_none() {
                findings.push(Finding {
                    function: function.name.clone(),
                    operation: "interface".to_owned(),
                    message: "the function has no interface".to_owned(),
                });
            }
        }
        if !findings.is_empty() {
            return Err(RuntimeError::Program(findings));
        }
        let memory_limit = options.memory.unwrap_or_else(machine_memory);
        let threads = options.threads.unwrap_or_else(num_cpus::get_physical).max(1);
        let pool = match threads {
            1 => None,
            n => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(n)
                    .build()
                    .map_err(|e| RuntimeError::Environment(format!("cannot start {n} threads: {e}")))?,
            ),
        };
        let numerics = options.numerics;
        let fuses = options.fuse && numerics == Numerics::Fast;
        Ok(CpuLoaded { model, facts, numerics, fuses, pool, memory_limit })
    }

    /// Has all threads give back what they keep from one prediction to the next: a prompt needs more than the tokens
    /// after it.
    fn release_buffers(&self) {
        match &self.pool {
            Some(pool) => drop(pool.broadcast(|_| kernels::release_buffers())),
            None => kernels::release_buffers(),
        }
    }

    fn function(&self, name: &str) -> Result<(&Function, &Facts), RuntimeError> {
        let functions = &self.model.program.functions;
        let index =
            functions.iter().position(|f| f.name == name).ok_or_else(|| RuntimeError::NoFunction {
                name: name.to_owned(),
                known: functions.iter().map(|f| f.name.clone()).collect(),
            })?;
        Ok((&functions[index], &self.facts[index]))
    }
}

fn fold_options(numerics: Numerics, trust_declared: bool) -> Options {
    Options { fold_bytes: FOLD_BYTES, trust_declared, numerics }
}

impl Loaded for CpuLoaded {
    fn model(&self) -> &Model {
        &self.model
    }

    fn session(self: Arc<Self>) -> Box<dyn Session> {
        Box::new(session::CpuSession::new(self))
    }
}

/// The machine's memory, or 64 GB where that is unknown.
fn machine_memory() -> usize {
    const FALLBACK: usize = 64 << 30;
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    total.and_then(|kib| kib.trim().parse::<usize>().ok()).map_or(FALLBACK, |kib| kib << 10)
}
