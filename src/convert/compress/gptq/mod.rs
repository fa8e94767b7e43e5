//! Codes chosen by data: each is rounded with the errors of those before it carried on, so that the outputs of a layer lose
//! least on the inputs that were seen (GPTQ, Frantar et al. 2023), for integers and palettes alike.
//!
//! ```text
//! statistics   sum of x xᵀ over tokens                          what an error of one input's element does to the others'
//! factor       H = (U + I) D (U + I)ᵀ, heavy columns first
//! feedback     round target k; carry its error on by U          scales searched within their block, palettes by k-means
//! descent      each code again, all others as they are          then scales or palettes again, by least squares
//! ```

mod factor;
mod feedback;
mod integers;
mod palettes;
mod statistics;

use std::collections::BTreeMap;

use factor::Factor;
use feedback::{Grid, Rows};
pub use statistics::Gram;

use super::precision::{Granularity, Linear, Palette, Precision};
use super::weight::rounded;
use super::{CompressError, Result};
use anemeter_kernels::quantize::{Loss, extent};
use anemeter_kernels::tensor::DType;

/// Elements that are solved at a time, as far as rows are independent of each other.
const STRIP: usize = 4 << 20;

/// The type that exported weights have.
const DTYPE: DType = DType::F16;

/// Chooses codes for weights that take the same inputs.
pub struct Solver<'a> {
    /// Statistics of the inputs; none if nothing is known of them.
    gram: Option<&'a Gram>,
    columns: usize,
    ridge: f32,
    /// Factors by how many columns stay together.
    factors: BTreeMap<usize, Factor>,
}

/// Corrections of weights that take the same inputs.
pub struct Correction(Option<Factor>);

impl Correction {
    /// What has to be added to a weight so that its outputs, with the inputs of the statistics, come close to others: `sums` are
    /// those of what the outputs lack times each input, a row for each output.
    pub fn of(&self, sums: &[f32]) -> Vec<f32> {
        self.0.as_ref().map_or_else(|| vec![0.0; sums.len()], |factor| factor.solve(sums))
    }
}

/// Elements that are not finite have no codes: an error that names their weight.
pub fn check_weight(weight: &str, elements: &[f32]) -> Result<()> {
    let Some(bad) = elements.iter().find(|value| !value.is_finite()) else { return Ok(()) };
    Err(CompressError::new(format!(
        "weight `{weight}` has an element that is {bad} and cannot be compressed"
    )))
}

/// Some rows of a weight with their codes.
#[derive(Debug, Clone, PartialEq)]
pub struct SolvedRows {
    /// A code for each element.
    pub(super) codes: Vec<u8>,
    /// Pairs of scale and zero point by row and block, or palettes one after the other.
    pub(super) parameters: Vec<f32>,
    /// Scales of rows, where palettes have such.
    pub(super) scales: Vec<f32>,
    /// What is read back for each element.
    pub read: Vec<f32>,
    pub(super) loss: Loss,
}

impl SolvedRows {
    /// The same codes, with what they lose of other weights than those that they were chosen for.
    #[must_use]
    pub fn against(self, weights: &[f32]) -> SolvedRows {
        SolvedRows { loss: Loss::between(weights, &self.read), ..self }
    }
}

impl<'a> Solver<'a> {
    /// For inputs with these statistics. `ridge` is the share of their mean weight by which every error counts besides.
    pub fn new(gram: &'a Gram, ridge: f32) -> Solver<'a> {
        Solver { gram: Some(gram), columns: gram.columns(), ridge, factors: BTreeMap::new() }
    }

    /// For so many inputs of which nothing is known: each element is rounded for itself.
    pub fn blind(columns: usize) -> Solver<'static> {
        Solver { gram: None, columns, ridge: 0.0, factors: BTreeMap::new() }
    }

    /// How many of so many rows to solve at a time.
    pub fn strip(&self, precision: Precision, rows: usize) -> usize {
        let group = match precision {
            Precision::Palette(Palette { group, .. }) => group.unwrap_or(rows),
            Precision::Linear(Linear { granularity: Granularity::Tensor, .. }) => rows,
            _ => 1,
        };
        let group = group.max(1);
        (STRIP / self.columns.max(1) / group).max(1) * group
    }

    /// Statistics that are not finite have no factor: an error that names a weight with these inputs.
    pub fn check(&self, weight: &str) -> Result<()> {
        if self.gram.is_none_or(Gram::is_finite) {
            return Ok(());
        }
        let message = format!("the inputs of weight `{weight}` on the calibration text are not finite");
        Err(CompressError::new(message)
            .with_help("look for weights of the layers before it that are NaN, infinite or far too large"))
    }

