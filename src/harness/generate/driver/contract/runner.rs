//! The packages as they run: sessions, caches that the host keeps, and states that packages share.

use smallvec::SmallVec;

use crate::generate::driver::buffer::Buffer;
use crate::generate::error::{GenerateError, Result};
use anemeter_convert::bundle::contract::Contract;
use anemeter_convert::bundle::{MANIFEST, Manifest};
use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, Tensor, TensorError, TensorView};
use anemeter_runtime::{HeldState, RuntimeError, Session};

/// Inputs by name, borrowed.
pub(super) type NamedViews<'a> = [(&'a str, TensorView<'a>)];

/// Inputs by name.
pub(super) type Inputs<'a> = SmallVec<[(&'a str, TensorView<'a>); 16]>;

/// All packages, in the order of the bundle's chunks.
pub(super) struct Runners {
    runners: Vec<Runner>,
    shared: Vec<SharedState>,
    /// Whether masks hide what an earlier sequence left in states.
    masked: bool,
}

struct Runner {
    package: String,
    session: Box<dyn Session>,
    caches: Vec<Cache>,
}

/// A cache that goes in and comes out.
struct Cache {
    input: String,
    dtype: DType,
    /// Its shape before the first prediction.
    first: Shape,
    content: Buffer,
}

/// A state that several packages use in turn.
struct SharedState {
    name: String,
    /// The packages that have it, in order.
    users: Vec<usize>,
    /// The package whose session has the content.
    at: usize,
    held: HeldState,
}

impl Runners {
    pub(super) fn new(
        manifest: &Manifest,
        contract: &Contract,
        sessions: Vec<Box<dyn Session>>,
    ) -> Result<Runners> {
        if sessions.len() != manifest.chunks.len() {
            let problem = format!("has {} chunks for {} sessions", manifest.chunks.len(), sessions.len());
            return Err(GenerateError::file(MANIFEST, problem));
        }
        let named = manifest.chunks.iter().map(|chunk| chunk.file.name.clone());
        let mut runners: Vec<Runner> = named
            .zip(sessions)
            .map(|(package, session)| Runner { package, session, caches: Vec::new() })
            .collect();
        let mut shared: Vec<(String, Vec<usize>)> = Vec::new();
        for (package, function) in contract.functions() {
            let at = position(manifest, &package.package)?;
            for cache in &function.caches {
                let known = runners[at].caches.iter().any(|known| known.input == cache.input);
                if !known {
                    let cache = Cache::new(manifest, at, &function.function, &cache.input)?;
                    runners[at].caches.push(cache);
                }
            }
            for name in function.states.iter().filter(|_| function.states_are_shared) {
                match shared.iter_mut().find(|(known, _)| known == name) {
                    Some((_, users)) if users.contains(&at) => {}
                    Some((_, users)) => users.push(at),
                    None => shared.push((name.clone(), vec![at])),
                }
            }
        }
        let shared = shared.into_iter().filter(|(_, users)| users.len() > 1);
        let shared = shared.map(|(name, users)| SharedState::new(name, users, &runners));
        let shared = shared.collect::<Result<_>>()?;
        let masked = contract.functions().any(|(_, function)| !function.inputs.masks.is_empty());
        Ok(Runners { runners, shared, masked })
    }

    pub(super) fn sessions(&mut self) -> Vec<&mut dyn Session> {
        self.runners.iter_mut().map(|runner| &mut *runner.session as &mut dyn Session).collect()
    }

    pub(super) fn package(&self, at: usize) -> &str {
        &self.runners[at].package
    }

    /// Begins a sequence. What is in states stays there behind masks, unless there are none or it may not be finite.
    pub(super) fn restart(&mut self, tainted: bool) -> Result<()> {
        for runner in &mut self.runners {
            let restarted = runner.caches.iter_mut().try_for_each(Cache::restart);
            restarted.map_err(|e| output_problem(&runner.package, e.to_string()))?;
            if tainted || !self.masked {
                runner.clear_states()?;
            }
        }
        Ok(())
    }

    /// One prediction of a function, with its caches and the states that it shares.
    pub(super) fn predict(&mut self, at: usize, function: &str, inputs: &NamedViews<'_>) -> Result<()> {
        let Runners { runners, shared, .. } = self;
        for state in shared.iter_mut().filter(|state| state.users.contains(&at)) {
            state.move_to(at, runners)?;
        }
        let Runner { package, session, caches } = &mut runners[at];
        let mut given: Inputs<'_> = inputs.iter().copied().collect();
        for cache in &*caches {
            let view = cache.content.view().map_err(|e| output_problem(package, e.to_string()))?;
            given.push((&cache.input, view));
        }
        session.predict(function, &given).map_err(|source| failed(package, source))
    }

