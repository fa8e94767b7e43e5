//! The bit mask of a sparse tensor, with counts that let any element be found.

use std::ops::Range;

use super::super::prelude::*;
use super::source::Source;
use anemeter_kernels::dequantize;
use anemeter_kernels::tensor::{Bytes, packed};

/// Words between two stored counts.
const WORDS: usize = 16;

/// Which elements of a row-major tensor are stored.
#[derive(Debug)]
pub(super) struct Mask {
    bits: Bytes,
    len: usize,
    /// Set bits before every `WORDS`-th word, and in total at the end.
    ranks: Vec<usize>,
}

impl Mask {
    /// A mask over the first `len` bits, least significant first.
    pub(super) fn new(bits: Bytes, len: usize) -> Result<Mask> {
        refuse_if!(bits.len() != len.div_ceil(8), "a mask of {len} bits cannot take {} bytes", bits.len());
        let mut mask = Mask { bits, len, ranks: Vec::new() };
        let (words, mut total) = (len.div_ceil(64), 0usize);
        mask.ranks.reserve_exact(words.div_ceil(WORDS) + 1);
        for word in 0..words {
            if word % WORDS == 0 {
                mask.ranks.push(total);
            }
            total += mask.word(word).count_ones() as usize;
        }
        mask.ranks.push(total);
        Ok(mask)
    }

    /// The mask held by a `uint1` operand.
    pub(super) fn of(source: &Source) -> Result<Mask> {
        let len = source.len();
        match source {
            Source::Plain(tensor) => Mask::new(tensor.bytes().clone(), len),
            Source::Packed(_) => {
                let mut bytes = Vec::with_capacity(len.div_ceil(8));
                let mut fields = [0; dequantize::CHUNK];
                for start in (0..len).step_by(fields.len()) {
                    let fields = &mut fields[..(len - start).min(dequantize::CHUNK)];
                    source.read_fields(1, start, fields);
                    bytes.extend(packed::pack(fields.iter().copied(), 1));
                }
                Mask::new(bytes.into(), len)
            }
        }
    }

    /// How many bits are set.
    pub(super) fn total(&self) -> usize {
        *self.ranks.last().expect("the last rank is that of the end")
    }

    pub(super) fn stored_bytes(&self) -> usize {
        self.bits.len() + size_of_val(&self.ranks[..])
    }

    pub(super) fn is_set(&self, index: usize) -> bool {
        self.bits[index / 8] >> (index % 8) & 1 == 1
    }

    /// Word `index` of the bit stream; bits past the end are zero.
    fn word(&self, index: usize) -> u64 {
        let bytes = &self.bits[index * 8..self.bits.len().min(index * 8 + 8)];
        let word = match <[u8; 8]>::try_from(bytes) {
            Ok(whole) => u64::from_le_bytes(whole),
            Err(_) => bytes.iter().rev().fold(0, |word, &byte| (word << 8) | u64::from(byte)),
        };
        let used = self.len - index * 64;
        if used < 64 { word & ((1 << used) - 1) } else { word }
    }

    /// Set bits in a range.
    pub(super) fn count(&self, range: Range<usize>) -> usize {
        let mut count = 0;
        let mut at = range.start;
        while at < range.end {
            let end = (at / 64 * 64 + 64).min(range.end);
            let kept = u64::MAX >> (64 - (end - at));
            count += (self.word(at / 64) >> (at % 64) & kept).count_ones() as usize;
            at = end;
        }
        count
    }

    /// Set bits before `index`.
    pub(super) fn rank(&self, index: usize) -> usize {
        let block = index / (WORDS * 64);
        self.ranks[block] + self.count(block * WORDS * 64..index)
    }

    /// The place of the set bit that has `rank` set bits before it, which must exist.
    pub(super) fn select(&self, rank: usize) -> usize {
        let block = self.ranks.partition_point(|&before| before <= rank) - 1;
        let mut left = rank - self.ranks[block];
        let mut word = block * WORDS;
        loop {
            let bits = self.word(word);
            let ones = bits.count_ones() as usize;
            if left < ones {
                let bits = (0..left).fold(bits, |bits, _| bits & (bits - 1));
                return word * 64 + bits.trailing_zeros() as usize;
            }
            left -= ones;
            word += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_places_undo_each_other() {
        let set = |i: usize| i.is_multiple_of(3) && !(1000..2100).contains(&i);
        for len in [1, 8, 63, 64, 65, 1024, 5000] {
            let bytes = packed::pack((0..len).map(|i| u8::from(set(i))), 1);
            let mask = Mask::new(bytes.into(), len).unwrap();
            let places: Vec<usize> = (0..len).filter(|&i| set(i)).collect();
            assert_eq!(mask.total(), places.len());
            for (rank, &place) in places.iter().enumerate() {
                assert_eq!((mask.select(rank), mask.rank(place)), (place, rank));
                assert!(mask.is_set(place));
            }
            assert_eq!(mask.rank(len), places.len());
            assert_eq!(mask.count(len / 3..len), places.iter().filter(|&&i| i >= len / 3).count());
        }
    }

    #[test]
    fn bits_past_the_end_do_not_count() {
        assert_eq!(Mask::new(vec![0xff].into(), 5).unwrap().total(), 5);
        assert!(Mask::new(vec![0xff].into(), 9).is_err());
    }
}
