//! Reading weight files: only the records that a program refers to are looked at, the data stays in the map. Records and
//! data of a file must not overlap, so that a small file cannot stand for large tensors.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use super::{PREFIX, SENTINEL, UNIT, VERSION, padding_bits};
use crate::TensorType;
use crate::package::error::{ErrorKind, PackageError, Result, quoted};
use crate::package::files::Files;
use crate::package::schema;
use anemeter_kernels::tensor::{Bytes, DType};

/// The weight files that a program may refer to.
#[derive(Debug)]
pub struct WeightFiles {
    files: Files,
    folder: PathBuf,
}

impl WeightFiles {
    /// Weight files in memory, by name, such as `weight.bin`.
    pub fn in_memory(files: impl IntoIterator<Item = (String, Bytes)>) -> WeightFiles {
        let files = files.into_iter().map(|(name, bytes)| (PathBuf::from(name), bytes));
        WeightFiles { files: Files::Memory(files.collect()), folder: PathBuf::new() }
    }

    /// The files of a folder of a package, mapped when they are first referred to.
    pub(in crate::package) fn in_folder(files: Files, folder: PathBuf) -> WeightFiles {
        WeightFiles { files, folder }
    }
}

/// A weight file as far as a program refers to it.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightFile {
    /// Its name in the weights folder.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// How many blobs its header announces.
    pub announced: u32,
    /// The blobs that the program refers to, by offset.
    pub blobs: Vec<BlobInfo>,
}

/// A blob that a program refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct BlobInfo {
    /// Offset of its record, which is how programs name it.
    pub offset: u64,
    /// Its element type.
    pub dtype: DType,
    /// Where its data starts.
    pub data: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// How many constants refer to it.
    pub references: usize,
}

/// Resolves references into weight files.
pub(in crate::package) struct BlobReader<'w> {
    files: &'w WeightFiles,
    open: BTreeMap<String, OpenFile>,
}

struct OpenFile {
    path: PathBuf,
    bytes: Bytes,
    announced: u32,
    blobs: BTreeMap<u64, Blob>,
}

struct Blob {
    record: Record,
    references: usize,
}

/// A checked record: its data is inside the file.
#[derive(Clone, Copy)]
struct Record {
    dtype: DType,
    start: usize,
    len: usize,
    /// Bits of padding; `None` where the field means nothing.
    padding: Option<u64>,
}

impl<'w> BlobReader<'w> {
    pub(in crate::package) fn new(files: &'w WeightFiles) -> BlobReader<'w> {
        BlobReader { files, open: BTreeMap::new() }
    }

    /// The data of a constant of the given type and element count.
    pub(in crate::package) fn read(
        &mut self,
        file: &str,
        offset: u64,
        ty: &TensorType,
        elements: usize,
    ) -> Result<Bytes> {
        let name = file_name(file)?;
        let opened = match self.open.entry(name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (path, bytes) = self.files.files.map(&self.files.folder.join(name))?;
                let announced = header(&bytes).map_err(|e| e.in_file(&path))?;
                entry.insert(OpenFile { path, bytes, announced, blobs: BTreeMap::new() })
            }
        };
        opened.read(offset, ty, elements).map_err(|e| e.in_file(&opened.path).at_offset(offset))
    }

    /// Checks that blobs do not overlap and are no more than announced, and tells what was referred to.
    pub(in crate::package) fn finish(self) -> Result<Vec<WeightFile>> {
        self.open.into_iter().map(|(name, file)| file.finish(name)).collect()
    }
}

impl OpenFile {
    fn read(&mut self, offset: u64, ty: &TensorType, elements: usize) -> Result<Bytes> {
        let record = match self.blobs.get(&offset) {
            Some(blob) => blob.record,
            None => record(&self.bytes, offset)?,
        };
        if record.dtype != ty.dtype {
            return Err(weights_error(format!("blob holds {}, the program declares {ty}", record.dtype)));
        }
        if ty.dtype.byte_len(elements) != Some(record.len) {
            return Err(weights_error(format!("blob has {} bytes, the program declares {ty}", record.len)));
        }
        let padding = padding_bits(ty.dtype.bits(), elements);
        if record.padding.is_some_and(|found| found != padding) {
            let found = record.padding.unwrap_or_default();
            return Err(weights_error(format!("blob has {found} padding bits, {ty} leaves {padding}")));
        }
        self.blobs.entry(offset).or_insert(Blob { record, references: 0 }).references += 1;
        let data = self.bytes.slice(record.start..record.start + record.len);
        data.ok_or_else(|| weights_error("blob lies outside the file"))
    }

