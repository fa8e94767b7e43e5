//! Softmax in place over `[outer, length, inner]` data.

use super::convert::round_f16;

/// Softmax along the middle axis.
pub fn softmax_f32(data: &mut [f32], length: usize, inner: usize) {
    softmax(data, length, inner, |x| x);
}

/// Softmax whose intermediates are rounded to fp16.
pub fn softmax_f16_steps(data: &mut [f32], length: usize, inner: usize) {
    softmax(data, length, inner, round_f16);
}

fn softmax(data: &mut [f32], length: usize, inner: usize, round: impl Fn(f32) -> f32) {
    if length == 0 || inner == 0 {
        return;
    }
    for block in data.chunks_exact_mut(length * inner) {
        for column in 0..inner {
            let at = |i: usize| i * inner + column;
            let max = (0..length).fold(f32::NEG_INFINITY, |m, i| m.max(block[at(i)]));
            let mut sum = 0.0;
            for i in 0..length {
                let e = round(round(block[at(i)] - max).exp());
                block[at(i)] = e;
                sum = round(sum + e);
            }
            for i in 0..length {
                block[at(i)] = round(block[at(i)] / sum);
            }
        }
    }
}
