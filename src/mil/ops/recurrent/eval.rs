//! Evaluation of recurrent networks: the input is projected for all steps at once, then the cell steps.

use half::slice::HalfFloatSliceExt;

use super::super::prelude::*;
use super::{activation, directions};
use anemeter_kernels::convert::{round_f16, to_f32};
use anemeter_kernels::gemm::{Extents, Matrix, gemm};
use anemeter_kernels::recurrent::{Cell, Gru, Lstm, Rnn, Sequence, run};

/// The sizes of a call whose types were checked.
struct Sizes {
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    gates: usize,
    directions: usize,
}

impl Sizes {
    fn of(call: &Call<'_>, gates: usize) -> Result<Sizes> {
        let (x, weight) = (call.tensor("x")?, call.weight("weight_hh")?);
        let (&[steps, batch, input], &[_, hidden]) = (x.shape(), weight.shape()) else {
            refuse!("`x` or `weight_hh` has the wrong rank")
        };
        Ok(Sizes { steps, batch, input, hidden, gates, directions: directions(call, gates)?.len() })
    }

    fn product(factors: &[usize]) -> Result<usize> {
        shape::element_count(factors)
            .ok_or_else(|| op_error!("a recurrent network of sizes {factors:?} is too large"))
    }
}

/// The states of one direction, `[batch, hidden]`, out of a tensor that holds all directions.
fn initial_state(call: &Call<'_>, name: &str, sizes: &Sizes, direction: usize) -> Result<Vec<f32>> {
    let (view, hidden) = (call.tensor(name)?, sizes.hidden);
    let mut state = vec![0.0; Sizes::product(&[sizes.batch, hidden])?];
    for row in 0..sizes.batch {
        let start = (row * sizes.directions + direction) * hidden;
        to_f32(&view, start..start + hidden, &mut state[row * hidden..(row + 1) * hidden]);
    }
    Ok(state)
}

/// All numbers of a parameter, or none if it was left out.
fn numbers(call: &Call<'_>, name: &str) -> Result<Vec<f32>> {
    let Some(view) = call.opt_tensor(name)? else { return Ok(Vec::new()) };
    let mut values = vec![0.0; view.len()];
    to_f32(&view, 0..view.len(), &mut values);
    Ok(values)
}

/// The elements of a weight: where they are, or read into a buffer.
fn elements<'b>(weight: Weight<'b>, buffer: &'b mut [f32]) -> Result<&'b [f32]> {
    if let Weight::Dense(view) = weight
        && view.dtype() == DType::F32
    {
        return Ok(view.slice()?);
    }
    weight.read(0..buffer.len(), buffer);
    Ok(buffer)
}

/// An output that takes rows of numbers.
enum Rows<'a> {
    Single(&'a mut [f32]),
    Half(&'a mut [f16]),
}

impl<'a> Rows<'a> {
    fn of(out: TensorMut<'a>) -> Result<Rows<'a>> {
        match out.dtype() {
            DType::F16 => Ok(Rows::Half(out.slice()?)),
            _ => Ok(Rows::Single(out.slice()?)),
        }
    }

    /// Writes the states of one direction at one place of the sequence.
    fn put(&mut self, sizes: &Sizes, place: usize, direction: usize, states: &[f32]) {
        let hidden = sizes.hidden;
        for row in 0..sizes.batch {
            let at = ((place * sizes.batch + row) * sizes.directions + direction) * hidden;
            let states = &states[row * hidden..(row + 1) * hidden];
            match self {
                Rows::Single(out) => out[at..at + hidden].copy_from_slice(states),
                Rows::Half(out) => out[at..at + hidden].convert_from_f32_slice(states),
            }
        }
    }
}

/// One direction of a call.
struct Pass<'a> {
    sizes: &'a Sizes,
    index: usize,
    suffix: &'static str,
    reverse: bool,
    /// Added to the projected input: `[gates * hidden]` or nothing.
    bias: &'a [f32],
}

impl Pass<'_> {
    /// Runs the cell over the sequence, writes the first output and gives the final states.
    fn run<C: Cell>(&self, call: &Call<'_>, outputs: &mut Outputs<'_, '_>, cell: &mut C) -> Result<Vec<f32>> {
        let &Sizes { steps, batch, input, hidden, gates, directions } = self.sizes;
        let [weight_ih, weight_hh] =
            ["weight_ih", "weight_hh"].map(|name| call.weight(&format!("{name}{}", self.suffix)));
        let (x, round_steps) = (call.tensor("x")?, call.rounds(call.ty("x")?.dtype));
        let width = gates * hidden;
        let (out, scratch) = outputs.with_scratch(0)?;
        let [x_buffer, weight_buffer, projected] =
            scratch.floats([x.len(), width * input.max(hidden), Sizes::product(&[steps, batch, width])?]);

        let inputs = Matrix::row_major(elements(Weight::Dense(x), x_buffer)?, input);
        let weights = elements(weight_ih?, &mut weight_buffer[..width * input])?;
        let extents = Extents { m: Sizes::product(&[steps, batch])?, k: input, n: width };
        gemm(extents, inputs, Matrix::row_major(weights, input).transposed(), projected, round_steps);
        if !self.bias.is_empty() {
            for (value, bias) in projected.iter_mut().zip(self.bias.iter().cycle()) {
                *value += bias;
                *value = if round_steps { round_f16(*value) } else { *value };
            }
        }

        let weights = elements(weight_hh?, &mut weight_buffer[..width * hidden])?;
        let sequence =
            Sequence { steps, batch, hidden, projected, weights, reverse: self.reverse, round_steps };
        let mut state = initial_state(call, "initial_h", self.sizes, self.index)?;
        let (every, mut rows) = (call.bool("output_sequence")?, Rows::of(out)?);
        run(&sequence, cell, &mut state, |step, time, state| {
            if every {
                // Only the backward half of two directions is put back into the order of the input.
                let place = if directions == 2 { time } else { step };
                rows.put(self.sizes, place, self.index, state);
            }
        });
        if !every {
            rows.put(self.sizes, 0, self.index, &state);
        }
        Ok(state)
    }
}

