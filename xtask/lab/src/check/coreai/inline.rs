//! Programs without composites: each is replaced by the region that says what it stands for. Apple's runtime executes a
//! composite by its name and does not look into its region, so that only such a twin shows whether the region is true.

use std::collections::BTreeSet;

use anemeter::coreai::{Op, Program, Region, ValueId};

/// What ends the region of an operation.
const YIELD: &str = "dataflow.yield_v1";
/// Operations whose names start like this are executed as they are, with the regions that they have.
const NO_COMPOSITES: [&str; 4] = ["primitive.", "dataflow.", "controlflow.", "ax."];

/// Primitives that Apple's runtime executes by the name of their composite only: outside of it, it refuses to lower them
/// ("failed to legalize operation"). The composite that has one as its region stays.
const ONLY_NAMED: [&str; 2] = ["primitive.reduce_v1", "primitive.reduce_index_v1"];

/// The program with regions in place of composites, and the names of those, each once; nothing if it has none to replace.
pub(super) fn inlined(program: &Program) -> Option<(Program, Vec<String>)> {
    let mut twin = program.clone();
    let mut replaced = BTreeSet::new();
    for graph in &mut twin.graphs {
        graph.body = region(&graph.body, &mut replaced);
    }
    (!replaced.is_empty()).then(|| (twin, replaced.into_iter().collect()))
}

/// A region that is being written anew.
struct Writing<'r> {
    ops: Vec<Op>,
    values: usize,
    /// Names of composites that were replaced.
    replaced: &'r mut BTreeSet<String>,
}

/// The region of a graph.
fn region(old: &Region, replaced: &mut BTreeSet<String>) -> Region {
    let mut writing = Writing { ops: Vec::new(), values: old.arguments.len(), replaced };
    let arguments = (0..old.arguments.len()).map(value).collect();
    writing.splice(&old.ops, arguments);
    Region { arguments: old.arguments.clone(), ops: writing.ops }
}

/// Whether an operation is replaced by its region.
fn is_replaced(op: &Op) -> bool {
    let is_composite = !NO_COMPOSITES.iter().any(|start| op.name.starts_with(start));
    let mut inner = op.regions.iter().flat_map(|region| &region.ops);
    is_composite && !inner.any(|op| ONLY_NAMED.contains(&op.name.as_ref()))
}

fn value(index: usize) -> ValueId {
    ValueId(u32::try_from(index).unwrap_or(u32::MAX))
}

impl Writing<'_> {
    /// Writes operations whose values are known by other numbers from now on, and gives what they yield.
    fn splice(&mut self, ops: &[Op], mut known: Vec<ValueId>) -> Option<Vec<ValueId>> {
        for op in ops {
            let operands: Vec<ValueId> = op.operands.iter().map(|id| known[id.0 as usize]).collect();
            if op.name == YIELD {
                return Some(operands);
            }
            match &op.regions[..] {
                [stands_for] if is_replaced(op) => {
                    self.replaced.insert(op.name.to_string());
                    known.extend(self.splice(&stands_for.ops, operands).unwrap_or_default());
                }
                _ => known.extend(self.push(Op { operands, ..op.clone() })),
            }
        }
        None
    }

    fn push(&mut self, op: Op) -> Vec<ValueId> {
        let first = self.values;
        self.values += op.results.len();
        self.ops.push(op);
        (first..self.values).map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter::coreai::{Type, convert};
    use anemeter::mil::verify::verify;
    use anemeter::mil::{Builder, Model, Opset, TensorType};
    use anemeter::tensor::DType;

    #[test]
    fn a_twin_has_regions_in_place_of_composites_and_is_consistent() {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F32, &[2, 3]));
        let y = main.op("softmax").arg("x", x).arg("axis", -1).named("y").push().unwrap();
        let z = main.op("silu").arg("x", y).named("z").push().unwrap();
        let verified = verify(Model::single(main.finish(&[y, z]))).unwrap();
        let program = convert::from_mil(&verified).unwrap();
        let (twin, replaced) = inlined(&program).unwrap();
        assert_eq!(replaced, ["sigmoid_v1", "silu_v1", "softmax_v1"]);
        let names: Vec<&str> = twin.graphs[0].body.ops.iter().map(|op| &*op.name).collect();
        assert!(names.contains(&"reduce_sum_v1") && !names.contains(&"softmax_v1"), "{names:?}");
        anemeter::coreai::verify(&twin).unwrap();
        assert_eq!(inlined(&twin), None);
        assert_eq!(twin.graphs[0].outputs, program.graphs[0].outputs);
        assert!(matches!(twin.graphs[0].inputs[0].ty, Type::Tensor { .. }));
    }
}
