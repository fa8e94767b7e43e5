//! One graph of open sizes out of the graphs of several shapes.
//!
//! A function is converted at a few shapes, and the graphs are held against each other. Where all agree, they are kept.
//! Where sizes differ, each is a sum of multiples of the sizes that the inputs leave open, found by solving for the
//! multiples at some shapes and checked at the others; the graph then takes the open sizes from the shapes of its
//! arguments and computes the rest of them. So no emitter knows of open sizes, and anything whose sizes are no such sums is
//! refused by name.

mod sums;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::body::tensor;
use super::error::{Refusal, Result, refuse};
use sums::{Sum, integers};

use crate::program::{Attribute, Dim, Graph, Op, Port, Region, Scalar, Type, ValueId};

/// The value of a size at each of the shapes.
type Sizes = Vec<i64>;

/// The graphs of a function at several shapes as one.
pub(super) fn join(graphs: &[Graph]) -> Result<Graph> {
    let [first, ..] = graphs else { refuse!("it has no shapes") };
    let open = open_sizes(graphs);
    if graphs.len() < open.len() + 2 {
        let (shapes, needed) = (graphs.len(), open.len() + 2);
        refuse!(
            "{} sizes are open, which takes {needed} shapes to tell apart, and it has {shapes}",
            open.len()
        );
    }
    let ports = |ports: fn(&Graph) -> &Vec<Port>| -> Result<Vec<Port>> {
        (0..ports(first).len())
            .map(|index| {
                let types: Vec<&Type> = graphs.iter().map(|graph| &ports(graph)[index].ty).collect();
                Ok(Port { name: ports(first)[index].name.clone(), ty: joined_type(&types)? })
            })
            .collect()
    };
    let (inputs, outputs) = (ports(|graph| &graph.inputs)?, ports(|graph| &graph.outputs)?);
    let bodies: Vec<&Region> = graphs.iter().map(|graph| &graph.body).collect();
    Ok(Graph { inputs, outputs, body: region(&bodies, &open)?, ..first.clone() })
}

/// The sizes that inputs leave open, each once.
fn open_sizes(graphs: &[Graph]) -> Vec<Sizes> {
    let mut open: Vec<Sizes> = Vec::new();
    for index in 0..graphs[0].inputs.len() {
        let types: Vec<&Type> = graphs.iter().map(|graph| &graph.inputs[index].ty).collect();
        for sizes in sizes_of(&types).into_iter().filter(|sizes| varies(sizes)) {
            if !open.contains(&sizes) {
                open.push(sizes);
            }
        }
    }
    open
}

fn varies(sizes: &[i64]) -> bool {
    sizes.iter().any(|size| *size != sizes[0])
}

/// The sizes of each axis at the shapes; none of a type that is no tensor.
fn sizes_of(types: &[&Type]) -> Vec<Sizes> {
    let Type::Tensor { dims, .. } = types[0] else { return Vec::new() };
    let size = |ty: &Type, axis: usize| match ty {
        Type::Tensor { dims, .. } => match dims.get(axis) {
            Some(Dim::Fixed(size)) => *size as i64,
            _ => -1,
        },
        _ => -1,
    };
    (0..dims.len()).map(|axis| types.iter().map(|ty| size(ty, axis)).collect()).collect()
}

/// A type that all are instances of.
fn joined_type(types: &[&Type]) -> Result<Type> {
    if types.iter().all(|ty| *ty == types[0]) {
        return Ok(types[0].clone());
    }
    match types[0] {
        Type::Tensor { dims: first, element, constraints } => {
            let alike = |ty: &&Type| match ty {
                Type::Tensor { dims, element: e, constraints: c } => {
                    dims.len() == first.len() && e == element && c == constraints
                }
                _ => false,
            };
            if !types.iter().all(alike) {
                refuse!("a value is {} at one shape and {} at another", types[0], types[types.len() - 1]);
            }
            let dim = |sizes: &Sizes| {
                if varies(sizes) { Dim::Dynamic } else { Dim::Fixed(sizes[0].unsigned_abs()) }
            };
            let dims = sizes_of(types).iter().map(dim).collect();
            Ok(Type::Tensor { dims, element: *element, constraints: constraints.clone() })
        }
        other => refuse!("a value is {other} at one shape and another at the next"),
    }
}

/// Where a value of a region comes from. Constants are told by what they hold and not by where they are: equal ones are one
/// value, so that how many there are depends on the sizes.
#[derive(Clone, Copy)]
enum Origin<'a> {
    Argument(usize),
    /// A result of an operation, among those that are no constants.
    Result(usize, usize),
    Constant(&'a Op),
}

