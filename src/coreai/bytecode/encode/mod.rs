//! From a program to the bytes of `main.mlirb`, but for those of its resources, which are written as they are produced.

mod ir;
mod resources;
mod tables;

pub use resources::ResourceEntry;

use super::{
    ALIGNED, ALIGNMENT, ASSET, DIALECT, DIALECT_VERSION, MAGIC, PADDING, PRODUCER, VERSION, section, varint,
};
use crate::error::Result;
use crate::{Attribute, Op, Program};
use tables::Tables;

/// The bytes of a file around those of its resources.
pub struct Encoded {
    /// What comes before the first resource.
    pub head: Vec<u8>,
    /// The resources in order, each with the bytes before it.
    pub resources: Vec<ResourceEntry>,
    /// What comes after the last resource.
    pub tail: Vec<u8>,
    /// References to resources that an equal one answers.
    pub deduplicated: usize,
}

impl Encoded {
    /// The length of the file.
    pub fn byte_len(&self) -> u64 {
        let resources: u64 = self.resources.iter().map(ResourceEntry::byte_len).sum();
        self.head.len() as u64 + resources + self.tail.len() as u64
    }
}

/// Encodes a program. The same program gives the same bytes.
pub fn encode(program: &Program) -> Result<Encoded> {
    let mut tables = Tables::new();
    let ir = asset(&mut tables, program)?;
    let resources = std::mem::take(&mut tables.resources).finish();
    let mut head = MAGIC.to_vec();
    varint::push(&mut head, VERSION);
    head.extend_from_slice(PRODUCER.as_bytes());
    head.push(0);
    // The names of resources are strings too.
    let offsets = resource_offsets(&mut tables, &resources.entries);
    push_section(&mut head, section::DIALECT, &dialect(&mut tables));
    push_section(&mut head, section::ATTR_TYPE_OFFSET, &attribute_offsets(&tables));
    push_section(&mut head, section::ATTR_TYPE, &tables.attributes.concat(&tables.types));
    push_section(&mut head, section::IR, &ir);
    push_section(&mut head, section::RESOURCE_OFFSET, &offsets);
    push_resource_header(&mut head, &resources.entries);

    let mut tail = Vec::new();
    push_section(&mut tail, section::STRING, &strings(&tables));
    push_section(&mut tail, section::PROPERTIES, &properties(&tables));
    Ok(Encoded { head, resources: resources.entries, tail, deduplicated: resources.deduplicated })
}

/// The operation around the graphs, in a block of its own.
fn asset(tables: &mut Tables, program: &Program) -> Result<Vec<u8>> {
    let version = Attribute::Integer { width: 32, is_unsigned: true, bits: u64::from(program.version) };
    let asset = Op {
        name: ASSET.into(),
        properties: vec![None, Some(version)],
        operands: Vec::new(),
        results: Vec::new(),
        regions: Vec::new(),
    };
    let mut region = Vec::new();
    varint::push_list(&mut region, [0].into_iter());
    varint::push(&mut region, (program.graphs.len() as u64) << 1);
    for graph in &program.graphs {
        ir::push_graph(tables, &mut region, graph).map_err(|e| e.in_graph(&graph.name))?;
    }
    let mut block = Vec::new();
    varint::push(&mut block, 1 << 1);
    ir::push_op(tables, &mut block, &asset, &[region])?;
    Ok(block)
}

/// Appends a section that needs no alignment.
fn push_section(out: &mut Vec<u8>, id: u8, data: &[u8]) {
    out.push(id);
    varint::push(out, data.len() as u64);
    out.extend_from_slice(data);
}

/// Appends the start of the section of resources, so that its data is aligned.
fn push_resource_header(out: &mut Vec<u8>, entries: &[ResourceEntry]) {
    let start = out.len();
    out.push(section::RESOURCE);
    varint::push(out, entries.iter().map(ResourceEntry::byte_len).sum());
    if !entries.is_empty() && !(out.len() as u64).is_multiple_of(ALIGNMENT) {
        out[start] |= ALIGNED;
        varint::push(out, ALIGNMENT);
        out.resize((out.len() as u64).next_multiple_of(ALIGNMENT) as usize, PADDING);
    }
}

fn dialect(tables: &mut Tables) -> Vec<u8> {
    let mut out = Vec::new();
    varint::push(&mut out, 1);
    let name = tables.string(DIALECT);
    varint::push(&mut out, (name << 1) | 1);
    let mut version = Vec::new();
    varint::push(&mut version, DIALECT_VERSION);
    push_section(&mut out, section::DIALECT_VERSIONS, &version);
    let ops = tables.ops.len();
    varint::push(&mut out, ops);
    varint::push(&mut out, 0);
    varint::push(&mut out, ops);
    for &name in tables.ops.items() {
        varint::push(&mut out, (name << 1) | 1);
    }
    out
}

fn attribute_offsets(tables: &Tables) -> Vec<u8> {
    let mut out = Vec::new();
    let groups = [&tables.attributes, &tables.types];
    groups.iter().for_each(|group| varint::push(&mut out, group.len()));
    for group in groups {
        varint::push(&mut out, 0);
        varint::push(&mut out, group.len());
        for item in group.items() {
            varint::push(&mut out, ((item.len() as u64) << 1) | 1);
        }
    }
    out
}

fn resource_offsets(tables: &mut Tables, entries: &[ResourceEntry]) -> Vec<u8> {
    /// Bytes, and neither a string nor a boolean.
    const BLOB: u8 = 0;
    let mut out = Vec::new();
    let no_external_groups = 0;
    varint::push(&mut out, no_external_groups);
    if entries.is_empty() {
        return out;
    }
    varint::push(&mut out, 0);
    varint::push(&mut out, entries.len() as u64);
    for (index, entry) in entries.iter().enumerate() {
        let name = tables.string(&format!("resource_{index}"));
        varint::push(&mut out, name);
        varint::push(&mut out, entry.byte_len());
        out.push(BLOB);
    }
    out
}

/// Lengths, the last string first; then the strings, the first one first.
fn strings(tables: &Tables) -> Vec<u8> {
    let strings = tables.strings.items();
    let mut out = Vec::new();
    varint::push_list(&mut out, strings.iter().rev().map(|string| string.len() as u64 + 1));
    for string in strings {
        out.extend_from_slice(string.as_bytes());
        out.push(0);
    }
    out
}

fn properties(tables: &Tables) -> Vec<u8> {
    let mut out = Vec::new();
    varint::push(&mut out, tables.properties.len());
    for item in tables.properties.items() {
        varint::push(&mut out, item.len() as u64);
        out.extend_from_slice(item);
    }
    out
}
