//! Where the output channels and the inputs of a weight are.

use super::{CompressError, Result};
use anemeter_kernels::tensor::{Shape, shape};

/// The shape of a weight and the meaning of its axes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    /// The shape.
    pub(super) shape: Shape,
    /// Axis of the output channels.
    pub(super) channel: usize,
    /// Axis of the inputs.
    pub(super) input: usize,
}

impl Layout {
    /// Channels on the first axis, inputs on the second.
    pub(super) fn rows_first(shape: &[usize]) -> Layout {
        Layout { shape: shape.into(), channel: 0, input: 1.min(shape.len().saturating_sub(1)) }
    }

    pub(super) fn elements(&self) -> usize {
        shape::element_count(&self.shape).expect("the elements of a weight are in memory")
    }

    pub(super) fn channels(&self) -> usize {
        self.shape[self.channel]
    }

    /// Elements of a channel.
    pub(super) fn row(&self) -> usize {
        self.elements() / self.channels().max(1)
    }

    /// Whether the elements of a channel follow each other.
    pub(super) fn is_by_rows(&self) -> bool {
        self.outer() == 1
    }

    fn outer(&self) -> usize {
        self.shape[..self.channel].iter().product()
    }

    fn inner(&self) -> usize {
        self.shape[self.channel + 1..].iter().product()
    }

    /// Elements between one input of a channel and the next, if the inputs of a channel are in order.
    pub(super) fn input_stride(&self) -> Option<usize> {
        let before = |axis: usize| axis < self.input && axis != self.channel;
        let is_first = (0..self.shape.len()).filter(|&axis| before(axis)).all(|axis| self.shape[axis] == 1);
        let after = (self.input + 1..self.shape.len()).filter(|&axis| axis != self.channel);
        (is_first && self.input != self.channel).then(|| after.map(|axis| self.shape[axis]).product())
    }

    /// Elements of a block of `size` inputs.
    pub(super) fn block(&self, name: &str, size: usize) -> Result<usize> {
        let Some(stride) = self.input_stride() else {
            return Err(CompressError::new(format!(
                "weight `{name}` of shape {:?}: the inputs of a channel are spread over several axes, so they \
                 cannot be divided into blocks",
                &self.shape[..]
            ))
            .with_help("choose a precision per channel for it, such as int8"));
        };
        let inputs = self.shape[self.input];
        match inputs.is_multiple_of(size) {
            true => Ok(size * stride),
            false => Err(indivisible(name, inputs, "inputs", size, "blocks")),
        }
    }

    /// How many groups of `size` channels there are.
    pub(super) fn groups(&self, name: &str, size: usize, of: &str) -> Result<usize> {
        match self.channels().is_multiple_of(size) {
            true => Ok(self.channels() / size),
            false => Err(indivisible(name, self.channels(), "output channels", size, of)),
        }
    }

    /// The shape of parameters of which there are so many along the channels and the inputs.
    pub(super) fn parameters(&self, channels: usize, inputs: usize) -> Vec<usize> {
        let mut sizes = vec![1; self.shape.len()];
        sizes[self.input] = inputs;
        sizes[self.channel] = channels;
        sizes
    }

    /// Brings elements of `size` bytes from the order of the shape to channel by channel.
    pub(super) fn to_rows(&self, size: usize, from: &[u8]) -> Vec<u8> {
        transpose(from, self.outer(), self.channels(), self.inner() * size)
    }

    /// The reverse of [`to_rows`](Layout::to_rows).
    pub(super) fn undo_rows(&self, size: usize, from: &[u8]) -> Vec<u8> {
        transpose(from, self.channels(), self.outer(), self.inner() * size)
    }

    /// Brings parameters from channel by channel to the order of their shape.
    pub(super) fn order_parameters<T: Copy>(&self, inputs: usize, values: &[T]) -> Vec<T> {
        if self.channel < self.input || inputs <= 1 {
            return values.to_vec();
        }
        let channels = values.len() / inputs;
        (0..values.len()).map(|at| values[at % channels * inputs + at / channels]).collect()
    }
}

fn indivisible(name: &str, count: usize, what: &str, size: usize, into: &str) -> CompressError {
    let message =
        format!("weight `{name}` has {count} {what}, which cannot be divided into {into} of {size}");
    CompressError::new(message)
        .with_help("choose a size that divides it, or another precision for this weight")
}

/// Runs of `size` bytes, from rows by columns to columns by rows.
fn transpose(from: &[u8], rows: usize, columns: usize, size: usize) -> Vec<u8> {
    const TILE: usize = 32;
    let mut to = vec![0; from.len()];
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for row in top..rows.min(top + TILE) {
                for column in left..columns.min(left + TILE) {
                    let (source, target) = ((row * columns + column) * size, (column * rows + row) * size);
                    to[target..target + size].copy_from_slice(&from[source..source + size]);
                }
            }
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], channel: usize, input: usize) -> Layout {
        Layout { shape: shape.into(), channel, input }
    }

    #[test]
    fn blocks_of_inputs_are_runs_of_a_row() {
        assert_eq!(layout(&[8, 64, 3, 3], 0, 1).block("w", 32).unwrap(), 288);
        assert_eq!(layout(&[64, 8], 1, 0).block("w", 16).unwrap(), 16);
        assert_eq!(layout(&[1, 64, 8], 2, 1).block("w", 16).unwrap(), 16);
        assert!(layout(&[2, 64, 8], 2, 1).block("w", 16).is_err());
        let error = layout(&[8, 50], 0, 1).block("w", 16).unwrap_err();
        assert_eq!(error.to_string(), "weight `w` has 50 inputs, which cannot be divided into blocks of 16");
        let error = layout(&[10, 50], 0, 1).groups("w", 4, "groups").unwrap_err();
        let expected = "weight `w` has 10 output channels, which cannot be divided into groups of 4";
        assert_eq!(error.to_string(), expected);
    }

    proptest::proptest! {
        #[test]
        fn rows_come_back(outer in 1usize..70, channels in 1usize..40, inner in 1usize..4) {
            let layout = layout(&[outer, channels, inner], 1, 0);
            let from: Vec<u8> = (0..outer * channels * inner * 2).map(|i| (i % 251) as u8).collect();
            let rows = layout.to_rows(2, &from);
            assert_eq!(layout.undo_rows(2, &rows), from);
            let at = |o: usize, c: usize| (o * channels + c) * inner * 2;
            assert_eq!(rows[..2], from[at(0, 0)..][..2]);
            if outer > 1 {
                assert_eq!(rows[inner * 2..][..2], from[at(1, 0)..][..2]);
            }
        }
    }

    #[test]
    fn parameters_follow_their_shape() {
        assert_eq!(layout(&[4, 6], 0, 1).order_parameters(2, &[0, 1, 2, 3]), [0, 1, 2, 3]);
        // Two channels of three blocks each, as a tensor of blocks by channels.
        assert_eq!(layout(&[6, 2], 1, 0).order_parameters(3, &[0, 1, 2, 10, 11, 12]), [0, 10, 1, 11, 2, 12]);
        assert_eq!(layout(&[6, 2], 1, 0).parameters(2, 3), [3, 2]);
    }
}