/// A region of one of the shapes.
struct View<'a> {
    /// Operations that are no constants.
    ops: Vec<&'a Op>,
    values: Vec<Origin<'a>>,
}

impl<'a> View<'a> {
    fn of(region: &'a Region) -> View<'a> {
        let mut view = View { ops: Vec::new(), values: Vec::new() };
        view.values.extend((0..region.arguments.len()).map(Origin::Argument));
        for op in &region.ops {
            if op.name == "primitive.constant_v1" {
                view.values.push(Origin::Constant(op));
                continue;
            }
            let index = view.ops.len();
            view.values.extend((0..op.results.len()).map(|result| Origin::Result(index, result)));
            view.ops.push(op);
        }
        view
    }
}

/// A region under construction out of those of the shapes.
struct Joining<'a> {
    open: &'a [Sizes],
    region: Region,
    types: Vec<Type>,
    arguments: Vec<ValueId>,
    /// What the results of each operation that is no constant became.
    results: Vec<Vec<ValueId>>,
    constants: HashMap<Vec<*const Op>, ValueId>,
    /// An axis that has an open size, of each of them that is known in this region.
    sources: HashMap<usize, (ValueId, u64)>,
    sizes: HashMap<Sum, ValueId>,
    lists: HashMap<(Vec<Sum>, Scalar), ValueId>,
}

fn region(regions: &[&Region], open: &[Sizes]) -> Result<Region> {
    let views: Vec<View<'_>> = regions.iter().map(|region| View::of(region)).collect();
    let (first, count) = (regions[0], views[0].ops.len());
    if views.iter().any(|view| view.ops.len() != count)
        || regions.iter().any(|region| region.arguments.len() != first.arguments.len())
    {
        refuse!("it has more operations at one shape than at another");
    }
    let mut joining = Joining {
        open,
        region: Region::default(),
        types: Vec::new(),
        arguments: Vec::new(),
        results: Vec::new(),
        constants: HashMap::new(),
        sources: HashMap::new(),
        sizes: HashMap::new(),
        lists: HashMap::new(),
    };
    for index in 0..first.arguments.len() {
        let types: Vec<&Type> = regions.iter().map(|region| &region.arguments[index]).collect();
        let (ty, value) = (joined_type(&types)?, ValueId(index as u32));
        joining.region.arguments.push(ty.clone());
        joining.types.push(ty);
        joining.arguments.push(value);
        joining.shows(&types, value);
    }
    for index in 0..count {
        joining
            .op(&views, index)
            .map_err(|Refusal(message)| Refusal(format!("{}: {message}", views[0].ops[index].name)))?;
    }
    Ok(joining.region)
}

