//! Reading forward in a range of a file; errors tell the offset.

use super::super::{ALIGNED, PADDING, varint};
use crate::error::{AssetError, Result};

/// A place in a range of a file.
#[derive(Clone)]
pub(super) struct Cursor<'f> {
    file: &'f [u8],
    at: usize,
    end: usize,
}

impl<'f> Cursor<'f> {
    /// The start of a file.
    pub(super) fn new(file: &'f [u8]) -> Cursor<'f> {
        Cursor { file, at: 0, end: file.len() }
    }

    /// A range of the same file, which must lie within this one.
    pub(super) fn range(&self, start: usize, len: usize) -> Cursor<'f> {
        Cursor { file: self.file, at: start, end: start + len }
    }

    /// The offset in the file.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// What is left of the range.
    pub(super) fn left(&self) -> &'f [u8] {
        &self.file[self.at..self.end]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// An error at this place.
    pub(super) fn malformed(&self, message: impl Into<String>) -> AssetError {
        AssetError::malformed(message).at_offset(self.at)
    }

    /// An error about something that is in order but unknown here.
    pub(super) fn unsupported(&self, message: impl Into<String>) -> AssetError {
        AssetError::unsupported(message).at_offset(self.at)
    }

    /// The next bytes.
    pub(super) fn bytes(&mut self, len: u64, what: &str) -> Result<&'f [u8]> {
        let left = self.left();
        match usize::try_from(len).ok().and_then(|len| left.get(..len)) {
            Some(bytes) => {
                self.at += bytes.len();
                Ok(bytes)
            }
            None => Err(self.malformed(format!("expected {len} bytes of {what}, found {}", left.len()))),
        }
    }

    /// The next bytes, as a range of their own.
    pub(super) fn part(&mut self, len: u64, what: &str) -> Result<Cursor<'f>> {
        let start = self.at;
        let len = self.bytes(len, what)?.len();
        Ok(self.range(start, len))
    }

    pub(super) fn byte(&mut self, what: &str) -> Result<u8> {
        Ok(self.bytes(1, what)?[0])
    }

    /// The next integer.
    pub(super) fn integer(&mut self, what: &str) -> Result<u64> {
        match varint::read(self.left()) {
            Ok((value, len)) => {
                self.at += len;
                Ok(value)
            }
            Err(len) => {
                let found = self.left().len();
                Err(self.malformed(format!("expected {what} of {len} bytes, found {found}")))
            }
        }
    }

    /// The next signed integer.
    pub(super) fn signed(&mut self, what: &str) -> Result<i64> {
        self.integer(what).map(varint::signed)
    }

    /// A count of things that each take at least a byte of what is left.
    pub(super) fn count(&mut self, what: &str) -> Result<usize> {
        let start = self.clone();
        let count = self.integer(&format!("the number of {what}"))?;
        start.believe(count, self.left().len(), what)
    }

    /// A count that can be true.
    pub(super) fn believe(&self, count: u64, most: usize, what: &str) -> Result<usize> {
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self.malformed(format!("expected at most {most} {what}, found {count}"))),
        }
    }

    /// The number of one of `most` things.
    pub(super) fn index(&mut self, most: usize, what: &str) -> Result<usize> {
        let start = self.clone();
        let index = self.integer(&format!("the number of {what}"))?;
        start.within(index, most, what)
    }

    /// A number that one of `most` things has.
    pub(super) fn within(&self, index: u64, most: usize, what: &str) -> Result<usize> {
        match usize::try_from(index) {
            Ok(index) if index < most => Ok(index),
            _ => Err(self.malformed(format!("expected {what} below {most}, found {index}"))),
        }
    }

    /// The next section: its id and its data.
    pub(super) fn section(&mut self) -> Result<(u8, Cursor<'f>)> {
        let id = self.byte("a section")?;
        let len = self.integer("the length of a section")?;
        if id & ALIGNED != 0 {
            let alignment = self.integer("the alignment of a section")?;
            self.align(alignment, 0)?;
        }
        Ok((id & !ALIGNED, self.part(len, "a section")?))
    }

    /// Skips padding up to a multiple of an alignment, counted from `origin`.
    pub(super) fn align(&mut self, alignment: u64, origin: usize) -> Result<()> {
        /// More than any file has; less than a page of padding is for sure a mistake of someone.
        const MOST: u64 = 1 << 16;
        if !alignment.is_power_of_two() || alignment > MOST {
            return Err(self.malformed(format!("expected an alignment of up to {MOST}, found {alignment}")));
        }
        while !((self.at - origin) as u64).is_multiple_of(alignment) {
            let start = self.clone();
            let byte = self.byte("padding")?;
            if byte != PADDING {
                return Err(start.malformed(format!("expected padding {PADDING:#04x}, found {byte:#04x}")));
            }
        }
        Ok(())
    }

    /// Refuses bytes after the last that has a meaning.
    pub(super) fn finish(&self, what: &str) -> Result<()> {
        match self.left().len() {
            0 => Ok(()),
            left => Err(self.malformed(format!("expected the end of {what}, found {left} more bytes"))),
        }
    }
}
