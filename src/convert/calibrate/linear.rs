//! Linear maps with their weights in memory, and who watches what they take.

use rayon::prelude::*;

use super::error::CalibrateError;
use super::hidden::read;
use crate::model::Linear;
use anemeter_kernels::gemm::{Extents, Matrix, multiply};

/// A linear map of the layer that is in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedLinear {
    /// The name of its weight in the exported program, such as `layers_0_mlp_up_weight`.
    pub name: String,
    /// Its weight, a row for each output.
    pub weight: Vec<f32>,
    /// How many outputs it has.
    pub outputs: usize,
    /// How many inputs it has.
    pub inputs: usize,
    pub(super) place: String,
    bias: Option<Vec<f32>>,
}

/// Sees what linear maps take.
pub trait Observer: Send {
    /// Maps that take the same inputs, a row for each token, before they are applied. Their weights may be changed.
    fn before(&mut self, inputs: &[f32], maps: &mut [LoadedLinear]) -> Result<(), CalibrateError>;

    /// Activations that the program computes at a place, such as `layers_0_mlp_up`.
    fn saw(&mut self, _place: &str, _values: &[f32]) {}
}

/// Nobody watches.
impl Observer for () {
    fn before(&mut self, _: &[f32], _: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
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
            outputs: size(0),
            inputs: size(1),
            bias: linear.bias.as_ref().map(read),
        }
    }

    /// Applies the map to rows.
    pub(super) fn apply(&self, rows: &[f32]) -> Vec<f32> {
        let LoadedLinear { outputs, inputs, .. } = *self;
        let extents = Extents { m: rows.len() / inputs.max(1), k: inputs, n: outputs };
        let mut out = vec![0.0; extents.m * outputs];
        let weight = Matrix::row_major(&self.weight, inputs).transposed();
        multiply(extents, Matrix::row_major(rows, inputs), weight, &mut out);
        if let Some(bias) = &self.bias {
            out.par_chunks_mut(outputs.max(1)).for_each(|row| {
                row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
            });
        }
        out
    }
}
