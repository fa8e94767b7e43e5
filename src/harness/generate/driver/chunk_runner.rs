//! One chunk as it runs: its session and what it keeps.

use smallvec::SmallVec;

use super::cache::{self, Cache};
use super::frame::{Frame, Source, Wire};
use super::layout::Layout;
use super::recurrent::RecurrentStates;
use crate::generate::error::{GenerateError, Result};
use anemeter_base::function_name::FunctionName;
use anemeter_base::vocabulary::{FunctionRole, KvForm, kv_state_name};
use anemeter_convert::bundle::{Chunk, Function, MANIFEST};
use anemeter_kernels::tensor::{TensorError, TensorView};
use anemeter_runtime::{RuntimeError, Session};

type Inputs<'a> = SmallVec<[(&'a str, TensorView<'a>); 16]>;

/// A chunk that runs.
pub(super) struct ChunkRunner {
    pub(super) chunk: Chunk,
    pub(super) session: Box<dyn Session>,
    /// Keys and values that the host keeps.
    caches: Option<Caches>,
    /// States that the host carries.
    recurrent: Option<RecurrentStates>,
}

struct Caches {
    keys: Cache,
    values: Cache,
}

impl ChunkRunner {
    pub(super) fn new(layout: &Layout, chunk: &Chunk, session: Box<dyn Session>) -> Result<ChunkRunner> {
        let mut part = ChunkRunner { chunk: chunk.clone(), session, caches: None, recurrent: None };
        if layout.form == KvForm::Io {
            let decode = part.decode()?;
            let recurrent = RecurrentStates::of(chunk, decode)?;
            if let Some(channels) = part.cache_channels(decode, &recurrent)? {
                let cache = || Cache::new(layout.batch, channels).map_err(|e| part.tensor_error(&e));
                part.caches = Some(Caches { keys: cache()?, values: cache()? });
            }
            part.recurrent = (!recurrent.is_empty()).then_some(recurrent);
        }
        Ok(part)
    }

    /// The function `decode`, at whatever length.
    fn decode(&self) -> Result<&Function> {
        let decodes = |function: &&Function| {
            let name = function.name.parse::<FunctionName>();
            name.is_ok_and(|name| name.role == FunctionRole::Decode)
        };
        self.chunk.functions.iter().find(decodes).ok_or_else(|| self.no_decode())
    }

    /// Channels of the caches, as `decode` declares them; a chunk without attention has none, but other states.
    fn cache_channels(&self, decode: &Function, recurrent: &RecurrentStates) -> Result<Option<usize>> {
        let Some(port) = decode.inputs.iter().find(|port| port.name == "k_cache") else {
            return if recurrent.is_empty() { Err(self.no_decode()) } else { Ok(None) };
        };
        let channels = port.shapes.first().and_then(|shape| shape.get(1));
        let channels = channels.and_then(|&channels| usize::try_from(channels).ok());
        channels.map(Some).ok_or_else(|| self.no_decode())
    }

    fn no_decode(&self) -> GenerateError {
        let problem = format!("`{}` has no function `decode` with a `k_cache`", self.chunk.file.name);
        GenerateError::file(MANIFEST, problem)
    }

    /// Begins anew at a length. What was kept stays behind masks, unless it may not be finite.
    pub(super) fn restart(&mut self, length: usize, tainted: bool) -> Result<()> {
        if let Some(caches) = &mut self.caches {
            let restarted = [&mut caches.keys, &mut caches.values].into_iter().try_for_each(|cache| {
                if tainted {
                    cache.clear();
                }
                cache.restart(length)
            });
            restarted.map_err(|e| self.tensor_error(&e))?;
        }
        if tainted {
            for state in self.session.state_names() {
                self.copy_state(&state, &state, None, 0)?;
            }
        }
        Ok(())
    }

    pub(super) fn grow_caches(&mut self, length: usize, kept: usize) -> Result<()> {
        let Some(caches) = &mut self.caches else { return Ok(()) };
        let grown = caches.keys.grow(length, kept).and_then(|()| caches.values.grow(length, kept));
        grown.map_err(|e| self.tensor_error(&e))
    }

