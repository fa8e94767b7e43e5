//! States of fixed size that the caller carries from one prediction to the next: what convolutions saw last, and the
//! matrices of delta rules. They are inputs and outputs, as a cache of the form `io` is: two states of Core ML in one
//! function fail on the Neural Engine.

use super::error::{LowerError, Result};
use super::function::Task;
use super::graph::{CHANNELS, Graph};
use crate::model::{CausalConv, Layer};
use anemeter_base::recurrent::{CONV_STATE, DELTA_STATE, LATEST, PRESENT, output_of};
use anemeter_kernels::tensor::DType;
use anemeter_mil::ValueId;

/// The states of a chunk.
pub(super) struct RecurrentStates {
    pub(super) conv: Track,
    pub(super) delta: Track,
    /// Selects the columns that the next token's convolutions need, where a sequence has padding.
    pub(super) latest: Option<ValueId>,
    /// Tells tokens from padding.
    pub(super) present: Option<ValueId>,
}

/// One state, of which every layer has some rows of the second axis.
pub(super) struct Track {
    name: &'static str,
    /// What earlier tokens left.
    past: Option<ValueId>,
    /// Rows of the layers before the next one.
    offset: usize,
    /// What each layer leaves; nothing where nothing is kept.
    new: Option<Vec<ValueId>>,
}

/// Sizes of the states of some layers, checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Channels of all convolutions.
    pub(super) channels: usize,
    /// Tokens of a window.
    pub(super) kernel: usize,
    /// Heads of all delta rules, and the sides of a head's matrix.
    pub(super) heads: usize,
    pub(super) matrix: (usize, usize),
}

impl RecurrentStates {
    /// Sizes of the states of a chunk's layers, of which the first is `first`.
    pub(super) fn sizes(layers: &[Layer], first: usize) -> Result<Sizes> {
        let mut sizes = Sizes::default();
        for (i, layer) in layers.iter().enumerate() {
            let at = || format!("layers_{}", first + i);
            if let Some((channels, kernel)) = layer.mixer.conv().map(CausalConv::sizes) {
                if channels == 0 || kernel < 2 || (sizes.kernel != 0 && sizes.kernel != kernel) {
                    let message = format!(
                        "a convolution of {channels} channels over {kernel} tokens; expected at least two tokens, and \
                         as many in every layer"
                    );
                    return Err(LowerError::model(&at(), message));
                }
                (sizes.kernel, sizes.channels) = (kernel, sizes.channels + channels);
            }
            if let Some(mixer) = layer.mixer.delta_net() {
                let matrix = (mixer.key_dim, mixer.value_dim);
                if sizes.heads != 0 && sizes.matrix != matrix {
                    let message = format!(
                        "states of {} by {}, others of the chunk of {} by {}; one input cannot hold both",
                        matrix.0, matrix.1, sizes.matrix.0, sizes.matrix.1
                    );
                    return Err(LowerError::model(&at(), message));
                }
                (sizes.matrix, sizes.heads) = (matrix, sizes.heads + mixer.value_heads);
            }
        }
        Ok(sizes)
    }

    /// No states.
    pub(super) fn none() -> RecurrentStates {
        let track = |name| Track { name, past: None, offset: 0, new: None };
        RecurrentStates { conv: track(CONV_STATE), delta: track(DELTA_STATE), latest: None, present: None }
    }

    /// Declares the states that a task takes.
    pub(super) fn open(graph: &mut Graph<'_>, task: Task, sizes: Sizes, batch: usize) -> RecurrentStates {
        let keeps = matches!(task, Task::Prefill | Task::Decode);
        let (has_past, is_whole) = (task == Task::Decode, task == Task::Prefill);
        let Sizes { channels, kernel, heads, matrix } = sizes;
        let mut track = |name, dtype, shape: [usize; 4]| Track {
            name,
            past: (has_past && shape[1] > 0).then(|| graph.input(name, dtype, |_| shape)),
            offset: 0,
            new: keeps.then(Vec::new),
        };
        let conv = track(CONV_STATE, DType::F16, [batch, channels, 1, kernel.saturating_sub(1)]);
        let delta = track(DELTA_STATE, DType::F32, [batch, heads, matrix.0, matrix.1]);
        let latest = (is_whole && channels > 0)
            .then(|| graph.input(LATEST, DType::F16, |length| [batch, 1, length, kernel - 1]));
        let present =
            (is_whole && heads > 0).then(|| graph.input(PRESENT, DType::F16, |length| [batch, 1, 1, length]));
        RecurrentStates { conv, delta, latest, present }
    }

    /// The outputs that the states of the next prediction come from.
    pub(super) fn outputs(self, graph: &mut Graph<'_>) -> Result<Vec<(String, ValueId)>> {
        let mut outputs = Vec::new();
        for Track { name, new, .. } in [self.conv, self.delta] {
            let Some(new) = new.filter(|new| !new.is_empty()) else { continue };
            outputs.push((output_of(name), graph.concat(&format!("{name}s"), &new, CHANNELS)?));
        }
        Ok(outputs)
    }
}

impl Track {
    /// What earlier tokens left for the next `rows`; nothing at the beginning of a sequence.
    pub(super) fn past(&mut self, graph: &mut Graph<'_>, rows: usize) -> Result<Option<ValueId>> {
        let range = self.offset..self.offset + rows;
        self.offset = range.end;
        let past = self.past.map(|past| graph.slice(&format!("{}_past", self.name), past, CHANNELS, range));
        past.transpose()
    }

    /// Whether anything is kept.
    pub(super) fn keeps(&self) -> bool {
        self.new.is_some()
    }

    /// Keeps what a layer leaves.
    pub(super) fn keep(&mut self, value: ValueId) {
        self.new.iter_mut().for_each(|new| new.push(value));
    }
}
