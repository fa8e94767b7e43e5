//! The dialect and the names of its operations.

use std::sync::Arc;

use super::super::{DIALECT, DIALECT_VERSION, section};
use super::cursor::Cursor;
use crate::error::{Result, quoted};

/// The names of the operations, without the dialect, by number.
pub(super) fn op_names(mut cursor: Cursor<'_>, strings: &[Arc<str>]) -> Result<Vec<Arc<str>>> {
    dialect(&mut cursor, strings)?;
    let count = cursor.count("names of operations")?;
    let mut names = Vec::with_capacity(count);
    while !cursor.is_empty() {
        cursor.index(1, "the dialect")?;
        for _ in 0..cursor.count("names of operations")? {
            let start = cursor.clone();
            let encoded = cursor.integer("the name of an operation")?;
            let name = start.within(encoded >> 1, strings.len(), "a string")?;
            names.push(strings[name].clone());
        }
    }
    match names.len() == count {
        true => Ok(names),
        false => {
            Err(cursor.malformed(format!("expected {count} names of operations, found {}", names.len())))
        }
    }
}

/// Checks that the only dialect is the one that is known.
fn dialect(cursor: &mut Cursor<'_>, strings: &[Arc<str>]) -> Result<()> {
    let start = cursor.clone();
    let count = cursor.integer("the number of dialects")?;
    if count != 1 {
        return Err(
            start.unsupported(format!("expected the dialect `{DIALECT}` alone, found {count} dialects"))
        );
    }
    let start = cursor.clone();
    let encoded = cursor.integer("a dialect")?;
    let name = &strings[start.within(encoded >> 1, strings.len(), "a string")?];
    if **name != *DIALECT {
        return Err(start.unsupported(format!("expected the dialect `{DIALECT}`, found {}", quoted(name))));
    }
    if encoded & 1 == 0 {
        return Err(start.malformed(format!("expected a version of the dialect `{DIALECT}`, found none")));
    }
    let start = cursor.clone();
    let (id, mut data) = cursor.section()?;
    if id != section::DIALECT_VERSIONS {
        return Err(start.malformed(format!("expected the version of a dialect, found the section {id}")));
    }
    let start = data.clone();
    let version = data.integer("the version of the dialect")?;
    if version != DIALECT_VERSION {
        let expected = format!("expected version {DIALECT_VERSION} of the dialect `{DIALECT}`");
        return Err(start.unsupported(format!("{expected}, found {version}")));
    }
    data.finish("the version of the dialect")
}
