//! Operations and regions.

use super::super::{mask, section};
use super::cursor::Cursor;
use super::tables::Tables;
use crate::error::{AssetError, Result};
use crate::{Op, Region, Type, ValueId};

/// How deep regions may be inside each other.
const DEEPEST: usize = 32;

/// An operation of the file.
pub(super) struct Record<'f> {
    /// Without its regions.
    pub(super) op: Op,
    /// The data of its regions.
    pub(super) regions: Vec<Cursor<'f>>,
}

/// The next operation.
pub(super) fn record<'f>(tables: &mut Tables<'f>, cursor: &mut Cursor<'f>) -> Result<Record<'f>> {
    let start = cursor.clone();
    let name = tables.op_name(cursor)?;
    let at_mask = cursor.clone();
    let mask = cursor.byte("the parts of an operation")?;
    let unknown = mask & (mask::ATTRIBUTES | mask::SUCCESSORS | mask::USE_LIST | !ALL);
    if unknown != 0 {
        let text = "expected an operation without attributes beside its properties, without successors and orders of uses";
        return Err(at_mask.unsupported(format!("{text}, found the parts {mask:#04x}")));
    }
    tables.skip_location(cursor)?;
    let mut op = Op {
        name: name.as_ref().to_owned().into(),
        properties: Vec::new(),
        operands: Vec::new(),
        results: Vec::new(),
        regions: Vec::new(),
    };
    tables.budget().take(size_of::<Op>() + name.len(), &start)?;
    if mask & mask::PROPERTIES != 0 {
        op.properties = tables.properties(cursor, &name)?;
    }
    if mask & mask::RESULTS != 0 {
        let count = cursor.count("results")?;
        op.results = (0..count).map(|_| tables.ty(cursor)).collect::<Result<_>>()?;
    }
    if mask & mask::OPERANDS != 0 {
        let count = cursor.count("operands")?;
        tables.budget().take(count * size_of::<ValueId>(), cursor)?;
        op.operands = (0..count).map(|_| value(cursor)).collect::<Result<_>>()?;
    }
    let regions = if mask & mask::REGIONS != 0 { regions(cursor)? } else { Vec::new() };
    Ok(Record { op, regions })
}

/// Every part that an operation may have.
const ALL: u8 = mask::ATTRIBUTES
    | mask::RESULTS
    | mask::OPERANDS
    | mask::SUCCESSORS
    | mask::REGIONS
    | mask::USE_LIST
    | mask::PROPERTIES;

fn value(cursor: &mut Cursor<'_>) -> Result<ValueId> {
    let start = cursor.clone();
    let number = cursor.integer("a value")?;
    u32::try_from(number)
        .map(ValueId)
        .map_err(|_| start.malformed(format!("expected a value, found {number}")))
}

/// The data of the regions of an operation.
fn regions<'f>(cursor: &mut Cursor<'f>) -> Result<Vec<Cursor<'f>>> {
    let start = cursor.clone();
    let encoded = cursor.integer("the number of regions")?;
    if encoded & 1 == 0 {
        return Err(start.unsupported("expected regions that see no values around them"));
    }
    let count = start.believe(encoded >> 1, cursor.left().len(), "regions")?;
    let mut regions = Vec::new();
    for _ in 0..count {
        let start = cursor.clone();
        match cursor.section()? {
            (section::IR, data) => regions.push(data),
            (id, _) => return Err(start.malformed(format!("expected a region, found the section {id}"))),
        }
    }
    Ok(regions)
}

/// A region with all that is in it.
pub(super) fn region<'f>(tables: &mut Tables<'f>, mut cursor: Cursor<'f>, depth: usize) -> Result<Region> {
    if depth == DEEPEST {
        return Err(cursor.malformed(format!("expected regions of up to {DEEPEST} levels")));
    }
    tables.budget().take(size_of::<Region>(), &cursor)?;
    let start = cursor.clone();
    match cursor.integer("the number of blocks")? {
        0 => {
            cursor.finish("a region")?;
            return Ok(Region::default());
        }
        1 => {}
        count => return Err(start.unsupported(format!("expected a region of one block, found {count}"))),
    }
    let start = cursor.clone();
    let values = cursor.integer("the number of values")?;
    let (arguments, count) = block_head(tables, &mut cursor)?;
    let mut defined = arguments.len() as u64;
    let mut ops = Vec::new();
    for index in 0..count {
        let op = op(tables, &mut cursor, index, values, depth)?;
        defined += op.results.len() as u64;
        ops.push(op);
    }
    cursor.finish("a region")?;
    match defined == values {
        true => Ok(Region { arguments, ops }),
        false => Err(start.malformed(format!("expected {values} values in a region, found {defined}"))),
    }
}

/// The next operation with its regions, of a region that has so many values.
fn op<'f>(
    tables: &mut Tables<'f>,
    cursor: &mut Cursor<'f>,
    index: usize,
    values: u64,
    depth: usize,
) -> Result<Op> {
    let start = cursor.clone();
    let Record { mut op, regions } = record(tables, cursor)?;
    let place = |e: AssetError| e.in_op(index, &op.name);
    if let Some(operand) = op.operands.iter().find(|operand| u64::from(operand.0) >= values) {
        return Err(place(
            start.malformed(format!("expected an operand below {values}, found {}", operand.0)),
        ));
    }
    let inner = regions.into_iter().map(|data| region(tables, data, depth + 1)).collect::<Result<_>>();
    op.regions = inner.map_err(place)?;
    Ok(op)
}

/// The types of the arguments of a block, and how many operations it has.
pub(super) fn block_head(tables: &mut Tables<'_>, cursor: &mut Cursor<'_>) -> Result<(Vec<Type>, usize)> {
    let start = cursor.clone();
    let encoded = cursor.integer("the number of operations")?;
    let count = start.believe(encoded >> 1, cursor.left().len(), "operations")?;
    if encoded & 1 == 0 {
        return Ok((Vec::new(), count));
    }
    let mut arguments = Vec::new();
    for _ in 0..cursor.count("arguments")? {
        arguments.push(argument(tables, cursor)?);
    }
    let start = cursor.clone();
    match cursor.byte("the order of uses")? {
        0 => Ok((arguments, count)),
        _ => Err(start.unsupported("expected arguments without orders of uses")),
    }
}

fn argument(tables: &mut Tables<'_>, cursor: &mut Cursor<'_>) -> Result<Type> {
    let start = cursor.clone();
    let encoded = cursor.integer("the type of an argument")?;
    if encoded & 1 != 0 {
        tables.skip_location(cursor)?;
    }
    tables.ty_at(&start, encoded >> 1)
}