    fn finish(self, name: String) -> Result<WeightFile> {
        if self.blobs.len() as u64 > u64::from(self.announced) {
            let (found, announced) = (self.blobs.len(), self.announced);
            let text = format!("header announces {announced} blobs, the program refers to {found}");
            return Err(weights_error(text).in_file(&self.path));
        }
        self.check_overlap()?;
        let blobs = self.blobs.iter().map(|(&offset, blob)| BlobInfo {
            offset,
            dtype: blob.record.dtype,
            data: blob.record.start as u64,
            bytes: blob.record.len as u64,
            references: blob.references,
        });
        let blobs = blobs.collect();
        let bytes = self.bytes.len() as u64;
        Ok(WeightFile { name, path: self.path, bytes, announced: self.announced, blobs })
    }

    /// Records and data, in the order of their offsets, must not run into one another.
    fn check_overlap(&self) -> Result<()> {
        let runs = self.blobs.iter().flat_map(|(&offset, Blob { record, .. })| {
            [(offset, UNIT as u64, offset), (record.start as u64, record.len as u64, offset)]
        });
        let mut runs: Vec<(u64, u64, u64)> = runs.filter(|run| run.1 > 0).collect();
        runs.sort_unstable();
        match runs.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            Some(pair) => {
                let (a, b) = (pair[0].2.min(pair[1].2), pair[0].2.max(pair[1].2));
                Err(weights_error(format!("the blobs at bytes {a} and {b} overlap")).in_file(&self.path))
            }
            None => Ok(()),
        }
    }
}

fn weights_error(message: impl Into<String>) -> PackageError {
    PackageError::new(ErrorKind::Weights, message)
}

/// The bare name of a weight file, which must not lead anywhere else.
fn file_name(file: &str) -> Result<&str> {
    match file.strip_prefix(PREFIX) {
        Some(name) if !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0']) => Ok(name),
        _ => Err(PackageError::new(
            ErrorKind::Path,
            format!("weight file {} is not a file directly in {PREFIX}", quoted(file)),
        )),
    }
}

/// The number of blobs that the header announces.
fn header(bytes: &[u8]) -> Result<u32> {
    let (Some(header), Some(count), Some(version)) = (bytes.get(..UNIT), u32_at(bytes, 0), u32_at(bytes, 4))
    else {
        return Err(weights_error(format!("has {} bytes, too few for the {UNIT}-byte header", bytes.len())));
    };
    fail_if!(version != VERSION, weights_error("has format version {version}, supported is {VERSION}"));
    match header[8..].iter().all(|&b| b == 0) {
        true => Ok(count),
        false => Err(weights_error("has data in the reserved part of its header")),
    }
}

fn record(bytes: &Bytes, offset: u64) -> Result<Record> {
    let size = bytes.len();
    let at = usize::try_from(offset).ok().filter(|at| at % UNIT == 0 && *at >= UNIT);
    let Some(at) = at else {
        return Err(weights_error(format!("a blob offset must be a multiple of {UNIT} behind the header")));
    };
    let Some(raw) = at.checked_add(UNIT).and_then(|end| bytes.get(at..end)) else {
        return Err(weights_error(format!("blob offset lies outside the file of {size} bytes")));
    };
    let (u32s, u64s) = (|at| u32_at(raw, at).unwrap_or(0), |at| u64_at(raw, at).unwrap_or(0));
    if u32s(0) != SENTINEL {
        return Err(weights_error(format!(
            "blob record starts with {:#010x}, not {SENTINEL:#010x}",
            u32s(0)
        )));
    }
    let Some(dtype) = schema::blob_dtype(u32s(4)) else {
        return Err(weights_error(format!("blob has the unknown data type code {}", u32s(4))));
    };
    let (len, start, padding) = (u64s(8), u64s(16), u64s(24));
    // coremltools before 8 left the padding and reserved fields uninitialised; they came to mean something with the
    // types of less than a byte (coremltools, MILBlob/Blob/StorageFormat.hpp).
    let padding = (dtype.bits() < 8).then_some(padding);
    let has_data = raw[32..].iter().any(|&b| b != 0);
    fail_if!(padding.is_some() && has_data, weights_error("blob record has data in its reserved part"));
    if start % UNIT as u64 != 0 || start < UNIT as u64 {
        return Err(weights_error(format!("blob data at byte {start} is not aligned to {UNIT}")));
    }
    let end = start.checked_add(len).and_then(|end| usize::try_from(end).ok()).filter(|&end| end <= size);
    match end {
        Some(end) => {
            let len = usize::try_from(len).unwrap_or(end);
            Ok(Record { dtype, start: end - len, len, padding })
        }
        None => Err(weights_error(format!(
            "blob of {len} bytes at byte {start} does not fit the file of {size} bytes"
        ))),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}
