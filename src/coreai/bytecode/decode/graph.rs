//! The asset and its graphs.

use std::collections::BTreeSet;

use super::super::{ASSET, GRAPH, PORT_NAME};
use super::cursor::Cursor;
use super::ir::{self, Record};
use super::tables::Tables;
use crate::error::{Result, quoted};
use crate::{Attribute, Graph, Port, Program, Type};

/// The program of a file.
pub(super) fn program<'f>(
    tables: &mut Tables<'f>,
    mut cursor: Cursor<'f>,
    dropped: &mut BTreeSet<String>,
) -> Result<Program> {
    let start = cursor.clone();
    let (arguments, count) = ir::block_head(tables, &mut cursor)?;
    if !arguments.is_empty() || count != 1 {
        return Err(start.malformed(format!("expected `{ASSET}` alone, found {count} operations")));
    }
    let start = cursor.clone();
    let Record { op, regions } = ir::record(tables, &mut cursor)?;
    cursor.finish("the program")?;
    if op.name != ASSET {
        return Err(start.malformed(format!("expected `{ASSET}`, found {}", quoted(&op.name))));
    }
    let version = match &op.properties[..] {
        [None, Some(Attribute::Integer { bits, .. })] => u32::try_from(*bits).ok(),
        _ => None,
    };
    let Some(version) = version else {
        return Err(start.unsupported(format!("expected the version of `{ASSET}`")));
    };
    let [region] = &regions[..] else {
        return Err(start.malformed(format!("expected one region of `{ASSET}`, found {}", regions.len())));
    };
    Ok(Program { version, graphs: graphs(tables, region.clone(), dropped)? })
}

fn graphs<'f>(
    tables: &mut Tables<'f>,
    mut cursor: Cursor<'f>,
    dropped: &mut BTreeSet<String>,
) -> Result<Vec<Graph>> {
    let start = cursor.clone();
    let blocks = cursor.integer("the number of blocks")?;
    if blocks == 0 {
        cursor.finish("the program")?;
        return Ok(Vec::new());
    }
    let values = cursor.integer("the number of values")?;
    let (arguments, count) = ir::block_head(tables, &mut cursor)?;
    if blocks != 1 || values != 0 || !arguments.is_empty() {
        return Err(start.malformed("expected one block of graphs"));
    }
    let mut graphs = Vec::new();
    for _ in 0..count {
        graphs.push(graph(tables, &mut cursor, dropped)?);
    }
    cursor.finish("the program")?;
    Ok(graphs)
}

fn graph<'f>(
    tables: &mut Tables<'f>,
    cursor: &mut Cursor<'f>,
    dropped: &mut BTreeSet<String>,
) -> Result<Graph> {
    let start = cursor.clone();
    let Record { op, regions } = ir::record(tables, cursor)?;
    if op.name != GRAPH {
        return Err(start.unsupported(format!("expected `{GRAPH}`, found {}", quoted(&op.name))));
    }
    let invalid = |what: &str| start.malformed(format!("expected {what} of a graph"));
    let values: [Option<Attribute>; 9] = op.properties.try_into().map_err(|_| invalid("the properties"))?;
    let [arguments, composite, externalize, signature, is_private, name, no_inline, params, results] = values;
    let Some(Attribute::String(name)) = name else { return Err(invalid("the name")) };
    let Some(Attribute::Type(Type::Function { inputs, outputs })) = signature else {
        return Err(invalid("the type").in_graph(&name));
    };
    let flag = |value: Option<Attribute>| match value {
        Some(Attribute::Integer { bits: bits @ 0..=1, .. }) => Ok(bits == 1),
        _ => Err(invalid("a flag").in_graph(&name)),
    };
    let mut ports = |attributes: Option<Attribute>, types: Vec<Type>, what: &str| {
        ports(attributes, types, dropped).ok_or_else(|| invalid(what).in_graph(&name))
    };
    let inputs = ports(arguments, inputs, "the names of the arguments")?;
    let outputs = ports(results, outputs, "the names of the results")?;
    let [region] = &regions[..] else {
        return Err(invalid("the one region").in_graph(&name));
    };
    let body = ir::region(tables, region.clone(), 1).map_err(|e| e.in_graph(&name))?;
    if !body.arguments.iter().eq(inputs.iter().map(|port| &port.ty)) {
        return Err(invalid("arguments of the type").in_graph(&name));
    }
    let [externalize, is_private, no_inline] = [flag(externalize)?, flag(is_private)?, flag(no_inline)?];
    let Some(params) = params else { return Err(invalid("the parameters").in_graph(&name)) };
    Ok(Graph { name, inputs, outputs, is_private, no_inline, externalize, composite, params, body })
}

/// Arguments or results by their attributes, which are lists of named values, and their types.
fn ports(
    attributes: Option<Attribute>,
    types: Vec<Type>,
    dropped: &mut BTreeSet<String>,
) -> Option<Vec<Port>> {
    let Some(Attribute::Array(lists)) = attributes else { return None };
    if lists.len() != types.len() {
        return None;
    }
    let mut ports = Vec::with_capacity(types.len());
    for (list, ty) in lists.into_iter().zip(types) {
        let Attribute::Array(items) = list else { return None };
        let mut port = Port { name: String::new(), ty };
        for item in items {
            let Attribute::Opaque { name, mut items } = item else { return None };
            match (name == PORT_NAME, items.pop()) {
                (true, Some(Attribute::String(text))) if items.is_empty() => port.name = text,
                (true, _) => return None,
                (false, _) => drop(dropped.insert(name)),
            }
        }
        ports.push(port);
    }
    Some(ports)
}
