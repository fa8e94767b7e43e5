//! Offsets in one arena for buffers with known lifetimes: large ones first, each at the lowest offset where
//! nothing that lives at the same time is in the way.

/// Offsets are multiples of this.
const ALIGNMENT: usize = 64;

/// A buffer that is needed from one step to another, both included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) bytes: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// An offset for each request, and the size of the arena.
pub(super) fn assign(requests: &[Request]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(requests[i].bytes), requests[i].first, i));
    let mut offsets = vec![0; requests.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for i in order {
        let request = requests[i];
        let mut offset = 0;
        for &other in &placed {
            let neighbour = requests[other];
            let together = request.first <= neighbour.last && neighbour.first <= request.last;
            let (start, end) = (offsets[other], offsets[other] + neighbour.bytes);
            if together && offset < end && start < offset + request.bytes {
                offset = end.next_multiple_of(ALIGNMENT);
            }
        }
        offsets[i] = offset;
        total = total.max(offset + request.bytes);
        let at = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(at, i);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_is_reused_when_a_value_is_dead() {
        let chain: Vec<Request> = (0..10).map(|i| Request { bytes: 640, first: i, last: i + 1 }).collect();
        assert_eq!(assign(&chain).1, 1280);
    }

    proptest! {
        #[test]
        fn values_alive_together_never_overlap(raw in proptest::collection::vec((0usize..500, 0usize..20, 0usize..8), 0..40)) {
            let requests: Vec<Request> =
                raw.iter().map(|&(bytes, first, length)| Request { bytes, first, last: first + length }).collect();
            let (offsets, total) = assign(&requests);
            for (i, a) in requests.iter().enumerate() {
                prop_assert!(offsets[i] % ALIGNMENT == 0 && offsets[i] + a.bytes <= total);
                for (j, b) in requests.iter().enumerate().skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                    prop_assert!(!together || apart || a.bytes == 0 || b.bytes == 0);
                }
            }
        }
    }
}
