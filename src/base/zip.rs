//! The directory of a zip archive, read strictly: PyTorch keeps state dicts in such archives, numpy several arrays.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::text::quoted;

const END: &[u8] = b"PK\x05\x06";
const END_LEN: usize = 22;
const LONGEST_COMMENT: usize = 0xffff;
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";
const LOCATOR_64_LEN: usize = 20;
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where its bytes are in the archive, as they are stored.
    pub content: Range<usize>,
    /// How they are stored.
    pub method: Method,
    /// How many bytes it has; where it is stored as it is, as many as its content.
    pub size: u64,
    /// CRC-32 of those bytes.
    pub crc32: u32,
}

/// How the bytes of an entry are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As they are.
    Stored,
    /// By DEFLATE (RFC 1951), without a header.
    Deflated,
}

/// Why an archive cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipError(String);

impl ZipError {
    fn new(message: impl Into<String>) -> ZipError {
        ZipError(message.into())
    }
}

impl std::error::Error for ZipError {}

impl fmt::Display for ZipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Result<T> = std::result::Result<T, ZipError>;

/// The entries of an archive, by name.
pub fn entries(bytes: &[u8]) -> Result<BTreeMap<&str, Entry>> {
    let (count, mut at) = directory(bytes)?;
    let mut entries = BTreeMap::new();
    for _ in 0..count {
        let entry = Record::at(bytes, at, ENTRY)?;
        let name_len = entry.u16(28)? as usize;
        let (extra_len, comment_len) = (entry.u16(30)? as usize, entry.u16(32)? as usize);
        let name = std::str::from_utf8(entry.slice(46, name_len)?)
            .map_err(|_| ZipError::new(format!("the zip entry at byte {at} has no UTF-8 name")))?;
        let extra = entry.slice(46 + name_len, extra_len)?;
        let sizes = [entry.u32(24)?, entry.u32(20)?, entry.u32(42)?];
        let [size, stored, local] = extended(sizes, extra)?;
        let method = method(&entry, name)?;
        if method == Method::Stored && size != stored {
            let sizes = format!("has {size} bytes, {stored} of them stored");
            return Err(ZipError::new(format!("zip entry {} {sizes}", quoted(name))));
        }
        let local_at = usize::try_from(local).unwrap_or(usize::MAX);
        let header = Record::at(bytes, local_at, LOCAL)?;
        let start = local_at + 30 + header.u16(26)? as usize + header.u16(28)? as usize;
        let end = usize::try_from(stored).ok().and_then(|stored| start.checked_add(stored));
        let content = end.filter(|&end| end <= bytes.len()).map(|end| start..end).ok_or_else(|| {
            let message = format!("zip entry {} has {stored} bytes from {start} on", quoted(name));
            ZipError::new(format!("{message}, the file has {}", bytes.len()))
        })?;
        let crc32 = entry.u32(16)? as u32;
        if entries.insert(name, Entry { content, method, size, crc32 }).is_some() {
            return Err(ZipError::new(format!("zip entry {} is there twice", quoted(name))));
        }
        at += 46 + name_len + extra_len + comment_len;
    }
    Ok(entries)
}

/// How an entry is stored, if that is known here.
fn method(entry: &Record<'_>, name: &str) -> Result<Method> {
    const ENCRYPTED: u64 = 1;
    if entry.u16(8)? & ENCRYPTED != 0 {
        return Err(ZipError::new(format!("zip entry {} is encrypted", quoted(name))));
    }
    match entry.u16(10)? {
        0 => Ok(Method::Stored),
        8 => Ok(Method::Deflated),
        other => {
            let message = format!("zip entry {} is compressed by method {other}", quoted(name));
            Err(ZipError::new(format!("{message}; stored (0) and deflated (8) entries are read")))
        }
    }
}

/// Number of entries and place of the first.
fn directory(bytes: &[u8]) -> Result<(u64, usize)> {
    let tail = bytes.len().saturating_sub(END_LEN + LONGEST_COMMENT);
    let at = bytes[tail..]
        .windows(END.len())
        .rposition(|window| window == END)
        .map(|at| tail + at)
        .ok_or_else(|| ZipError::new("is a zip archive without an end: it may be cut off"))?;
    let end = Record::at(bytes, at, END)?;
    end.slice(END_LEN, end.u16(20)? as usize)?;
    let (mut count, mut start) = (end.u16(10)?, end.u32(16)?);
    let locator = at.checked_sub(LOCATOR_64_LEN).and_then(|at| Record::at(bytes, at, LOCATOR_64).ok());
    if let Some(locator) = locator {
        let at = usize::try_from(locator.u64(8)?).unwrap_or(usize::MAX);
        let end = Record::at(bytes, at, END_64)?;
        (count, start) = (end.u64(32)?, end.u64(48)?);
    }
    Ok((count, usize::try_from(start).unwrap_or(usize::MAX)))
}

/// Sizes and offset, those that do not fit 32 bits from the extra field.
fn extended(values: [u64; 3], mut extra: &[u8]) -> Result<[u64; 3]> {
    const FULL: u64 = 0xffff_ffff;
    const ZIP_64: u64 = 1;
    if !values.contains(&FULL) {
        return Ok(values);
    }
    while !extra.is_empty() {
        let field = Record { bytes: extra };
        let (id, len) = (field.u16(0)?, field.u16(2)? as usize);
        let content = Record { bytes: field.slice(4, len)? };
        if id == ZIP_64 {
            let mut values = values;
            for (i, value) in values.iter_mut().filter(|value| **value == FULL).enumerate() {
                *value = content.u64(8 * i)?;
            }
            return Ok(values);
        }
        extra = &extra[4 + len..];
    }
    Ok(values)
}

/// Numbers at offsets of a record.
struct Record<'a> {
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    fn at(bytes: &'a [u8], at: usize, signature: &[u8]) -> Result<Record<'a>> {
        match bytes.get(at..) {
            Some(bytes) if bytes.starts_with(signature) => Ok(Record { bytes }),
            _ => Err(ZipError::new(format!("has no zip record at byte {at}, where one must be"))),
        }
    }

    fn slice(&self, at: usize, len: usize) -> Result<&'a [u8]> {
        self.bytes.get(at..at + len).ok_or_else(|| ZipError::new("has a zip record that is cut off"))
    }

    fn number(&self, at: usize, len: usize) -> Result<u64> {
        Ok(self.slice(at, len)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn u16(&self, at: usize) -> Result<u64> {
        self.number(at, 2)
    }

    fn u32(&self, at: usize) -> Result<u64> {
        self.number(at, 4)
    }

    fn u64(&self, at: usize) -> Result<u64> {
        self.number(at, 8)
    }
}
