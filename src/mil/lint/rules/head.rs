//! Linear maps: their form, and the head.

use super::pattern::{LinearMap, count, linear_maps};
use super::*;

pub(super) static CONSTANT_MATMUL: Rule = Rule {
    title: "a matmul by a constant",
    why: "Linear maps are placed better as 1x1 convolutions or as `linear` than as a `matmul` whose second operand is \
          a constant. No project reports an advantage of the latter.",
    evidence: &[
        "lucasnewman/mlx2coreml: products by constants become `linear` because that helps placement",
        "Anemll and apple/coreai-models: linear maps are 1x1 convolutions",
    ],
    remedy: "write it as a 1x1 convolution over (batch, channels, 1, sequence), or as `linear`",
    check: Check::Function(|graph, _, sink| {
        for LinearMap { op, weight, .. } in linear_maps(graph).filter(|map| map.op.kind() == "matmul") {
            sink.op(graph, &op, format!("multiplies by the constant `{}`", graph.name(weight)));
        }
    }),
    #[cfg(test)]
    examples: (examples::constant_product, || examples::head(1)),
    ..Rule::warning("A37", "constant-matmul", WidelyReported)
};

/// Operations that keep each position to itself.
const POSITIONWISE: &[&str] = &["add", "mul", "real_div", "tanh", "cast", "identity", "sub", "sigmoid"];

pub(super) static HEAD_OVER_ALL_POSITIONS: Rule = Rule {
    title: "the head runs over more than one position",
    why: "Only the last position of a prompt needs logits. Over all of them the head dominates the prefill, or leaves \
          the Neural Engine. A head is taken to be a linear map whose result reaches an output named logits, or an \
          output at least twice as wide as its input.",
    evidence: &[
        "smpanaro/more-ane-transformers, NOTES: the head over all positions leaves the Neural Engine",
        "apple/coreai-models: the prefill function gives the cache only",
    ],
    remedy: "pick the last position before the head",
    check: Check::Shape(|graph, _, sink| {
        for LinearMap { op, .. } in linear_maps(graph) {
            let (Some(id), Some(x)) = (op.output(), graph.arg_dims(&op, "x")) else { continue };
            let (Some(output), Some(dims)) = (leaves_as(graph, id), graph.dims(id)) else { continue };
            let axis = if op.kind() == "conv" { 1 } else { dims.len().saturating_sub(1) };
            let (Some(&width), Some(&from)) = (dims.get(axis), x.get(axis)) else { continue };
            let is_head = graph.name(output).starts_with("logits") || width >= from.saturating_mul(2);
            let batch = if dims.len() > 2 { dims[0] } else { 1 };
            let positions = count(&dims) / width.saturating_mul(batch).max(1);
            if is_head && positions > 1 {
                let place = Place::op(graph, &op).tensor(graph.name(output));
                sink.at(graph, place, format!("gives {width} numbers for each of {positions} positions"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::head(32), || examples::head(1)),
    ..Rule::warning("A50", "head-over-all-positions", WidelyReported).of_decoders()
};

/// The output that a value becomes, position by position.
fn leaves_as(graph: &Graph<'_>, mut id: ValueId) -> Option<ValueId> {
    const STEPS: usize = 6;
    for _ in 0..STEPS {
        if graph.is_output(id) {
            return Some(id);
        }
        let mut users = graph.consumers(id);
        let user = users.next().filter(|op| POSITIONWISE.contains(&op.kind()))?;
        id = user.output().filter(|_| users.next().is_none())?;
    }
    None
}

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn constant_product() -> Case {
        on_input(&[1, 32, 64], |b, x| {
            let weight = b.constant("w", big(&[64, 64]));
            matmul(b, x, weight)
        })
    }

    pub(super) fn head(positions: usize) -> Case {
        case(|b| {
            let x = input(b, "hidden", DType::F16, &[1, 64, 1, positions]);
            vec![conv(b, x, (1024, 64))]
        })
    }
}
