//! From the bytes of `main.mlirb` to a program, whose weights stay where they are.
//!
//! No count is believed before the bytes behind it are there, references are followed to a bounded depth, and what they
//! expand to is bounded by the size of the file: a few bytes can refer to each other so often that all of them written out
//! fill any memory.

mod cursor;
mod dialect;
mod graph;
mod ir;
mod resources;
mod sections;
mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;

use anemeter_kernels::tensor::Bytes;

use super::section;
use crate::error::Result;
use crate::{Program, Resource};
use cursor::Cursor;
use sections::Sections;
use tables::Tables;

/// What is in a file.
#[derive(Debug)]
pub struct Decoded {
    /// The program.
    pub program: Program,
    /// What wrote the file.
    pub producer: String,
    /// Its resources by name, in the order of the file.
    pub resources: Vec<(Arc<str>, Resource)>,
    /// Names of attributes of arguments and results that a program does not keep, because they say nothing about how it
    /// runs.
    pub dropped: BTreeSet<String>,
}

/// Decodes a file.
pub fn decode(file: &Bytes) -> Result<Decoded> {
    let sections = Sections::read(file)?;
    let strings = sections::strings(sections.required(section::STRING)?)?;
    let ops = dialect::op_names(sections.required(section::DIALECT)?, &strings)?;
    let named = match (sections.optional(section::RESOURCE_OFFSET), sections.optional(section::RESOURCE)) {
        (Some(offsets), data) => resources::read(file, offsets, data, &strings)?,
        (None, _) => Vec::new(),
    };
    let budget = Budget::of(file, &sections);
    let resources = named.iter().map(|(_, resource)| resource.clone()).collect();
    let mut tables = Tables::read(&sections, strings, ops, resources, budget)?;
    let mut dropped = BTreeSet::new();
    let program = graph::program(&mut tables, sections.required(section::IR)?, &mut dropped)?;
    Ok(Decoded { program, producer: sections.producer, resources: named, dropped })
}

/// What may still be allocated for what references expand to.
struct Budget {
    left: u64,
    whole: u64,
}

impl Budget {
    /// Bytes that any file may expand to.
    const LEAST: u64 = 16 << 20;
    /// Bytes that each byte of a file but those of its weights may expand to.
    const FACTOR: u64 = 256;

    fn of(file: &Bytes, sections: &Sections<'_>) -> Budget {
        let weights = sections.optional(section::RESOURCE).map_or(0, |data| data.left().len());
        let whole = (file.len() - weights) as u64 * Budget::FACTOR + Budget::LEAST;
        Budget { left: whole, whole }
    }

    /// Takes room for so many bytes.
    fn take(&mut self, bytes: usize, at: &Cursor<'_>) -> Result<()> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(at.malformed(format!("its references expand to more than {} bytes", self.whole))),
        }
    }
}
