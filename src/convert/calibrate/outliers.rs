//! How far the largest activation of each place stands out.

use std::collections::BTreeMap;

use super::error::CalibrateError;
use super::hidden::Hidden;
use super::in_pool;
use super::layer::{head_input, run_layer};
use super::linear::{Inputs, LoadedLinear, Observer};
use crate::model::Decoder;

/// The largest activation of a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    /// The tensor, as the program names the part that gives it, such as `layers_3_mlp_down`.
    pub tensor: String,
    /// Its largest magnitude over its root mean square, on all tokens.
    pub ratio: f64,
}

/// Takes sequences through a decoder and gives all places, the furthest first.
pub fn outliers(decoder: &Decoder, sequences: &[Vec<u32>]) -> Result<Vec<Outlier>, CalibrateError> {
    let mut sums = Sums::default();
    let mut hidden = Hidden::embed(decoder, sequences, |_, _| ())?;
    sums.saw("embedded", &hidden.rows);
    for (index, layer) in decoder.layers.iter().enumerate() {
        in_pool(|| run_layer(&mut hidden, index, layer, &mut sums))?;
    }
    let inputs = in_pool(|| head_input(&hidden, decoder, &mut ()))?;
    sums.saw("normed", &inputs);
    let mut found: Vec<Outlier> =
        sums.0.into_iter().map(|(tensor, sum)| Outlier { tensor, ratio: sum.ratio() }).collect();
    found.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    Ok(found)
}

/// Sums over the activations of every place.
#[derive(Default)]
struct Sums(BTreeMap<String, Sum>);

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    largest: f64,
    squares: f64,
    count: usize,
}

impl Sum {
    /// 1 where all are zero: nothing stands out.
    fn ratio(self) -> f64 {
        match self.squares {
            0.0 => 1.0,
            squares => self.largest / (squares / self.count as f64).sqrt(),
        }
    }
}

impl Observer for Sums {
    fn before(&mut self, _: &Inputs<'_>, _: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        Ok(())
    }

    fn saw(&mut self, place: &str, values: &[f32]) {
        let sum = self.0.entry(place.to_owned()).or_default();
        sum.count += values.len();
        for value in values {
            let magnitude = f64::from(value.abs());
            sum.largest = sum.largest.max(magnitude);
            sum.squares += magnitude * magnitude;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_out_is_measured_over_all_that_was_seen() {
        let mut sums = Sums::default();
        sums.saw("a", &[1.0, -1.0, 1.0, -1.0]);
        assert!((sums.0["a"].ratio() - 1.0).abs() < 1e-12);
        sums.saw("a", &[0.0, 0.0, 0.0, -4.0]);
        // Eight numbers whose squares are 20 together.
        assert!((sums.0["a"].ratio() - 4.0 / 2.5f64.sqrt()).abs() < 1e-12);
        sums.saw("silent", &[0.0; 3]);
        assert_eq!(sums.0["silent"].ratio(), 1.0);
    }
}
