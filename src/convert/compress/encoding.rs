//! The operations that give a compressed weight back.

use anemeter_kernels::tensor::DType;
use anemeter_mil::{Argument, Binding, Function, Literal, LiteralData, Operation, TensorType, ValueId};

/// One operation of a chain.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) kind: &'static str,
    /// Whether its arguments are attributes, as before iOS 18.
    pub(super) by_attribute: bool,
    pub(super) arguments: Vec<(&'static str, Operand)>,
    /// What is appended to the weight's name for each output, and its type; nothing for the weight itself.
    pub(super) outputs: Vec<(&'static str, Option<TensorType>)>,
}

/// What an argument is bound to.
#[derive(Debug, Clone)]
pub(super) enum Operand {
    /// A piece of the encoding.
    Piece(usize),
    /// A constant of the package.
    Constant(Literal),
    /// The output of an earlier step that has this appended to its name.
    Earlier(&'static str),
}

impl Step {
    /// A step of the second generation that gives the weight itself.
    pub(super) fn last(kind: &'static str, arguments: Vec<(&'static str, Operand)>) -> Step {
        Step { kind, by_attribute: false, arguments, outputs: vec![("", None)] }
    }

    /// A step of the first generation.
    pub(super) fn by_attribute(kind: &'static str, arguments: Vec<(&'static str, Operand)>) -> Step {
        Step { by_attribute: true, ..Step::last(kind, arguments) }
    }
}

/// A shape as the first generation wants it.
pub(super) fn listed(shape: &[usize]) -> Operand {
    let sizes: Vec<u8> = shape.iter().flat_map(|&size| (size as u32).to_le_bytes()).collect();
    Operand::Constant(Literal {
        ty: TensorType::fixed(DType::U32, &[shape.len()]).into(),
        data: LiteralData::Immediate(sizes.into()),
    })
}

/// The operations of steps over the pieces, the last of which defines `weight`.
pub(super) fn operations(
    function: &mut Function,
    weight: ValueId,
    steps: &[Step],
    pieces: &[Literal],
) -> Vec<Operation> {
    let base = function.value(weight).name.clone();
    let mut earlier: Vec<(&'static str, ValueId)> = Vec::new();
    let mut operations = Vec::new();
    for step in steps {
        let (mut inputs, mut attributes) = (Vec::new(), Vec::new());
        for (parameter, operand) in &step.arguments {
            let binding = match operand {
                Operand::Piece(index) => Binding::Literal(pieces[*index].clone()),
                Operand::Constant(literal) => Binding::Literal(literal.clone()),
                Operand::Earlier(suffix) => {
                    let found = earlier.iter().find(|(name, _)| name == suffix);
                    Binding::Value(found.map_or(weight, |&(_, id)| id))
                }
            };
            match binding {
                Binding::Literal(literal) if step.by_attribute => {
                    attributes.push(((*parameter).to_owned(), literal));
                }
                binding => {
                    inputs.push(Argument { parameter: (*parameter).to_owned(), bindings: vec![binding] });
                }
            }
        }
        let mut outputs = Vec::new();
        for (suffix, ty) in &step.outputs {
            let id = match ty {
                Some(ty) => {
                    let name = unused(function, &format!("{base}_{suffix}"));
                    function.add_value(&name, ty.clone().into())
                }
                None => weight,
            };
            earlier.push((suffix, id));
            outputs.push(id);
        }
        let name = outputs.last().map_or(base.clone(), |&id| function.value(id).name.clone());
        attributes.push(("name".to_owned(), Literal::text(&name)));
        attributes.sort_by(|a, b| a.0.cmp(&b.0));
        inputs.sort_by(|a, b| a.parameter.cmp(&b.parameter));
        let kind = step.kind.to_owned();
        operations.push(Operation { kind, inputs, outputs, attributes, ..Operation::default() });
    }
    operations
}

/// A name that no value of the function has yet.
fn unused(function: &Function, wanted: &str) -> String {
    let is_taken = |name: &str| function.values.iter().any(|value| value.name == name);
    let numbered = (1..).map(|i| format!("{wanted}_{i}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
    names.find(|name| !is_taken(name)).unwrap_or_else(|| wanted.to_owned())
}
