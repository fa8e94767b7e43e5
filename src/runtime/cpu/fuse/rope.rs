//! RoPE (Su et al. 2021) of heads, with the scale of queries, as one step.
//!
//! ```text
//! x -+-- mul cos ------------------------------+
//!    +-- slice high -- mul -1 --+              add [-- concat the rest] [-- mul scale]
//!    +-- slice low -------------+ concat, mul sin
//! ```

use half::f16;
use smallvec::smallvec;

use super::graph::{Graph, SLICE};
use super::{FusedStep, fused_op};
use crate::cpu::plan::Operand;
use anemeter_kernels::rope::Rope;
use anemeter_mil::op::domain::FLOAT;
use anemeter_mil::op::{Call, OpClass, OpDef, OpError, Outputs, Param};

static ROPE: OpDef = fused_op(
    "rope (fused)",
    OpClass::Elementwise,
    &[
        Param::value("x", FLOAT),
        Param::value("cos", FLOAT),
        Param::value("sin", FLOAT),
        Param::constant("scale", FLOAT).or_float(1.0),
    ],
    eval,
);

/// The axis of a head's dimensions.
const WIDTH: usize = 2;
const RANK: usize = 4;

/// Looks for a rotation and what follows it: dimensions that do not turn, and a factor.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
    let (rotated, scale) = if graph.is(out, "mul") {
        let (x, scale) = (graph.argument(out, "x")?, graph.argument(out, "y")?);
        let last = graph.made_for(1, x, "add").or_else(|| graph.made_for(1, x, "concat"))?;
        graph.scalar(scale)?;
        (rope(graph, last)?, Some(scale))
    } else {
        (rope(graph, out)?, None)
    };
    let RopeMatch { x, cos, sin, mut steps } = rotated;
    steps.push(out);
    let arguments = vec![smallvec![x], smallvec![cos], smallvec![sin], scale.into_iter().collect()];
    Some(FusedStep::new(&ROPE, graph, out, arguments, steps))
}

/// A rotation and the steps that carry it out.
struct RopeMatch {
    x: Operand,
    cos: Operand,
    sin: Operand,
    steps: Vec<usize>,
}

/// A rotation of all dimensions, or of the first if the others come after them as they are.
fn rope(graph: &Graph<'_>, out: usize) -> Option<RopeMatch> {
    if graph.is(out, "add") {
        return rotation(graph, out);
    }
    let [first, second] = joined(graph, out)?;
    let rotated = rotation(graph, graph.made_for(1, first, "add")?)?;
    let turning = graph.made_for(3, rotated.x, SLICE)?;
    let (x, dims) = (graph.argument(turning, "x")?, graph.half_shape(rotated.x)?[WIDTH]);
    let rest = (WIDTH, dims..graph.half_shape(x)?[WIDTH]);
    let mut steps = rotated.steps;
    steps.extend(graph.cut_from(x, rest, second)?);
    steps.push(turning);
    steps.push(out);
    (graph.run_of(turning, WIDTH)? == (0..dims)).then_some(RopeMatch { x, steps, ..rotated })
}

/// `x cos + crossed sin`, where `crossed` is the second half of `x`, negative, before the first.
fn rotation(graph: &Graph<'_>, out: usize) -> Option<RopeMatch> {
    let factors = |operand: Operand| {
        let step = graph.made_for(1, operand, "mul")?;
        Some((step, graph.argument(step, "x")?, graph.argument(step, "y")?))
    };
    let (along, x, cos) = factors(graph.argument(out, "x")?)?;
    let (across, crossed, sin) = factors(graph.argument(out, "y")?)?;
    let crossed = graph.made_for(1, crossed, "concat")?;
    let [negative, low] = joined(graph, crossed)?;
    let (negated, high, minus) = factors(negative)?;
    let &[batch, _, dims, tokens] = &graph.half_shape(x)?[..] else { return None };
    let mut steps = vec![negated, crossed, along, across, out];
    steps.extend(graph.cut_from(x, (WIDTH, 0..dims / 2), low)?);
    steps.extend(graph.cut_from(x, (WIDTH, dims / 2..dims), high)?);
    let [cosines, sines] = [graph.half_shape(cos)?, graph.half_shape(sin)?];
    let fits = graph.scalar(minus)? == -1.0
        && dims % 2 == 0
        && cosines == sines
        && (cosines[..] == [1, 1, dims, tokens] || cosines[..] == [batch, 1, dims, tokens]);
    fits.then_some(RopeMatch { x, cos, sin, steps })
}

