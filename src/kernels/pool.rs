//! Max, average and L2 pooling of one plane with sliding windows.

use std::ops::Range;

use super::convert::round_f16;
use super::window::Window;

/// What is taken of the elements of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The largest.
    Max,
    /// Their mean. Padding counts as zeros, or not at all.
    Average {
        /// Whether padding is left out of the count.
        exclude_padding: bool,
        /// Sizes of the padded input; a window may reach beyond it, which never counts.
        padded: [usize; 3],
    },
    /// The root of the sum of squares.
    L2,
}

/// Pools one input plane into one output plane.
pub fn pool(window: &Window, pooling: Pooling, input: &[f32], output: &mut [f32], round_steps: bool) {
    let round = |x: f32| if round_steps { round_f16(x) } else { x };
    let mut output = output.iter_mut();
    for z in 0..window.output[0] {
        for y in 0..window.output[1] {
            for (x, out) in (0..window.output[2]).zip(&mut output) {
                let at = [z, y, x];
                *out = match pooling {
                    Pooling::Max => fold(window, at, input, f32::NEG_INFINITY, |max, v| {
                        // A NaN is taken and stays: nothing is greater than it.
                        if v > max || v.is_nan() { v } else { max }
                    }),
                    Pooling::L2 => {
                        round(fold(window, at, input, 0.0, |sum, v| round(sum + round(v * v))).sqrt())
                    }
                    Pooling::Average { exclude_padding, padded } => {
                        let sum = fold(window, at, input, 0.0, |sum, v| round(sum + v));
                        let counted = |axis: usize| match exclude_padding {
                            true => window.taps_at(axis, at[axis]).len(),
                            false => {
                                let start = at[axis] * window.stride[axis];
                                window.kernel[axis].min(padded[axis].saturating_sub(start))
                            }
                        };
                        // A window that lies in the padding alone has no elements and a sum of 0.
                        round(sum / (0..3).map(|axis| counted(axis) as f32).product::<f32>().max(1.0))
                    }
                };
            }
        }
    }
}

/// Folds the elements of one window that lie inside the input.
fn fold(window: &Window, at: [usize; 3], input: &[f32], first: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let taps: [Range<usize>; 3] = std::array::from_fn(|axis| window.taps_at(axis, at[axis]));
    let mut result = first;
    if taps.iter().any(Range::is_empty) {
        return result;
    }
    for z in taps[0].clone() {
        for y in taps[1].clone() {
            let row = window.input_at(0, at[0], z) * window.input[1] + window.input_at(1, at[1], y);
            let start = row * window.input[2] + window.input_at(2, at[2], taps[2].start);
            for &value in &input[start..start + taps[2].len()] {
                result = f(result, value);
            }
        }
    }
    result
}
