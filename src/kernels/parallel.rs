//! Division of work among threads, without allocation and without influence on results.

/// Multiply-adds below which another thread costs more than it saves.
pub(crate) const WORTHWHILE: usize = 1 << 16;

/// Pieces per thread, so that a slow core does not hold up the others.
const PIECES: usize = 3;

/// How many pieces to make of work of the given size in multiply-adds.
pub(crate) fn pieces(work: usize) -> usize {
    let threads = rayon::current_num_threads();
    if threads == 1 { 1 } else { (work / WORTHWHILE).clamp(1, threads * PIECES) }
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