    /// Chooses codes for some rows of a weight.
    ///
    /// # Panics
    /// If the rows have not as many elements as the statistics have inputs.
    pub fn solve(&mut self, weight: &str, rows: &[f32], precision: Precision) -> Result<SolvedRows> {
        let columns = self.columns;
        assert!(rows.len().is_multiple_of(columns.max(1)), "rows are whole");
        check_weight(weight, rows)?;
        self.check(weight)?;
        match precision {
            Precision::Linear(linear) => self.integers(rows, linear),
            Precision::Palette(palette) if palette.vector == 1 => self.palettes(rows, palette),
            other => Err(CompressError::new(format!(
                "weight `{weight}` cannot be stored as {other} by calibration"
            ))
            .with_help("calibration is for int4, int8 and lut1 to lut8 without vectors")),
        }
    }

    /// What weights can be corrected by. The statistics are those of [`Self::check`].
    pub fn correction(&self, ridge: f32) -> Correction {
        Correction(self.gram.map(|gram| Factor::new(gram, 1, ridge).without_statistics()))
    }

    fn factor(&mut self, block: usize) -> &Factor {
        let (gram, columns, ridge) = (self.gram, self.columns, self.ridge);
        self.factors.entry(block).or_insert_with(|| match gram {
            Some(gram) => Factor::new(gram, block, ridge),
            None => Factor::blind(columns),
        })
    }

    fn integers(&mut self, weights: &[f32], linear: Linear) -> Result<SolvedRows> {
        let columns = self.columns.max(1);
        let block = integers::block(linear, columns);
        let factor = self.factor(if block < columns { block } else { 1 });
        let rows = integers::solve(factor, weights, linear, DTYPE);
        let count = columns.div_ceil(block);
        let mut parameters = Vec::with_capacity(2 * count * rows.coded.len());
        for row in &rows.coded {
            let mut pairs = vec![0.0; 2 * count];
            for (at, grid) in row.grids.iter().enumerate() {
                // Blocks are in the order of the factor.
                let block = factor.order[at * block] / block;
                (pairs[2 * block], pairs[2 * block + 1]) = (grid.scale, grid.zero);
            }
            parameters.extend(pairs);
        }
        if linear.granularity == Granularity::Tensor {
            parameters.truncate(2);
        }
        Ok(solved(&rows, weights, parameters, Vec::new()))
    }

    fn palettes(&mut self, weights: &[f32], palette: Palette) -> Result<SolvedRows> {
        let columns = self.columns.max(1);
        let count = weights.len() / columns;
        let group = palette.group.unwrap_or(count).clamp(1, count.max(1));
        let scales: Vec<f32> = match palette.scaled {
            true => weights.chunks(columns).map(magnitude).collect(),
            false => Vec::new(),
        };
        let divided: Vec<f32>;
        let units = match palette.scaled {
            true => {
                let rows = weights.chunks(columns).zip(&scales);
                divided = rows.flat_map(|(row, scale)| row.iter().map(move |value| value / scale)).collect();
                &divided[..]
            }
            false => weights,
        };
        let factor = self.factor(1);
        let rows = palettes::solve(factor, units, (palette, group), &scales, DTYPE);
        let firsts = rows.coded.iter().step_by(group);
        let parameters = firsts.flat_map(|row| row.grids[0].values.iter().copied()).collect();
        Ok(solved(&rows, weights, parameters, scales))
    }
}

/// The largest magnitude of a row, as its scale.
fn magnitude(row: &[f32]) -> f32 {
    let extent = extent(row);
    match rounded(DTYPE, extent.max.max(-extent.min)) {
        0.0 => 1.0,
        largest => largest,
    }
}

/// Rows with their columns back in the order of the weight.
fn solved<G: Grid>(
    rows: &Rows<'_, G>,
    weights: &[f32],
    parameters: Vec<f32>,
    scales: Vec<f32>,
) -> SolvedRows {
    let columns = rows.factor.columns().max(1);
    let mut codes = vec![0; weights.len()];
    let mut read = vec![0.0; weights.len()];
    for (at, row) in rows.coded.iter().enumerate() {
        let scale = scales.get(at).copied().unwrap_or(1.0);
        for (place, &column) in rows.factor.order.iter().enumerate() {
            let (from, to) = (at * columns + place, at * columns + column);
            codes[to] = row.codes[place];
            read[to] = rounded(DTYPE, (rows.weights[from] - rows.errors[from]) * scale);
        }
    }
    let loss = Loss::between(weights, &read);
    SolvedRows { codes, parameters, scales, read, loss }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