fn put_state(outputs: &mut Outputs<'_, '_>, output: usize, pass: &Pass<'_>, states: &[f32]) -> Result {
    Rows::of(outputs.tensor(output)?)?.put(pass.sizes, 0, pass.index, states);
    Ok(())
}

pub(super) fn rnn(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (sizes, bias) = (Sizes::of(call, Rnn::GATES)?, numbers(call, "bias")?);
    for &(suffix, reverse) in directions(call, Rnn::GATES)? {
        let pass = Pass { sizes: &sizes, index: 0, suffix, reverse, bias: &bias };
        let mut work = vec![0.0; Sizes::product(&[sizes.batch, sizes.hidden])?];
        let mut cell = Rnn { activation: activation(call, "activation")?, work: &mut work };
        let state = pass.run(call, outputs, &mut cell)?;
        put_state(outputs, 1, &pass, &state)?;
    }
    Ok(())
}

pub(super) fn lstm(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let sizes = Sizes::of(call, Lstm::GATES)?;
    let clip = if call.has("clip") { call.float("clip")? } else { f32::INFINITY };
    for (index, &(suffix, reverse)) in directions(call, Lstm::GATES)?.iter().enumerate() {
        let bias = numbers(call, &format!("bias{suffix}"))?;
        let peephole = numbers(call, &format!("peephole{suffix}"))?;
        let pass = Pass { sizes: &sizes, index, suffix, reverse, bias: &bias };
        let mut memory = initial_state(call, "initial_c", &sizes, index)?;
        let mut work = vec![0.0; Sizes::product(&[sizes.batch, Lstm::GATES, sizes.hidden])?];
        let mut cell = Lstm {
            gates: activation(call, "recurrent_activation")?,
            cell: activation(call, "cell_activation")?,
            output: activation(call, "activation")?,
            peephole: &peephole,
            clip,
            memory: &mut memory,
            work: &mut work,
        };
        let state = pass.run(call, outputs, &mut cell)?;
        put_state(outputs, 1, &pass, &state)?;
        put_state(outputs, 2, &pass, &memory)?;
    }
    Ok(())
}

pub(super) fn gru(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let sizes = Sizes::of(call, Gru::GATES)?;
    let (mut bias, mut input_bias) = (numbers(call, "bias")?, Vec::new());
    let mut reset_after = false;
    if call.opset() >= Ios18 {
        (reset_after, input_bias) = (call.bool("reset_after")?, numbers(call, "input_bias")?);
    }
    let mut reset_bias = Vec::new();
    if reset_after && !bias.is_empty() {
        let output_gate = &mut bias[sizes.hidden..2 * sizes.hidden];
        reset_bias.extend_from_slice(output_gate);
        output_gate.fill(0.0);
    }
    if bias.is_empty() {
        bias = input_bias;
    } else {
        bias.iter_mut().zip(input_bias).for_each(|(bias, input)| *bias += input);
    }
    for &(suffix, reverse) in directions(call, Gru::GATES)? {
        let pass = Pass { sizes: &sizes, index: 0, suffix, reverse, bias: &bias };
        let mut work = vec![0.0; Sizes::product(&[sizes.batch, 4, sizes.hidden])?];
        let mut cell = Gru {
            gates: activation(call, "recurrent_activation")?,
            output: activation(call, "activation")?,
            reset_after: reset_after.then_some(&reset_bias[..]),
            work: &mut work,
        };
        let state = pass.run(call, outputs, &mut cell)?;
        put_state(outputs, 1, &pass, &state)?;
    }
    Ok(())
}
