//! What runs for some tokens: a function of each package, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use super::input::{Input, Piece};
use super::outputs;
use super::runner::{Inputs, Runners, output_problem, position};
use super::table::Files;
use crate::generate::clock::Clock;
use crate::generate::driver::buffer::Buffer;
use crate::generate::error::{GenerateError, Result};
use anemeter_convert::bundle::contract::{
    CachePair, Contract, ContractFunction, ContractOutputs, ContractRole, PassedInput,
};
use anemeter_convert::bundle::{MANIFEST, Manifest};
use anemeter_kernels::tensor::DType;

/// The functions that take some tokens in.
pub(super) struct Pass {
    role: ContractRole,
    stages: Vec<Stage>,
    /// Tokens of one prediction; none if any number will do.
    tokens: Option<usize>,
    /// Vectors on their way from one function to the next.
    hidden: Buffer,
    /// Outputs on their way to functions that name them, by name.
    passed: Passed,
    /// Where given, what it takes are pieces of all its tokens that end there or before.
    whole_pieces_to: Option<usize>,
}

/// Outputs that functions take from those before them.
type Passed = Vec<(String, Buffer)>;

/// A function of a pass.
struct Stage {
    /// The place of its package among the chunks.
    at: usize,
    function: String,
    role: ContractRole,
    inputs: Vec<Input>,
    /// The input that takes the vectors of the function before.
    hidden: Option<String>,
    /// Inputs that are outputs of functions before.
    passed: Vec<PassedInput>,
    /// What it gives of the outputs that functions after it name.
    gives: Vec<String>,
    caches: Vec<CachePair>,
    outputs: ContractOutputs,
}

impl Pass {
    /// The functions of a role with those that make vectors and logits; none if a package lacks one.
    pub(super) fn new(
        manifest: &Manifest,
        contract: &Contract,
        role: ContractRole,
        files: &Files<'_>,
    ) -> Result<Option<Pass>> {
        let of_role =
            || contract.functions().map(|(_, function)| function).filter(|function| function.role == role);
        let whole_pieces_to = of_role().filter_map(|function| function.whole_pieces_to).min();
        let tokens = match role {
            ContractRole::Decode => Some(1),
            _ => of_role().filter_map(|function| function.tokens).max(),
        };
        let mut stages = Vec::new();
        for package in &contract.packages {
            let runs = |function: &&ContractFunction| match function.role {
                ContractRole::Embed => true,
                // A head for one token is of no use to several.
                ContractRole::Head => function.tokens.is_none_or(|head| Some(head) == tokens),
                _ => function.role == role,
            };
            let decodes = |function: &ContractFunction| {
                matches!(function.role, ContractRole::Decode | ContractRole::WholeSequence)
            };
            let count = stages.len();
            for function in package.functions.iter().filter(runs) {
                stages.push(Stage::new(manifest, &package.package, function, files)?);
            }
            if stages.len() == count && package.functions.iter().any(decodes) {
                return Ok(None);
            }
        }
        if !stages.iter().any(|stage| stage.role == role) {
            return Ok(None);
        }
        let hidden = Buffer::zeroed(DType::F16, &[0]);
        let hidden = hidden.map_err(|e| GenerateError::file(MANIFEST, e.to_string()))?;
        let passed = passed(&mut stages)?;
        Ok(Some(Pass { role, stages, tokens, hidden, passed, whole_pieces_to }))
    }

    /// Where given, what it takes are pieces of all its tokens that end at this position or before.
    pub(super) fn whole_pieces_to(&self) -> Option<usize> {
        self.whole_pieces_to
    }

    /// Tokens of one prediction; none if any number will do.
    pub(super) fn tokens(&self) -> Option<usize> {
        self.tokens
    }

    /// Whether it takes the whole sequence every time.
    pub(super) fn is_whole(&self) -> bool {
        self.role == ContractRole::WholeSequence
    }

    /// Whether it says what token comes next.
    pub(super) fn gives_next(&self) -> bool {
        self.head().is_some()
    }

    /// Whether it gives all logits, and not only the largest.
    pub(super) fn gives_all_logits(&self) -> bool {
        self.head().is_some_and(|head| !head.outputs.logits.is_empty())
    }

    fn head(&self) -> Option<&Stage> {
        self.stages
            .last()
            .filter(|stage| !stage.outputs.logits.is_empty() || !stage.outputs.argmax.is_empty())
    }

