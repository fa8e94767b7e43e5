//! Writing a weight file in one pass, with equal blobs stored once (content-addressed by XXH3-128).
//!
//! ```text
//! address in memory -> hash of samples -> hash of all bytes -> bytes       each step only if the one before is known
//! ```
//!
//! A streamed blob has no bytes to look at beforehand: it is written, and cut off again if it turns out to be known.

use std::collections::HashMap;
use std::io::{self, Write};

use xxhash_rust::xxh3::Xxh3;

use super::finite::FiniteCheck;
use super::sample::Sampler;
use super::{SENTINEL, Sink, UNIT, VERSION, padding_bits};
use crate::Payload;
use crate::package::schema;
use anemeter_kernels::tensor::{Bytes, DType};

/// The most that is resident of a mapped source, and twice the most that is read back at a time.
const CHUNK: usize = 8 << 20;

/// A weight file in the making.
pub(in crate::package) struct BlobWriter<'s> {
    sink: &'s mut dyn Sink,
    len: u64,
    blobs: u32,
    deduplicated: usize,
    /// Blobs by where they are in memory, which stays as it is while a model is being written.
    by_memory: HashMap<(Kind, usize), u64>,
    by_sample: HashMap<(Kind, u128), Vec<WrittenBlob>>,
    digest: Xxh3,
}

struct WrittenBlob {
    offset: u64,
    /// Hash of all of it.
    hash: u128,
}

