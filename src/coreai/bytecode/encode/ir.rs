//! Operations, regions and graphs as records of numbers.

use super::super::{GRAPH, PORT_NAME, mask, section, varint};
use super::push_section;
use super::tables::Tables;
use crate::error::Result;
use crate::{Attribute, Graph, Op, Port, Region, Type};

/// Appends a graph.
pub(super) fn push_graph(tables: &mut Tables, out: &mut Vec<u8>, graph: &Graph) -> Result<()> {
    let flag = |value: bool| Some(Attribute::Integer { width: 1, is_unsigned: true, bits: u64::from(value) });
    let types = |ports: &[Port]| ports.iter().map(|port| port.ty.clone()).collect();
    let signature = Type::Function { inputs: types(&graph.inputs), outputs: types(&graph.outputs) };
    let op = Op {
        name: GRAPH.into(),
        properties: vec![
            Some(port_names(&graph.inputs)),
            graph.composite.clone(),
            flag(graph.externalize),
            Some(Attribute::Type(signature)),
            flag(graph.is_private),
            Some(Attribute::String(graph.name.clone())),
            flag(graph.no_inline),
            Some(graph.params.clone()),
            Some(port_names(&graph.outputs)),
        ],
        operands: Vec::new(),
        results: Vec::new(),
        regions: Vec::new(),
    };
    let body = region(tables, &graph.body)?;
    push_op(tables, out, &op, &[body])
}

fn port_names(ports: &[Port]) -> Attribute {
    let named = |port: &Port| {
        let name = (!port.name.is_empty()).then(|| Attribute::Opaque {
            name: PORT_NAME.to_owned(),
            items: vec![Attribute::String(port.name.clone())],
        });
        Attribute::Array(name.into_iter().collect())
    };
    Attribute::Array(ports.iter().map(named).collect())
}

/// Appends an operation with regions that are encoded already.
pub(super) fn push_op(tables: &mut Tables, out: &mut Vec<u8>, op: &Op, regions: &[Vec<u8>]) -> Result<()> {
    let parts = [
        (!op.results.is_empty(), mask::RESULTS),
        (!op.operands.is_empty(), mask::OPERANDS),
        (!regions.is_empty(), mask::REGIONS),
        (!op.properties.is_empty(), mask::PROPERTIES),
    ];
    varint::push(out, tables.op_name(&op.name));
    out.push(parts.iter().filter(|(is_there, _)| *is_there).fold(0, |mask, (_, bit)| mask | bit));
    varint::push(out, tables.location);
    if !op.properties.is_empty() {
        varint::push(out, tables.property_values(&op.name, &op.properties)?);
    }
    if !op.results.is_empty() {
        varint::push_list(out, tables.types(&op.results)?.into_iter());
    }
    if !op.operands.is_empty() {
        varint::push_list(out, op.operands.iter().map(|value| u64::from(value.0)));
    }
    if !regions.is_empty() {
        let isolated = 1;
        varint::push(out, ((regions.len() as u64) << 1) | isolated);
        regions.iter().for_each(|region| push_section(out, section::IR, region));
    }
    Ok(())
}

/// A region of one block; one without arguments and operations has none.
fn region(tables: &mut Tables, region: &Region) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let Region { arguments, ops } = region;
    if arguments.is_empty() && ops.is_empty() {
        varint::push(&mut out, 0);
        return Ok(out);
    }
    let values = arguments.len() + ops.iter().map(|op| op.results.len()).sum::<usize>();
    varint::push(&mut out, 1);
    varint::push(&mut out, values as u64);
    varint::push(&mut out, ((ops.len() as u64) << 1) | u64::from(!arguments.is_empty()));
    if !arguments.is_empty() {
        varint::push(&mut out, arguments.len() as u64);
        for ty in arguments {
            let has_location = 1;
            varint::push(&mut out, (tables.ty(ty)? << 1) | has_location);
            varint::push(&mut out, tables.location);
        }
        let no_use_list = 0;
        out.push(no_use_list);
    }
    for (index, op) in ops.iter().enumerate() {
        let regions = op.regions.iter().map(|inner| self::region(tables, inner)).collect::<Result<Vec<_>>>();
        regions
            .and_then(|regions| push_op(tables, &mut out, op, &regions))
            .map_err(|e| e.in_op(index, &op.name))?;
    }
    Ok(out)
}
