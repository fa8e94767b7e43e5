//! Which bindings of an operation go to which parameter of its definition.

use super::op::{Arity, OpDef, Presence};
use super::{Binding, Literal, Operation, ValueId};

/// One source of an argument.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A value defined earlier.
    Value(ValueId),
    /// A constant in place.
    Literal(&'a Literal),
}

impl<'a> From<&'a Binding> for Source<'a> {
    fn from(binding: &'a Binding) -> Source<'a> {
        match binding {
            Binding::Value(id) => Source::Value(*id),
            Binding::Literal(literal) => Source::Literal(literal),
        }
    }
}

/// The sources of an operation's arguments, by parameter index of its definition. Inputs and attributes are
/// alike: the older `constexpr` operations carry their parameters as attributes.
#[derive(Debug, Clone, Default)]
pub struct Arguments<'a> {
    by_param: Vec<Vec<Source<'a>>>,
}

impl<'a> Arguments<'a> {
    /// Matches an operation against a definition; every misfit is reported.
    pub fn resolve(op: &'a Operation, def: &OpDef) -> (Arguments<'a>, Vec<String>) {
        let mut by_param = vec![Vec::new(); def.params.len()];
        let mut problems = Vec::new();
        for argument in &op.inputs {
            match def.params.iter().position(|p| p.name == argument.parameter) {
                Some(param) => by_param[param].extend(argument.bindings.iter().map(Source::from)),
                None => problems.push(unknown_parameter(&argument.parameter, def)),
            }
        }
        for (name, literal) in op.attributes.iter().filter(|(name, _)| name != "name") {
            match def.params.iter().position(|p| p.name == name) {
                Some(param) => by_param[param].push(Source::Literal(literal)),
                None => problems.push(unknown_parameter(name, def)),
            }
        }
        for (param, sources) in def.params.iter().zip(&by_param) {
            if sources.is_empty() && param.presence == Presence::Required {
                problems.push(format!("`{}` is missing", param.name));
            }
            if sources.len() > 1 && param.arity == Arity::One {
                problems.push(format!("`{}` takes one value and has {}", param.name, sources.len()));
            }
        }
        (Arguments { by_param }, problems)
    }

    /// What is bound to a parameter.
    pub fn of(&self, param: usize) -> &[Source<'a>] {
        &self.by_param[param]
    }

    /// Parameters and what is bound to each.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[Source<'a>])> {
        self.by_param.iter().map(Vec::as_slice).enumerate()
    }
}

fn unknown_parameter(name: &str, def: &OpDef) -> String {
    let known: Vec<_> = def.params.iter().map(|p| p.name).collect();
    format!("`{name}` is not a parameter of {} since {}, which has {}", def.name, def.since, known.join(", "))
}
