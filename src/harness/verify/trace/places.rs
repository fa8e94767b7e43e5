//! Where a package computes the hidden states that a reference shows.
//!
//! The value that leaves a layer is the last of the layer's values of the residual stream's shape that something
//! outside the layer takes. If it is a sum with another sum of the layer, that one is what attention left;
//! of several the first, for a layer may add more after its MLP. Where norms are
//! of sums, what attention left is that term of the layer's last sum which more than the sum takes.

use std::collections::BTreeMap;

use crate::verify::Point;
use anemeter_mil::graph::{Graph, Op};
use anemeter_mil::{Model, ValueId};

/// Names of values and the points that they are.
pub type Places = BTreeMap<String, Point>;

/// The points of all functions of a chunk whose first layer is `first_layer`, for a model of this hidden size.
pub fn places(model: &Model, first_layer: usize, hidden: usize) -> Places {
    let mut places = Places::new();
    for function in &model.program.functions {
        let graph = Graph::new(function, model.interface(&function.name), 0);
        let found = Finder::new(&graph, hidden);
        if first_layer == 0 {
            let embedding = found.embedding().map(|id| found.computed(id));
            places.extend(embedding.map(|id| (graph.name(id).to_owned(), Point::Embedding)));
        }
        for (layer, id) in found.layers() {
            places.insert(graph.name(id).to_owned(), Point::Layer(layer));
            let attended = found.attended(layer, id).or_else(|| found.attended_and_normed(layer));
            places.extend(attended.map(|id| (graph.name(id).to_owned(), Point::Attention(layer))));
        }
    }
    places
}

struct Finder<'g, 'm> {
    graph: &'g Graph<'m>,
    hidden: usize,
    /// The sums of each layer, in order.
    sums: BTreeMap<usize, Vec<Op<'m>>>,
}

impl<'g, 'm> Finder<'g, 'm> {
    fn new(graph: &'g Graph<'m>, hidden: usize) -> Finder<'g, 'm> {
        let mut sums: BTreeMap<usize, Vec<Op<'m>>> = BTreeMap::new();
        for op in graph.runtime_ops().filter(|op| op.kind() == "add") {
            if let Some(layer) = graph.layer(&op) {
                sums.entry(layer as usize).or_default().push(op);
            }
        }
        Finder { graph, hidden, sums }
    }

    fn is_stream(&self, id: ValueId) -> bool {
        let dims = self.graph.dims(id);
        dims.is_some_and(|dims| matches!(dims[..], [_, channels, 1, _] if channels == self.hidden))
    }

    fn layer(&self, op: &Op<'_>) -> Option<usize> {
        self.graph.layer(op).map(|layer| layer as usize)
    }

    /// What the first layer takes, or what a function without layers gives.
    fn embedding(&self) -> Option<ValueId> {
        let mut ops = self.graph.runtime_ops().filter(|op| self.layer(op).is_none());
        ops.find_map(|op| {
            let id = op.output().filter(|&id| self.is_stream(id))?;
            let feeds_first = self.graph.consumers(id).any(|user| self.layer(&user) == Some(0));
            let no_layers = || self.graph.runtime_ops().all(|op| self.layer(&op).is_none());
            (feeds_first || (self.graph.is_output(id) && no_layers())).then_some(id)
        })
    }

    /// The value that another one only arranges differently: a runtime need not compute that one.
    fn computed(&self, id: ValueId) -> ValueId {
        self.graph.arranged_from(id, &["expand_dims", "reshape", "transpose"])
    }

    /// What leaves each layer.
    fn layers(&self) -> BTreeMap<usize, ValueId> {
        let mut last = BTreeMap::new();
        for op in self.graph.runtime_ops() {
            let (Some(layer), Some(id)) = (self.layer(&op), op.output()) else { continue };
            let leaves = self.graph.is_output(id)
                || self.graph.consumers(id).any(|user| self.layer(&user) != Some(layer));
            if leaves && self.is_stream(id) {
                last.insert(layer, id);
            }
        }
        last
    }