/// Where bytes are that may be stored already.
#[derive(Clone, Copy)]
enum BlobSource<'a> {
    Memory(&'a Bytes),
    /// At the given offset of the file.
    File(u64),
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
            by_sample: HashMap::new(),
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
            None => {
                let sample = Sampler::hash(bytes);
                let place = BlobSource::Memory(bytes);
                let known = match self.by_sample.contains_key(&(kind, sample)) {
                    true => {
                        let hash = full_hash(self.sink, place, kind.len)?;
                        self.find(kind, sample, hash, place)?
                    }
                    false => None,
                };
                match known {
                    Some(offset) => self.share(offset),
                    None => self.append(kind, sample, bytes)?,
                }
            }
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
        // A payload without size has no memory of its own that would tell it from others.
        let place = (size_of_val(payload) > 0).then(|| (kind, std::ptr::from_ref(payload).addr()));
        if let Some(&offset) = place.and_then(|place| self.by_memory.get(&place)) {
            return Ok(self.share(offset));
        }
        let offset = self.put_new_stream(kind, payload)?;
        self.by_memory.extend(place.map(|place| (place, offset)));
        Ok(offset)
    }

    fn put_new_stream(&mut self, kind: Kind, payload: &dyn Payload) -> io::Result<u64> {
        let before = self.len;
        let offset = self.begin(kind)?;
        let sampler = Sampler::new(kind.len);
        let finite = FiniteCheck::new(kind.dtype);
        let mut stream = Stream { sink: &mut *self.sink, left: kind.len, sampler, hash: Xxh3::new(), finite };
        payload.write_to(&mut stream)?;
        if let Some(element) = stream.finite.found() {
            let message = format!("element {element} of a weight is infinite or no number");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if stream.left > 0 {
            let written = kind.len - stream.left;
            return Err(io::Error::other(format!("a weight of {} bytes gave only {written}", kind.len)));
        }
        let (sample, hash) = (stream.sampler.digest(), stream.hash.digest128());
        if let Some(earlier) = self.find(kind, sample, hash, BlobSource::File(offset + UNIT as u64))? {
            self.sink.truncate(before)?;
            return Ok(self.share(earlier));
        }
        self.end(kind, sample, WrittenBlob { offset, hash })
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

    /// The offset of a stored blob with the same bytes.
    fn find(
        &mut self,
        kind: Kind,
        sample: u128,
        hash: u128,
        place: BlobSource<'_>,
    ) -> io::Result<Option<u64>> {
        for stored in self.by_sample.get(&(kind, sample)).into_iter().flatten() {
            let data = stored.offset + UNIT as u64;
            if stored.hash == hash && is_equal(self.sink, place, data, kind.len)? {
                return Ok(Some(stored.offset));
            }
        }
        Ok(None)
    }

    fn append(&mut self, kind: Kind, sample: u128, bytes: &Bytes) -> io::Result<u64> {
        let offset = self.begin(kind)?;
        let mut hash = Xxh3::new();
        each_chunk(self.sink, BlobSource::Memory(bytes), kind.len, |sink, chunk| {
            hash.update(chunk);
            sink.append(chunk)
        })?;
        self.end(kind, sample, WrittenBlob { offset, hash: hash.digest128() })
    }

    /// Starts a blob at the end of the file.
    fn begin(&mut self, kind: Kind) -> io::Result<u64> {
        let offset = self.len.next_multiple_of(UNIT as u64).max(UNIT as u64);
        let gap = [0; UNIT];
        self.sink.append(&gap[..(offset - self.len) as usize])?;
        self.sink.append(&record(kind, offset)?)?;
        Ok(offset)
    }

    fn end(&mut self, kind: Kind, sample: u128, stored: WrittenBlob) -> io::Result<u64> {
        let offset = stored.offset;
        self.len = offset + UNIT as u64 + kind.len;
        self.blobs = self.blobs.checked_add(1).ok_or_else(|| io::Error::other("too many weights"))?;
        self.digest.update(&stored.hash.to_le_bytes());
        self.by_sample.entry((kind, sample)).or_default().push(stored);
        Ok(offset)
    }
}

/// Hands over the bytes of a place in chunks, and lets go of what is mapped.
fn each_chunk(
    sink: &mut dyn Sink,
    place: BlobSource<'_>,
    len: u64,
    mut take: impl FnMut(&mut dyn Sink, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match place {
        BlobSource::Memory(bytes) => {
            for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
                take(sink, chunk)?;
                let start = index * CHUNK;
                bytes.release(start..start + chunk.len());
            }
        }
        BlobSource::File(offset) => {
            let mut buffer = vec![0; len.min(CHUNK as u64 / 2) as usize];
            let mut done = 0;
            while done < len {
                let chunk = &mut buffer[..(len - done).min(CHUNK as u64 / 2) as usize];
                sink.read_at(offset + done, chunk)?;
                take(sink, chunk)?;
                done += chunk.len() as u64;
            }
        }
    }
    Ok(())
}

fn full_hash(sink: &mut dyn Sink, place: BlobSource<'_>, len: u64) -> io::Result<u128> {
    let mut hash = Xxh3::new();
    each_chunk(sink, place, len, |_, chunk| {
        hash.update(chunk);
        Ok(())
    })?;
    Ok(hash.digest128())
}

/// Whether the bytes of a place are those at an offset of the file.
fn is_equal(sink: &mut dyn Sink, place: BlobSource<'_>, mut offset: u64, len: u64) -> io::Result<bool> {
    let mut equal = true;
    let mut stored = Vec::new();
    each_chunk(sink, place, len, |sink, chunk| {
        stored.resize(chunk.len(), 0);
        sink.read_at(offset, &mut stored)?;
        offset += chunk.len() as u64;
        equal &= stored == chunk;
        Ok(())
    })?;
    Ok(equal)
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
struct Stream<'s> {
    sink: &'s mut dyn Sink,
    left: u64,
    sampler: Sampler,
    hash: Xxh3,
    finite: FiniteCheck,
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::other("a weight gave more bytes than it announced"));
        };
        self.left = left;
        self.sampler.update(bytes);
        self.hash.update(bytes);
        self.finite.update(bytes);
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

#[cfg(test)]
mod tests {
    use super::super::FileSink;
    use super::*;

    struct Zeros {
        announced: u64,
        written: u64,
    }

    impl Payload for Zeros {
        fn byte_len(&self) -> u64 {
            self.announced
        }

        fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
            (0..self.written).try_for_each(|_| out.write_all(&[0]))
        }
    }

    #[test]
    fn the_layout_is_the_formats() {
        let mut file = Vec::new();
        let mut writer = BlobWriter::new(&mut file);
        let int4 = Bytes::from(vec![0x78, 0xf1, 0x03]);
        assert_eq!(writer.put(DType::I4, 5, &int4).unwrap(), 64);
        assert_eq!(writer.put(DType::F16, 2, &Bytes::from(vec![1, 2, 3, 4])).unwrap(), 192);
        let written = writer.finish().unwrap();
        assert_eq!((written.bytes, written.blobs), (260, 2));
        assert_eq!(file.len(), 260);
        assert_eq!(file[..8], [2, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(file[64..72], [0xef, 0xbe, 0xad, 0xde, 8, 0, 0, 0]);
        assert_eq!(file[72..96], [3, 0, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(file[128..131], [0x78, 0xf1, 0x03]);
        assert_eq!(file[256..], [1, 2, 3, 4]);
        assert!(file[131..192].iter().all(|&b| b == 0));
    }

    #[test]
    fn equal_blobs_are_stored_once_wherever_they_come_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weight.bin");
        let mut on_disk = FileSink::new(&path, &());
        let mut in_memory = Vec::new();
        for sink in [&mut on_disk as &mut dyn Sink, &mut in_memory] {
            let mut writer = BlobWriter::new(sink);
            let len = 200_000usize;
            let zeros = Bytes::from(vec![0; len]);
            let first = writer.put(DType::U8, len, &zeros).unwrap();
            assert_eq!(writer.put(DType::U8, len, &zeros).unwrap(), first);
            // Kept, as memory is while a model is written: other bytes must not come to lie where it was.
            let copy = Bytes::from(vec![0; len]);
            assert_eq!(writer.put(DType::U8, len, &copy).unwrap(), first);
            let stream = Zeros { announced: len as u64, written: len as u64 };
            assert_eq!(writer.put_stream(DType::U8, len, &stream).unwrap(), first);
            // Between two samples, so that only all of the bytes tell them apart.
            let mut other = vec![0; len];
            other[5000] = 1;
            let second = writer.put(DType::U8, len, &Bytes::from(other)).unwrap();
            assert_eq!(second, (first + 64 + len as u64).next_multiple_of(64));
            let third = writer.put(DType::I8, len, &zeros).unwrap();
            assert!(third > second);
            // Five and six elements take three bytes, but leave different bits unused.
            let small = Bytes::from(vec![0; 3]);
            assert_ne!(writer.put(DType::U4, 5, &small).unwrap(), writer.put(DType::U4, 6, &small).unwrap());
            let written = writer.finish().unwrap();
            assert_eq!((written.blobs, written.deduplicated), (5, 3));
        }
        on_disk.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), in_memory);
    }

    #[test]
    fn a_stream_that_several_constants_share_is_produced_once() {
        struct Counted(std::sync::atomic::AtomicU32);
        impl Payload for Counted {
            fn byte_len(&self) -> u64 {
                4
            }

            fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                out.write_all(&[1, 2, 3, 4])
            }
        }
        let mut file = Vec::new();
        let mut writer = BlobWriter::new(&mut file);
        let counted = Counted(0.into());
        for _ in 0..3 {
            assert_eq!(writer.put_stream(DType::F16, 2, &counted).unwrap(), 64);
        }
        assert_eq!(writer.finish().unwrap().deduplicated, 2);
        assert_eq!(counted.0.into_inner(), 1);
    }

    #[test]
    fn streams_of_the_wrong_length_are_refused() {
        let (less, more) = ("a weight of 10 bytes gave only 9", "more bytes than it announced");
        for (written, expected) in [(9, less), (11, more)] {
            let stream = Zeros { announced: 10, written };
            let error = BlobWriter::new(&mut Vec::new()).put_stream(DType::U8, 10, &stream).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
