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
    let most = work / WORTHWHILE;
    if most < 2 {
        return 1;
    }
    match threads() {
        1 => 1,
        threads => most.min(threads * PIECES),
    }
}

/// Calls `body` with disjoint parts of `data` and the index where each starts; each part but the last is a
/// multiple of `unit` long.
pub(crate) fn parts<T: Send>(
    data: &mut [T],
    unit: usize,
    pieces: usize,
    body: &(impl Fn(usize, &mut [T]) + Sync),
) {
    fn divide<T: Send>(
        start: usize,
        data: &mut [T],
        unit: usize,
        pieces: usize,
        body: &(impl Fn(usize, &mut [T]) + Sync),
    ) {
        match half(data.len(), unit, pieces) {
            Some(middle) => {
                let (left, right) = data.split_at_mut(middle);
                rayon::join(
                    || divide(start, left, unit, pieces / 2, body),
                    || divide(start + middle, right, unit, pieces - pieces / 2, body),
                );
            }
            None => body(start, data),
        }
    }
    divide(0, data, unit, pieces, body);
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
