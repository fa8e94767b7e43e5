//! Linear maps with their weights in memory, and who watches what they take.

use rayon::prelude::*;

use super::error::CalibrateError;
use super::hidden::{Hidden, read};
use crate::model::Linear;
use anemeter_kernels::gemm::{Extents, Matrix, multiply};

/// A linear map of the layer that is in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedLinear {
    /// The name of its weight in the exported program, such as `layers_0_mlp_up_weight`.
    pub name: String,
    /// Its weight, a row for each output.
    pub weight: Vec<f32>,
    /// What the rows of the uncompressed model are multiplied by, if that is no longer the weight.
    pub exact: Option<Vec<f32>>,
    /// How many outputs it has.
    pub outputs: usize,
    /// How many inputs it has.
    pub inputs: usize,
    pub(super) place: String,
    bias: Option<Vec<f32>>,
}

/// What linear maps take.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// A row for each token.
    pub rows: &'a [f32],
    /// The residual stream that the outputs are added to, a row for each token; none if something is between.
    pub stream: Option<&'a [f32]>,
    /// How many tokens come first that are of the uncompressed model.
    pub exact: usize,
}

impl<'a> Inputs<'a> {
    /// Of maps whose outputs go on within the layer.
    pub(super) fn inner(rows: &'a [f32], hidden: &Hidden) -> Inputs<'a> {
        Inputs { rows, stream: None, exact: hidden.exact }
    }
}

/// Sees what linear maps take.
pub trait Observer: Send {
    /// Maps that take the same inputs, before they are applied. Their weights may be changed.
    fn before(&mut self, inputs: &Inputs<'_>, maps: &mut [LoadedLinear]) -> Result<(), CalibrateError>;

    /// Activations that the program computes at a place, such as `layers_0_mlp_up`.
    fn saw(&mut self, _place: &str, _values: &[f32]) {}
}

/// Nobody watches.
impl Observer for () {
    fn before(&mut self, _: &Inputs<'_>, _: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        Ok(())
    }
}

impl LoadedLinear {
    /// Reads a map; `place` is where it is in the program, such as `layers_0_mlp_up`.
    pub(super) fn load(place: &str, linear: &Linear) -> LoadedLinear {
        let size = |axis: usize| linear.weight.shape.get(axis).copied().unwrap_or(1);
        LoadedLinear {
            name: format!("{place}_weight"),
            place: place.to_owned(),
            weight: read(&linear.weight),
            exact: None,
            outputs: size(0),
            inputs: size(1),
            bias: linear.bias.as_ref().map(read),
        }
    }

    /// Applies the map to rows, of which so many come first that are of the uncompressed model.
    pub(super) fn apply(&self, rows: &[f32], exact: usize) -> Vec<f32> {
        let mut out = match &self.exact {
            Some(weight) => {
                let (before, after) = rows.split_at(exact * self.inputs);
                let mut out = product(before, weight, (self.inputs, self.outputs));
                out.extend(product(after, &self.weight, (self.inputs, self.outputs)));
                out
            }
            None => product(rows, &self.weight, (self.inputs, self.outputs)),
        };
        if let Some(bias) = &self.bias {
            out.par_chunks_mut(self.outputs.max(1)).for_each(|row| {
                row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
            });
        }
        out
    }
}

/// Rows times the transpose of a weight.
pub(super) fn product(rows: &[f32], weight: &[f32], (inputs, outputs): (usize, usize)) -> Vec<f32> {
    let extents = Extents { m: rows.len() / inputs.max(1), k: inputs, n: outputs };
    let mut out = vec![0.0; extents.m * outputs];
    let weight = Matrix::row_major(weight, inputs).transposed();
    multiply(extents, Matrix::row_major(rows, inputs), weight, &mut out);
    out
}
