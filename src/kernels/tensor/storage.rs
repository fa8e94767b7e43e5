//! Bytes that are shared, read-only, and either owned or mapped from a file; and aligned scratch memory.
//!
//! This is one of the crate's unsafe islands: it maps files and hands pages back to the system.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::{Mmap, MmapMut, UncheckedAdvice};

/// A cheap, cloneable handle on a run of immutable bytes.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<Owner>,
    range: Range<usize>,
}

enum Owner {
    Heap(AlignedBuf),
    Map(Mmap),
}

impl Owner {
    fn as_slice(&self) -> &[u8] {
        match self {
            Owner::Heap(buffer) => buffer,
            Owner::Map(map) => map,
        }
    }
}

impl Bytes {
    /// Maps a whole file. An empty file gives empty bytes.
    ///
    /// The file must not be truncated while mapped: the system then ends the process on access.
    pub fn map(file: &File) -> io::Result<Bytes> {
        let len = file.metadata()?.len();
        if len == 0 {
            return Ok(Bytes::from(Vec::new()));
        }
        // SAFETY: the map is read-only and private to this process; truncation by others ends the process
        // rather than giving invalid references, and every reader treats the content as untrusted.
        let map = unsafe { Mmap::map(file)? };
        let range = 0..map.len();
        Ok(Bytes { owner: Arc::new(Owner::Map(map)), range })
    }

    /// A part of these bytes that shares their memory, or `None` if it lies outside.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Bytes { owner: self.owner.clone(), range: start..start + range.len() })
    }

    /// Whether both handles are the same run of the same memory.
    pub fn is_same_memory(&self, other: &Bytes) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner) && self.range == other.range
    }

    /// Lets the system drop the resident pages of a mapped range, and of what lies just before it; later reads
    /// load them again.
    pub fn release(&self, range: Range<usize>) {
        const PAGE: usize = 4096;
        // A fault may map everything around it up to this size, also what was released before.
        const FOLIO: usize = 2 << 20;
        let Owner::Map(map) = &*self.owner else { return };
        let start = (self.range.start + range.start) / FOLIO * FOLIO;
        let end = (self.range.start + range.end.min(self.len())) / PAGE * PAGE;
        if start < end {
            // SAFETY: the mapping is read-only and file-backed, so dropped pages come back with the same
            // content; a refusal only costs memory and is not an error.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.owner.as_slice()[self.range.clone()]
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::from(AlignedBuf::from_slice(&bytes))
    }
}

impl From<AlignedBuf> for Bytes {
    fn from(buffer: AlignedBuf) -> Bytes {
        let range = 0..buffer.len();
        Bytes { owner: Arc::new(Owner::Heap(buffer)), range }
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({})", self.len())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self.is_same_memory(other) || **self == **other
    }
}

/// Cache-line-aligned, growable, zero-initialised bytes.
#[derive(Clone, Default)]
pub struct AlignedBuf {
    memory: Memory,
    len: usize,
}

impl AlignedBuf {
    /// A zeroed buffer of `len` bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let mut buffer = AlignedBuf::default();
        buffer.resize(len);
        buffer
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> AlignedBuf {
        let mut buffer = AlignedBuf::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Changes the length; capacity never shrinks, so repeated use of the same sizes allocates once.
    pub fn resize(&mut self, len: usize) {
        self.memory.reserve(len);
        self.len = len;
    }

    /// Gives the memory back and has no bytes then, unless it is so little that keeping it costs nothing.
    pub fn release(&mut self) {
        if self.memory.as_slice().len() > LITTLE {
            *self = AlignedBuf::default();
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.as_slice()[..self.len]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_mut_slice()[..self.len]
    }
}

/// Where the bytes of a buffer are.
enum Memory {
    Lines(Vec<CacheLine>),
    /// Many bytes, which the system gets back as soon as they are dropped, in pages as large as it has them: a KV cache
    /// is read in short pieces all over it, and finding thousands of small pages takes longer than reading what
    /// is in them.
    Pages(MmapMut),
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// Bytes that are not worth giving back.
const LITTLE: usize = 1 << 16;
/// Bytes from which a buffer has pages of its own.
const OWN_PAGES: usize = 1 << 18;
/// Size of a large page.
const LARGE_PAGE: usize = 2 << 20;

impl Memory {
    fn zeroed(len: usize) -> Memory {
        match own_pages(len) {
            Some(pages) => Memory::Pages(pages),
            None => Memory::Lines(vec![CacheLine([0; 64]); len.div_ceil(size_of::<CacheLine>())]),
        }
    }

    /// Makes room for so many bytes; new ones are zero.
    fn reserve(&mut self, len: usize) {
        let here = self.as_slice();
        if len > here.len() {
            let mut grown = Memory::zeroed(len);
            grown.as_mut_slice()[..here.len()].copy_from_slice(here);
            *self = grown;
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice(lines),
            Memory::Pages(pages) => pages,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice_mut(lines),
            Memory::Pages(pages) => pages,
        }
    }
}

/// Zeroed pages for so many bytes, if that is many and the system gives them.
fn own_pages(len: usize) -> Option<MmapMut> {
    if len < OWN_PAGES || cfg!(miri) {
        return None;
    }
    let unit = if len < LARGE_PAGE { size_of::<CacheLine>() } else { LARGE_PAGE };
    let pages = MmapMut::map_anon(len.checked_next_multiple_of(unit)?).ok()?;
    // Not of the last one, which may be needed in part. A refusal only costs time and is not an error.
    #[cfg(target_os = "linux")]
    if len >= LARGE_PAGE {
        let _ = pages.advise_range(memmap2::Advice::HugePage, 0, len / LARGE_PAGE * LARGE_PAGE);
    }
    Some(pages)
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Lines(Vec::new())
    }
}

impl Clone for Memory {
    fn clone(&self) -> Memory {
        let mut copy = Memory::zeroed(self.as_slice().len());
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn mapped_bytes_survive_release() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&content).unwrap();
        let bytes = Bytes::map(&file).unwrap();
        assert_eq!(*bytes, content[..]);
        bytes.release(0..bytes.len());
        assert_eq!(*bytes, content[..]);
        assert!(bytes.slice(19_000..20_001).is_none());
        assert_eq!(*bytes.slice(5..9).unwrap(), content[5..9]);
    }

    #[test]
    fn buffers_are_aligned_and_keep_their_capacity() {
        let mut buffer = AlignedBuf::zeroed(100);
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        let before = buffer.as_ptr();
        buffer.resize(10);
        buffer.resize(100);
        assert_eq!(before, buffer.as_ptr());
    }

    #[test]
    fn only_much_is_given_back() {
        let [mut little, mut much] = [LITTLE, LITTLE + 1].map(AlignedBuf::zeroed);
        little.release();
        much.release();
        assert_eq!((little.len(), much.len()), (LITTLE, 0));
        much.resize(3);
        assert_eq!(*much, [0; 3]);
    }

    #[test]
    fn growing_keeps_what_is_there_and_adds_zeros() {
        let mut buffer = AlignedBuf::from_slice(&[7; 100]);
        for len in [OWN_PAGES - 1, OWN_PAGES, LARGE_PAGE - 1, LARGE_PAGE, LARGE_PAGE + 1, 3 * LARGE_PAGE] {
            buffer.resize(len);
            assert_eq!(buffer.as_ptr() as usize % 64, 0);
            assert!(
                buffer[..100].iter().all(|&byte| byte == 7) && buffer[100..].iter().all(|&byte| byte == 0)
            );
        }
        let copy = buffer.clone();
        assert!(copy.len() == buffer.len() && *copy == *buffer);
    }
}
