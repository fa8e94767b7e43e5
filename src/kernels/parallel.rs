//! Division of work among threads, without allocation and without influence on results.

use rayon::prelude::*;

/// Multiply-adds below which another thread costs more than it saves.
pub(crate) const WORTHWHILE: usize = 1 << 16;

/// Pieces per thread, so that a slow core does not hold up the others.
const PIECES: usize = 3;

/// Threads at hand: those of the pool that runs this, or one outside any pool.
pub(crate) fn threads() -> usize {
    if rayon::current_thread_index().is_some() { rayon::current_num_threads() } else { 1 }
}

/// How many pieces to make of work of the given size in multiply-adds.
pub(crate) fn pieces(work: usize) -> usize {
    let threads = threads();
    if threads == 1 { 1 } else { (work / WORTHWHILE).clamp(1, threads * PIECES) }
}

/// Calls `f` with the index and the content of each chunk of `size` elements, on several threads if the work,
/// in multiply-adds, is worth it.
pub(crate) fn for_each_chunk<T: Send>(
    data: &mut [T],
    size: usize,
    work: usize,
    f: impl Fn(usize, &mut [T]) + Sync + Send,
) {
    if work >= WORTHWHILE && data.len() > size && threads() > 1 {
        data.par_chunks_mut(size).enumerate().for_each(|(i, chunk)| f(i, chunk));
    } else {
        data.chunks_mut(size).enumerate().for_each(|(i, chunk)| f(i, chunk));
    }
}

/// Where to divide `len` for `pieces` pieces, on a multiple of `unit`; `None` if it is not to be divided.
pub(crate) fn half(len: usize, unit: usize, pieces: usize) -> Option<usize> {
    if pieces < 2 {
        return None;
    }
    let units = len / unit;
    let middle = units * (pieces / 2) / pieces * unit;
    (middle > 0).then_some(middle)
}
