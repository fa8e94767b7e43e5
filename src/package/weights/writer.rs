//! Writing a weight file in one pass, with equal blobs stored once.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{SENTINEL, Sink, UNIT, VERSION, padding_bits};
use crate::mil::Payload;
use crate::package::schema;
use crate::tensor::{Bytes, DType};

/// The most that is read, hashed or written at a time.
const CHUNK: usize = 8 << 20;
/// How much of a blob is compared before it is written at all.
const HEAD: usize = 4096;

/// A weight file in the making.
pub(in crate::package) struct BlobWriter<'s> {
    sink: &'s mut dyn Sink,
    len: u64,
    blobs: u32,
    deduplicated: usize,
    /// Blobs by where they are in memory, which stays as it is while a model is being written.
    by_memory: HashMap<(Kind, usize), u64>,
    /// Hashes of the first bytes of every blob.
    heads: HashSet<(Kind, u128)>,
    by_content: HashMap<(Kind, u128), u64>,
    digest: Xxh3,
}

/// What the records of equal blobs have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    dtype: DType,
    padding: u64,
    len: u64,
}

impl<'s> BlobWriter<'s> {
    /// A writer into an empty sink.
    pub(in crate::package) fn new(sink: &'s mut dyn Sink) -> BlobWriter<'s> {
        BlobWriter {
            sink,
            len: 0,
            blobs: 0,
            deduplicated: 0,
            by_memory: HashMap::new(),
            heads: HashSet::new(),
            by_content: HashMap::new(),
            digest: Xxh3::new(),
        }
    }

    /// Stores the bytes of `elements` of a type and tells the offset that a program names them by.
    pub(in crate::package) fn put(
        &mut self,
        dtype: DType,
        elements: usize,
        bytes: &Bytes,
    ) -> io::Result<u64> {
        let kind = kind(dtype, elements, bytes.len() as u64);
        let place = (kind, bytes.as_ptr() as usize);
        let offset = match self.by_memory.get(&place) {
            Some(&offset) => self.share(offset),
            None => match self.find_before_writing(kind, bytes)? {
                Some(offset) => self.share(offset),
                None => self.append(kind, &mut |out| out.write_bytes(bytes))?,
            },
        };
        self.by_memory.insert(place, offset);
        Ok(offset)
    }

    /// As [`put`](BlobWriter::put), for bytes that are produced on the way.
    pub(in crate::package) fn put_stream(
        &mut self,
        dtype: DType,
        elements: usize,
        payload: &dyn Payload,
    ) -> io::Result<u64> {
        let kind = kind(dtype, elements, payload.byte_len());
        self.append(kind, &mut |out| payload.write_to(out))
    }

    /// Completes the file. An empty one has no header either.
    pub(in crate::package) fn finish(self) -> io::Result<Written> {
        if self.blobs > 0 {
            let mut header = [0; UNIT];
            header[..4].copy_from_slice(&self.blobs.to_le_bytes());
            header[4..8].copy_from_slice(&VERSION.to_le_bytes());
            self.sink.replace_start(&header)?;
        }
        Ok(Written {
            bytes: self.len,
            blobs: self.blobs as usize,
            deduplicated: self.deduplicated,
            digest: self.digest.digest128(),
        })
    }

    fn share(&mut self, offset: u64) -> u64 {
        self.deduplicated += 1;
        offset
    }

    /// An equal blob, if one that starts the same makes it worth looking at all of the bytes first.
    fn find_before_writing(&mut self, kind: Kind, bytes: &Bytes) -> io::Result<Option<u64>> {
        let head = xxh3_128(&bytes[..bytes.len().min(HEAD)]);
        if !self.heads.contains(&(kind, head)) {
            return Ok(None);
        }
        let mut hash = Xxh3::new();
        for (start, chunk) in chunks(bytes) {
            hash.update(chunk);
            bytes.release(start..start + chunk.len());
        }
        let Some(&offset) = self.by_content.get(&(kind, hash.digest128())) else { return Ok(None) };
        let mut stored = vec![0; bytes.len().min(CHUNK)];
        for (start, chunk) in chunks(bytes) {
            let stored = &mut stored[..chunk.len()];
            self.sink.read_at(offset + UNIT as u64 + start as u64, stored)?;
            if stored != chunk {
                return Ok(None);
            }
            bytes.release(start..start + chunk.len());
        }
        Ok(Some(offset))
    }

    /// Adds a blob at the end, or takes it back if an equal one turns out to be there.
    fn append(
        &mut self,
        kind: Kind,
        write: &mut dyn FnMut(&mut BlobData<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let before = self.len;
        let offset = before.next_multiple_of(UNIT as u64).max(UNIT as u64);
        self.sink.append(&vec![0; (offset - before) as usize])?;
        self.sink.append(&record(kind, offset)?)?;
        let mut data = BlobData {
            sink: &mut *self.sink,
            left: kind.len,
            hash: Xxh3::new(),
            head: Vec::with_capacity(HEAD.min(kind.len as usize)),
        };
        write(&mut data)?;
        if data.left > 0 {
            let written = kind.len - data.left;
            return Err(io::Error::other(format!("a weight of {} bytes gave only {written}", kind.len)));
        }
        let (hash, head) = (data.hash.digest128(), xxh3_128(&data.head));
        let earlier = self.by_content.get(&(kind, hash)).copied();
        if let Some(earlier) = earlier
            && self.is_equal(earlier, offset, kind.len)?
        {
            self.sink.truncate(before)?;
            return Ok(self.share(earlier));
        }
        self.len = offset + UNIT as u64 + kind.len;
        self.blobs = self.blobs.checked_add(1).ok_or_else(|| io::Error::other("too many weights"))?;
        self.by_content.insert((kind, hash), offset);
        self.heads.insert((kind, head));
        self.digest.update(&hash.to_le_bytes());
        Ok(offset)
    }

    fn is_equal(&mut self, a: u64, b: u64, len: u64) -> io::Result<bool> {
        let size = len.min(CHUNK as u64 / 2);
        let (mut left, mut right) = (vec![0; size as usize], vec![0; size as usize]);
        let mut done = 0;
        while done < len {
            let size = size.min(len - done) as usize;
            self.sink.read_at(a + UNIT as u64 + done, &mut left[..size])?;
            self.sink.read_at(b + UNIT as u64 + done, &mut right[..size])?;
            if left[..size] != right[..size] {
                return Ok(false);
            }
            done += size as u64;
        }
        Ok(true)
    }
}

/// What a weight file came to.
pub(in crate::package) struct Written {
    pub(in crate::package) bytes: u64,
    pub(in crate::package) blobs: usize,
    /// References to blobs that were there already.
    pub(in crate::package) deduplicated: usize,
    /// A hash of all blobs in order.
    pub(in crate::package) digest: u128,
}

/// The data of one blob on its way into the sink.
struct BlobData<'s> {
    sink: &'s mut dyn Sink,
    left: u64,
    hash: Xxh3,
    head: Vec<u8>,
}

impl BlobData<'_> {
    fn write_bytes(&mut self, bytes: &Bytes) -> io::Result<()> {
        for (start, chunk) in chunks(bytes) {
            self.write_all(chunk)?;
            bytes.release(start..start + chunk.len());
        }
        Ok(())
    }
}

impl Write for BlobData<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::other(format!(
                "a weight gave at least {} bytes too many",
                bytes.len() as u64 - self.left
            )));
        };
        self.left = left;
        let head = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..head]);
        self.hash.update(bytes);
        self.sink.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn kind(dtype: DType, elements: usize, len: u64) -> Kind {
    Kind { dtype, padding: padding_bits(dtype.bits(), elements), len }
}

fn record(kind: Kind, offset: u64) -> io::Result<[u8; UNIT]> {
    let Some(code) = schema::blob_code(kind.dtype) else {
        return Err(io::Error::other(format!("{} cannot be in a weight file", kind.dtype)));
    };
    let mut record = [0; UNIT];
    record[..4].copy_from_slice(&SENTINEL.to_le_bytes());
    record[4..8].copy_from_slice(&code.to_le_bytes());
    record[8..16].copy_from_slice(&kind.len.to_le_bytes());
    record[16..24].copy_from_slice(&(offset + UNIT as u64).to_le_bytes());
    record[24..32].copy_from_slice(&kind.padding.to_le_bytes());
    Ok(record)
}

/// Consecutive chunks with where they start.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes.chunks(CHUNK).enumerate().map(|(i, chunk)| (i * CHUNK, chunk))
}
