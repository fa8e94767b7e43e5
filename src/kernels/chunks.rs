//! Work on consecutive chunks of a slice, on several threads where that pays.

use rayon::prelude::*;

/// Multiply-adds from which threads are worth their start.
const PARALLEL: usize = 1 << 16;

/// Calls `f` with the index and the elements of each whole chunk. `work` is about how many multiply-adds all
/// calls make together; chunks must not depend on each other.
pub fn for_each_chunk(data: &mut [f32], length: usize, work: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    if work >= PARALLEL && data.len() > length {
        data.par_chunks_exact_mut(length).enumerate().for_each(|(i, chunk)| f(i, chunk));
    } else {
        data.chunks_exact_mut(length).enumerate().for_each(|(i, chunk)| f(i, chunk));
    }
}
