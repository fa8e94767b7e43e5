//! The shapes that flexible inputs of a function may have.

use anemeter_mil::{Dim, Interface};

/// The shapes of each flexible input; those of different inputs pair by index.
#[derive(Default)]
pub(super) struct Enumerated(Vec<(String, Vec<Vec<u64>>)>);

impl Enumerated {
    /// Notes an input's shape at every length, if it varies, and gives the dimensions the program declares.
    pub(super) fn add(&mut self, input: &str, shapes: Vec<Vec<usize>>) -> Vec<Dim> {
        let default = shapes.first().cloned().unwrap_or_default();
        let dim = |axis: usize| match shapes.iter().all(|shape| shape[axis] == default[axis]) {
            true => Dim::from(default[axis]),
            false => Dim::Unknown,
        };
        let dims: Vec<Dim> = (0..default.len()).map(dim).collect();
        if dims.contains(&Dim::Unknown) {
            let wide = |shape: Vec<usize>| shape.into_iter().map(|size| size as u64).collect();
            self.0.push((input.to_owned(), shapes.into_iter().map(wide).collect()));
        }
        dims
    }

    /// Declares the shapes in a function's interface.
    pub(super) fn declare(&self, interface: &mut Interface) {
        for (input, shapes) in &self.0 {
            interface.enumerate(input, shapes);
        }
    }
}