    /// Keeps an output as the cache of the next prediction.
    pub(super) fn keep(&mut self, at: usize, input: &str, output: &str) -> Result<()> {
        let Runner { package, session, caches } = &mut self.runners[at];
        let gave = session.output(output);
        let gave = gave.ok_or_else(|| output_problem(package, format!("gave no `{output}`")))?;
        let Some(cache) = caches.iter_mut().find(|cache| cache.input == input) else { return Ok(()) };
        cache.content.copy_from(&gave).map_err(|e| output_problem(package, e.to_string()))
    }

    /// A tensor of a package that cannot be used.
    pub(super) fn tensor_problem(&self, at: usize, error: &TensorError) -> GenerateError {
        output_problem(&self.runners[at].package, error.to_string())
    }

    /// An output of the last prediction of a package.
    pub(super) fn output(&self, at: usize, function: &str, name: &str) -> Result<TensorView<'_>> {
        let Runner { package, session, .. } = &self.runners[at];
        session.output(name).ok_or_else(|| output_problem(package, format!("`{function}` gave no `{name}`")))
    }
}

impl Runner {
    fn clear_states(&mut self) -> Result<()> {
        for name in self.session.state_names() {
            let Some(state) = self.session.state(&name) else { continue };
            let bytes = AlignedBuf::zeroed(state.bytes().len());
            let zeros = Tensor::new(state.dtype(), state.shape().into(), bytes.into());
            let zeros = zeros.map_err(|e| output_problem(&self.package, e.to_string()))?;
            self.session.set_state(&name, &zeros).map_err(|source| failed(&self.package, source))?;
        }
        Ok(())
    }
}

impl Cache {
    fn new(manifest: &Manifest, at: usize, function: &str, input: &str) -> Result<Cache> {
        let chunk = &manifest.chunks[at];
        let ports = chunk.functions.iter().filter(|f| f.name == function).flat_map(|f| &f.inputs);
        let port = ports.into_iter().find(|port| port.name == input);
        let found = port.and_then(|port| Some((DType::from_name(&port.dtype)?, port.shapes.first()?)));
        let problem = |problem: &str| {
            GenerateError::file(MANIFEST, format!("`{}`: the cache `{input}` {problem}", chunk.file.name))
        };
        let (dtype, shape) = found.ok_or_else(|| problem("is no input of a known shape"))?;
        let first: Option<Shape> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let first = first.ok_or_else(|| problem("is too large"))?;
        let content = Buffer::zeroed(dtype, &first).map_err(|e| problem(&e.to_string()))?;
        Ok(Cache { input: input.to_owned(), dtype, first, content })
    }

    fn restart(&mut self) -> Result<(), TensorError> {
        self.content = Buffer::zeroed(self.dtype, &self.first)?;
        Ok(())
    }
}

impl SharedState {
    fn new(name: String, users: Vec<usize>, runners: &[Runner]) -> Result<SharedState> {
        let at = users[0];
        let Runner { package, session, .. } = &runners[at];
        let state = session.state(&name);
        let state = state.ok_or_else(|| output_problem(package, format!("has no state `{name}`")))?;
        let held = HeldState::like(&state);
        Ok(SharedState { name, users, at, held })
    }

    /// Gives the content to the session of a package.
    fn move_to(&mut self, to: usize, runners: &mut [Runner]) -> Result<()> {
        if self.at == to {
            return Ok(());
        }
        for at in [self.at, to] {
            let Runner { package, session, .. } = &mut runners[at];
            let exchanged = session.exchange_state(&self.name, &mut self.held);
            exchanged.map_err(|source| failed(package, source))?;
        }
        self.at = to;
        Ok(())
    }
}

/// The place of a package among the chunks.
pub(super) fn position(manifest: &Manifest, package: &str) -> Result<usize> {
    manifest.chunks.iter().position(|chunk| chunk.file.name == package).ok_or_else(|| {
        GenerateError::file(
            MANIFEST,
            format!("`contract` names the package `{package}`, which it does not have"),
        )
    })
}

pub(super) fn output_problem(package: &str, problem: String) -> GenerateError {
    GenerateError::Output { chunk: package.to_owned(), problem }
}

fn failed(package: &str, source: RuntimeError) -> GenerateError {
    GenerateError::Runtime { chunk: package.to_owned(), source }
}
