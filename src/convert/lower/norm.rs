//! RMS norm and layer norm whose intermediate values stay within fp16 however large the input is.
//!
//! Squares of fp16 numbers overflow from 256 on. Both norms are unchanged when their input is multiplied by a
//! factor and epsilon by its square, so the input is first divided by its largest magnitude: squares are then
//! at most 1, and the factor is never multiplied back.

use half::f16;

use super::error::{LowerError, Result};
use super::graph::Graph;
use crate::model::{Norm, NormKind, Source};
use anemeter_mil::ValueId;

/// The least divisor. Inputs below it are near the resolution of fp16, and `epsilon` over its square is small.
const FLOOR: f32 = 1.0 / 256.0;

/// Normalises an axis of `size` elements.
pub(super) fn norm(
    graph: &mut Graph<'_>,
    label: &str,
    x: ValueId,
    norm: &Norm,
    (axis, size): (usize, usize),
) -> Result {
    if !(0.0..1.0).contains(&norm.epsilon) {
        let at = graph.place(label);
        return Err(LowerError::model(&at, format!("epsilon is {}, should be 0 to 1", norm.epsilon)));
    }
    let root = norm.epsilon.sqrt();
    let mut parameter = [1; 4];
    parameter[axis] = size;
    graph.within(label, |graph| {
        let (mut scaled, factor) = bounded(graph, x, axis, FLOOR.max(root))?;
        if norm.kind == NormKind::Layer {
            let mean = graph.reduce("reduce_mean", "mean", scaled, axis)?;
            scaled = graph.binary("sub", "centred", scaled, mean)?;
        }
        let squares = graph.binary("mul", "squares", scaled, scaled)?;
        let mut variance = graph.reduce("reduce_mean", "variance", squares, axis)?;
        if root > 0.0 {
            let epsilon = graph.binary("mul", "epsilon_root", factor, f16::from_f32(root))?;
            let epsilon = graph.binary("mul", "epsilon", epsilon, epsilon)?;
            variance = graph.binary("add", "variance_epsilon", variance, epsilon)?;
        }
        // A column of zeros, such as padding, must not become infinity times zero.
        let inverse = graph.rsqrt("inverse", variance, f16::from_bits(1))?;
        let normal = graph.binary("mul", "normal", scaled, inverse)?;
        let out = match norm.weight.source {
            Source::Ones(_) => normal,
            _ => {
                let weight = graph.whole("weight", &norm.weight, &[size], &parameter)?;
                graph.binary("mul", "out", normal, weight)?
            }
        };
        match &norm.bias {
            Some(bias) => {
                let bias = graph.whole("bias", bias, &[size], &parameter)?;
                graph.binary("add", "shifted", out, bias)
            }
            None => Ok(out),
        }
    })
}

/// An axis over its largest magnitude or `floor`, and the factor that it was multiplied by.
fn bounded(graph: &mut Graph<'_>, x: ValueId, axis: usize, floor: f32) -> Result<(ValueId, ValueId)> {
    let magnitude = graph.unary("abs", "magnitude", x)?;
    let largest = graph.reduce("reduce_max", "largest", magnitude, axis)?;
    let divisor = graph.binary("maximum", "divisor", largest, f16::from_f32(floor))?;
    let factor = graph.binary("real_div", "factor", f16::ONE, divisor)?;
    Ok((graph.binary("mul", "scaled", x, factor)?, factor))
}

/// The most elements whose squares fp16 can add up.
const LONGEST: usize = 65_504;

/// Divides an axis of `size` elements by its length (L2 norm). Zeros stay zeros.
pub(super) fn unit_length(
    graph: &mut Graph<'_>,
    label: &str,
    x: ValueId,
    (axis, size): (usize, usize),
) -> Result {
    if size > LONGEST {
        let at = graph.place(label);
        return Err(LowerError::model(&at, format!("has {size} elements, at most {LONGEST} have a length")));
    }
    graph.within(label, |graph| {
        let (scaled, _) = bounded(graph, x, axis, f16::MIN_POSITIVE.to_f32())?;
        let squares = graph.binary("mul", "squares", scaled, scaled)?;
        let sum = graph.reduce("reduce_sum", "sum", squares, axis)?;
        let inverse = graph.rsqrt("inverse", sum, f16::from_bits(1))?;
        graph.binary("mul", "out", scaled, inverse)
    })
}
