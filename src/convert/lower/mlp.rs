//! MLPs, plain and gated (SwiGLU, GeGLU: Shazeer 2020; paGating), and activations in forms that fp16 holds.

use half::f16;

use super::error::Result;
use super::graph::{CHANNELS, Graph};
use super::norm::norm;
use crate::model::{Activation, Linear, Mlp};
use anemeter_mil::ValueId;

/// The MLP of a layer of width `hidden`.
pub(super) fn mlp(graph: &mut Graph<'_>, x: ValueId, mlp: &Mlp, hidden: usize) -> Result {
    match mlp {
        Mlp::Plain { up, activation, down } => {
            let width = outputs(up);
            let wide = graph.linear("up", x, up, (width, hidden))?;
            let active = activate(graph, "active", wide, *activation)?;
            graph.linear("down", active, down, (hidden, width))
        }
        Mlp::Gated { gate, up, activation, down } => {
            let width = outputs(gate);
            let gated = graph.linear("gate", x, gate, (width, hidden))?;
            let gated = activate(graph, "active", gated, *activation)?;
            let wide = graph.linear("up", x, up, (width, hidden))?;
            let product = graph.binary("mul", "product", gated, wide)?;
            graph.linear("down", product, down, (hidden, width))
        }
        Mlp::Inner { into, value, gate, how, gate_norm, out } => {
            let (width, inner) = (outputs(into), outputs(value));
            let wide = graph.linear("into", x, into, (width, hidden))?;
            let value = graph.linear("value", wide, value, (inner, width))?;
            let gate = graph.linear("gate", wide, gate, (inner, width))?;
            let mut gate = activate(graph, "active", gate, how.activation)?;
            if let Some(gate_norm) = gate_norm {
                gate = norm(graph, "gate_norm", gate, gate_norm, (CHANNELS, inner))?;
            }
            if how.alpha != 1.0 {
                let gated = graph.scaled("share", gate, how.alpha)?;
                gate = graph.binary("add", "partial", gated, f16::from_f32(1.0 - how.alpha))?;
            }
            let product = graph.binary("mul", "product", value, gate)?;
            graph.linear("out", product, out, (hidden, inner))
        }
    }
}

fn outputs(linear: &Linear) -> usize {
    linear.weight.shape.first().copied().unwrap_or(0)
}

/// An activation function.
pub(super) fn activate(graph: &mut Graph<'_>, label: &str, x: ValueId, activation: Activation) -> Result {
    graph.within(label, |graph| match activation {
        Activation::Relu => graph.unary("relu", "relu", x),
        Activation::Sigmoid => graph.unary("sigmoid", "sigmoid", x),
        Activation::Tanh => graph.unary("tanh", "tanh", x),
        Activation::Gelu => graph.gelu("gelu", x),
        Activation::Silu => {
            let gate = graph.unary("sigmoid", "sigmoid", x)?;
            graph.binary("mul", "silu", x, gate)
        }
        Activation::GeluTanh => gelu_tanh(graph, x),
    })
}

/// `x * sigmoid(2u)` with `u = sqrt(2/π) (x + 0.044715 x³)`, which equals `x (1 + tanh u) / 2`. The sigmoid is
/// saturated beyond ±10, so the cube is taken of a bounded number.
fn gelu_tanh(graph: &mut Graph<'_>, x: ValueId) -> Result {
    let factor = 2.0 * (2.0 / std::f32::consts::PI).sqrt();
    let bounded = graph.clip("bounded", x, -10.0..10.0)?;
    let square = graph.binary("mul", "square", bounded, bounded)?;
    let slope = graph.scaled("cubic", square, 0.044715 * factor)?;
    let slope = graph.binary("add", "slope", slope, f16::from_f32(factor))?;
    let twice = graph.binary("mul", "twice", bounded, slope)?;
    let gate = graph.unary("sigmoid", "sigmoid", twice)?;
    graph.binary("mul", "gelu", x, gate)
}
