//! The bytes of a GGUF file: header, metadata and tensor table, each length checked before it is believed.

use std::collections::BTreeMap;

use super::super::error::{CheckpointError, Result, quoted};

pub(super) type Metadata<'a> = BTreeMap<&'a str, Meta<'a>>;

#[derive(Debug, Clone, Copy)]
pub(super) enum Meta<'a> {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Text(&'a [u8]),
    Array(Array<'a>),
}

/// A metadata array, read when it is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Array<'a> {
    pub(super) count: usize,
    kind: u32,
    bytes: &'a [u8],
}

/// One row of the tensor table.
#[derive(Debug)]
pub(super) struct TensorInfo<'a> {
    pub(super) name: &'a str,
    /// Innermost dimension first, as the file has it.
    pub(super) dims: Vec<u64>,
    pub(super) kind: u32,
    pub(super) offset: u64,
}

/// A file taken apart; tensor offsets count from `data`.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) metadata: Metadata<'a>,
    pub(super) tensors: Vec<TensorInfo<'a>>,
    pub(super) data: usize,
}

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
const MOST_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: u64 = 32;
const LONGEST_ALIGNMENT: u64 = 1 << 20;

/// Takes a file apart.
pub(super) fn read(bytes: &[u8]) -> Result<Parts<'_>> {
    let mut reader = Reader { bytes, at: 0 };
    if reader.take(4)? != MAGIC {
        return Err(CheckpointError::new("is not a GGUF file"));
    }
    match reader.u32()? {
        2 | 3 => {}
        version if version & 0xffff == 0 => {
            return Err(CheckpointError::new("is a big-endian GGUF file; only little-endian ones are read"));
        }
        version => {
            return Err(CheckpointError::new(format!(
                "is GGUF version {version}; versions 2 and 3 are read"
            )));
        }
    }
    let (tensor_count, entry_count) = (reader.u64()?, reader.u64()?);
    let mut metadata = Metadata::new();
    for _ in 0..entry_count {
        let key = reader.name()?;
        let kind = reader.u32()?;
        let value = reader.value(kind, 0).map_err(|e| key_error(key, &e.to_string()))?;
        if metadata.insert(key, value).is_some() {
            return Err(key_error(key, "comes twice"));
        }
    }
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(reader.tensor()?);
    }
    let alignment = opt_u64(&metadata, "general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if !(1..=LONGEST_ALIGNMENT).contains(&alignment) {
        return Err(key_error("general.alignment", &format!("is {alignment}")));
    }
    let data = reader.at.next_multiple_of(alignment as usize);
    Ok(Parts { metadata, tensors, data })
}

/// An error about a metadata key.
pub(super) fn key_error(key: &str, problem: &str) -> CheckpointError {
    CheckpointError::new(format!("metadata key {} {problem}", quoted(key)))
}

/// An unsigned number that may be left out.
pub(super) fn opt_u64(metadata: &Metadata<'_>, key: &str) -> Result<Option<u64>> {
    let value = match metadata.get(key) {
        None => return Ok(None),
        Some(&Meta::Unsigned(value)) => Some(value),
        Some(&Meta::Signed(value)) => u64::try_from(value).ok(),
        Some(_) => None,
    };
    value.map(Some).ok_or_else(|| key_error(key, "is not an unsigned number"))
}

/// A number that may be left out, with the shortest decimals that give it.
pub(super) fn opt_float(metadata: &Metadata<'_>, key: &str) -> Result<Option<f64>> {
    let value = match metadata.get(key) {
        None => return Ok(None),
        Some(&Meta::F32(value)) => decimal(value),
        Some(&Meta::F64(value)) => value,
        Some(_) => return Err(key_error(key, "is not a floating-point number")),
    };
    match value.is_finite() {
        true => Ok(Some(value)),
        false => Err(key_error(key, "is not finite")),
    }
}

/// The double with the decimals of a float: 1e-5, not 9.99999974e-6.
pub(super) fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// A boolean that may be left out.
pub(super) fn opt_bool(metadata: &Metadata<'_>, key: &str) -> Result<Option<bool>> {
    match metadata.get(key) {
        None => Ok(None),
        Some(&Meta::Bool(value)) => Ok(Some(value)),
        Some(_) => Err(key_error(key, "is not true or false")),
    }
}

/// A string that may be left out.
pub(super) fn opt_text<'a>(metadata: &Metadata<'a>, key: &str) -> Result<Option<&'a str>> {
    match metadata.get(key) {
        None => Ok(None),
        Some(&Meta::Text(text)) => {
            std::str::from_utf8(text).map(Some).map_err(|_| key_error(key, "is not UTF-8 text"))
        }
        Some(_) => Err(key_error(key, "is not a string")),
    }
}

