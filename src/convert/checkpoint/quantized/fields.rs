//! Small unsigned integers in 32-bit words, little endian, in the orders that quantisers pack them in.

use anemeter_kernels::tensor::Bytes;

/// Fields of a few bits, as lines of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fields {
    pub(super) bytes: Bytes,
    /// Bits of a field.
    pub(super) bits: u32,
    pub(super) order: Order,
    /// Words, or bytes if fields are bytes, from a line to the next.
    pub(super) line: usize,
    /// Words from a word of a line to its next.
    pub(super) word: usize,
}

/// Where the fields of a line are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// One after the other, across the ends of words.
    Stream,
    /// As many to a word as fit whole.
    Whole,
    /// Eight of four bits to a word: the even ones, then the odd ones.
    Interleaved,
    /// Each a byte.
    Bytes,
}

impl Order {
    /// Words that a line of so many fields takes.
    pub(super) fn words(self, fields: usize, bits: u32) -> Option<usize> {
        match self {
            Order::Stream => fields.checked_mul(bits as usize).map(|bits| bits.div_ceil(32)),
            Order::Whole => Some(fields.div_ceil(32 / bits as usize)),
            Order::Interleaved => Some(fields.div_ceil(8)),
            Order::Bytes => Some(fields.div_ceil(4)),
        }
    }
}

impl Fields {
    /// One field of a line.
    #[inline]
    pub(super) fn get(&self, line: usize, index: usize) -> u8 {
        let mask = (1u32 << self.bits) - 1;
        let word = |at: usize| self.word(line * self.line + at * self.word);
        let field = match self.order {
            Order::Stream => {
                let bit = index * self.bits as usize;
                let (at, shift) = (bit / 32, (bit % 32) as u32);
                let low = word(at) >> shift;
                if shift + self.bits > 32 { low | word(at + 1) << (32 - shift) } else { low }
            }
            Order::Whole => {
                let to_a_word = 32 / self.bits as usize;
                word(index / to_a_word) >> (index % to_a_word * self.bits as usize)
            }
            Order::Interleaved => {
                let place = index % 8;
                word(index / 8) >> (4 * (place / 2 + place % 2 * 4))
            }
            Order::Bytes => return self.bytes[line * self.line + index],
        };
        (field & mask) as u8
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        let bytes = &self.bytes[at * 4..at * 4 + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}