    /// What attention left where the sum with what the MLP gives has a norm of its own.
    fn attended_and_normed(&self, layer: usize) -> Option<ValueId> {
        let mut last_first = self.sums.get(&layer)?.iter().rev();
        let terms = last_first.find_map(|sum| {
            let [x, y] = ["x", "y"].map(|parameter| self.graph.arg(sum, parameter));
            let (x, y) = (x?, y?);
            let is_of_layer = |id: ValueId| {
                let own = self.graph.producer(id).is_some_and(|op| self.layer(&op) == Some(layer));
                own && self.is_stream(id) && !self.graph.is_constant(id)
            };
            (is_of_layer(x) && is_of_layer(y)).then_some([x, y])
        });
        terms?.into_iter().find(|&id| self.graph.consumers(id).count() > 1)
    }

    /// What attention left, of what leaves the layer.
    fn attended(&self, layer: usize, out: ValueId) -> Option<ValueId> {
        let mut found = self.sum_within(layer, self.unscaled(out))?;
        // A layer that adds something else after its MLP has a sum more.
        while let Some(earlier) = self.sum_within(layer, found) {
            found = earlier;
        }
        Some(found)
    }

    /// The term of a sum that is itself a sum of the layer, and not that with a bias.
    fn sum_within(&self, layer: usize, sum: ValueId) -> Option<ValueId> {
        let sum = self.graph.produced_by(sum, &["add"])?;
        let terms = |op: &Op<'_>| ["x", "y"].map(|parameter| self.graph.arg(op, parameter));
        terms(&sum).into_iter().flatten().find(|&id| {
            let term = self.graph.produced_by(id, &["add"]).filter(|op| self.layer(op) == Some(layer));
            let is_plain =
                |op: &Op<'_>| !terms(op).into_iter().flatten().any(|id| self.graph.is_constant(id));
            self.is_stream(id) && term.is_some_and(|op| is_plain(&op))
        })
    }

    /// What a number is multiplied to.
    fn unscaled(&self, id: ValueId) -> ValueId {
        let of = |op: &Op<'_>, parameter: &str| self.graph.arg(op, parameter);
        let scaled = self.graph.produced_by(id, &["mul"]);
        let term = scaled.and_then(|op| {
            let is_number = of(&op, "y").is_none_or(|id| self.graph.is_constant(id));
            of(&op, "x").filter(|&x| is_number && self.is_stream(x))
        });
        term.unwrap_or(id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Opset, TensorType};

    use super::*;

    /// Layers in which the norms are of sums.
    fn normed(layers: usize) -> Model {
        let mut main = Builder::new("main", Opset::Ios18);
        let mut x = main.input("x", TensorType::fixed(DType::F16, &[1, 4, 1, 8]));
        for layer in 0..layers {
            let mut op = |kind: &str, name: &str, of: &[ValueId]| {
                let name = format!("layers_{layer}_{name}");
                let op = main.op(kind).named(&name).arg("x", of[0]);
                let op = if let Some(&y) = of.get(1) { op.arg("y", y) } else { op };
                op.push().unwrap()
            };
            let attention = op("tanh", "attention", &[x]);
            let sum = op("add", "attention_sum", &[x, attention]);
            let attended = op("relu", "attention_norm", &[sum]);
            let mlp = op("sigmoid", "mlp", &[attended]);
            let sum = op("add", "mlp_sum", &[attended, mlp]);
            x = op("relu", "mlp_norm", &[sum]);
        }
        Model::single(main.finish(&[x]))
    }

    #[test]
    fn what_attention_left_is_found_behind_its_norm() {
        let found = places(&normed(3), 0, 4);
        for layer in 0..3 {
            assert_eq!(found[&format!("layers_{layer}_attention_norm")], Point::Attention(layer));
            assert_eq!(found[&format!("layers_{layer}_mlp_norm")], Point::Layer(layer));
        }
    }

    #[test]
    fn thousands_of_layers_take_a_moment() {
        let model = normed(3000);
        let began = Instant::now();
        assert_eq!(places(&model, 1, 4).len(), 2 * 3000);
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}
