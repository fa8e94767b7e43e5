//! How much the inputs of weights matter, so that a palette is good where it counts.
//!
//! An output is a sum of inputs times elements, so the error of an element counts with the mean square of its input: the
//! diagonal of the Hessian of the layer's squared error (LeCun et al. 1990, "Optimal brain damage").

use std::collections::BTreeMap;
use std::sync::Arc;

use super::layout::Layout;

/// No input counts less than this share of the mean: a text does not show everything.
const LEAST: f64 = 1e-4;

/// How much each input matters, by the name of the weight.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Importance(BTreeMap<String, Arc<[f32]>>);

impl Importance {
    /// Takes the mean squares of the inputs of a weight. Those of which none is positive say nothing.
    pub fn insert(&mut self, weight: &str, squares: &[f64]) {
        let mean = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
        if mean > 0.0 && mean.is_finite() {
            let shares = squares.iter().map(|square| (square / mean).max(LEAST) as f32);
            self.0.insert(weight.to_owned(), shares.collect());
        }
    }

    /// How much each input of a weight matters, where that is known; the mean is about one.
    pub fn of(&self, weight: &str) -> Option<&Arc<[f32]>> {
        self.0.get(weight)
    }

    /// The same for the elements of a channel, if each is of an input of its own.
    pub(super) fn of_row(&self, weight: &str, layout: &Layout) -> Option<Arc<[f32]>> {
        let is_one_each = layout.input_stride() == Some(1) && layout.row() == layout.shape[layout.input];
        self.of(weight).filter(|inputs| is_one_each && inputs.len() == layout.row()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_shares_of_their_mean() {
        let mut importance = Importance::default();
        importance.insert("a", &[1.0, 3.0, 0.0, 0.0]);
        importance.insert("silent", &[0.0, 0.0]);
        importance.insert("broken", &[f64::NAN, 1.0]);
        assert_eq!(importance.of("a").unwrap()[..], [1.0, 3.0, 1e-4, 1e-4]);
        assert!(importance.of("silent").is_none() && importance.of("broken").is_none());
        assert!(importance.of_row("a", &Layout::rows_first(&[2, 4, 1, 1])).is_some());
        assert!(importance.of_row("a", &Layout::rows_first(&[2, 2, 2, 1])).is_none());
        assert!(importance.of_row("a", &Layout::rows_first(&[4, 2])).is_none());
    }
}
