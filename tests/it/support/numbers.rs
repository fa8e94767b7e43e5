//! Numbers for weights.

use half::f16;

/// Deterministic fp16 numbers between -1 and 1.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f16> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f16::from_f32((state >> 8) as f32 / 8_388_608.0 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}
