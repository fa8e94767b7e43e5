//! Recurrent cells stepped over a sequence: Elman RNN, LSTM (Hochreiter & Schmidhuber 1997) with peepholes (Gers &
//! Schmidhuber 2000), and GRU (Cho et al. 2014).
//!
//! ```text
//! a row     [ gate 0: hidden | gate 1: hidden | .. ]      LSTM: input, forget, output, cell; GRU: reset, output, update
//! a step    LSTM: c' = f c + i g, h' = o tanh(c')         GRU: h' = (1 - z) n + z h
//! ```

use super::convert::round_f16;
use super::gemm::{Extents, Matrix, gemm};

/// The function applied to a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names")]
pub enum Activation {
    Linear,
    Relu,
    Tanh,
    Sigmoid,
    HardSigmoid,
}

impl Activation {
    /// The activation of the given name, in either case.
    pub fn from_name(name: &str) -> Option<Activation> {
        const NAMES: [(&str, Activation); 7] = [
            ("linear", Activation::Linear),
            ("relu", Activation::Relu),
            ("tanh", Activation::Tanh),
            ("scaled_tanh", Activation::Tanh),
            ("sigmoid", Activation::Sigmoid),
            ("hard_sigmoid", Activation::HardSigmoid),
            ("sigmoid_hard", Activation::HardSigmoid),
        ];
        NAMES.iter().find(|entry| entry.0.eq_ignore_ascii_case(name)).map(|entry| entry.1)
    }

    /// The activation of a number.
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Activation::Linear => x,
            Activation::Relu => x.max(0.0),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            // As in Core ML and Keras 2; the slope of PyTorch's is 1/6.
            Activation::HardSigmoid => (0.2 * x + 0.5).clamp(0.0, 1.0),
        }
    }
}

/// What does not change from step to step.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// Length of the sequence.
    pub steps: usize,
    /// Rows per step.
    pub batch: usize,
    /// Size of the hidden state.
    pub hidden: usize,
    /// Input times input weights plus bias: `[steps, batch, gates * hidden]`.
    pub projected: &'a [f32],
    /// Recurrent weights: `[gates * hidden, hidden]`.
    pub weights: &'a [f32],
    /// Whether the last step of the input comes first.
    pub reverse: bool,
    /// Whether every intermediate is rounded to fp16.
    pub round_steps: bool,
}

impl Sequence<'_> {
    /// Hidden states times the weights of some consecutive gates: `[batch, gates * hidden]`.
    fn recur(&self, hidden: &[f32], first_gate: usize, gates: usize, out: &mut [f32]) {
        let extents = Extents { m: self.batch, k: self.hidden, n: gates * self.hidden };
        let start = first_gate * self.hidden * self.hidden;
        let weights = Matrix::row_major(&self.weights[start..], self.hidden).transposed();
        gemm(extents, Matrix::row_major(hidden, self.hidden), weights, out, self.round_steps);
    }

    fn rounder(&self) -> impl Fn(f32) -> f32 + Copy + use<> {
        let round = self.round_steps;
        move |x| if round { round_f16(x) } else { x }
    }
}

/// A recurrent cell, which advances its state by one step.
pub trait Cell {
    /// Gates per hidden unit.
    const GATES: usize;

    /// Advances the hidden states `[batch, hidden]` by one step of projected input.
    fn step(&mut self, sequence: &Sequence<'_>, projected: &[f32], state: &mut [f32]);
}

/// Runs a cell over the sequence. `emit(step, time, states)` receives the hidden states after every step.
pub fn run<C: Cell>(
    sequence: &Sequence<'_>,
    cell: &mut C,
    state: &mut [f32],
    mut emit: impl FnMut(usize, usize, &[f32]),
) {
    if state.is_empty() {
        return;
    }
    let row = sequence.batch * C::GATES * sequence.hidden;
    for step in 0..sequence.steps {
        let time = if sequence.reverse { sequence.steps - 1 - step } else { step };
        cell.step(sequence, &sequence.projected[time * row..(time + 1) * row], state);
        emit(step, time, state);
    }
}

/// A plain recurrent network.
#[derive(Debug)]
pub struct Rnn<'a> {
    /// Activation of the state.
    pub activation: Activation,
    /// Working memory of `batch * hidden`.
    pub work: &'a mut [f32],
}

impl Cell for Rnn<'_> {
    const GATES: usize = 1;

    fn step(&mut self, sequence: &Sequence<'_>, projected: &[f32], state: &mut [f32]) {
        let round = sequence.rounder();
        sequence.recur(state, 0, 1, self.work);
        for ((state, &x), &recurrent) in state.iter_mut().zip(projected).zip(&*self.work) {
            *state = round(self.activation.apply(round(x + recurrent)));
        }
    }
}

