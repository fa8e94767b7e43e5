//! The head of a file, its sections, and its strings.

use std::sync::Arc;

use super::super::{MAGIC, VERSION, section};
use super::cursor::Cursor;
use crate::error::{AssetError, Result, quoted};

/// The sections of a file by id.
pub(super) struct Sections<'f> {
    pub(super) producer: String,
    sections: [Option<Cursor<'f>>; NAMES.len()],
}

/// The names of sections, by id.
const NAMES: [&str; 9] = [
    "String",
    "Dialect",
    "AttrType",
    "AttrTypeOffset",
    "IR",
    "Resource",
    "ResourceOffset",
    "DialectVersions",
    "Properties",
];

impl<'f> Sections<'f> {
    pub(super) fn read(file: &'f [u8]) -> Result<Sections<'f>> {
        let mut cursor = Cursor::new(file);
        let start = cursor.clone();
        if cursor.bytes(MAGIC.len() as u64, "MLIR bytecode").ok() != Some(MAGIC) {
            return Err(start.malformed("expected MLIR bytecode, which starts with `ML\\xefR`"));
        }
        let at_version = cursor.clone();
        let version = cursor.integer("the version of the bytecode")?;
        if version != VERSION {
            return Err(
                at_version.unsupported(format!("expected bytecode of version {VERSION}, found {version}"))
            );
        }
        let producer = producer(&mut cursor)?;
        let mut sections = [const { None }; NAMES.len()];
        while !cursor.is_empty() {
            let start = cursor.clone();
            let (id, data) = cursor.section()?;
            let place = sections.get_mut(usize::from(id)).filter(|_| id != section::DIALECT_VERSIONS);
            match place {
                None => return Err(start.malformed(format!("expected a section, found the id {id}"))),
                Some(Some(_)) => {
                    let name = NAMES[usize::from(id)];
                    return Err(start.malformed(format!("expected one section {name}, found a second")));
                }
                Some(place) => *place = Some(data),
            }
        }
        Ok(Sections { producer, sections })
    }

    pub(super) fn optional(&self, id: u8) -> Option<Cursor<'f>> {
        self.sections[usize::from(id)].clone()
    }

    pub(super) fn required(&self, id: u8) -> Result<Cursor<'f>> {
        let missing =
            || AssetError::malformed(format!("expected a section {}, found none", NAMES[usize::from(id)]));
        self.optional(id).ok_or_else(missing)
    }
}

/// Text up to a zero byte: what wrote the file.
fn producer(cursor: &mut Cursor<'_>) -> Result<String> {
    const LONGEST: usize = 1 << 10;
    let left = cursor.left();
    let Some(len) = left.iter().take(LONGEST).position(|&byte| byte == 0) else {
        return Err(cursor.malformed("expected the name of the producer and a zero byte"));
    };
    let start = cursor.clone();
    let name = cursor.bytes(len as u64 + 1, "the producer")?;
    text(&start, name)
}

/// All strings: their lengths with the last string's first, then their bytes.
pub(super) fn strings(mut cursor: Cursor<'_>) -> Result<Vec<Arc<str>>> {
    let count = cursor.count("strings")?;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        lengths.push(cursor.integer("the length of a string")?);
    }
    let mut strings = Vec::with_capacity(count);
    for &len in lengths.iter().rev() {
        let start = cursor.clone();
        strings.push(text(&start, cursor.bytes(len, "a string")?)?.into());
    }
    cursor.finish("the strings")?;
    Ok(strings)
}

/// Text with a zero byte at its end.
fn text(at: &Cursor<'_>, bytes: &[u8]) -> Result<String> {
    let Some((0, bytes)) = bytes.split_last() else {
        return Err(at.malformed("expected a zero byte at the end of a string"));
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => {
            let found = quoted(&String::from_utf8_lossy(bytes));
            Err(at.malformed(format!("expected a string in UTF-8, found {found}")))
        }
    }
}
