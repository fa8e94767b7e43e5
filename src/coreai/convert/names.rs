//! What the function of one shape is called: `prefill_128` is `prefill` at a length of 128.

use std::collections::HashSet;

use anemeter_base::function_name::at_length;
use anemeter_mil::graph::Graph;

/// A name for a function at a shape that no other has.
pub(super) fn unique(graph: &Graph<'_>, used: &mut HashSet<String>) -> String {
    let base = &graph.function.name;
    let mut name = match length(graph) {
        Some(length) => at_length(base, length),
        None => base.clone(),
    };
    if used.contains(&name) {
        name = format!("{name}_{}", graph.shape_index);
    }
    while !used.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// The first size that differs between the shapes of a function; nothing where there is one shape only.
fn length(graph: &Graph<'_>) -> Option<u64> {
    let features = graph.interface.iter().flat_map(|interface| &interface.inputs);
    let flexible = features.filter_map(|feature| feature.enumerated()).filter(|shapes| shapes.len() > 1);
    for shapes in flexible {
        let first = &shapes[0];
        let varying =
            (0..first.len()).find(|&axis| shapes.iter().any(|shape| shape.get(axis) != first.get(axis)));
        if let Some(axis) = varying {
            return shapes.get(graph.shape_index)?.get(axis).copied();
        }
    }
    None
}