/// A long short-term memory; gates are input, forget, output, cell.
#[derive(Debug)]
pub struct Lstm<'a> {
    /// Activation of the input, forget and output gates.
    pub gates: Activation,
    /// Activation of the cell gate.
    pub cell: Activation,
    /// Activation of the cell state on its way out.
    pub output: Activation,
    /// Weights of the cell state in the input, forget and output gates: `[3 * hidden]` or nothing.
    pub peephole: &'a [f32],
    /// Bound of the cell state.
    pub clip: f32,
    /// The cell states `[batch, hidden]`.
    pub memory: &'a mut [f32],
    /// Working memory of `batch * 4 * hidden`.
    pub work: &'a mut [f32],
}

impl Cell for Lstm<'_> {
    const GATES: usize = 4;

    fn step(&mut self, sequence: &Sequence<'_>, projected: &[f32], state: &mut [f32]) {
        let (n, round) = (sequence.hidden, sequence.rounder());
        sequence.recur(state, 0, 4, self.work);
        for (at, state) in state.iter_mut().enumerate() {
            let (row, unit) = (at / n * 4 * n, at % n);
            let sum = |gate: usize| {
                let i = row + gate * n + unit;
                round(projected[i] + self.work[i])
            };
            let peek = |sum: f32, gate: usize, memory: f32| match self.peephole.get(gate * n + unit) {
                Some(weight) => round(sum + round(memory * weight)),
                None => sum,
            };
            let gate = |x: f32| round(self.gates.apply(x));
            let before = self.memory[at];
            let input = gate(peek(sum(0), 0, before));
            let forget = gate(peek(sum(1), 1, before));
            let candidate = round(self.cell.apply(sum(3)));
            let memory = round(round(forget * before) + round(input * candidate));
            let memory = memory.max(-self.clip).min(self.clip);
            // This gate peeks at the new cell state, the other two at the old one.
            let output = gate(peek(sum(2), 2, memory));
            self.memory[at] = memory;
            *state = round(output * round(self.output.apply(memory)));
        }
    }
}

/// A gated recurrent unit; gates are reset, output, update.
#[derive(Debug)]
pub struct Gru<'a> {
    /// Activation of the reset and update gates.
    pub gates: Activation,
    /// Activation of the output gate.
    pub output: Activation,
    /// Whether the reset gate applies to the product with the recurrent weights, with the bias `[hidden]` or
    /// nothing added to it, rather than to the state before it.
    pub reset_after: Option<&'a [f32]>,
    /// Working memory of `batch * 4 * hidden`.
    pub work: &'a mut [f32],
}

impl Cell for Gru<'_> {
    const GATES: usize = 3;

    fn step(&mut self, sequence: &Sequence<'_>, projected: &[f32], state: &mut [f32]) {
        let (n, round) = (sequence.hidden, sequence.rounder());
        let units = sequence.batch * n;
        let gate = |x: f32| round(self.gates.apply(x));
        let (reset, rest) = self.work.split_at_mut(units);
        let (output, rest) = rest.split_at_mut(units);
        let (update, held) = rest.split_at_mut(units);
        sequence.recur(state, 0, 1, reset);
        sequence.recur(state, 2, 1, update);
        for at in 0..units {
            let row = at / n * 3 * n + at % n;
            reset[at] = gate(round(projected[row] + reset[at]));
            update[at] = gate(round(projected[row + 2 * n] + update[at]));
            held[at] = round(reset[at] * state[at]);
        }
        match self.reset_after {
            None => sequence.recur(held, 1, 1, output),
            Some(bias) => {
                sequence.recur(state, 1, 1, output);
                for at in 0..units {
                    let biased = bias.get(at % n).map_or(output[at], |bias| round(output[at] + bias));
                    output[at] = round(reset[at] * biased);
                }
            }
        }
        for at in 0..units {
            let new = round(projected[at / n * 3 * n + n + at % n] + output[at]);
            let new = round(self.output.apply(new));
            let kept = round(update[at] * state[at]);
            state[at] = round(round(round(1.0 - update[at]) * new) + kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_have_their_default_parameters() {
        assert_eq!(Activation::from_name("Scaled_Tanh"), Some(Activation::Tanh));
        assert_eq!(Activation::from_name("softmax"), None);
        assert_eq!(Activation::HardSigmoid.apply(1.0), 0.7);
        assert_eq!(Activation::HardSigmoid.apply(-9.0), 0.0);
        assert_eq!(Activation::Sigmoid.apply(0.0), 0.5);
    }

    #[test]
    fn reversed_sequences_start_with_their_last_step() {
        let projected = [1.0, 10.0, 100.0];
        let sequence = Sequence {
            steps: 3,
            batch: 1,
            hidden: 1,
            projected: &projected,
            weights: &[2.0],
            reverse: true,
            round_steps: false,
        };
        let mut cell = Rnn { activation: Activation::Linear, work: &mut [0.0] };
        let (mut state, mut seen) = ([5.0], Vec::new());
        run(&sequence, &mut cell, &mut state, |step, time, state| seen.push((step, time, state[0])));
        assert_eq!(seen, [(0, 2, 110.0), (1, 1, 230.0), (2, 0, 461.0)]);
    }
}
