//! Second-order statistics of what a linear map takes: the sum of `x xᵀ` over tokens, the Hessian of its squared error.

use anemeter_kernels::gemm::{Extents, Matrix, multiply};

/// Tokens whose products are summed before they join the sums of all.
const TOKENS: usize = 1024;

/// Sums of the products of each pair of inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Gram {
    columns: usize,
    tokens: usize,
    sums: Vec<f32>,
}

impl Gram {
    /// Of so many inputs, before any token.
    pub fn new(columns: usize) -> Gram {
        Gram { columns, tokens: 0, sums: vec![0.0; columns * columns] }
    }

    /// Adds the inputs of some tokens, one row for each.
    ///
    /// # Panics
    /// If the rows are not whole.
    pub fn add(&mut self, inputs: &[f32]) {
        let columns = self.columns;
        if columns == 0 || inputs.is_empty() {
            return;
        }
        assert!(inputs.len().is_multiple_of(columns), "a row has an element for each input");
        let mut products = vec![0.0; columns * columns];
        for rows in inputs.chunks(TOKENS * columns) {
            let tokens = rows.len() / columns;
            let matrix = Matrix::row_major(rows, columns);
            multiply(
                Extents { m: columns, k: tokens, n: columns },
                matrix.transposed(),
                matrix,
                &mut products,
            );
            self.sums.iter_mut().zip(&products).for_each(|(sum, product)| *sum += product);
            self.tokens += tokens;
        }
    }

    /// How many inputs a token has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many tokens were added.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The sum of the products of two inputs.
    pub(super) fn at(&self, row: usize, column: usize) -> f32 {
        self.sums[row * self.columns + column]
    }

    /// Whether all sums are numbers.
    pub fn is_finite(&self) -> bool {
        self.sums.iter().all(|sum| sum.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_all_tokens_however_they_come() {
        let inputs: Vec<f32> = (0..2500 * 3).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
        let (mut whole, mut parts) = (Gram::new(3), Gram::new(3));
        whole.add(&inputs);
        inputs.chunks(700 * 3).for_each(|rows| parts.add(rows));
        assert_eq!((whole.tokens(), whole.columns()), (2500, 3));
        assert_eq!(whole, parts, "small integers are summed exactly");
        let expected: f32 = inputs.chunks(3).map(|row| row[0] * row[2]).sum();
        assert_eq!((whole.at(0, 2), whole.at(2, 0)), (expected, expected));
    }
}
