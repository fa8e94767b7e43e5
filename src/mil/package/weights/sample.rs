//! A hash (XXH3-128) of samples of a blob, which tells most different blobs apart at hardly any cost: 16 pages of 4 KiB,
//! evenly spread, are 64 KiB of a blob of any size.

use xxhash_rust::xxh3::Xxh3;

/// Bytes of one sample, and how many samples are taken of a blob that is larger than all of them.
const SIZE: u64 = 4096;
const COUNT: u64 = 16;

/// Takes samples at places that depend only on the length, of bytes that arrive in any pieces.
pub(super) struct Sampler {
    len: u64,
    position: u64,
    sample: u64,
    hash: Xxh3,
}

impl Sampler {
    /// A sampler of `len` bytes.
    pub(super) fn new(len: u64) -> Sampler {
        Sampler { len, position: 0, sample: 0, hash: Xxh3::new() }
    }

    /// The hash of bytes that are at hand; only the samples are read.
    pub(super) fn hash(bytes: &[u8]) -> u128 {
        let mut sampler = Sampler::new(bytes.len() as u64);
        sampler.update(bytes);
        sampler.digest()
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        let end = self.position + bytes.len() as u64;
        while let Some((from, to)) = self.window() {
            if from >= end {
                break;
            }
            let inside = |at: u64| (at.max(self.position) - self.position) as usize;
            self.hash.update(&bytes[inside(from)..inside(to.min(end))]);
            if to > end {
                break;
            }
            self.sample += 1;
        }
        self.position = end;
    }

    /// The hash of the samples so far.
    pub(super) fn digest(&self) -> u128 {
        self.hash.digest128()
    }

    /// Where the current sample starts and ends.
    fn window(&self) -> Option<(u64, u64)> {
        if self.len <= SIZE * COUNT {
            return (self.sample == 0).then_some((0, self.len));
        }
        // The last sample is the end of the bytes, the others are spread evenly before it.
        let start = match COUNT - 1 - self.sample.min(COUNT - 1) {
            0 => self.len - SIZE,
            _ => (self.len - SIZE) / (COUNT - 1) * self.sample,
        };
        (self.sample < COUNT).then_some((start, start + SIZE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter_and_both_ends_do() {
        for len in [0usize, 1, 4096, 65_536, 65_537, 300_001] {
            let mut bytes: Vec<u8> = (0..len).map(|i| (i * i % 251) as u8).collect();
            let whole = Sampler::hash(&bytes);
            for piece in [1, 1000, 70_000] {
                let mut sampler = Sampler::new(len as u64);
                bytes.chunks(piece).for_each(|chunk| sampler.update(chunk));
                assert_eq!(sampler.digest(), whole, "{len} bytes by {piece}");
            }
            for end in [0, len.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(end) {
                    *byte ^= 1;
                    assert_ne!(Sampler::hash(&bytes), whole);
                    bytes[end] ^= 1;
                }
            }
        }
    }
}
