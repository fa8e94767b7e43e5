//! Lexical scopes of value names: nested blocks see the enclosing ones and may hide their names.

use std::collections::HashMap;

use crate::ValueId;

/// Names that are visible at one point of a function.
#[derive(Default)]
pub(super) struct Scope<'a> {
    names: HashMap<&'a str, Definition>,
    /// What definitions of nested blocks replaced, newest last.
    hidden: Vec<(&'a str, Option<Definition>)>,
    /// Where each open nested block starts in `hidden`.
    blocks: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Definition {
    id: ValueId,
    depth: u32,
}

impl<'a> Scope<'a> {
    /// Opens a nested block.
    pub(super) fn enter(&mut self) {
        self.blocks.push(self.hidden.len());
    }

    /// Closes the innermost nested block, and forgets its names.
    pub(super) fn leave(&mut self) {
        let start = self.blocks.pop().expect("whoever leaves a block has entered it");
        for (name, before) in self.hidden.drain(start..).rev() {
            match before {
                Some(definition) => self.names.insert(name, definition),
                None => self.names.remove(name),
            };
        }
    }

    /// Defines a name; false if the innermost block has it already.
    #[must_use]
    pub(super) fn define(&mut self, name: &'a str, id: ValueId) -> bool {
        let depth = self.blocks.len() as u32;
        let before = self.names.insert(name, Definition { id, depth });
        if depth > 0 {
            self.hidden.push((name, before));
        }
        before.is_none_or(|definition| definition.depth < depth)
    }

    /// The value that a name stands for here.
    pub(super) fn resolve(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).map(|definition| definition.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hide_names_and_forget_them() {
        let [a, b, c] = [0, 1, 2].map(ValueId::new);
        let mut scope = Scope::default();
        assert!(scope.define("x", a));
        assert!(!scope.define("x", a));
        for inner in [b, c] {
            scope.enter();
            assert_eq!(scope.resolve("x"), Some(a));
            assert!(scope.define("x", inner) && scope.define("y", inner));
            assert!(!scope.define("y", inner));
            assert_eq!(scope.resolve("x"), Some(inner));
            scope.leave();
        }
        assert_eq!((scope.resolve("x"), scope.resolve("y")), (Some(a), None));
    }
}