/// Two values that lie one after the other along the dimensions of heads.
fn joined(graph: &Graph<'_>, step: usize) -> Option<[Operand; 2]> {
    let along = graph.is(step, "concat") && graph.is_along(step, WIDTH, RANK);
    let &[first, second] = graph.arguments(step, "values")? else { return None };
    (along && !graph.is_set(step, "interleave")).then_some([first, second])
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let [x, cos, sin] = [call.tensor("x")?, call.tensor("cos")?, call.tensor("sin")?];
    let (shape, tables) = (x.shape(), cos.shape());
    let rotation = Rope::<f16> {
        cos: cos.slice()?,
        sin: sin.slice()?,
        rotary: tables[2] * tables[3],
        sharing: shape[0] / tables[0] * shape[1],
        head: shape[2] * shape[3],
        scale: call.float("scale")?,
    };
    rotation.rotate(x.slice()?, outputs.tensor(0)?.slice()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{executed_with, halves};
    use super::*;
    use anemeter_kernels::tensor::{DType, Tensor};
    use anemeter_mil::{Arg, Builder, Function, Opset, TensorType, ValueId};

    #[derive(Clone, Copy)]
    struct Form {
        shape: [usize; 4],
        dims: usize,
        tables: usize,
        scale: Option<f32>,
        axis: usize,
        minus: f32,
    }

    const FORM: Form =
        Form { shape: [2, 3, 16, 5], dims: 16, tables: 1, scale: None, axis: WIDTH, minus: -1.0 };

    fn slice(f: &mut Builder, x: ValueId, axis: usize, range: [usize; 2]) -> ValueId {
        let (mut begin, mut end, mut open) = ([0; 4], [0; 4], [true; 4]);
        (begin[axis], end[axis], open[axis]) = (range[0] as i32, range[1] as i32, false);
        let open = Tensor::from_bools(&[4], &open).unwrap();
        let op = f.op(SLICE).arg("x", x).arg("begin", begin).arg("end", end);
        op.arg("begin_mask", &open).arg("end_mask", &open).push().unwrap()
    }

    fn binary(f: &mut Builder, kind: &str, x: ValueId, y: impl Into<Arg>) -> ValueId {
        f.op(kind).arg("x", x).arg("y", y).push().unwrap()
    }

    fn join(f: &mut Builder, values: [ValueId; 2], axis: usize) -> ValueId {
        f.op("concat").args("values", &values).arg("axis", axis as i32).push().unwrap()
    }

    /// The rotation as an export writes it; with `shown`, an intermediate value leaves the function.
    fn rotation(form: Form, shown: bool) -> Function {
        let Form { shape, dims, tables, scale, axis, minus } = form;
        let mut f = Builder::new("main", Opset::Ios18);
        let half = |shape: &[usize]| TensorType::fixed(DType::F16, shape);
        let flat = f.input("x", half(&[shape[0], shape[1] * shape[2], 1, shape[3]]));
        let [cos, sin] = ["cos", "sin"].map(|name| f.input(name, half(&[tables, 1, dims, shape[3]])));
        let x = f.op("reshape").arg("x", flat).arg("shape", shape.map(|size| size as i32)).push().unwrap();
        let turning = if dims < shape[2] { slice(&mut f, x, axis, [0, dims]) } else { x };
        let middle = if axis == WIDTH { dims } else { shape[axis] } / 2;
        let low = slice(&mut f, turning, axis, [0, middle]);
        let high = slice(&mut f, turning, axis, [middle, 2 * middle]);
        let negative = binary(&mut f, "mul", high, f16::from_f32(minus));
        let crossed = join(&mut f, [negative, low], axis);
        let along = binary(&mut f, "mul", turning, cos);
        let across = binary(&mut f, "mul", crossed, sin);
        let mut out = binary(&mut f, "add", along, across);
        if dims < shape[2] {
            let still = slice(&mut f, x, axis, [dims, shape[2]]);
            out = join(&mut f, [out, still], axis);
        }
        if let Some(scale) = scale {
            out = binary(&mut f, "mul", out, f16::from_f32(scale));
        }
        let outputs = [out, across];
        f.finish(&outputs[..if shown { 2 } else { 1 }])
    }

    fn run(form: Form, shown: bool) -> (Vec<f32>, Vec<String>) {
        let Form { shape: [batch, heads, width, tokens], dims, tables, .. } = form;
        let x = halves(&[batch, heads * width, 1, tokens], |i| ((i * 37 % 101) as f32 - 50.0) * 0.1);
        let cos = halves(&[tables, 1, dims, tokens], |i| (i as f32 * 0.3).cos());
        let sin = halves(&[tables, 1, dims, tokens], |i| (i as f32 * 0.3).sin());
        executed_with(rotation(form, shown), &[("x", &x), ("cos", &cos), ("sin", &sin)])
    }

    #[test]
    fn rope_in_one_step_gives_what_the_steps_give() {
        for (shape, dims, tables) in [
            ([1, 9, 64, 1], 64, 1),
            ([1, 3, 64, 19], 64, 1),
            ([2, 3, 10, 1], 10, 2),
            ([3, 2, 16, 7], 6, 3),
            ([2, 1, 24, 1], 8, 1),
            ([1, 1, 32, 5], 32, 1),
        ] {
            for scale in [None, Some(0.125)] {
                let form = Form { shape, dims, tables, scale, ..FORM };
                let (fused, kinds) = run(form, false);
                assert_eq!(kinds, ["rope (fused)"], "{shape:?}");
                let (plain, kinds) = run(form, true);
                assert!(!kinds.contains(&"rope (fused)".to_owned()));
                // Products and the sum of them are each rounded by half of 2^-10 of at most 5, and then scaled.
                let bound = 3.0 * 5.0 / 2048.0 * scale.unwrap_or(1.0);
                for (fused, plain) in fused.iter().zip(&plain) {
                    assert!((fused - plain).abs() <= bound, "{shape:?}: {fused} for {plain}");
                }
            }
        }
    }

    #[test]
    fn dimensions_after_those_of_one_head_stay_as_they_are() {
        let (_, kinds) = run(Form { shape: [1, 1, 24, 3], dims: 8, ..FORM }, false);
        assert_eq!(kinds, ["rope (fused)", "concat"]);
    }

    #[test]
    fn what_is_no_rotation_is_left_alone() {
        let fused = "rope (fused)".to_owned();
        assert!(run(FORM, false).1.contains(&fused));
        for form in [
            Form { minus: 1.0, ..FORM },
            Form { axis: 1, shape: [2, 4, 16, 5], ..FORM },
            Form { axis: 3, shape: [2, 3, 16, 6], ..FORM },
        ] {
            assert!(!run(form, false).1.contains(&fused));
        }
    }
}