    /// Predicts function by function; gives the time that token vectors took.
    pub(super) fn run(
        &mut self,
        runners: &mut Runners,
        piece: &Piece<'_>,
        clock: &dyn Clock,
    ) -> Result<Duration> {
        let mut embedding = Duration::ZERO;
        for stage in &mut self.stages {
            let began = clock.now();
            stage.run(runners, piece, (&mut self.hidden, &mut self.passed))?;
            if stage.role == ContractRole::Embed {
                embedding += clock.now().saturating_sub(began);
            }
        }
        Ok(embedding)
    }

    /// The logits after the last token of a piece.
    pub(super) fn collect(&self, runners: &Runners, piece: &Piece<'_>, logits: &mut [f32]) -> Result<()> {
        let Some(head) = self.head() else { return Ok(()) };
        let output = |name: &str| runners.output(head.at, &head.function, name);
        let collected = match head.outputs.logits.is_empty() {
            true => outputs::largest(&head.outputs.argmax, &output, logits),
            false => outputs::logits(&head.outputs.logits, &output, piece, logits),
        };
        collected?.map_err(|problem| {
            output_problem(runners.package(head.at), format!("`{}` gave {problem}", head.function))
        })
    }
}

/// A buffer for every output that is passed on. Stages keep only the names of those that they give.
fn passed(stages: &mut [Stage]) -> Result<Passed> {
    let wanted: BTreeSet<String> =
        stages.iter().flat_map(|stage| &stage.passed).map(|passed| passed.output.clone()).collect();
    for stage in stages {
        stage.gives.retain(|name| wanted.contains(name));
    }
    let empty = || Buffer::zeroed(DType::F16, &[0]).map_err(|e| GenerateError::file(MANIFEST, e.to_string()));
    wanted.into_iter().map(|name| Ok((name, empty()?))).collect()
}

impl Stage {
    fn new(
        manifest: &Manifest,
        package: &str,
        contract: &ContractFunction,
        files: &Files<'_>,
    ) -> Result<Stage> {
        let at = position(manifest, package)?;
        let function = manifest.chunks[at].functions.iter().find(|f| f.name == contract.function);
        let function = function.ok_or_else(|| {
            let problem =
                format!("`{package}` has no function `{}`, which the contract names", contract.function);
            GenerateError::file(MANIFEST, problem)
        })?;
        Ok(Stage {
            at,
            function: contract.function.clone(),
            role: contract.role,
            inputs: Input::all(contract, function, files)?,
            hidden: contract.inputs.hidden.clone(),
            passed: contract.inputs.passed.clone(),
            gives: function.outputs.iter().map(|port| port.name.clone()).collect(),
            caches: contract.caches.clone(),
            outputs: contract.outputs.clone(),
        })
    }

    fn run(
        &mut self,
        runners: &mut Runners,
        piece: &Piece<'_>,
        (hidden, passed): (&mut Buffer, &mut Passed),
    ) -> Result<()> {
        let (at, function) = (self.at, &self.function);
        for input in &mut self.inputs {
            input.fill(piece).map_err(|e| runners.tensor_problem(at, &e))?;
        }
        let mut given = Inputs::new();
        for input in &self.inputs {
            given.push((&input.name, input.view().map_err(|e| runners.tensor_problem(at, &e))?));
        }
        if let Some(name) = &self.hidden {
            given.push((name, hidden.view().map_err(|e| runners.tensor_problem(at, &e))?));
        }
        for PassedInput { input, output } in &self.passed {
            let found = passed.iter().find(|(name, _)| name == output);
            let (_, buffer) = found.expect("a pass has a buffer for every output that is passed on");
            given.push((input, buffer.view().map_err(|e| runners.tensor_problem(at, &e))?));
        }
        runners.predict(at, function, &given)?;
        drop(given);
        for (name, buffer) in passed.iter_mut().filter(|(name, _)| self.gives.contains(name)) {
            let output = runners.output(at, function, name)?;
            buffer.copy_from(&output).map_err(|e| runners.tensor_problem(at, &e))?;
        }
        for CachePair { input, output } in &self.caches {
            runners.keep(at, input, output)?;
        }
        if let Some(name) = &self.outputs.hidden {
            let vectors = runners.output(at, function, name)?;
            hidden.copy_from(&vectors).map_err(|e| runners.tensor_problem(at, &e))?;
        }
        Ok(())
    }
}