/// An array that may be left out.
pub(super) fn opt_array<'a>(metadata: &Metadata<'a>, key: &str) -> Result<Option<Array<'a>>> {
    match metadata.get(key) {
        None => Ok(None),
        Some(&Meta::Array(array)) => Ok(Some(array)),
        Some(_) => Err(key_error(key, "is not an array")),
    }
}

impl<'a> Array<'a> {
    pub(super) fn values(self) -> impl Iterator<Item = Result<Meta<'a>>> {
        let mut reader = Reader { bytes: self.bytes, at: 0 };
        (0..self.count).map(move |_| reader.value(self.kind, 0))
    }

    pub(super) fn texts(self, key: &str) -> Result<Vec<&'a str>> {
        self.collect(key, "is not an array of UTF-8 strings", |value| match value {
            Meta::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        })
    }

    pub(super) fn floats(self, key: &str) -> Result<Vec<f32>> {
        self.collect(key, "is not an array of floats", |value| match value {
            Meta::F32(value) => Some(value),
            _ => None,
        })
    }

    pub(super) fn ints(self, key: &str) -> Result<Vec<i64>> {
        self.collect(key, "is not an array of integers", |value| match value {
            Meta::Signed(value) => Some(value),
            Meta::Unsigned(value) => i64::try_from(value).ok(),
            _ => None,
        })
    }

    fn collect<T>(self, key: &str, problem: &str, convert: impl Fn(Meta<'a>) -> Option<T>) -> Result<Vec<T>> {
        self.values().map(|value| convert(value?).ok_or_else(|| key_error(key, problem))).collect()
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let taken = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| {
            let left = self.bytes.len() - self.at;
            CheckpointError::new(format!("needs {count} bytes at byte {}, only {left} are left", self.at))
        })?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn len(&mut self) -> Result<usize> {
        let count = self.u64()?;
        usize::try_from(count).map_err(|_| CheckpointError::new(format!("has a length of {count}")))
    }

    fn text(&mut self) -> Result<&'a [u8]> {
        let count = self.len()?;
        self.take(count)
    }

    fn name(&mut self) -> Result<&'a str> {
        let at = self.at;
        std::str::from_utf8(self.text()?)
            .map_err(|_| CheckpointError::new(format!("the name at byte {at} is not UTF-8 text")))
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<Meta<'a>> {
        Ok(match kind {
            0 => Meta::Unsigned(u64::from(self.array::<1>()?[0])),
            1 => Meta::Signed(i64::from(i8::from_le_bytes(self.array()?))),
            2 => Meta::Unsigned(u64::from(u16::from_le_bytes(self.array()?))),
            3 => Meta::Signed(i64::from(i16::from_le_bytes(self.array()?))),
            4 => Meta::Unsigned(u64::from(self.u32()?)),
            5 => Meta::Signed(i64::from(i32::from_le_bytes(self.array()?))),
            6 => Meta::F32(f32::from_le_bytes(self.array()?)),
            7 => Meta::Bool(self.array::<1>()?[0] != 0),
            8 => Meta::Text(self.text()?),
            9 => Meta::Array(self.skip_array(depth)?),
            10 => Meta::Unsigned(self.u64()?),
            11 => Meta::Signed(i64::from_le_bytes(self.array()?)),
            12 => Meta::F64(f64::from_le_bytes(self.array()?)),
            _ => return Err(CheckpointError::new(format!("has the unknown value type {kind}"))),
        })
    }

    fn skip_array(&mut self, depth: u32) -> Result<Array<'a>> {
        const DEEPEST: u32 = 4;
        if depth == DEEPEST {
            return Err(CheckpointError::new(format!("is an array in more than {DEEPEST} arrays")));
        }
        let kind = self.u32()?;
        let count = self.len()?;
        let start = self.at;
        for _ in 0..count {
            self.value(kind, depth + 1)?;
        }
        Ok(Array { count, kind, bytes: &self.bytes[start..self.at] })
    }

    fn tensor(&mut self) -> Result<TensorInfo<'a>> {
        let name = self.name()?;
        let rank = self.u32()?;
        if rank > MOST_DIMS {
            let message = format!("has {rank} dimensions, at most {MOST_DIMS} are possible");
            return Err(CheckpointError::new(message).at_tensor(name));
        }
        let dims = (0..rank).map(|_| self.u64()).collect::<Result<_>>()?;
        Ok(TensorInfo { name, dims, kind: self.u32()?, offset: self.u64()? })
    }
}
