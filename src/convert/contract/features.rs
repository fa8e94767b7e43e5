//! What contracts look for in the interface of a function.

use anemeter_mil::op::OpClass;
use anemeter_mil::{
    ArrayType, Binding, Feature, FeatureType, Flexibility, Function, Interface, Model, Operation,
};

/// Lengths that an input without an upper bound is used at.
const OPEN_END: usize = 2048;
/// Shortest and longest length that are taken from a range.
const SHORTEST: usize = 64;
const LONGEST: usize = 1 << 15;

/// A function as its users see it, and its program.
#[derive(Clone, Copy)]
pub(super) struct ModelFunction<'a> {
    pub(super) interface: &'a Interface,
    function: &'a Function,
}

/// The sizes that a dimension may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sizes {
    /// One only.
    Fixed(usize),
    /// One of several, in the order of the list.
    Listed(Vec<usize>),
    /// Anything between; no upper bound means unbounded.
    Between(usize, Option<usize>),
}

impl Sizes {
    /// The lengths that sequences are padded to: all that are listed, or powers of two and the end of a range.
    pub(super) fn lengths(&self) -> Vec<usize> {
        match self {
            Sizes::Fixed(size) => vec![*size],
            Sizes::Listed(sizes) => {
                let mut sizes = sizes.clone();
                sizes.sort_unstable();
                sizes.dedup();
                sizes
            }
            Sizes::Between(low, high) => {
                let high = high.unwrap_or(OPEN_END).min(LONGEST).max(*low);
                let powers = (0..usize::BITS - 1).map(|bit| 1usize << bit);
                let inside = powers.filter(|&size| size >= SHORTEST.max(*low) && size < high);
                inside.chain([high]).collect()
            }
        }
    }

    /// The most there may be, where that is said.
    pub(super) fn most(&self) -> Option<usize> {
        match self {
            Sizes::Fixed(size) => Some(*size),
            Sizes::Listed(sizes) => sizes.iter().copied().max(),
            Sizes::Between(_, high) => *high,
        }
    }

    /// Whether a size is among them.
    pub(super) fn allows(&self, size: usize) -> bool {
        match self {
            Sizes::Fixed(only) => *only == size,
            Sizes::Listed(sizes) => sizes.contains(&size),
            Sizes::Between(low, high) => size >= *low && high.is_none_or(|high| size <= high),
        }
    }
}

impl<'a> ModelFunction<'a> {
    /// A function of a model.
    pub(super) fn of(model: &'a Model, function: &str) -> Option<ModelFunction<'a>> {
        Some(ModelFunction {
            interface: model.interface(function)?,
            function: model.program.function(function)?,
        })
    }

    /// An input by name.
    pub(super) fn input(&self, name: &str) -> Option<&'a ArrayType> {
        array(&self.interface.inputs, name)
    }

    /// An output by name.
    pub(super) fn output(&self, name: &str) -> Option<&'a ArrayType> {
        array(&self.interface.outputs, name)
    }

    /// A state by name.
    pub(super) fn state(&self, name: &str) -> Option<&'a ArrayType> {
        array(&self.interface.states, name)
    }

    /// Whether every input is among the names.
    pub(super) fn takes_only(&self, names: &[&str]) -> bool {
        self.interface.inputs.iter().all(|feature| names.contains(&feature.name.as_str()))
    }

    /// The last size of an output, which the program knows where the interface does not say.
    pub(super) fn output_width(&self, name: &str) -> Option<usize> {
        let declared = self.output(name)?.shape.last().and_then(|&size| usize::try_from(size).ok());
        declared.or_else(|| {
            let outputs = self.function.body.outputs.iter().map(|&id| self.function.value(id));
            let value = outputs.into_iter().find(|value| value.name == name)?;
            value.ty.tensor()?.shape.last()?.size()
        })
    }

    /// How many dimensions an output has, where that is known.
    pub(super) fn output_rank(&self, name: &str) -> Option<usize> {
        let declared = self.output(name)?.shape.len();
        let outputs = self.function.body.outputs.iter().map(|&id| self.function.value(id));
        let value = outputs.into_iter().find(|value| value.name == name);
        let in_program = value.and_then(|value| value.ty.tensor()?.rank());
        in_program.or((declared > 0).then_some(declared))
    }

    /// Whether it looks vectors up in a table of so many rows, as it does with the tokens of its vocabulary.
    pub(super) fn looks_up(&self, rows: usize) -> bool {
        let is_lookup = |op: &&Operation| matches!(self.function.class_of(op), Some(OpClass::Lookup));
        self.function.body.operations.iter().filter(is_lookup).any(|op| {
            let table = op.input("x").and_then(|argument| argument.bindings.first());
            let Some(Binding::Value(table)) = table else { return false };
            let shape = self.function.value(*table).ty.tensor().map(|ty| &ty.shape[..]);
            matches!(shape, Some([first, _]) if first.size() == Some(rows))
        })
    }
}

/// The sizes of a dimension, counted from the last if negative.
pub(super) fn sizes(array: &ArrayType, axis: isize) -> Option<Sizes> {
    let size = |size: u64| usize::try_from(size).ok();
    let at = |rank: usize| match axis {
        0.. => usize::try_from(axis).ok().filter(|&at| at < rank),
        _ => rank.checked_sub(axis.unsigned_abs()),
    };
    match &array.flexibility {
        Flexibility::Fixed => Some(Sizes::Fixed(size(*array.shape.get(at(array.shape.len())?)?)?)),
        Flexibility::Enumerated(shapes) => {
            let listed: Option<Vec<usize>> =
                shapes.iter().map(|shape| size(*shape.get(at(shape.len())?)?)).collect();
            let listed = listed?;
            let first = *listed.first()?;
            let same = listed.iter().all(|&size| size == first);
            Some(if same { Sizes::Fixed(first) } else { Sizes::Listed(listed) })
        }
        Flexibility::Ranges(ranges) => {
            let &(low, high) = ranges.get(at(ranges.len())?)?;
            let (low, high) = (size(low)?, high.map(|high| size(high).unwrap_or(usize::MAX)));
            Some(if high == Some(low) { Sizes::Fixed(low) } else { Sizes::Between(low, high) })
        }
    }
}

fn array<'a>(features: &'a [Feature], name: &str) -> Option<&'a ArrayType> {
    features.iter().find(|feature| feature.name == name).and_then(|feature| match &feature.ty {
        FeatureType::Array(array) | FeatureType::State(array) => Some(array),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_used_at_powers_of_two_and_at_their_end() {
        assert_eq!(Sizes::Between(1, Some(300)).lengths(), [64, 128, 256, 300]);
        assert_eq!(Sizes::Between(1, Some(16)).lengths(), [16]);
        assert_eq!(Sizes::Between(512, None).lengths(), [512, 1024, 2048]);
        assert_eq!(Sizes::Listed(vec![128, 32, 128]).lengths(), [32, 128]);
        assert_eq!(Sizes::Between(1, Some(usize::MAX)).lengths().last(), Some(&LONGEST));
    }
}