    /// Moves the state of one length into that of another.
    pub(super) fn move_state(&mut self, old: usize, length: usize, kept: usize) -> Result<()> {
        self.copy_state(&kv_state_name(old), &kv_state_name(length), Some(length), kept)
    }

    /// Sets a state to the first positions of another.
    fn copy_state(&mut self, from: &str, to: &str, length: Option<usize>, kept: usize) -> Result<()> {
        let state = self.session.state(from);
        let state = state.ok_or_else(|| self.problem(format!("has no state `{from}`")))?;
        let Some(length) = length.or(state.shape().get(2).copied()) else {
            return Err(self.problem(format!("has a state `{from}` of {} dimensions", state.rank())));
        };
        let moved = cache::moved(&state, length, kept).map_err(|e| self.tensor_error(&e))?;
        self.session.set_state(to, &moved).map_err(|source| failed(&self.chunk, source))
    }

    pub(super) fn predict(
        &mut self,
        function: &str,
        frame: &Frame,
        wires: &[Wire],
        before: &[ChunkRunner],
    ) -> Result<()> {
        let kept = (self.caches.as_ref(), self.recurrent.as_ref());
        let inputs = inputs(frame, wires, before, kept).map_err(|e| self.tensor_error(&e))?;
        self.session.predict(function, &inputs).map_err(|source| failed(&self.chunk, source))
    }

    /// Puts new keys and values into the caches.
    pub(super) fn keep(&mut self, function: &str, starts: &[usize], counts: &[usize]) -> Result<()> {
        let ChunkRunner { chunk, session, caches, recurrent } = self;
        if let Some(recurrent) = recurrent {
            recurrent.keep(|name| session.output(name)).map_err(|(output, error)| match error {
                None => problem_of(chunk, format!("`{function}` gave no `{output}`")),
                Some(error) => problem_of(chunk, error.to_string()),
            })?;
        }
        let Some(caches) = caches else { return Ok(()) };
        for (cache, output) in [(&mut caches.keys, "k_new"), (&mut caches.values, "v_new")] {
            let problem = |problem: String| problem_of(chunk, problem);
            let new = session.output(output);
            let new = new.ok_or_else(|| problem(format!("`{function}` gave no `{output}`")))?;
            cache.write(&new, starts, counts).map_err(|e| problem(e.to_string()))?;
        }
        Ok(())
    }

    pub(super) fn output(&self, function: &str, name: &str) -> Result<TensorView<'_>> {
        self.session.output(name).ok_or_else(|| self.gave(function, &format!("no `{name}`")))
    }

    pub(super) fn gave(&self, function: &str, what: &str) -> GenerateError {
        self.problem(format!("`{function}` gave {what}"))
    }

    pub(super) fn tensor_error(&self, error: &TensorError) -> GenerateError {
        self.problem(error.to_string())
    }

    fn problem(&self, problem: String) -> GenerateError {
        problem_of(&self.chunk, problem)
    }
}

fn problem_of(chunk: &Chunk, problem: String) -> GenerateError {
    GenerateError::Output { chunk: chunk.file.name.clone(), problem }
}

fn failed(chunk: &Chunk, source: RuntimeError) -> GenerateError {
    GenerateError::Runtime { chunk: chunk.file.name.clone(), source }
}

/// The inputs of a function in its order.
fn inputs<'a>(
    frame: &'a Frame,
    wires: &'a [Wire],
    before: &'a [ChunkRunner],
    (caches, recurrent): (Option<&'a Caches>, Option<&'a RecurrentStates>),
) -> Result<Inputs<'a>, TensorError> {
    let mut inputs = Inputs::new();
    for wire in wires {
        let view = match wire.source {
            Source::Shared(index) => Some(frame.shared(index).view()?),
            Source::Previous => before.last().and_then(|part| part.session.output("hidden_out")),
            Source::Earlier => before.iter().rev().find_map(|part| part.session.output(&wire.input)),
            Source::Keys => caches.map(|caches| caches.keys.view()).transpose()?,
            Source::Values => caches.map(|caches| caches.values.view()).transpose()?,
            Source::Recurrent(place) => {
                recurrent.map(|recurrent| recurrent.view(place)).transpose()?.flatten()
            }
        };
        // What is missing is named by the runtime.
        inputs.extend(view.map(|view| (wire.input.as_str(), view)));
    }
    Ok(inputs)
}
