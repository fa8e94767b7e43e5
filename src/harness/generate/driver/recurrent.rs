//! States of fixed size that the host carries from one prediction of a chunk to the next.

use super::buffer::Buffer;
use crate::generate::error::{GenerateError, Result};
use anemeter_base::recurrent::{STATES, output_of};
use anemeter_convert::bundle::{Chunk, Function, MANIFEST};
use anemeter_kernels::tensor::{DType, TensorError, TensorView};

/// The states that a chunk takes for a token.
pub(super) struct RecurrentStates(Vec<State>);

struct State {
    /// Which of [`STATES`] it is.
    place: usize,
    buffer: Buffer,
    output: String,
}

impl RecurrentStates {
    /// Those of a function, as zeros.
    pub(super) fn of(chunk: &Chunk, function: &Function) -> Result<RecurrentStates> {
        let mut states = Vec::new();
        for port in &function.inputs {
            let Some(place) = place(&port.name) else { continue };
            let problem = |problem: &str| {
                let problem =
                    format!("`{}` of `{}`: `{}` {problem}", function.name, chunk.file.name, port.name);
                GenerateError::file(MANIFEST, problem)
            };
            let dtype = DType::from_name(&port.dtype).ok_or_else(|| problem("is of no known type"))?;
            let shape = port.shapes.first().ok_or_else(|| problem("has no shape"))?;
            let shape: Option<Vec<usize>> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
            let buffer = Buffer::zeroed(dtype, &shape.ok_or_else(|| problem("is too large"))?);
            let buffer = buffer.map_err(|e| problem(&e.to_string()))?;
            states.push(State { place, buffer, output: output_of(&port.name) });
        }
        Ok(RecurrentStates(states))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A state by its place in [`STATES`].
    pub(super) fn view(&self, place: usize) -> Result<Option<TensorView<'_>>, TensorError> {
        self.0.iter().find(|state| state.place == place).map(|state| state.buffer.view()).transpose()
    }

    /// Takes what a prediction gave; gives the name of an output that is missing.
    pub(super) fn keep<'o>(
        &mut self,
        output: impl Fn(&str) -> Option<TensorView<'o>>,
    ) -> Result<(), (String, Option<TensorError>)> {
        for state in &mut self.0 {
            let new = output(&state.output).ok_or_else(|| (state.output.clone(), None))?;
            state.buffer.copy_from(&new).map_err(|e| (state.output.clone(), Some(e)))?;
        }
        Ok(())
    }
}

/// The place of an input among the states.
pub(super) fn place(input: &str) -> Option<usize> {
    STATES.iter().position(|state| *state == input)
}
