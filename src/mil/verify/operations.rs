//! Operations: every value defined once and before use, every argument and type as the definition says.

use super::Report;
use crate::agreement::agrees;
use crate::arguments::{Arguments, Source};
use crate::op::Numerics;
use crate::propagate::{self, Options, literal_fits, place};
use crate::{Binding, Block, Function, Operation, Type, ValueId, ops};

/// The largest rank of a value that is computed.
const MAX_RANK: usize = 5;

pub(super) fn check_structure(function: &Function, report: &mut Report) {
    let mut scope = Scope { function, defined: vec![false; function.values.len()], report };
    for &input in &function.inputs {
        scope.define(input, "an input");
    }
    if !function.body.inputs.is_empty() {
        scope.report.in_function(function, "body", "the block of a function takes no inputs of its own");
    }
    scope.block(&function.body);
}

struct Scope<'a> {
    function: &'a Function,
    defined: Vec<bool>,
    report: &'a mut Report,
}

impl Scope<'_> {
    fn block(&mut self, block: &Block) {
        for &input in &block.inputs {
            self.define(input, "a block input");
        }
        for op in &block.operations {
            self.operation(op);
        }
        for &output in &block.outputs {
            self.used(output, "a block output");
        }
        for id in block.inputs.iter().chain(block.operations.iter().flat_map(|op| &op.outputs)) {
            if !std::ptr::eq(block, &self.function.body) && id.index() < self.defined.len() {
                self.defined[id.index()] = false;
            }
        }
    }

    fn operation(&mut self, op: &Operation) {
        for argument in &op.inputs {
            for binding in &argument.bindings {
                if let Binding::Value(id) = binding {
                    self.used(*id, &format!("`{}` of {}", argument.parameter, op.kind));
                }
            }
        }
        for block in &op.blocks {
            self.block(block);
        }
        for &output in &op.outputs {
            self.define(output, &format!("an output of {}", op.kind));
        }
    }

    fn define(&mut self, id: ValueId, role: &str) {
        match self.defined.get_mut(id.index()) {
            Some(defined) if !*defined => *defined = true,
            Some(_) => {
                let name = &self.function.value(id).name;
                self.report.in_function(self.function, format!("value `{name}`"), "is defined twice");
            }
            None => self.unknown(id, role),
        }
    }

    fn used(&mut self, id: ValueId, role: &str) {
        match self.defined.get(id.index()) {
            Some(true) => {}
            Some(false) => {
                let name = &self.function.value(id).name;
                let message = format!("is used as {role} before it is defined");
                self.report.in_function(self.function, format!("value `{name}`"), message);
            }
            None => self.unknown(id, role),
        }
    }

    fn unknown(&mut self, id: ValueId, role: &str) {
        let message =
            format!("{role} is value {}, the function has {}", id.index(), self.function.values.len());
        self.report.in_function(self.function, "values", message);
    }
}

pub(super) fn check_types(function: &Function) -> Report {
    let options = Options { fold_bytes: 1 << 16, trust_declared: true, numerics: Numerics::Fast };
    let (facts, findings) = propagate::propagate(function, &[], options);
    let constant = vec![false; function.values.len()];
    let mut check = TypeCheck { function, facts: &facts, constant, report: Report(findings) };
    check.block(&function.body);
    check.report
}

struct TypeCheck<'a> {
    function: &'a Function,
    facts: &'a propagate::Facts,
    constant: Vec<bool>,
    report: Report,
}

impl TypeCheck<'_> {
    fn block(&mut self, block: &Block) {
        for op in &block.operations {
            self.literals(op);
            self.constants(op);
            op.blocks.iter().for_each(|block| self.block(block));
            self.outputs(op);
        }
    }

    fn add(&mut self, op: &Operation, message: String) {
        self.report.in_function(self.function, place(self.function, op), message);
    }

    fn literals(&mut self, op: &Operation) {
        let in_place = op.inputs.iter().flat_map(|a| &a.bindings).filter_map(|b| match b {
            Binding::Literal(literal) => Some(literal),
            Binding::Value(_) => None,
        });
        let attributes = op.attributes.iter().map(|(_, literal)| literal);
        for literal in in_place.chain(attributes).filter(|l| !literal_fits(l)) {
            self.add(op, format!("a constant does not fill its type {}", literal.ty));
        }
    }

    /// Parameters that must be constant are fed by constants.
    fn constants(&mut self, op: &Operation) {
        let is_constant = op.kind == "const" || op.kind.starts_with("constexpr_");
        for output in op.outputs.iter().filter(|_| is_constant) {
            self.constant[output.index()] = true;
        }
        let Some(def) = ops::find(&op.kind, self.function.opset) else { return };
        let (arguments, _) = Arguments::resolve(op, def);
        for (param, sources) in arguments.iter().filter(|(param, _)| def.params[*param].constant) {
            for source in sources {
                if let Source::Value(id) = source
                    && !self.constant[id.index()]
                {
                    let name = &self.function.value(*id).name;
                    self.add(
                        op,
                        format!("`{}` must be a constant, `{name}` is computed", def.params[param].name),
                    );
                }
            }
        }
    }

    fn outputs(&mut self, op: &Operation) {
        for &id in &op.outputs {
            let declared = &self.function.value(id).ty;
            let inferred = &self.facts.types[id.index()];
            if !agrees(declared, inferred) {
                let name = &self.function.value(id).name;
                self.add(op, format!("`{name}` is declared {declared} and comes out as {inferred}"));
            }
            let rank = match declared {
                Type::Tensor(ty) => ty.shape.len(),
                _ => 0,
            };
            if rank > MAX_RANK && !self.constant[id.index()] {
                self.add(op, format!("rank {rank}: a computed value has at most rank {MAX_RANK}"));
            }
        }
    }
}
