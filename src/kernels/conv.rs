//! Convolution as GEMM: im2col ([`unfold`]) and its transpose ([`fold`]), and depthwise convolution without it.

use std::ops::Range;

use super::convert::round_f16;
use super::parallel::for_each_chunk;
use super::window::Window;

/// Unfolds input planes into a matrix with one row per (plane, element of the window) and one column per
/// output position in `positions`. Padding becomes zeros.
pub fn unfold(window: &Window, planes: &[f32], positions: Range<usize>, columns: &mut [f32]) {
    let (taps, width) = (window.kernel_len(), positions.len());
    if width == 0 || taps == 0 {
        return;
    }
    let work = columns.len();
    for_each_chunk(columns, width, work, |row, out| {
        let plane = &planes[row / taps * window.input_len()..];
        let stride = window.stride[2];
        out.fill(0.0);
        window.runs(window.tap(row % taps), positions.clone(), |at, from, length| {
            let out = &mut out[at - positions.start..][..length];
            // At stride 1 a run of outputs is a run of inputs.
            if stride == 1 {
                out.copy_from_slice(&plane[from..from + length]);
            } else {
                for (out, value) in out.iter_mut().zip(plane[from..].iter().step_by(stride)) {
                    *out = *value;
                }
            }
        });
    });
}

/// Adds the rows of a matrix of the shape that [`unfold`] gives for one plane into the *input* positions of
/// that plane: the transpose of unfolding.
pub fn fold(window: &Window, columns: &[f32], positions: Range<usize>, plane: &mut [f32], round_steps: bool) {
    let width = positions.len();
    for tap in 0..window.kernel_len() {
        let row = &columns[tap * width..][..width];
        window.runs(window.tap(tap), positions.clone(), |at, to, length| {
            let values = &row[at - positions.start..][..length];
            for (out, value) in plane[to..].iter_mut().step_by(window.stride[2]).zip(values) {
                *out = if round_steps { round_f16(*out + value) } else { *out + value };
            }
        });
    }
}

/// Convolves one plane with one kernel into `output`.
pub fn depthwise(window: &Window, plane: &[f32], kernel: &[f32], output: &mut [f32], round_steps: bool) {
    output.fill(0.0);
    for (tap, &weight) in kernel.iter().enumerate() {
        window.runs(window.tap(tap), 0..window.output_len(), |at, from, length| {
            let output = &mut output[at..at + length];
            let input = plane[from..].iter().step_by(window.stride[2]);
            if round_steps {
                for (out, value) in output.iter_mut().zip(input) {
                    *out = round_f16(*out + round_f16(value * weight));
                }
            } else if window.stride[2] == 1 {
                // A loop of its own: `step_by` keeps the compiler from vectorising the one below.
                for (out, value) in output.iter_mut().zip(&plane[from..from + length]) {
                    *out += value * weight;
                }
            } else {
                for (out, value) in output.iter_mut().zip(input) {
                    *out += value * weight;
                }
            }
        });
    }
}

/// Adds one element of `bias` to each of consecutive planes; planes beyond the last one stay as they are.
pub fn add_bias(planes: &mut [f32], plane: usize, bias: &[f32], round_steps: bool) {
    for (plane, bias) in planes.chunks_exact_mut(plane).zip(bias) {
        for value in plane {
            *value = if round_steps { round_f16(*value + bias) } else { *value + bias };
        }
    }
}
