//! The CPU runtime: any ML program, anywhere.
//!
//! Loading checks every function and folds what does not depend on input shapes. The first prediction with a
//! new set of shapes makes a plan; later ones reuse it and its memory. When another plan is next, as where
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

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Availability, LoadOptions, LoadedModel, Runtime, RuntimeError, Session};
use anemeter_base::hardware::{self, System};
use anemeter_base::vocabulary::RuntimeName;
use anemeter_kernels as kernels;
use anemeter_mil::op::Numerics;
use anemeter_mil::package::{Form, Package};
use anemeter_mil::propagate::{self, Facts, Finding, Options};
use anemeter_mil::{Function, Model, Type, verify};

/// Constants up to this size are computed once at load.
const FOLD_BYTES: usize = 64 << 20;
/// Operations of one prediction, where nothing else is said: a long one has ten thousand, and loops a multiple.
const STEP_LIMIT: u64 = 10_000_000;

/// The embedded runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuRuntime;

impl Runtime for CpuRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::Cpu
    }

    fn availability(&self) -> Availability {
        Availability::Ready
    }

    fn load(&self, package: &Package, options: &LoadOptions) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
        match package.form() {
            Form::Asset => Err(RuntimeError::asset(package.path(), RuntimeName::Cpu)),
            _ => Ok(Arc::new(CpuLoaded::new(package.shared_model(), options)?)),
        }
    }
}

impl CpuRuntime {
    /// Loads a model that is not in a package.
    pub fn load_model(
        &self,
        model: Model,
        options: &LoadOptions,
    ) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
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
    step_limit: u64,
}

impl CpuLoaded {
    fn new(model: Arc<Model>, options: &LoadOptions) -> Result<CpuLoaded, RuntimeError> {
        let mut findings = verify::structure(&model);
        if !findings.is_empty() {
            return Err(RuntimeError::Program(findings));
        }
        let memory_limit = options.memory.unwrap_or_else(machine_memory);
        let step_limit = options.steps.unwrap_or(STEP_LIMIT);
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
            findings.extend(impossible_states(function, memory_limit));
        }
        findings.extend(states_together(&model, memory_limit));
        if !findings.is_empty() {
            return Err(RuntimeError::Program(findings));
        }
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
        Ok(CpuLoaded { model, facts, numerics, fuses, pool, memory_limit, step_limit })
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

/// States that cannot be kept: their size is unknown, or more than there is memory.
fn impossible_states(function: &Function, memory_limit: usize) -> impl Iterator<Item = Finding> {
    let states = function.inputs.iter().map(|&id| function.value(id));
    states.filter_map(move |value| {
        let Type::State(ty) = &value.ty else { return None };
        let message = match session::state_size(ty) {
            None => format!("is a {ty}, whose size is unknown"),
            Some((_, bytes)) if bytes > memory_limit => {
                format!("is a {ty}, which takes {bytes} bytes where the machine has {memory_limit}")
            }
            Some(_) => return None,
        };
        let operation = format!("state `{}`", value.name);
        Some(Finding { function: function.name.clone(), operation, message })
    })
}

/// What states take together, if that is more than there is memory.
fn states_together(model: &Model, memory_limit: usize) -> Option<Finding> {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for function in &model.program.functions {
        for value in function.inputs.iter().map(|&id| function.value(id)) {
            if let Type::State(ty) = &value.ty {
                sizes.insert(&value.name, session::state_size(ty).map_or(0, |size| size.1));
            }
        }
    }
    let bytes = sizes.values().fold(0usize, |sum, &size| sum.saturating_add(size));
    let function = model.program.functions.first()?.name.clone();
    (bytes > memory_limit).then(|| Finding {
        function,
        operation: "states".to_owned(),
        message: format!("take {bytes} bytes together, the limit is {memory_limit}"),
    })
}

fn fold_options(numerics: Numerics, trust_declared: bool) -> Options {
    Options { fold_bytes: FOLD_BYTES, trust_declared, numerics }
}

impl LoadedModel for CpuLoaded {
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
    hardware::memory::total(&System).and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(FALLBACK)
}