impl Joining<'_> {
    /// Notes which open sizes a value shows.
    fn shows(&mut self, types: &[&Type], value: ValueId) {
        for (axis, sizes) in sizes_of(types).iter().enumerate() {
            if let Some(open) = self.open.iter().position(|open| open == sizes) {
                self.sources.entry(open).or_insert((value, axis as u64));
            }
        }
    }

    fn op(&mut self, views: &[View<'_>], index: usize) -> Result<()> {
        let ops: Vec<&Op> = views.iter().map(|view| view.ops[index]).collect();
        let first = ops[0];
        if ops.iter().any(|op| {
            op.name != first.name
                || op.operands.len() != first.operands.len()
                || op.results.len() != first.results.len()
                || op.properties != first.properties
                || op.regions.len() != first.regions.len()
        }) {
            refuse!("is another operation at another shape");
        }
        let operand = |joining: &mut Self, at: usize| {
            let origins: Vec<Origin<'_>> =
                views.iter().zip(&ops).map(|(view, op)| view.values[op.operands[at].0 as usize]).collect();
            joining.operand(&origins)
        };
        let operands =
            (0..first.operands.len()).map(|at| operand(&mut *self, at)).collect::<Result<Vec<_>>>()?;
        let regions = (0..first.regions.len())
            .map(|index| region(&ops.iter().map(|op| &op.regions[index]).collect::<Vec<_>>(), self.open))
            .collect::<Result<Vec<_>>>()?;
        let results: Vec<Vec<&Type>> =
            (0..first.results.len()).map(|index| ops.iter().map(|op| &op.results[index]).collect()).collect();
        let types = results.iter().map(|types| joined_type(types)).collect::<Result<Vec<_>>>()?;
        let values = self.push(Op { operands, results: types, regions, ..first.clone() });
        results.iter().zip(&values).for_each(|(types, &value)| self.shows(types, value));
        self.results.push(values);
        Ok(())
    }

    /// The value that an operand became.
    fn operand(&mut self, origins: &[Origin<'_>]) -> Result<ValueId> {
        let constants: Vec<&Op> = origins
            .iter()
            .filter_map(|origin| if let Origin::Constant(op) = origin { Some(*op) } else { None })
            .collect();
        if constants.len() == origins.len() {
            let key: Vec<*const Op> = constants.iter().map(|op| std::ptr::from_ref(*op)).collect();
            if let Some(&id) = self.constants.get(&key) {
                return Ok(id);
            }
            let id = self.constant(&constants)?;
            self.constants.insert(key, id);
            return Ok(id);
        }
        let all = |index: usize, result: Option<usize>| {
            origins.iter().all(|origin| match (*origin, result) {
                (Origin::Argument(other), None) => other == index,
                (Origin::Result(op, other), Some(result)) => op == index && other == result,
                _ => false,
            })
        };
        match origins[0] {
            Origin::Argument(index) if all(index, None) => Ok(self.arguments[index]),
            Origin::Result(op, result) if all(op, Some(result)) => Ok(self.results[op][result]),
            _ => refuse!("takes another value at another shape"),
        }
    }

    fn push(&mut self, op: Op) -> Vec<ValueId> {
        let first = self.types.len() as u32;
        self.types.extend(op.results.iter().cloned());
        let values = (0..op.results.len() as u32).map(|index| ValueId(first + index)).collect();
        self.region.ops.push(op);
        values
    }

    fn one(&mut self, name: &'static str, operands: &[ValueId], result: Type) -> ValueId {
        let op = Op {
            name: name.into(),
            properties: Vec::new(),
            operands: operands.to_vec(),
            results: vec![result],
            regions: Vec::new(),
        };
        self.push(op)[0]
    }

    fn inline(&mut self, ty: Type, bytes: Vec<u8>, is_splat: bool) -> ValueId {
        let value = Attribute::DenseElements { is_splat, bytes };
        let op = Op {
            name: "primitive.constant_v1".into(),
            properties: vec![Some(value)],
            operands: Vec::new(),
            results: vec![ty],
            regions: Vec::new(),
        };
        self.push(op)[0]
    }

    /// A constant that differs between shapes: the same number in more or fewer places, or sizes and what follows from them.
    fn constant(&mut self, ops: &[&Op]) -> Result<ValueId> {
        if ops.iter().all(|op| op.properties == ops[0].properties && op.results == ops[0].results) {
            return Ok(self.push(ops[0].clone())[0]);
        }
        let types: Vec<&Type> = ops.iter().map(|op| &op.results[0]).collect();
        let ty = joined_type(&types)?;
        let Type::Tensor { dims, element, .. } = &ty else { refuse!("is no tensor") };
        let same_value = ops.iter().all(|op| op.properties == ops[0].properties);
        if let (true, Some(Some(Attribute::DenseElements { is_splat: true, bytes }))) =
            (same_value, ops[0].properties.first())
        {
            let ones = vec![1; dims.len()];
            let single = self.inline(tensor(*element, &ones), bytes.clone(), true);
            let sizes = sizes_of(&types).iter().map(|sizes| self.sum(sizes)).collect::<Result<Vec<_>>>()?;
            let shape = self.list(sizes, Scalar::U32)?;
            return Ok(self.one("primitive.broadcast_to_v1", &[single, shape], ty.clone()));
        }
        if dims.contains(&Dim::Dynamic) {
            refuse!("holds numbers that are others at another shape");
        }
        let numbers = ops.iter().map(|op| integers(op, *element)).collect::<Result<Vec<_>>>()?;
        let at = |index: usize| numbers.iter().map(|numbers| numbers[index]).collect::<Sizes>();
        let sums = (0..numbers[0].len()).map(|index| self.sum(&at(index))).collect::<Result<Vec<_>>>()?;
        let list = self.list(sums, *element)?;
        match dims.len() {
            1 => Ok(list),
            0 => {
                let shape = self.inline(tensor(Scalar::U32, &[0]), Vec::new(), false);
                Ok(self.one("primitive.reshape_v2", &[list, shape], ty.clone()))
            }
            _ => refuse!("is a table of sizes"),
        }
    }
}
